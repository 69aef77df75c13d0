//! The supervisor itself: what it offers, how it is, whether it should be given work.

use crate::ended::Failure;
use crate::offload::{RequestContext, documented};
use crate::problem::Problem;
use crate::request::{Request, quoted};
use crate::respond::{IntoResponse, Json, Response};
use crate::server::Server;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::service::Reply;
use std::time::{Duration, Instant};

/// If the loop is later than this for a timer, it has more to do than it can.
const LAG_MAX: Duration = Duration::from_millis(250);

pub(super) fn mount(server: &Server) {
    server.get("/v1/status", |_, context| async move {
        context.in_turn(|| document(context.service().status())).await
    });
    server.get("/v1/tasks", |_, context| async move {
        context.in_turn(|| document(context.service().tasks())).await
    });
    server.get("/v1/tasks/{task}", |request, context| async move { task(&request, &context) });
    server.get("/healthz", |_, _| async { "ok\n" });
    server.get("/readyz", |_, context| async move { readiness(&context).await });
}

fn document(reply: Reply) -> Result<Response, Failure> {
    Ok(Json(&*documented(reply)?).into_response())
}

fn task(request: &Request, context: &RequestContext) -> Result<Response, Failure> {
    let name = request.parameter("task").unwrap_or("");
    match context.service().task(name) {
        Some(task) => Ok(Json(task).into_response()),
        None => Err(Failure::from(Problem::new(
            OutcomeCode::UnknownTask,
            format!("no worker offers {}: /v1/tasks lists what there is", quoted(name)),
        ))),
    }
}

/// 200 if a job would be taken and soon begun as far as this process is concerned.
///
/// # Errors
/// Why not, with status 503.
async fn readiness(context: &RequestContext) -> Result<Response, Problem> {
    let before = Instant::now();
    context.event_loop().sleep(Duration::from_millis(1)).await;
    let lag = before.elapsed();
    let why_not = match context.service().state() {
        "running" if lag <= LAG_MAX => return Ok("ready\n".into_response()),
        "running" => format!("the event loop is {} ms late", lag.as_millis()),
        state => format!("the supervisor is {state}"),
    };
    Err(Problem::new(OutcomeCode::Unavailable, why_not))
}

//! Jobs as resources: their state, their end, their output.

use super::headers::seconds;
use crate::ended::{Failure, finished};
use crate::offload::{RequestContext, TICKET, documented};
use crate::problem::Problem;
use crate::request::{Request, quoted};
use crate::respond::{IntoResponse, Json, Response};
use crate::server::Server;
use http::Method;
use offload_protocol::messages::View;
use offload_protocol::nouns::{OutcomeCode, Report};
use offload_supervisor::limits::PAGE_ROWS_MAX;
use offload_supervisor::service::Reply;
use offload_supervisor::views::Row;
use serde_json::{Value, json};

pub(super) fn mount(server: &Server) {
    server.get("/v1/jobs", |request, context| async move { list(View::Jobs, &request, &context) });
    server.get("/v1/workers", |request, context| async move { list(View::Workers, &request, &context) });
    server.get("/v1/jobs/{id}", |request, context| async move { show(&request, &context).await });
    server.get("/v1/jobs/{id}/output", |request, context| async move { output(&request, &context) });
    let cancel = |request: Request, context: RequestContext| async move { cancel(&request, &context) };
    server.route(Method::DELETE, "/v1/jobs/{id}", cancel).expect("the path of a route");
}

pub(super) fn id(request: &Request) -> String {
    request.parameter("id").unwrap_or("").to_owned()
}

/// The state of a job, or with `?wait=N` its state at its end, if that comes within so many seconds.
async fn show(request: &Request, context: &RequestContext) -> Result<Response, Failure> {
    let id = id(request);
    let wait = request.query("wait").map(|text| seconds(&text, "wait")).transpose()?;
    if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
        let (session, answers) = context.open();
        match session.wait(TICKET, &id) {
            Some(Reply::Refusal(error)) => return Err(Failure::refused(&error)),
            Some(_) => {}
            None => drop(answers.next_within(&context.clock, wait).await),
        }
    }
    Ok(Json(document(&id, context)?).into_response())
}

/// All that is known of a job; where to get its output, if it is kept.
///
/// # Errors
/// There is no such job.
pub(super) fn document(id: &str, context: &RequestContext) -> Result<Value, Failure> {
    let service = context.service();
    let explanation = documented(service.explain(id))?;
    let mut document = serde_json::to_value(&*explanation).unwrap_or_default();
    let ended = match service.result(id) {
        Reply::Report(report) => Some(report.finished.report.clone()),
        _ => None,
    };
    if let (Some(fields), Some(report)) = (document.as_object_mut(), ended) {
        fields.extend(end_of(id, &report));
    }
    Ok(document)
}

fn end_of(id: &str, report: &Report) -> serde_json::Map<String, Value> {
    let mut fields = serde_json::Map::new();
    fields.insert("outcome".to_owned(), json!(report.outcome.as_str()));
    fields.insert("attempts".to_owned(), json!(report.attempts));
    fields.insert("receipt".to_owned(), json!(report.receipt));
    match &report.error {
        None => fields.insert("output".to_owned(), json!(format!("/v1/jobs/{id}/output"))),
        Some(error) => fields.insert(
            "error".to_owned(),
            json!({"code": error.code.as_str(), "message": error.message, "signal": error.signal, "exit_code": error.exit_code}),
        ),
    };
    fields
}

/// The output of a job that has ended, or why there is none. Looking at it changes nothing: it is kept as long as it would be.
fn output(request: &Request, context: &RequestContext) -> Result<Response, Failure> {
    let id = id(request);
    match context.service().result(&id) {
        Reply::Report(mut report) => {
            report.collection = None;
            Ok(finished(*report)?.into_response())
        }
        Reply::Refusal(error) if error.code == OutcomeCode::Unavailable => {
            let detail = "the job has not ended: ask for it with ?wait=N".to_owned();
            let mut problem =
                Problem::with_status(http::StatusCode::CONFLICT, OutcomeCode::Unavailable, detail);
            problem.job = Some(id);
            Err(Failure::from(problem))
        }
        other => Err(Failure::unexpected(&other)),
    }
}

fn cancel(request: &Request, context: &RequestContext) -> Result<Response, Failure> {
    Ok(Json(&*documented(context.service().give_up(&id(request)))?).into_response())
}

/// `{"rows": [...], "next": "..."}`: `?after=` is the `next` of the page before, `?limit=` the most rows, `?label=` of jobs.
pub(super) fn list(view: View, request: &Request, context: &RequestContext) -> Result<Response, Failure> {
    let after = request.query("after").unwrap_or_default();
    let label = request.query("label").unwrap_or_default();
    let limit = match request.query("limit") {
        Some(text) => text.parse::<usize>().map_err(|_| {
            Problem::new(OutcomeCode::BadRequest, format!("limit is a number, not {}", quoted(&text)))
        })?,
        None => PAGE_ROWS_MAX,
    };
    let write = |row: Row| Some(serde_json::to_value(row).unwrap_or_default());
    let page = context.service().page(view, &label, &after, limit.max(1), write);
    match page {
        Ok(page) => Ok(Json(json!({"rows": page.rows, "next": page.next})).into_response()),
        Err(error) => Err(Failure::refused(&error)),
    }
}

//! Jobs as resources: their state, their end, their output.

use super::headers::{wait_of, whole_number};
use crate::ended::{Failure, finished};
use crate::limits::SHOWN_OUTPUT_MAX;
use crate::offload::{RequestContext, TICKET, documented};
use crate::problem::Problem;
use crate::request::{Request, quoted};
use crate::respond::{IntoResponse, Json, Response};
use crate::server::Server;
use http::Method;
use offload_protocol::messages::View;
use offload_protocol::nouns::{MediaType, OutcomeCode, Receipt, Report};
use offload_supervisor::JsonOutput;
use offload_supervisor::limits::PAGE_ROWS_MAX;
use offload_supervisor::service::{Document, Reply, Session};
use offload_supervisor::views::{ExplanationView, Row};
use serde::Serialize;
use serde_json::json;

pub(super) fn mount(server: &Server) {
    server.get("/v1/jobs", |request, context| async move { list(View::Jobs, &request, &context).await });
    server
        .get("/v1/workers", |request, context| async move { list(View::Workers, &request, &context).await });
    server.get("/v1/jobs/{id}", |request, context| {
        // While it waits, nothing of the request is kept.
        let (id, wait) = (id(&request), request.query("wait"));
        async move { show(&id, wait, &context).await }
    });
    server.get("/v1/jobs/{id}/output", |request, context| async move { output(&request, &context) });
    let cancel = |request: Request, context: RequestContext| async move { cancel(&request, &context) };
    server.route(Method::DELETE, "/v1/jobs/{id}", cancel).expect("the path of a route");
}

fn bad(detail: String) -> Problem {
    Problem::new(OutcomeCode::BadRequest, detail)
}

pub(super) fn id(request: &Request) -> String {
    request.parameter("id").unwrap_or("").to_owned()
}

/// The state of a job, or with `?wait=N` its state at its end, if that comes within so many seconds.
async fn show(id: &str, wait: Option<String>, context: &RequestContext) -> Result<Response, Failure> {
    let no_wait = |text: &str| bad(format!("wait is a whole number of seconds, not {}", quoted(text)));
    let wait = wait.map(|text| wait_of(&text).ok_or_else(|| no_wait(&text))).transpose()?;
    if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
        let (session, answers) = context.open();
        if is_awaited(&session, id)? {
            drop(answers.next_within(&context.clock, wait).await);
        }
    }
    context.in_turn(|| Ok(Json(document(id, context)?).into_response())).await
}

/// Waits for the end of a job. False if there is nothing to wait for: it has ended, or there is no such job.
///
/// # Errors
/// So many wait already that this one may not.
pub(super) fn is_awaited(session: &Session, id: &str) -> Result<bool, Failure> {
    match session.wait(TICKET, id) {
        None => Ok(true),
        Some(Reply::Refusal(error)) if error.code == OutcomeCode::Overloaded => Err(Failure::refused(&error)),
        // What is known of its end is asked for elsewhere, whether its output is kept or not.
        Some(_) => Ok(false),
    }
}

/// All that is known of a job.
#[derive(Serialize)]
pub(super) struct JobDocument {
    #[serde(flatten)]
    pub(super) explanation: ExplanationView,
    #[serde(flatten)]
    end: Option<End>,
}

/// How it ended.
#[derive(Serialize)]
struct End {
    outcome: &'static str,
    receipt: Receipt,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<JobError>,
    #[serde(flatten)]
    kept: Option<KeptOutput>,
}

#[derive(Serialize)]
struct JobError {
    code: &'static str,
    message: String,
    signal: Option<i32>,
    exit_code: Option<i32>,
}

/// An output that is kept: where it is, and itself if it is small.
#[derive(Serialize)]
struct KeptOutput {
    #[serde(flatten)]
    shown: Option<JsonOutput>,
    content_type: MediaType,
    output_location: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_bytes: Option<usize>,
}

/// All that is known of a job.
///
/// # Errors
/// There is no such job.
pub(super) fn document(id: &str, context: &RequestContext) -> Result<JobDocument, Failure> {
    let service = context.service();
    let explanation = match *documented(service.explain(id))? {
        Document::Explanation(explanation) => explanation,
        other => return Err(Failure::unexpected(&Reply::Document(Box::new(other)))),
    };
    let end = service.end_of_job(id).map(|(report, output)| end_of(report, output.as_deref()));
    Ok(JobDocument { explanation, end })
}

fn end_of(report: Report, output: Option<&[u8]>) -> End {
    let Report { job, outcome, error, receipt, media_type, .. } = report;
    let kept = output.filter(|_| error.is_none()).map(|output| KeptOutput::of(&job, media_type, output));
    let error = error.map(|error| JobError {
        code: error.code.as_str(),
        message: error.message,
        signal: error.signal,
        exit_code: error.exit_code,
    });
    End { outcome: outcome.as_str(), receipt, error, kept }
}

impl KeptOutput {
    fn of(job: &str, content_type: MediaType, output: &[u8]) -> KeptOutput {
        let is_shown = output.len() <= SHOWN_OUTPUT_MAX;
        KeptOutput {
            shown: is_shown.then(|| JsonOutput::of(&content_type, output)),
            content_type,
            output_location: format!("/v1/jobs/{job}/output"),
            output_bytes: (!is_shown).then_some(output.len()),
        }
    }
}

/// The output of a job that has ended, or why there is none. Looking at it changes nothing: it is kept as long as it would be.
fn output(request: &Request, context: &RequestContext) -> Result<Response, Failure> {
    let id = id(request);
    let service = context.service();
    match service.result(&id, &service.account(&context.asker)) {
        Reply::Report(mut report) => {
            report.collection = None;
            Ok(finished(*report)?.into_response())
        }
        Reply::Refusal(error) if error.code == OutcomeCode::Unavailable => {
            let detail = format!("the job has not ended: GET /v1/jobs/{id}?wait=N waits for its end");
            let problem = Problem::new(OutcomeCode::Conflict, detail);
            Err(Failure::from(Problem { job: Some(id), ..problem }))
        }
        other => Err(Failure::unexpected(&other)),
    }
}

fn cancel(request: &Request, context: &RequestContext) -> Result<Response, Failure> {
    Ok(Json(&*documented(context.service().give_up(&id(request)))?).into_response())
}

/// `{"rows": [...], "next": "..."}`: `?after=` is the `next` of the page before, `?limit=` the most rows, `?label=` of jobs.
pub(super) async fn list(
    view: View,
    request: &Request,
    context: &RequestContext,
) -> Result<Response, Failure> {
    let after = request.query("after").unwrap_or_default();
    let label = request.query("label").unwrap_or_default();
    let limit = match request.query("limit") {
        Some(text) => {
            let number = whole_number(&text).filter(|number| *number > 0);
            let number =
                number.ok_or_else(|| bad(format!("limit is a number from 1 on, not {}", quoted(&text))))?;
            usize::try_from(number).unwrap_or(usize::MAX)
        }
        None => PAGE_ROWS_MAX,
    };
    let write = |row: Row| Some(serde_json::to_value(row).unwrap_or_default());
    let page = || match context.service().page(view, &label, &after, limit, write) {
        Ok(page) => Ok(Json(json!({"rows": page.rows, "next": page.next})).into_response()),
        Err(error) => Err(Failure::refused(&error)),
    };
    context.in_turn(page).await
}

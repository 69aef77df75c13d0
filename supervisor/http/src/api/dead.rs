//! Dead letters as resources: jobs that were given up because they ended their workers.

use super::jobs::{id, list};
use crate::ended::Failure;
use crate::offload::{RequestContext, documented};
use crate::request::Request;
use crate::respond::{IntoResponse, Json, Response};
use crate::server::Server;
use http::Method;
use offload_protocol::messages::{DeadLetterAction, View};

pub(super) fn mount(server: &Server) {
    server.get("/v1/dead", |request, context| async move { list(View::Dead, &request, &context).await });
    let routes = [
        (Method::GET, "/v1/dead/{id}", DeadLetterAction::Show),
        (Method::DELETE, "/v1/dead/{id}", DeadLetterAction::Drop),
        (Method::POST, "/v1/dead/{id}/retry", DeadLetterAction::Retry),
    ];
    for (method, path, action) in routes {
        let handler = move |request: Request, context: RequestContext| async move {
            context.in_turn(|| act(action, &request, &context)).await
        };
        server.route(method, path, handler).expect("the path of a route");
    }
}

/// A retry is a new job of this client, whose result is kept.
fn act(action: DeadLetterAction, request: &Request, context: &RequestContext) -> Result<Response, Failure> {
    let (session, _) = context.open();
    Ok(Json(&*documented(session.dead_letter(action, &id(request)))?).into_response())
}

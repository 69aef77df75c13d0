//! Requests that a table of routes answers.
//!
//! ```text
//!   routes of the server ---- none fits ----> the table: its route says what is run, and how
//! ```

use super::headers::{Preference, describe, metadata, preference, with_trace};
use super::tasks::{Answer, Order, carry_out, trace_of, traced};
use super::{own_fields, parts};
use crate::ended::Failure;
use crate::offload::RequestContext;
use crate::problem::Problem;
use crate::request::Request;
use crate::respond::{IntoResponse, Response};
use crate::route_table::{Route, RouteAuth, RouteMode, SharedRoutes};
use crate::router::Found;
use crate::server::{Handler, Server};
use http::header::{ACCEPT, HeaderMap, HeaderValue};
use offload_protocol::nouns::{MediaType, Metadata, OutcomeCode};
use offload_supervisor::Job;
use std::future::ready;
use std::rc::Rc;
use std::sync::Arc;

/// The request is for a route that needs no token. It is among the extensions of the request's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NeedsNoToken;

impl Server {
    /// Answers requests by the routes of this table, too, as it is when they come. Those that were added one by one go first.
    pub fn mount_routes(&self, routes: SharedRoutes) {
        self.look_up(move |head| match routes.find(&head.method, head.uri.path()) {
            Found::Handler(route, parameters) => {
                if route.auth == RouteAuth::None {
                    head.extensions.insert(NeedsNoToken);
                }
                Found::Handler(handler(route), parameters)
            }
            Found::OtherMethods(methods) => Found::OtherMethods(methods),
            Found::Nothing => Found::Nothing,
        });
    }
}

fn handler(route: Arc<Route>) -> Handler {
    Rc::new(move |request, context| {
        let hides_causes = hides_causes(&route);
        let (trace, answer) = (trace_of(&request), answer(&route, request, context));
        Box::pin(call(Arc::clone(&route), trace, answer, hides_causes))
    })
}

/// Whether the client may not know what processes of this machine say. On a route that needs no token nobody is recognized, whatever the
/// socket is: behind a process of the same user there may be a proxy, with clients from anywhere.
fn hides_causes(route: &Route) -> bool {
    route.auth == RouteAuth::None
}

async fn call(route: Arc<Route>, trace: Option<HeaderValue>, answer: Answer, hides_causes: bool) -> Response {
    let hide = |failure: Failure| if hides_causes { failure.without_cause() } else { failure };
    let mut response = traced(trace, answer.await.map_err(hide));
    if response.status().is_success() {
        // Several of one name take the place of what is there together.
        let fields: HeaderMap = route.headers.iter().cloned().collect();
        response.headers_mut().extend(fields);
    }
    response
}

fn answer(route: &Route, mut request: Request, context: RequestContext) -> Answer {
    if !route.takes(request.body.media_type()) {
        context.service().count_refused(OutcomeCode::Unsupported);
        return Answer::of(ready(Ok(not_accepted(route, request.body.media_type()))));
    }
    if let Some(most) = route.max_body {
        request.body.set_max(most);
    }
    match order(route, &request) {
        Ok(order) => carry_out(order, request, context),
        Err(problem) => Answer::of(ready(Err(problem.into()))),
    }
}

fn not_accepted(route: &Route, media_type: &MediaType) -> Response {
    let accepted: Vec<&str> = route.accepts.iter().map(MediaType::as_str).collect();
    let accepted = accepted.join(", ");
    let detail = format!("{} takes {accepted}, not {media_type}", route.path);
    let mut response = Problem::new(OutcomeCode::Unsupported, detail).into_response();
    response.headers_mut().extend(HeaderValue::from_str(&accepted).ok().map(|accepted| (ACCEPT, accepted)));
    response
}

/// What the route says, and what it leaves to the client.
fn order(route: &Route, request: &Request) -> Result<Order, Problem> {
    let is_trusted = route.auth == RouteAuth::Token;
    if is_trusted {
        own_fields::check(request.headers())?;
    }
    let (mut job, own) = match is_trusted {
        true => (describe(request, Job::new(&route.task))?, metadata(request)?),
        false => (Job::new(&route.task), Metadata::default()),
    };
    let metadata = with_parameters(&own, route, request)?;
    job = job.metadata(if is_trusted { with_trace(metadata, request) } else { metadata });
    if let Some(timeout) = route.timeout {
        job = job.timeout(timeout);
    }
    if let Some(priority) = route.priority {
        job = job.priority(priority);
    }
    let (preference, stream) = match (route.mode, is_trusted) {
        (RouteMode::Sync, true) => (preference(request.headers()), parts::wanted(request)?),
        (RouteMode::Sync, false) => (Preference::default(), parts::wanted(request)?),
        (RouteMode::Async, _) => (Preference { is_async: true, wait: None }, None),
    };
    let hides_causes = hides_causes(route);
    Ok(Order { job, preference, stream, is_cancelled: route.cancel_on_disconnect, hides_causes })
}

fn with_parameters(own: &Metadata, route: &Route, request: &Request) -> Result<Metadata, Problem> {
    let names = route.query.iter().map(String::as_str);
    let query: Vec<(&str, String)> = names.filter_map(|name| Some((name, request.query(name)?))).collect();
    let query = query.iter().map(|(name, value)| (*name, value.as_str()));
    let pairs: Vec<(&str, &str)> = own.iter().chain(request.parameters.iter()).chain(query).collect();
    Metadata::new(&pairs).map_err(|error| Problem::new(OutcomeCode::BadRequest, error.to_string()))
}

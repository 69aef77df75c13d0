//! How a request is answered.
//!
//! ```text
//!   head ---> client: whom a trusted proxy names ---> route ---> checks ---> handler ---> response, as pages may see it
//!     '-------------------------------------------- its line in the access log, when all is over -----'
//! ```

use super::holders::{Hold, Holders};
use super::{Handler, HandlerFuture, Inner, client_key};
use crate::access_log::Logged;
use crate::api::{TokenNumber, needs_no_token};
use crate::body::RequestBody;
use crate::connection::Answer;
use crate::cors::{Grant, Preflight, mark_preflight, preflight_response};
use crate::ended::{Failure, header};
use crate::limits::{FIELDS_MAX, GUESSES_MAX, TARGET_MAX};
use crate::offload::RequestContext;
use crate::panics::caught;
use crate::patience::{Patience, RequestMark};
use crate::problem::{METHOD_NOT_ALLOWED, NOT_FOUND, Problem, title};
use crate::protection::protect;
use crate::refused::Refused;
use crate::request::{Remote, Request, one};
use crate::respond::{IntoResponse, Response};
use crate::router::{Found, Parameters};
use http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION};
use http::request::Parts;
use http::{Method, StatusCode};
use hyper::ext::ReasonPhrase;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::service::{Asker, InFlight, Service};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};

/// In the log.
const HANDLER: &str = "the handler of an HTTP request";

/// A request whose response is being made. Dropping it means that its client is gone.
pub(crate) struct Answering {
    response: Pending,
    lease: Lease,
    request: Weak<RequestMark>,
    service: Service,
    /// In a box: most servers do nothing with a response.
    after: Option<Box<After>>,
}

enum Pending {
    /// In a box, because few requests have it.
    Ready(Box<Response>),
    Later(HandlerFuture),
}

/// How long a request may wait.
enum Lease {
    Endless,
    /// As long as this token is valid. Nearly all that have it are answered without being looked at again.
    Token(TokenNumber, Rc<Holders>),
    Held(Rc<Hold>),
}

impl Lease {
    /// Whether it is over. If not, the task is woken when it is.
    fn is_over(&mut self, context: &Context<'_>) -> bool {
        if let Lease::Token(token, holders) = self {
            *self = Lease::Held(holders.hold(*token));
        }
        let Lease::Held(hold) = self else { return false };
        hold.wait(context);
        hold.is_over()
    }

    /// For a response that is a stream.
    fn hold(self) -> Option<Rc<Hold>> {
        match self {
            Lease::Endless => None,
            Lease::Token(token, holders) => Some(holders.hold(token)),
            Lease::Held(hold) => Some(hold),
        }
    }
}

/// What is done with a response.
struct After {
    /// Its line in the access log, which is written when this is dropped.
    logged: Option<Logged>,
    /// What pages may see of it; whether it answers a preflight.
    grant: Option<(Grant, bool)>,
}

impl After {
    fn follow(self, response: &mut Response) {
        if let Some((grant, is_preflight)) = self.grant {
            grant.add_to(response, is_preflight);
        }
        if let Some(mut logged) = self.logged {
            logged.answered(response);
            response.body_mut().log(logged);
        }
    }
}

impl Answer for Inner {
    fn answer(&self, mut head: Parts, body: RequestBody, remote: Remote) -> Answering {
        let edge = Rc::clone(&self.edge.borrow());
        let client = match remote {
            Remote::Address(peer) => Some(edge.proxies.client(&head.headers, peer.ip()).unwrap_or(peer.ip())),
            Remote::Process(_) | Remote::Stranger(_) => None,
        };
        mark_preflight(&mut head);
        let found = self.find(&mut head);
        let logged = edge.access_log.as_ref().map(|log| log.begin(&head, name_in_log(client, remote)));
        let grant = edge.cors.grant(&head).map(|grant| (grant, head.extensions.get::<Preflight>().is_some()));
        let (lease, request) = (self.lease(&head, remote), Rc::downgrade(body.request()));
        let response = match self.respond(head, body, found, (remote, client)) {
            Ok(later) => Pending::Later(later),
            Err(response) => Pending::Ready(Box::new(response)),
        };
        let is_plain = logged.is_none() && grant.is_none();
        let after = (!is_plain).then(|| Box::new(After { logged, grant }));
        Answering { response, lease, request, service: self.service.clone(), after }
    }

    fn begin(&self) -> InFlight {
        self.service.begin_request()
    }

    fn refused(&self, refused: Refused, remote: Remote) {
        self.traffic.answer(StatusCode::from_u16(refused.status).unwrap_or(StatusCode::BAD_REQUEST));
        let edge = Rc::clone(&self.edge.borrow());
        if let Some(log) = &edge.access_log {
            let address = if let Remote::Address(peer) = remote { Some(peer.ip()) } else { None };
            log.refused(name_in_log(address, remote), refused);
        }
    }

    fn is_draining(&self) -> bool {
        self.is_draining.get()
    }

    fn wakes(&self, connection: u64, waker: &Waker) {
        if let Some(connection) = self.connections.borrow_mut().get_mut(&connection) {
            connection.waker = Some(waker.clone());
        }
    }
}

impl Inner {
    /// The handler of a request. If there is none for its method, but some for others, these are told all together.
    fn find(&self, head: &mut Parts) -> Found<Handler> {
        // A preflight asks for another one than its own.
        let asked = head.extensions.get::<Preflight>().map(|Preflight(method)| method.clone());
        let own = asked.map(|method| std::mem::replace(&mut head.method, method));
        let mut found = self.registered.borrow().router.find(&head.method, head.uri.path());
        if !matches!(found, Found::Handler(..)) {
            let look_ups = self.registered.borrow().look_ups.clone();
            for look_up in look_ups {
                found = found.or(look_up(head));
                // Another one would say of this request what holds for its own routes, such as that it needs no token.
                if matches!(found, Found::Handler(..)) {
                    break;
                }
            }
        }
        head.method = own.unwrap_or_else(|| head.method.clone());
        found
    }

    /// The response that comes later: that of the handler, or the refusal of a guess. What anybody may learn is said first, and what is
    /// found only to whoever passes the checks.
    ///
    /// # Errors
    /// The response, if it is there at once.
    fn respond(
        &self,
        head: Parts,
        body: RequestBody,
        found: Found<Handler>,
        (remote, client): (Remote, Option<IpAddr>),
    ) -> Result<HandlerFuture, Response> {
        check_bounds(&head).map_err(IntoResponse::into_response)?;
        // The connection is about to end, but over HTTP/2 that is up to the client: it learns nothing more.
        if body.patience().is_barred() {
            let problem = Problem::new(OutcomeCode::Unauthenticated, "too many wrong tokens were shown");
            return Err(problem.into_response());
        }
        if let Err(problem) = self.check_all(&head, remote) {
            let is_guess = problem.status == 401 && head.headers.contains_key(AUTHORIZATION);
            return if is_guess {
                self.refuse_guess(problem, &body, remote)
            } else {
                Err(problem.into_response())
            };
        }
        self.recognize(&head, body.patience(), remote);
        let (handler, parameters) = handler_of(found, &head)?;
        if let Some(Preflight(method)) = head.extensions.get::<Preflight>() {
            return Err(preflight_response(&head, method));
        }
        if let Err(detail) = one(&head.headers, &CONTENT_TYPE) {
            return Err(Problem::new(OutcomeCode::BadRequest, detail).into_response());
        }
        let asker = self.asker(&head, (remote, client)).map_err(IntoResponse::into_response)?;
        let context = self.context(&body, asker, remote);
        let request = Request { head, parameters, body, remote, client };
        caught(&self.service, HANDLER, || handler(request, context))
            .ok_or_else(|| panic_problem().into_response())
    }

    /// # Errors
    /// What the first check says that refuses the request, or that one has panicked.
    fn check_all(&self, head: &Parts, remote: Remote) -> Result<(), Problem> {
        let checks = Rc::clone(&self.registered.borrow().checks);
        let check = || checks.iter().try_for_each(|check| check(head, remote));
        caught(&self.service, "the check of an HTTP request", check).unwrap_or_else(|| Err(panic_problem()))
    }

    /// The request has passed the checks. If not everybody is let in with it, its client is known from now on.
    fn recognize(&self, head: &Parts, patience: &Patience, remote: Remote) {
        if !patience.is_known() && !needs_no_token(head) {
            let connection = patience.recognize();
            self.crowds.borrow_mut().recognize(client_key(remote), connection);
        }
    }

    /// By which token the client is let in, if by any.
    fn lease(&self, head: &Parts, remote: Remote) -> Lease {
        if matches!(remote, Remote::Process(_)) || needs_no_token(head) {
            return Lease::Endless;
        }
        let shown = head.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let token = shown.and_then(|shown| self.holders.token(shown));
        token.map_or(Lease::Endless, |token| Lease::Token(token, Rc::clone(&self.holders)))
    }

    fn context(&self, body: &RequestBody, asker: Rc<Asker>, remote: Remote) -> RequestContext {
        RequestContext {
            service: self.service.clone(),
            handle: self.handle.clone(),
            clock: self.keeper.clock.clone(),
            remote,
            asker,
            cancels_on_disconnect: self.edge.borrow().cancels_on_disconnect,
            rooms: Rc::clone(&self.rooms),
            documents: Rc::clone(&self.documents),
            patience: Rc::clone(body.patience()),
            pass: body.request().pass(),
            request: Rc::downgrade(body.request()),
        }
    }
}

impl Inner {
    /// The answer to a wrong token, perhaps later.
    fn refuse_guess(
        &self,
        problem: Problem,
        body: &RequestBody,
        remote: Remote,
    ) -> Result<HandlerFuture, Response> {
        let patience = Rc::clone(body.patience());
        if patience.guess_was_wrong() {
            let log = self.service.log();
            log.warn(format_args!("{remote} has shown {GUESSES_MAX} wrong tokens over one HTTP connection"));
        }
        let delay = self.guesses.delay(self.keeper.clock.now());
        if delay.is_zero() {
            return Err(problem.into_response());
        }
        let clock = self.keeper.clock.clone();
        Ok(Box::pin(async move {
            let _delayed = patience.delay();
            clock.sleep(delay).await;
            problem.into_response()
        }))
    }
}

/// The handler that was found, with the parameters of its path.
///
/// # Errors
/// The response, if there is none.
fn handler_of(found: Found<Handler>, head: &Parts) -> Result<(Handler, Parameters), Response> {
    match found {
        Found::Handler(handler, parameters) => Ok((handler, parameters)),
        Found::OtherMethods(methods) => Err(other_methods(head, &methods)),
        Found::Nothing if head.method == Method::OPTIONS && head.uri.path() == "*" => {
            Err(StatusCode::NO_CONTENT.into_response())
        }
        Found::Nothing => {
            let detail = format!("there is nothing at {}", head.uri.path());
            let problem = Problem::with_status(StatusCode::NOT_FOUND, OutcomeCode::BadRequest, detail);
            Err(Problem { code: NOT_FOUND, ..problem }.into_response())
        }
    }
}

/// Over HTTP/1 the guard has seen to it; over HTTP/2 there is no other place.
///
/// # Errors
/// What no head may have.
fn check_bounds(head: &Parts) -> Result<(), Problem> {
    if matches!(head.method, Method::CONNECT | Method::TRACE) {
        let detail = format!("the method {} is not supported", head.method);
        return Err(Problem::with_status(StatusCode::NOT_IMPLEMENTED, OutcomeCode::Unsupported, detail));
    }
    let target = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    let (status, detail) = if target > TARGET_MAX {
        (StatusCode::URI_TOO_LONG, format!("the target is longer than {TARGET_MAX} bytes"))
    } else if head.headers.len() > FIELDS_MAX {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        (status, format!("there are more than {FIELDS_MAX} header fields"))
    } else {
        return Ok(());
    };
    Err(Problem::with_status(status, OutcomeCode::TooLarge, detail))
}

/// The client as the access log has it: one word.
fn name_in_log(client: Option<IpAddr>, remote: Remote) -> String {
    match (client, remote.process()) {
        (Some(address), _) => address.to_string(),
        (None, Some(process)) => format!("unix:{process}"),
        (None, None) => "unix".to_owned(),
    }
}

impl Future for Answering {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        let Answering { response, service, lease, request, .. } = &mut *self;
        let mut response = match response {
            Pending::Ready(response) => std::mem::take(&mut **response),
            Pending::Later(later) => {
                let polled = caught(service, HANDLER, || later.as_mut().poll(context));
                match polled {
                    Some(Poll::Pending) if lease.is_over(context) => {
                        // Its handler is dropped, as if the client was gone.
                        *response = Pending::Ready(Box::default());
                        token_is_gone(request)
                    }
                    Some(polled) => ready!(polled),
                    // A handler that panics costs its own request and nothing else.
                    None => panic_problem().into_response(),
                }
            }
        };
        complete(&mut response);
        if response.body().is_stream() {
            let hold = std::mem::replace(lease, Lease::Endless).hold();
            response.body_mut().hold(hold);
        }
        if let Some(after) = self.after.take() {
            after.follow(&mut response);
        }
        Poll::Ready(response)
    }
}

/// Adds to the response what every one has: fields for browsers and caches, and words beside its status.
fn complete(response: &mut Response) {
    protect(response.headers_mut());
    if response.status().canonical_reason().is_none() && response.extensions().get::<ReasonPhrase>().is_none()
    {
        let words = ReasonPhrase::from_static(title(response.status()).as_bytes());
        response.extensions_mut().insert(words);
    }
}

fn other_methods(head: &Parts, methods: &[Method]) -> Response {
    // Where something can be got, its head can be, too; and everybody may ask which methods there are.
    let own = methods.iter().flat_map(|method| match *method {
        Method::GET => vec!["GET", "HEAD"],
        _ => vec![method.as_str()],
    });
    let names: Vec<&str> = own.chain(["OPTIONS"]).collect();
    let allow = HeaderValue::from_str(&names.join(", ")).unwrap_or_else(|_| HeaderValue::from_static(""));
    let mut response = match head.method == Method::OPTIONS {
        true => StatusCode::NO_CONTENT.into_response(),
        false => {
            let detail = format!("{} allows {}, not {}", head.uri.path(), names.join(", "), head.method);
            let status = StatusCode::METHOD_NOT_ALLOWED;
            let problem = Problem::with_status(status, OutcomeCode::BadRequest, detail);
            Problem { code: METHOD_NOT_ALLOWED, ..problem }.into_response()
        }
    };
    response.headers_mut().insert(ALLOW, allow);
    response
}

/// The client is told which job goes on without it, and where that is, if it would have been told.
fn token_is_gone(request: &Weak<RequestMark>) -> Response {
    let goes_on = request.upgrade().and_then(|request| request.job_that_goes_on());
    let detail = match goes_on {
        Some(_) => "the token of this request is no longer valid; its job goes on",
        None => "the token of this request is no longer valid",
    };
    let (job, place) = goes_on.map_or((None, None), |it| (Some(it.job), it.place));
    let problem = Problem { job, ..Problem::new(OutcomeCode::Unauthenticated, detail) };
    let mut response = Failure::from(problem).into_response();
    response.headers_mut().extend(place.map(|place| (LOCATION, header(&place))));
    response
}

/// In place of the response that a handler did not give.
fn panic_problem() -> Problem {
    Problem::new(OutcomeCode::Panic, "the handler of this request panicked")
}

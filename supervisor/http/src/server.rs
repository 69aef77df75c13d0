//! The server: routes, listeners, and the connections that are open.
//!
//! ```text
//!   listen --> serving ---- close, or the supervisor ends ----> draining: no new connection, each ends after its answer
//!                                                                  '--> all are gone: done
//! ```

mod answer;
mod askers;
mod crowd;
mod holders;
mod registered;
mod replier;

pub(crate) use answer::Answering;
pub(crate) use holders::Hold;
pub use replier::Replier;

use crate::access_log::AccessLog;
use crate::api::SharedTokens;
use crate::connection::{Answer, OnLoop, serve};
use crate::cors::Cors;
use crate::guard::Violation;
use crate::guesses::Guesses;
use crate::limits::{CONNECTIONS_MAX, DOCUMENT_STEPS, DOCUMENT_TIME};
use crate::line::Line;
use crate::listen::{Address, Bound, Listener};
use crate::offload::RequestContext;
use crate::panics::{Contained, caught};
use crate::patience::Timekeeper;
use crate::problem::Problem;
use crate::proxies::TrustedProxies;
use crate::request::{Remote, Request};
use crate::respond::{IntoResponse, Response};
use crate::rooms::Rooms;
use crate::router::{BadPattern, Found};
use crate::tls::{Acceptor, BadTls, Session, Tls};
use crate::traffic::Traffic;
use crate::turns::{Most, Turns};
use askers::LastAsker;
use crowd::{ClientKey, Crowds, client_key, shares_last_places};
use holders::Holders;
use http::Method;
use http::request::Parts;
use offload_event_loop::{Context, JoinHandle, LoopHandle, OnGone};
use offload_supervisor::pauses::RunningClock;
use offload_supervisor::service::{LastAnswers, Service};
use registered::Registered;
use replier::PendingReply;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;

const DOCUMENTS: Most = Most { steps: DOCUMENT_STEPS, time: DOCUMENT_TIME };

const NO_ROOM: Violation = Violation { status: 503, reason: "all connections of this server are in use" };

/// In the log, if something of a connection panics for which no handler can be blamed.
const CONNECTION: &str = "what answers an HTTP connection";

pub(crate) type Handler = Rc<dyn Fn(Request, RequestContext) -> HandlerFuture>;

pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = Response>>>;

/// An HTTP server on the event loop. Cheap to clone: all clones are the same server, which lives as long as it listens or has
/// connections.
#[derive(Clone)]
pub struct Server(Rc<Inner>);

struct Inner {
    service: Service,
    handle: LoopHandle,
    /// For all limits on what clients do.
    keeper: Rc<Timekeeper>,
    registered: RefCell<Registered>,
    _on_loop_gone: OnGone,
    listeners: RefCell<Vec<Listener>>,
    connections: RefCell<BTreeMap<u64, Connection>>,
    /// Those of them that were not cut to make room.
    crowds: RefCell<Crowds<ClientKey, Instant>>,
    last: Cell<u64>,
    connections_max: Cell<usize>,
    traffic: Rc<Traffic>,
    is_draining: Cell<bool>,
    guesses: Guesses,
    last_asker: LastAsker,
    holders: Rc<Holders>,
    edge: RefCell<Rc<Edge>>,
    tls: RefCell<Option<Acceptor>>,
    /// For bodies that wait for memory.
    rooms: Rc<Rooms>,
    documents: Rc<Turns>,
    /// For when it is draining and the last connection has ended.
    done: RefCell<Vec<Done>>,
}

/// What is to be done at the end of a server.
enum Done {
    Called(Box<dyn FnOnce(&mut Context)>),
    Dropped(LastAnswers),
}

/// Settings that are the same for all requests.
#[derive(Clone)]
struct Edge {
    proxies: TrustedProxies,
    access_log: Option<AccessLog>,
    cors: Cors,
    cancels_on_disconnect: bool,
}

impl Default for Edge {
    fn default() -> Edge {
        Edge {
            proxies: TrustedProxies::default(),
            access_log: None,
            cors: Cors::default(),
            cancels_on_disconnect: true,
        }
    }
}

struct Connection {
    line: Rc<Line>,
    remote: Remote,
    /// Of its task, once it serves requests.
    waker: Option<Waker>,
    _task: JoinHandle<()>,
}

impl Server {
    /// A server whose handlers reach this supervisor. It has no routes yet, listens nowhere, and checks nothing: see
    /// [`Server::check`]. `handle` is the loop of the service. A service may have several servers.
    pub fn new(service: &Service, handle: &LoopHandle) -> Server {
        let server = Server(Rc::new_cyclic(|me| Inner {
            service: service.clone(),
            handle: handle.clone(),
            keeper: Timekeeper::new(handle, &RunningClock::new(handle)),
            registered: RefCell::default(),
            _on_loop_gone: Inner::drop_with_loop(me, handle),
            listeners: RefCell::default(),
            connections: RefCell::default(),
            crowds: RefCell::default(),
            last: Cell::new(0),
            connections_max: Cell::new(CONNECTIONS_MAX.min(service.other_connections()).max(1)),
            traffic: Rc::default(),
            is_draining: Cell::new(false),
            guesses: Guesses::default(),
            last_asker: LastAsker::default(),
            holders: Rc::default(),
            edge: RefCell::default(),
            tls: RefCell::default(),
            rooms: Rooms::new(handle),
            documents: Turns::new(handle, DOCUMENTS),
            done: RefCell::default(),
        }));
        let me = Rc::downgrade(&server.0);
        service.on_end(move |last_answers| {
            if let Some(inner) = me.upgrade() {
                inner.drain(Done::Dropped(last_answers));
            }
        });
        server
    }

    /// Answers requests of this method and path by a handler. In the path, `{name}` stands for one segment
    /// ([`Request::parameter`]); as the first segment it never stands for `v1`, `healthz`, `readyz`, `metrics` or `openapi.json`. A handler
    /// for GET answers HEAD, too. A later handler replaces an earlier one.
    ///
    /// A handler runs on the event loop: while it does not await, nothing else happens there. If it blocks the loop, a watchdog names
    /// the line that has added the route. Its future is dropped when the
    /// client is gone. If it panics, the client gets a problem with status 500, and the log says so.
    ///
    /// A path without a route is answered with 404, one with routes for other methods only with 405 (OPTIONS with 204).
    ///
    /// # Errors
    /// [`BadPattern`], if `path` is not a valid pattern.
    #[track_caller]
    pub fn route<F, R>(
        &self,
        method: Method,
        path: &str,
        handler: impl Fn(Request, RequestContext) -> F + 'static,
    ) -> Result<(), BadPattern>
    where
        F: Future<Output = R> + 'static,
        R: IntoResponse,
    {
        let (handler, site) = (Rc::new(handler), Location::caller());
        let handler: Handler = Rc::new(move |request, context| {
            let (handler, handle) = (Rc::clone(&handler), context.handle.clone());
            // It is called within the block, which would have its future twice otherwise.
            Box::pin(async move {
                let mut answer = pin!(handle.attribute(site, || handler(request, context)));
                poll_fn(|cx| handle.attribute(site, || answer.as_mut().poll(cx))).await.into_response()
            })
        });
        self.add(method, path, handler)
    }

    pub(crate) fn add(&self, method: Method, path: &str, handler: Handler) -> Result<(), BadPattern> {
        self.0.register(|registered| registered.router.add(method, path, handler))
    }

    /// [`Server::route`] for GET and HEAD.
    ///
    /// # Panics
    /// If `path` is not a valid pattern.
    #[track_caller]
    pub fn get<F, R>(&self, path: &str, handler: impl Fn(Request, RequestContext) -> F + 'static)
    where
        F: Future<Output = R> + 'static,
        R: IntoResponse,
    {
        self.route(Method::GET, path, handler).expect("the path of a route");
    }

    /// [`Server::route`] for POST.
    ///
    /// # Panics
    /// If `path` is not a valid pattern.
    #[track_caller]
    pub fn post<F, R>(&self, path: &str, handler: impl Fn(Request, RequestContext) -> F + 'static)
    where
        F: Future<Output = R> + 'static,
        R: IntoResponse,
    {
        self.route(Method::POST, path, handler).expect("the path of a route");
    }

    /// Answers requests by a callback, which gets the loop and may reply at once or later, from anywhere on the loop. It is called
    /// as a tick. Unlike the future of a handler, it is not told when the client is gone: its reply goes nowhere then. If it panics, the
    /// client gets a problem with status 500, and the log says so.
    ///
    /// # Panics
    /// If `path` is not a valid pattern.
    #[track_caller]
    pub fn on(
        &self,
        method: Method,
        path: &str,
        callback: impl Fn(Request, Replier, &mut Context) + 'static,
    ) {
        let (callback, site) = (Rc::new(callback), Location::caller());
        let handler = move |request: Request, context: RequestContext| {
            let (slot, callback) = (Rc::new(PendingReply::default()), Rc::clone(&callback));
            let replier = Replier(Rc::clone(&slot));
            let service = context.service.clone();
            context.handle.next_tick(move |cx| {
                let handle = cx.handle();
                let call = || handle.attribute(site, || callback(request, replier, cx));
                caught(&service, "the callback of an HTTP request", call);
            });
            poll_fn(move |cx| slot.poll(cx.waker()))
        };
        self.route(method, path, handler).expect("the path of a route");
    }

    /// Asks `look_up` for the handler of a request for which there is none among those that were added one by one. It may add
    /// extensions to the head of the request, for the checks.
    pub(crate) fn look_up(&self, look_up: impl Fn(&mut Parts) -> Found<Handler> + 'static) {
        self.0.register(|registered| registered.look_ups.push(Rc::new(look_up)));
    }

    /// Asks `check` about each request before its body is read, whatever its path is, also if there is no route for it. Checks are
    /// asked in the order in which they were added; the first problem is the answer, and one that panics refuses with status 500. Without
    /// any, every request is answered.
    #[track_caller]
    pub fn check(&self, check: impl Fn(&Parts, Remote) -> Result<(), Problem> + 'static) {
        let (handle, site) = (self.0.handle.clone(), Location::caller());
        let check = Rc::new(move |head: &Parts, remote| handle.attribute(site, || check(head, remote)));
        self.0.register(|registered| Rc::make_mut(&mut registered.checks).push(check));
    }

    /// Listens there, too, and returns where that is: with port 0, the port that the system chose. While it listens, the event loop
    /// stays alive. An address that other machines reach is no error: whoever wants none asks
    /// [`Address::is_beyond_this_machine`] before.
    ///
    /// # Errors
    /// What the system says, such as that the address is in use, and the address. A server that was closed listens no more.
    pub fn listen(&self, address: &Address) -> io::Result<Address> {
        let bound = Bound::at(address)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot listen at {address}: {error}")));
        self.accept_from(bound?)
    }

    /// Accepts connections from a socket that listens already, and returns where.
    ///
    /// # Errors
    /// What the system says. A server that was closed accepts no more.
    pub fn accept_from(&self, bound: Bound) -> io::Result<Address> {
        if self.0.is_draining.get() {
            return Err(io::Error::other("the server was closed"));
        }
        let address = bound.address()?;
        // While it listens, the loop keeps the server.
        let (inner, service) = (Rc::clone(&self.0), self.0.service.clone());
        let accepted = move |socket, remote| Rc::clone(&inner).connect(socket, remote);
        let exhausted = move |error| {
            service.log().warn(format_args!("no descriptor for another HTTP client: {error}"));
        };
        let listener =
            Listener::start(bound, &self.0.handle, accepted, exhausted).map_err(io::Error::other)?;
        self.0.listeners.borrow_mut().push(listener);
        Ok(address)
    }

    /// Sets how many connections there may be, at least 1; the default is [`CONNECTIONS_MAX`](crate::limits::CONNECTIONS_MAX), or as many
    /// as the service has set descriptors aside for ([`Service::other_connections`]), if those are fewer: workers come first. When there are
    /// as many, one that waits for a request gives way to a new one: of the client that has most, the one that has waited longest.
    /// If none waits, the new one is answered with status 503. Of the last eighth of them a client (an address, or a process at a Unix
    /// socket) gets another one only while it has fewer than are left.
    pub fn set_connections_max(&self, most: usize) {
        self.0.connections_max.set(most.max(1));
    }

    /// From now on these proxies are trusted: their `Forwarded` or `X-Forwarded-For` names the client. The default is none.
    pub fn set_trusted_proxies(&self, proxies: TrustedProxies) {
        self.change_edge(|edge| edge.proxies = proxies);
    }

    /// From now on each request has a line there.
    pub fn set_access_log(&self, log: AccessLog) {
        self.change_edge(|edge| edge.access_log = Some(log));
    }

    /// From now on pages of these origins may read the answers. The default is none.
    pub fn set_cors(&self, cors: Cors) {
        self.change_edge(|edge| edge.cors = cors);
    }

    /// Sets whether the job of a client that waits for it is cancelled when the client goes away, queued or running. That is the
    /// default. If not, it goes on to its end, like a detached job. [`Offload::cancel_on_disconnect`](crate::Offload) decides
    /// for one job.
    pub fn set_cancel_on_disconnect(&self, cancels: bool) {
        self.change_edge(|edge| edge.cancels_on_disconnect = cancels);
    }

    /// From now on connections over TCP speak TLS 1.2 or 1.3, with `h2` or `http/1.1` by ALPN. Unix sockets stay as they are: what goes
    /// over them leaves no machine. To exchange the certificate, tell its [`Tls::replace`].
    pub fn set_tls(&self, tls: &Tls) {
        self.0.tls.replace(Some(Acceptor::new(tls, &self.0.handle)));
    }

    fn change_edge(&self, change: impl FnOnce(&mut Edge)) {
        let mut edge = self.0.edge.borrow_mut();
        change(Rc::make_mut(&mut edge));
    }

    /// Stops listening, for good. Each connection ends when its requests are answered; when all have ended, the routes and checks are
    /// dropped, and `done` is called as a tick, once for each time that this is called. There is no time limit of its own for that:
    /// those of requests and answers hold.
    #[track_caller]
    pub fn close(&self, done: impl FnOnce(&mut Context) + 'static) {
        let (handle, site) = (self.0.handle.clone(), Location::caller());
        self.0.drain(Done::Called(Box::new(move |cx| handle.attribute(site, || done(cx)))));
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.0.connections.borrow().len()
    }

    /// Requests end with the token that they came with.
    pub(crate) fn end_with(&self, tokens: &SharedTokens) {
        self.0.holders.watch(tokens, &self.0.handle);
    }

    pub(crate) fn traffic(&self) -> Rc<Traffic> {
        Rc::clone(&self.0.traffic)
    }
}

impl Inner {
    fn connect(self: Rc<Self>, socket: OwnedFd, remote: Remote) {
        let turned_away = |error: &dyn fmt::Display| {
            self.service.log().warn(format_args!("an HTTP client was turned away: {error}"));
        };
        let session = match self.session(remote) {
            Ok(session) => session,
            Err(error) => return turned_away(&error),
        };
        let line = match Line::new(&self.keeper, socket, session, &self.traffic) {
            Ok(line) => line,
            Err(error) => return turned_away(&error),
        };
        if !self.make_room(client_key(remote)) {
            return self.refused(line.refuse(NO_ROOM), remote);
        }
        let number = self.last.get() + 1;
        self.last.set(number);
        let (me, answer) = (Rc::downgrade(&self), Rc::clone(&self) as Rc<dyn Answer>);
        let (its_line, service) = (Rc::clone(&line), self.service.clone());
        let executor = OnLoop::new(&self.handle, &service);
        let task = self.handle.spawn(async move {
            Contained::new(&service, CONNECTION, serve(its_line, answer, (number, remote), executor)).await;
            if let Some(inner) = me.upgrade() {
                inner.disconnected(number);
            }
        });
        line.patience().set_connection(number);
        self.crowds.borrow_mut().enter(client_key(remote), number);
        self.connections.borrow_mut().insert(number, Connection { line, remote, waker: None, _task: task });
    }

    /// For a connection that is to speak TLS.
    fn session(&self, remote: Remote) -> Result<Option<Session>, BadTls> {
        match (remote, &*self.tls.borrow()) {
            (Remote::Address(_), Some(acceptor)) => acceptor.accept().map(Some),
            _ => Ok(None),
        }
    }

    /// Whether there is room for one more connection of this client, if need be because another gives way.
    fn make_room(&self, client: ClientKey) -> bool {
        let mut crowds = self.crowds.borrow_mut();
        let most = self.connections_max.get();
        let free = most.saturating_sub(crowds.count());
        let may_have_more = shares_last_places(crowds.count_of(client), free, most);
        if free > 0 && may_have_more {
            return true;
        }
        let connections = self.connections.borrow();
        let waits_since = |number| {
            let line = &connections.get(&number)?.line;
            let since = line.patience().waits_for_a_request_since()?;
            (!line.is_cut() && !line.has_unseen_request()).then_some(since)
        };
        // One that has used up what it may have makes room for itself.
        let gives_way = match free {
            0 => crowds.first_to_go(waits_since),
            _ => crowds.first_to_go_of(client, waits_since).map(|number| (client, number)),
        };
        let Some((client, number)) = gives_way else { return false };
        crowds.leave(client, number);
        let line = connections.get(&number).map(|connection| Rc::clone(&connection.line));
        drop((crowds, connections));
        // That wakes its task, which then drops the connection.
        line.into_iter().for_each(|line| line.cut());
        true
    }

    fn disconnected(&self, number: u64) {
        let gone = self.connections.borrow_mut().remove(&number);
        if let Some(connection) = &gone {
            self.crowds.borrow_mut().leave(client_key(connection.remote), number);
        }
        drop(gone);
        self.finish_if_done();
    }

    fn finish_if_done(&self) {
        if !self.is_draining.get() || !self.connections.borrow().is_empty() {
            return;
        }
        self.drop_registered();
        for done in self.done.take() {
            match done {
                Done::Called(callback) => self.handle.next_tick(callback),
                Done::Dropped(last_answers) => drop(last_answers),
            }
        }
    }

    fn drain(&self, done: Done) {
        self.is_draining.set(true);
        let listeners = self.listeners.take();
        drop(listeners);
        self.done.borrow_mut().push(done);
        let all: Vec<_> = {
            let connections = self.connections.borrow();
            connections
                .values()
                .map(|connection| (Rc::clone(&connection.line), connection.waker.clone()))
                .collect()
        };
        for (line, waker) in all {
            match waker {
                Some(waker) => {
                    line.begin_to_end();
                    waker.wake();
                }
                // No head of it is complete yet.
                None => line.cut(),
            }
        }
        self.finish_if_done();
    }
}

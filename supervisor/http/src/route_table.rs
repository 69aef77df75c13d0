//! Routes that are written down, not programmed: which method and path runs which task. A table is checked as a whole, and can be
//! exchanged while the server runs.
//!
//! ```text
//!   Route, Route, ... --check--> RouteTable ---> SharedRoutes ---> the server asks it, request by request
//!                                                     ^--- replace, from any thread
//! ```

use crate::limits::{ROUTES_MAX, TARGET_MAX};
use crate::request::quoted;
use crate::router::{Found, Pattern, Router, canonical, own_beginning};
use http::Method;
use http::header::{HeaderName, HeaderValue};
use offload_protocol::nouns::{MediaType, Metadata, TASK_NAMES, is_task_name};
use offload_supervisor::limits::PRIORITY_MAX;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// The methods that a route may have. HEAD comes with GET.
const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// Header fields that are the server's to set, beside those that begin with [`OWN_PREFIXES`].
const OWN_FIELDS: [&str; 12] = [
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "location",
    "preference-applied",
    "retry-after",
    "server-timing",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// See [`OWN_FIELDS`].
const OWN_PREFIXES: [&str; 3] = ["access-control-", "offload-", "proxy-"];

/// Whether a client has to show the token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouteAuth {
    /// It has to, unless it comes over a Unix socket.
    #[default]
    Token,
    /// Everybody who reaches the server may use the route. What such a client says about its job does not count: its name, time
    /// limits, priority, attempts, labels and metadata. If the job fails, it is told the code, and only what the task itself has
    /// returned as its error; not what a process wrote on its standard error. Clients of the same user over a Unix socket are told all.
    None,
}

/// Whether a client waits for the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouteMode {
    /// It does, unless it has shown the token and prefers otherwise (`Prefer`).
    #[default]
    Sync,
    /// It gets a 202 with the address of the job.
    Async,
}

/// A method and a path that run a task: the body of the request is its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// GET, which HEAD comes with, POST, PUT, PATCH or DELETE.
    pub method: Method,
    /// A path in which `{name}` stands for one segment. What a client has there becomes metadata of the job, under this name.
    pub path: String,
    /// Names of parameters of the query that become metadata of the job, as those of the path do: of `?width=64`, `width`. One
    /// that is not there is left out, and of one that is there several times the first counts. All others are ignored.
    pub query: Vec<String>,
    /// The task: a name that a task can have ([`is_task_name`]). It need not be offered yet.
    pub task: String,
    /// The run timeout of the job, at least one millisecond, whatever its client says; None leaves it to the client, or to the supervisor.
    pub timeout: Option<Duration>,
    /// The longest body, in bytes, if it is to be shorter than the supervisor's limit.
    pub max_body: Option<u64>,
    /// Whether a client has to show the token.
    pub auth: RouteAuth,
    /// The media types of inputs; others are refused with status 415. All are accepted if there is none. A body of no stated type
    /// counts as `application/octet-stream`.
    pub accepts: Vec<MediaType>,
    /// Whether a client waits for the output.
    pub mode: RouteMode,
    /// The priority of the job, -10 to 10, whatever its client says; None leaves it to the client.
    pub priority: Option<i8>,
    /// Whether the job is cancelled if its client goes away; None leaves it to the server.
    pub cancel_on_disconnect: Option<bool>,
    /// Header fields of a response with a status of 200 to 299. There may be several of one name.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Route {
    /// A route that leaves everything else as it is.
    pub fn new(method: Method, path: impl Into<String>, task: impl Into<String>) -> Route {
        Route {
            method,
            path: path.into(),
            query: Vec::new(),
            task: task.into(),
            timeout: None,
            max_body: None,
            auth: RouteAuth::default(),
            accepts: Vec::new(),
            mode: RouteMode::default(),
            priority: None,
            cancel_on_disconnect: None,
            headers: Vec::new(),
        }
    }

    /// Whether an input of this type is accepted.
    pub(crate) fn takes(&self, media_type: &MediaType) -> bool {
        self.accepts.is_empty() || self.accepts.iter().any(|pattern| media_type.matches(pattern))
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        if !METHODS.contains(&self.method) {
            return Err((
                "method",
                format!("{} is not one of GET, POST, PUT, PATCH and DELETE", self.method),
            ));
        }
        check_path(&self.path).map_err(|reason| ("path", reason))?;
        check_query(&self.path, &self.query).map_err(|reason| ("query", reason))?;
        if !is_task_name(&self.task) {
            return Err(("task", format!("{} names no task: names are {TASK_NAMES}", quoted(&self.task))));
        }
        if self.timeout.is_some_and(|timeout| timeout < Duration::from_millis(1)) {
            return Err(("timeout", "it must be at least 1ms".to_owned()));
        }
        if self.priority.is_some_and(|priority| !(-PRIORITY_MAX..=PRIORITY_MAX).contains(&priority)) {
            return Err(("priority", format!("it must be from -{PRIORITY_MAX} to {PRIORITY_MAX}")));
        }
        let is_own = |name: &&HeaderName| {
            OWN_FIELDS.contains(&name.as_str())
                || OWN_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix))
        };
        match self.headers.iter().map(|(name, _)| name).find(is_own) {
            Some(name) => Err(("headers", format!("{name} is for the server itself to set"))),
            None => Ok(()),
        }
    }
}

fn check_path(path: &str) -> Result<(), String> {
    let pattern = Pattern::parse(path).map_err(|error| error.to_string())?;
    let is_strange = |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b'?' | b'#');
    if path.len() > TARGET_MAX || path.bytes().any(is_strange) {
        return Err(format!("a path has at most {TARGET_MAX} visible ASCII characters, without '?' and '#'"));
    }
    if let Some(own) = own_beginning(&canonical(path)) {
        return Err(format!("/{own} is the supervisor's own"));
    }
    check_names(pattern.names())
}

/// Together with those of the path, they must be able to be metadata.
fn check_query(path: &str, query: &[String]) -> Result<(), String> {
    let pattern = Pattern::parse(path).map_err(|error| error.to_string())?;
    check_names(pattern.names().chain(query.iter().map(String::as_str)))
}

fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let names: Vec<(&str, &str)> = names.map(|name| (name, "")).collect();
    Metadata::new(&names).map(drop).map_err(|error| error.to_string())
}

/// Why a table cannot be used.
/// Its `Debug` is the sentence, too: that is what Rust prints of an error that `main` returns.
#[derive(Clone, PartialEq, Eq)]
pub struct BadRoute {
    /// Which of the routes is to blame, from 0 on.
    pub index: usize,
    /// The name of its field, as in the configuration file.
    pub field: &'static str,
    /// A sentence.
    pub reason: String,
}

impl fmt::Display for BadRoute {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of route {}: {}", self.field, self.index + 1, self.reason)
    }
}

impl fmt::Debug for BadRoute {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::error::Error for BadRoute {}

/// Routes that go together.
#[derive(Default)]
pub struct RouteTable {
    router: Router<Arc<Route>>,
    length: usize,
}

impl RouteTable {
    /// A table of these routes.
    ///
    /// # Errors
    /// [`BadRoute`]: there are more than [`ROUTES_MAX`], one of them cannot be, or two are for the same requests.
    pub fn new(routes: Vec<Route>) -> Result<RouteTable, BadRoute> {
        let mut router = Router::default();
        let length = routes.len();
        for (index, route) in routes.into_iter().enumerate() {
            let bad = |(field, reason)| BadRoute { index, field, reason };
            if index == ROUTES_MAX {
                return Err(bad(("path", format!("there are more than {ROUTES_MAX} routes"))));
            }
            route.check().map_err(bad)?;
            let (method, path) = (route.method.clone(), route.path.clone());
            if router.has(&method, &path) {
                return Err(bad(("path", format!("a route before it is for {method} {path}, too"))));
            }
            router.add(method, &path, Arc::new(route)).map_err(|error| bad(("path", error.to_string())))?;
        }
        Ok(RouteTable { router, length })
    }

    /// How many routes there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl fmt::Debug for RouteTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RouteTable({} of them)", self.length)
    }
}

/// A table that can be exchanged while a server uses it, from any thread. Clones are the same table.
#[derive(Clone, Debug, Default)]
pub struct SharedRoutes(Arc<RwLock<Arc<RouteTable>>>);

impl SharedRoutes {
    /// This table, until there is another.
    pub fn new(table: RouteTable) -> SharedRoutes {
        SharedRoutes(Arc::new(RwLock::new(Arc::new(table))))
    }

    /// From now on this is the table. A request that has begun keeps the route that it has.
    pub fn replace(&self, table: RouteTable) {
        let table = Arc::new(table);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = table;
    }

    pub(crate) fn find(&self, method: &Method, path: &str) -> Found<Arc<Route>> {
        let table = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        table.router.find(method, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(path: &str) -> Route {
        Route::new(Method::POST, path, "echo")
    }

    fn refusal(routes: Vec<Route>) -> (usize, &'static str, String) {
        let BadRoute { index, field, reason } = RouteTable::new(routes).unwrap_err();
        (index, field, reason)
    }

    #[test]
    fn a_route_that_cannot_be_is_refused_with_its_field() {
        let field = |name: &'static str| (HeaderName::from_static(name), HeaderValue::from_static("x"));
        for (route, expected) in [
            (Route { method: Method::TRACE, ..post("/a") }, "method"),
            (Route { method: Method::HEAD, ..post("/a") }, "method"),
            (post("a"), "path"),
            (post("/a b"), "path"),
            (post("/a?b"), "path"),
            (post("/ä"), "path"),
            (post("/{Name}"), "path"),
            (post("/{a}/{a}"), "path"),
            (post("/v1"), "path"),
            (post("/v1/tasks/echo"), "path"),
            (post("/healthz"), "path"),
            (Route { query: vec!["Width".to_owned()], ..post("/a") }, "query"),
            (Route { query: vec!["a".to_owned()], ..post("/{a}") }, "query"),
            (Route { query: vec!["b".to_owned(), "b".to_owned()], ..post("/{a}") }, "query"),
            (Route { query: (0..16).map(|number| number.to_string()).collect(), ..post("/{a}") }, "query"),
            (Route { task: String::new(), ..post("/a") }, "task"),
            (Route { task: "x".repeat(65), ..post("/a") }, "task"),
            (Route { task: "a b".to_owned(), ..post("/a") }, "task"),
            (Route { task: "1st".to_owned(), ..post("/a") }, "task"),
            (Route { timeout: Some(Duration::ZERO), ..post("/a") }, "timeout"),
            (Route { priority: Some(11), ..post("/a") }, "priority"),
            (Route { headers: vec![field("content-length")], ..post("/a") }, "headers"),
            (Route { headers: vec![field("offload-job")], ..post("/a") }, "headers"),
        ] {
            let (index, field, reason) = refusal(vec![post("/first"), route.clone()]);
            assert_eq!((index, field), (1, expected), "{reason}: {route:?}");
        }
        assert!(RouteTable::new(vec![post("/"), post("/v10"), post("/{a}/{b-1}/%20")]).is_ok());
    }

    #[test]
    fn two_routes_are_not_for_the_same_requests() {
        let (index, field, reason) = refusal(vec![post("/a/{x}"), post("/{x}/a"), post("/a/{y}")]);
        assert_eq!((index, field), (2, "path"), "{reason}");
        let get = Route { method: Method::GET, ..post("/a/{y}") };
        assert!(RouteTable::new(vec![post("/a/{x}"), post("/a/b"), get]).is_ok());
        let many = |count: usize| (0..count).map(|number| post(&format!("/{number}"))).collect();
        assert_eq!(RouteTable::new(many(ROUTES_MAX)).unwrap().len(), ROUTES_MAX);
        assert_eq!(refusal(many(ROUTES_MAX + 1)).0, ROUTES_MAX);
    }

    #[test]
    fn a_table_is_exchanged_while_it_is_in_use() {
        let shared = SharedRoutes::new(RouteTable::new(vec![post("/a")]).unwrap());
        let other = shared.clone();
        assert!(matches!(shared.find(&Method::POST, "/a"), Found::Handler(..)));
        other.replace(RouteTable::new(vec![post("/b")]).unwrap());
        assert!(matches!(shared.find(&Method::POST, "/a"), Found::Nothing));
        assert!(
            matches!(shared.find(&Method::GET, "/b"), Found::OtherMethods(methods) if methods == [Method::POST])
        );
    }

    #[test]
    fn media_types_are_compared_without_their_parameters() {
        let route = Route { accepts: vec!["image/*".parse().unwrap(), MediaType::JSON], ..post("/a") };
        let takes = |text: &str| route.takes(&text.parse().unwrap());
        assert!(takes("image/png") && takes("IMAGE/jpeg") && takes("application/json; charset=utf-8"));
        assert!(!takes("text/plain") && !route.takes(&MediaType::OCTET_STREAM));
        assert!(post("/a").takes(&MediaType::OCTET_STREAM));
    }
}

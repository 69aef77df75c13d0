//! HTTP on the event loop of `offload`: requests become jobs in worker processes, and the loop stays free.
//!
//! ```no_run
//! use offload_http::{Address, Server};
//! use offload_supervisor::service::{Service, ServiceConfig};
//! use offload_supervisor::{EventLoop, PoolConfig, Program};
//!
//! let mut event_loop = EventLoop::new()?;
//! let program = Program::command(vec!["my-worker".to_owned()]);
//! let service = Service::start(ServiceConfig::with(PoolConfig::with(program)), &mut event_loop)?;
//! let server = Server::new(&service, &event_loop);
//! server.get("/hello", |_, _| async { "hello\n" });
//! server.post("/thumbnails", |request, cx| async move { cx.offload("thumbnail", request.body()).await });
//! server.listen(&"127.0.0.1:8080".parse::<Address>()?)?;
//! event_loop.run()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What holds for every server
//!
//! - **Everything happens on the thread of the event loop**, handlers included: their futures need not be `Send`. A handler that
//!   computes holds up all clients; `cx.offload` is there for that. A handler that panics costs its own request, which is answered
//!   with status 500.
//! - **Whoever reaches the server may use it**, until [`Server::check`] says otherwise: also other users of this machine and, through
//!   a browser, any web page. [`api::Access`] checks tokens, hosts and origins.
//! - **What goes wrong is a [`Problem`]**, a document of RFC 9457 whose status belongs to its code ([`status_of`]). A handler that
//!   returns a `Result` sends it as it is: `?` on `cx.offload(...).await` is enough.
//! - **All is bounded**, in bytes and in time: heads (16 KiB, 64 fields, 5 s), bodies (as many bytes as the supervisor allows for an
//!   input; at least 10 KiB in each 10 s, and 30 s in all with a second more for each 128 KiB), answers that nobody reads (at least
//!   160 KiB in each 10 s), connections (1,024). [`limits`] has these bounds and others.
//! - **When its client is gone**, the future of a handler is dropped, and with it a job that it awaits is cancelled.
//! - **It ends with the supervisor**: a drain waits for requests that were let in before it, with all the jobs that they need. Then the
//!   server stops listening, and its connections end when their answers were read.
//!   [`Server::close`] does the same for one server.
//!
//! # From the socket to the job
//!
//! ```text
//!   socket --> guard --> hyper --> checks, router --> handler --> cx.offload --> job
//!   (socket.rs, tls.rs,   (connection.rs)  (server.rs, router.rs)    (offload.rs)
//!    line.rs, guard.rs,
//!    patience.rs)
//! ```
//!
//! | read | for |
//! |---|---|
//! | `guard.rs` | what a client may send over HTTP/1: whatever is ambiguous is refused |
//! | `socket.rs`, `transport.rs`, `line.rs` | a connection as bytes |
//! | [`Tls`] | TLS below HTTP, with the feature `tls` |
//! | `patience.rs` | how long a client may take |
//! | `connection.rs` | hyper on the loop |
//! | [`Server`], [`Request`], [`IntoResponse`] | routes and handlers |
//! | [`RequestContext::offload`] | a request becomes a job; [`Output`] and [`Failure`] become responses |
//! | [`RouteTable`] | routes that are written down, and can be exchanged |
//! | [`api`] | the supervisor's own interface, `/v1/...` |
//! | [`limits`] | the bounds, in one table |

/// The program in the README is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod access_log;
pub mod api;
mod body;
mod collect;
mod connection;
mod cors;
mod ended;
mod frames;
pub mod guard;
mod guesses;
mod leftover;
pub mod limits;
mod line;
mod listen;
mod offload;
mod panics;
mod patience;
mod problem;
mod protection;
mod proxies;
mod quiet;
mod refused;
mod request;
mod respond;
mod rooms;
mod route_table;
mod router;
mod run;
mod server;
mod socket;
mod sys;
mod tls;
mod traffic;
mod transport;
mod turns;

pub use access_log::{AccessLog, AccessLogFormat};
pub use body::{Body, BodyError, BrokenOff, Produce, RequestBody};
pub use cors::Cors;
pub use ended::{Failure, Output};
pub use http::{self, Method, StatusCode};
pub use listen::{Address, BadAddress, Bound, lock_path};
pub use offload::{Input, Offload, RequestContext};
pub use problem::{METHOD_NOT_ALLOWED, NOT_FOUND, PROBLEM_JSON, Problem, status_of};
pub use proxies::{BadProxy, TrustedProxies, TrustedProxy};
pub use request::{Remote, Request};
pub use respond::{IntoResponse, Json, Response};
pub use route_table::{BadRoute, Route, RouteAuth, RouteMode, RouteTable, SharedRoutes};
pub use router::BadPattern;
pub use server::{Replier, Server};
pub use tls::{BadTls, Tls, TlsVersion};

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::{Debug, Display};

    fn is_a_sentence(error: impl Debug + Display) {
        assert_eq!(format!("{error:?}"), error.to_string());
    }

    #[test]
    fn what_a_handler_awaits_and_what_a_check_says_can_be_passed_on_as_any_error() {
        use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
        use std::error::Error;

        let error = ErrorDetail::new(OutcomeCode::Timeout, "it ran for 1 s");
        let failed = || -> Result<Output, Box<dyn Error>> { Err(Failure::refused(&error))? };
        let refused = || -> Result<(), Box<dyn Error>> { Err(Problem::of(&error))? };
        for passed_on in [failed().unwrap_err(), refused().unwrap_err(), Box::new(error.clone())] {
            assert_eq!(passed_on.to_string(), "timeout: it ran for 1 s");
        }
        let violation = || -> Result<(), Box<dyn Error>> {
            guard::Guard::default().admit(b"GET\n")?;
            Ok(())
        };
        assert!(violation().is_err());
    }

    #[test]
    fn an_error_that_main_returns_is_printed_as_its_sentence() {
        is_a_sentence("127.0.0.1".parse::<Address>().unwrap_err());
        is_a_sentence("everybody".parse::<TrustedProxy>().unwrap_err());
        is_a_sentence(Tls::from_pem(b"", b"").unwrap_err());
        is_a_sentence(BadPattern);
        is_a_sentence(BadRoute { index: 0, field: "path", reason: "it is empty".to_owned() });
    }
}

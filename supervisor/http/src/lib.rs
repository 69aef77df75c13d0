//! HTTP on the event loop.
pub mod api;
mod body;
mod connection;
mod guard;
pub mod limits;
mod line;
mod listen;
mod offload;
mod patience;
mod problem;
mod request;
mod respond;
mod router;
mod server;
mod socket;
mod sys;

pub use body::{Body, BodyError, BrokenOff, Produce, RequestBody};
pub use http::{self, Method, StatusCode};
pub use listen::{Address, BadAddress, Bound};
pub use offload::{Failure, Input, Offload, Output, RequestContext};
pub use problem::{PROBLEM_JSON, Problem, status_of};
pub use request::{Origin, Request};
pub use respond::{IntoResponse, Json, Response};
pub use router::BadPattern;
pub use server::{Replier, Server};

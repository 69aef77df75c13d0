//! The supervisor's own interface over HTTP: tasks are called, jobs are looked at, awaited and cancelled.
//!
//! | method and path | what it does |
//! |---|---|
//! | `POST /v1/tasks/{task}` | the body is the input. The answer is the output, or with `Prefer: respond-async` a 202 |
//! | `GET /v1/tasks`, `/v1/tasks/{task}` | what workers offer |
//! | `GET /v1/jobs`, `/v1/jobs/{id}` | jobs; one job, with `?wait=30` at its end |
//! | `GET /v1/jobs/{id}/output` | its output, in its own media type |
//! | `GET /v1/jobs/{id}/events` | what happens to it, as server-sent events |
//! | `DELETE /v1/jobs/{id}` | cancels it |
//! | `GET /v1/dead`, `/v1/dead/{id}` | dead letters; one of them |
//! | `POST /v1/dead/{id}/retry` | submits its job again, as a new job |
//! | `DELETE /v1/dead/{id}` | drops it |
//! | `GET /v1/status`, `/v1/workers` | the supervisor, its workers |
//! | `GET /v1/events` | both once a second, as server-sent events |
//! | `GET /openapi.json` | this interface, as OpenAPI 3.1 |
//! | `GET /metrics` | what is measured, for Prometheus |
//! | `GET /healthz`, `/readyz` | whether it lives, whether it should be given work |
//!
//! Beside these there may be a table of routes ([`Server::mount_routes`]), for other addresses.
//!
//! Everything but the last two needs the token, unless it comes over a Unix socket, or for a route that needs none. `access.rs`
//! has the rules.

mod access;
mod dead;
mod documents;
mod events;
mod headers;
mod jobs;
mod metrics;
mod openapi;
mod overview;
mod own_fields;
mod page;
mod parts;
mod routes;
mod tasks;
mod tokens;

pub use access::Access;
pub(crate) use access::needs_no_token;
pub(crate) use routes::NeedsNoToken;
pub(crate) use tokens::TokenNumber;
pub use tokens::{SharedTokens, Tokens};

use crate::server::Server;

impl Server {
    /// From now on this decides on each request, as [`Server::check`] does, and pages of its origins may read the answers. If there are tokens,
    /// a request that waits or streams by one that is taken away ends, and an idempotency key belongs to all that have shown one.
    #[track_caller]
    pub fn check_access(&self, access: Access) {
        self.set_cors(access.cors.clone());
        access.tokens.iter().for_each(|tokens| self.end_with(tokens));
        self.check(move |head, remote| access.check(head, remote));
    }

    /// Adds the supervisor's own interface to the routes of this server. `access` decides on each of its requests.
    pub fn mount_api(&self, access: Access) {
        self.check_access(access);
        tasks::mount(self);
        jobs::mount(self);
        events::mount(self);
        documents::mount(self);
        dead::mount(self);
        overview::mount(self);
        metrics::mount(self);
        openapi::mount(self);
    }
}

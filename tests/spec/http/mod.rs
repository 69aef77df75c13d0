//! The interface over HTTP, by the real binary.

mod access;
mod access_log;
mod answers;
mod attacked;
mod calls;
mod clients;
mod cors;
mod crowds;
mod dead;
mod endings;
mod framing;
mod going_away;
mod guesses;
mod half_closed;
mod inherited;
mod jobs;
mod metrics;
mod openapi;
mod page;
mod paused;
mod pressure;
mod proxies;
mod routes;
mod tls;
mod verdicts;
mod version2;

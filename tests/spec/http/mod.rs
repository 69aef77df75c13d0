//! The interface over HTTP, by the real binary.

mod access;
mod calls;
mod clients;
mod crowds;
mod dead;
mod endings;
mod framing;
mod jobs;
mod metrics;
mod openapi;
mod page;
mod pressure;
mod routes;
mod verdicts;
mod version2;

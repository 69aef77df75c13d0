//! What offload promises, one topic a file. Read the names of the tests from top to bottom: they are the promise.
//!
//! `core` drives the decisions by hand; everything else drives the real binary.

mod core;

mod bad_input;
mod bench;
mod blame;
mod connections;
mod crashes;
mod examples;
mod load;
mod map;
mod operations;
mod output;
mod payloads;
mod processes;
mod promises;
mod run;
mod serve;
mod start_up;
mod submit;
mod the_end;

//! What offload promises, one topic a file. Read the names of the tests from top to bottom: they are the promise.
//!
//! `core` drives the decisions by hand; everything else drives the real binary.

mod core;

mod address;
mod bad_input;
mod bench;
mod blame;
mod blocked_output;
mod connections;
mod crashes;
mod draining;
mod examples;
mod idle;
mod load;
mod log;
mod map;
mod never_starts;
mod one_process;
mod operations;
mod output;
mod payloads;
mod processes;
mod promises;
mod reloading;
mod run;
mod second_front;
mod serve;
mod start_up;
mod submit;
mod the_end;
mod waiting;

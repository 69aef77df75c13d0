//! What offload promises, one topic in each file. The names of the tests state the promises.
//!
//! The tests in `core` give events to the core directly; all others run the real binary.

mod core;

mod address;
mod bad_input;
mod batches;
mod bench;
mod blame;
mod blocked_output;
mod bounds;
mod configuration;
mod connections;
mod cookbook;
mod crashes;
mod doctor;
mod draining;
mod examples;
mod exec;
mod exec_tasks;
mod files;
mod filters;
mod http;
mod http_workers;
mod idle;
mod io_tasks;
mod jsonl;
mod load;
mod log;
mod map;
mod map_failures;
mod map_kept;
mod map_lists;
mod mistakes;
mod mixture;
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
mod segments;
mod serve;
mod short_ids;
mod start_up;
mod streams;
mod submit;
mod tags;
mod the_end;
mod waiting;
mod wire;
mod worker_check;

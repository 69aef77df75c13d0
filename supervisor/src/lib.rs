//! An event loop that never blocks, and a pool of worker processes that outlives their crashes.
//!
//! ```no_run
//! use offload_supervisor::{ComputePool, EventLoop, Job, PoolConfig, Program};
//!
//! let mut event_loop = EventLoop::new()?;
//! let program = Program::command(vec!["my-worker".to_owned()]);
//! let pool = ComputePool::start(PoolConfig::with(program), &event_loop)?;
//! pool.submit(Job::new("primes").input("1000000"), |finished, _cx| {
//!     println!("{:?}", finished.into_output()); // runs on the loop
//! });
//! event_loop.run()?; // returns when no job is awaited any more
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Code map
//!
//! | read | for |
//! |---|---|
//! | [`offload_event_loop`], here as [`event_loop`] | the loop: phases, timers, ticks, futures. Knows no job |
//! | [`offload_core`] | every decision about jobs and workers, pure: no clock, no I/O |
//! | [`workers`] | one worker process: spawn, socket, output, signals, end |
//! | [`front`] | the local socket: bytes to requests, answers to bytes |
//! | `hub.rs` | the hub: carries events to the core and does what it says |
//! | [`service`] | everything that a front (the local socket, or another one) may ask of the supervisor |
//! | [`ComputePool`] | the hub as programs embed it |
//! | [`PoolHandle`] | the way to a pool for other threads and other runtimes; with the feature `tower`, `PoolService` |
//! | [`Server`] | the service with the front for the local socket, and signals: the main process |
//! | [`signals`] | signals that end a process, caught to put things in order first |
//! | [`pauses`] | a clock that stands still while the process does not run |
//! | [`limits`] | every bound in one table |
//! | [`views`] | the documents behind `status`, `workers`, `jobs`, `tasks` |

#![warn(missing_debug_implementations)]

/// The programs in the README are compiled as tests, and one of them is run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The program in the README of the project is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct ReadmeOfTheProject;

pub mod calendar;
mod end_of_turn;
pub mod front;
mod hub;
mod input_file;
mod io_tasks;
mod job;
pub mod limits;
mod log;
mod origin;
pub mod pauses;
mod peer;
mod pool;
pub mod printer;
mod public_id;
mod server;
pub mod service;
pub mod signals;
mod sys;
pub mod units;
pub mod views;
mod wire;
pub mod workers;

pub use front::client;
pub use hub::{PoolConfig, StartError, default_workers};
pub use input_file::InputFile;
pub use io_tasks::offers as io_task_offers;
pub use job::{Finished, Job, JsonOutput, input_digest};
pub use log::{Level, LogFormat};
pub use offload_core::config::CoreConfig;
pub use offload_event_loop as event_loop;
pub use offload_event_loop::{Context, EventLoop, io_pool};
pub use offload_protocol as protocol;
pub use pool::{
    Call, ComputePool, HandleLimits, OutputStream, PendingJob, Place, Policy, PoolEnded, PoolHandle,
    Reservation, Reserved, TaskPolicy, WaitError,
};
#[cfg(feature = "tower")]
pub use pool::{PoolService, ServiceCall, ServiceError};
pub use server::{Ready, Server, ServerConfig, ServerStartError};
pub use service::{Configuration, Exchange, FixedSetting, Ignored, Reload, ServerEnd};
pub use workers::Program;

//! Worker processes: how one is started, sent messages, read, signalled, killed and reaped.
//!
//! Nothing here knows of slots or jobs. A [`Process`] is an object over descriptors that do not block, and waits only
//! when it is started, which the [`Launcher`] does on a thread of its own, and when it is dropped while it lives. The
//! hub watches the descriptors, calls when one is ready, and carries what comes out to the core.
//!
//! ```text
//!                       hub                                          child process (leader of its own group)
//!   send, flush ------> Link ======== Unix socket pair ============= 0  the protocol, both ways
//!   receive     <------ Link
//!   capture     <------ Capture <==== pipe ========================= 1  escaped lines for the log
//!                       Capture <==== pipe ========================= 2
//!   try_reap    <------ pidfd   <---- the kernel                        it has ended, and how
//! ```
//!
//! `program.rs` says what is started and in which environment, `executable.rs` why that failed, `launcher.rs` has the
//! threads that start it, of which `lane.rs` is one, `process.rs` is the child as a whole, `link.rs` the socket, `capture.rs` and `escape.rs` its output, `usage.rs` its time and memory,
//! `confinement.rs` what it gave up, `hide.rs` keeps it out of us, `wait.rs` is the one bounded wait. Two files are about processes that nobody owns:
//! `sweep.rs` for those that escaped from a worker of ours, `orphans.rs` for those of a supervisor that was killed; by
//! `marks.rs` both know whose they were.

mod capture;
mod confinement;
mod escape;
pub mod executable;
mod hide;
mod lane;
mod launcher;
mod link;
pub mod marks;
pub mod orphans;
mod process;
mod program;
pub mod sweep;
mod usage;
mod wait;

pub use crate::wire::{FLUSH_MAX, Flushed};
pub use capture::{
    CAPTURE_CHUNK, Captured, LINES_PER_SECOND, OUTPUT_BYTES_PER_SECOND, Stream, StreamState, TAIL_LINES,
};
pub use confinement::{Confinement, Scheduler};
pub use escape::escape_line;
pub use hide::hide_this_process;
pub use launcher::{Answer, Launcher, Wanted};
pub use link::{LinkError, Received};
pub use process::{Process, SpawnError, StopState};
pub use program::Program;
pub use usage::ProcessUsage;

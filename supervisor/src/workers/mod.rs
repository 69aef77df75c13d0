//! Worker processes: how one is started, sent messages, read, signalled, killed and reaped.
//!
//! Nothing here knows of slots or jobs. A [`Process`] is an object over descriptors that do not block. It waits in two
//! cases only: when it is started, which the [`Launcher`] does on a thread of its own, and when it is dropped while it
//! is alive. The hub watches the descriptors, calls the process when one is ready, and passes the results to the core.
//!
//! ```text
//!                       hub                                          child process (leader of its own group)
//!   send, flush ------> Link ======== Unix socket pair ============= 0  the protocol, both ways
//!   receive     <------ Link
//!   put, take back ---> Tray   ======= Unix socket pair ============= a descriptor that came with Welcome
//!   capture     <------ Capture <==== pipe ========================= 1  escaped lines for the log
//!                       Capture <==== pipe ========================= 2
//!   try_wait    <------ pidfd   <---- the kernel                        it has ended, and how
//! ```
//!
//! | file | what it is about |
//! |---|---|
//! | `program.rs`, `executable.rs` | what is started and in which environment; why a start failed |
//! | `launcher.rs`, `launch_thread.rs`, `cleanup_thread.rs` | the threads that start processes and that kill them |
//! | `process.rs` | the child process as a whole |
//! | `link.rs`, `allowance.rs` | its socket; how much is read from it at a time |
//! | `segments.rs`, `segment.rs`, `buffers.rs` | shared memory for its large payloads; where these are copied to |
//! | `tray.rs` | where its next job can lie while it works |
//! | `capture.rs`, `escape.rs` | its output |
//! | `usage.rs`, `confinement.rs` | its CPU time and memory; what it gave up |
//! | `hide.rs` | keeps workers from looking into this process |
//! | `wait.rs` | the one wait, which has a time limit |
//! | `children.rs` | which children of this process are workers |
//! | `sweep.rs`, `all_launchers.rs` | processes that escaped from a worker of this supervisor, beside other pools of this process |
//! | `orphans.rs` | processes that a killed supervisor left behind |
//! | `marks.rs` | how both recognize whose descendant a process is |

mod all_launchers;
mod allowance;
mod buffers;
mod capture;
mod children;
mod cleanup_thread;
mod confinement;
mod escape;
pub mod executable;
mod hide;
mod launch_thread;
mod launcher;
mod link;
pub mod marks;
pub mod orphans;
mod process;
mod program;
mod segment;
mod segments;
pub mod sweep;
mod tray;
mod usage;
mod wait;

pub(crate) use crate::wire::Descriptor;
pub use crate::wire::Flushed;
pub use allowance::Allowance;
pub use buffers::Buffers;
pub use capture::{CaptureState, Captured, OutputStream};
pub use confinement::{Confinement, Scheduler};
pub use escape::escape_line;
pub use hide::hide_this_process;
pub use launcher::{LaunchGuard, Launcher, LauncherEvent};
pub use link::{LinkError, Received};
pub use process::{Process, SpawnError};
pub use program::{Program, find_executable, find_executable_from};
pub use segment::{Segment, SegmentBytes};
pub use segments::News as SegmentNews;
pub use tray::Tray;
pub use usage::ProcessUsage;

pub(crate) use crate::sys::CpuTime;

#[cfg(test)]
pub(crate) use crate::wire::refusals;
#[cfg(test)]
pub(crate) use children::tests::Tracer;

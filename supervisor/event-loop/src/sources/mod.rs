//! Sources: streams, listeners, UDP sockets, pipes and child processes.
//!
//! The same rules hold for all of them:
//!
//! ```text
//!   created --(somebody wants what comes in, or something is under way)--> kept by the loop
//!      |                                                                      |
//!      +--the last handle is dropped--> closed quietly     close(on_closed) --+--> closed: what was under way is
//!                                                                                  answered with Cancelled, then
//!                                                                                  on_closed, in the closing phase
//! ```
//!
//! - A handle is cheap to clone, and it is an argument of its callbacks, so they need not own it.
//! - A source with a callback that waits, or with a write or a connect under way, needs no handle: the loop keeps it.
//!   One that nobody waits for is closed when its last handle is dropped.
//! - No callback ever runs inside the call that registers it.
//! - Every callback runs outside of all borrows, so it may do anything to its own source and to all others.
//!
//! Unlike a watcher, a source may call several callbacks for one event. Each is reported under the place that registered it,
//! and the ticks and microtasks run after each of them.

mod answers;
mod base;
mod child;
mod descriptor;
mod error;
mod executable;
mod listener;
mod reader;
mod reaper;
mod send_queue;
mod stream;
mod stream_futures;
mod stream_inner;
mod stream_io;
mod tcp;
mod transport;
mod udp;
mod udp_inner;
mod udp_options;
mod waiting;
mod writer;

pub use child::Child;
pub use descriptor::Descriptor;
pub use error::SourceError;
pub use listener::Listener;
pub use send_queue::{SEND_QUEUE_BYTES_MAX, SEND_QUEUE_LEN_MAX};
pub use stream::{Incoming, Stream};
pub use tcp::{BoundTcp, TcpOptions};
pub use transport::Address;
pub use udp::{Datagram, UdpSocket};
pub use udp_options::{MulticastGroup, UdpOptions};

pub(super) use base::{Registered, Registration};

/// How often one source is read, or accepted from, for one event. Another event follows if there is more, after
/// the other sources had theirs.
const TURNS_PER_EVENT: u32 = 32;

/// How much one read takes at most, in bytes. A datagram is never longer.
const INCOMING_BYTES: usize = 64 * 1_024;
const _: () = assert!(INCOMING_BYTES > u16::MAX as usize, "the longest datagram fits into one read");

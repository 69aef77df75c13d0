//! Sources: streams (TCP, Unix sockets, pipes, terminals), listeners, UDP sockets and child processes.
//!
//! All of them own a [`base::Base`], which ties them to the loop, and the same rules hold for all of them:
//!
//! ```text
//!   created --(somebody wants what comes in, or something is under way)--> kept by the loop
//!      |                                                                      |
//!      +--the last handle is dropped--> closed quietly     close(on_closed) --+--> closed: what was under way is
//!                                                                                  answered with Cancelled, then
//!                                                                                  on_closed, in the closing phase
//! ```
//!
//! - A handle is cheap to clone. Callbacks get it as an argument, so they need not own one.
//! - A source with a callback that waits, or with a write or a connect under way, needs no handle: the loop keeps it.
//!   One that nobody waits for is closed when its last handle is dropped.
//! - No callback ever runs inside the call that registers it.
//! - No borrow is held while a callback runs, so it may do anything to its own source and to all others.
//!
//! Unlike a watcher, a source may call several callbacks for one event. Metrics and panics name the source line that
//! registered each of them, and the ticks and microtasks run after each.

mod answers;
mod base;
mod child;
mod descriptor;
mod error;
mod executable;
mod listener;
mod methods;
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
pub use stream::{Incoming, Stream};
pub use tcp::{BoundTcp, TcpOptions};
pub use transport::Address;
pub use udp::{Datagram, UdpSocket};
pub use udp_options::{MulticastGroup, UdpOptions};

pub(super) use base::{Registered, Registration};

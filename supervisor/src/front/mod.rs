//! The side that clients see: a local socket in a private directory, and what travels over it.
//!
//! This room turns bytes into requests and answers into bytes. It knows no worker and decides nothing about a job:
//! the hub hands it descriptors that are ready, and passes on what comes out.
//!
//! ```text
//! directory.rs    a directory that no other user can enter
//! lock.rs         one supervisor for each socket
//! listener.rs     bind and accept
//! standing.rs     are the socket and the lock still ours?
//! connection.rs   one client: Greeting -> Open -> Closing
//! greeting.rs     is the peer a client at all?
//! request.rs      what a client may want
//! peer.rs         who is at the other end
//! client.rs       the other end of all this, blocking: for the command line and for programs
//! ```
//!
//! Nothing here blocks but [`client`]. What one call does is bounded by the constants below, so that no client holds
//! up the others; how long a client may take is for the hub's timers to say.

pub mod client;
mod connection;
mod directory;
mod greeting;
mod listener;
mod lock;
mod peer;
mod request;
mod standing;
#[cfg(test)]
mod tests;

pub use crate::limits::REQUESTS_PER_CALL_MAX;
pub use crate::wire::{FLUSH_MAX, Flushed};
pub use connection::{Connection, ConnectionError, FindRoom, Received, Room};
pub use greeting::is_client_name;
pub use listener::{AcceptError, BindError, Listener};
pub use peer::Peer;
pub use request::Request;
pub use standing::{Standing, owner_of};

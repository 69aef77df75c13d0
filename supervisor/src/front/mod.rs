//! The local socket: a socket in a private directory, and the protocol that clients speak over it.
//!
//! This module turns bytes into requests, and answers into bytes. It knows nothing of workers and decides nothing
//! about jobs. The server (`server.rs`) calls it when a descriptor is ready, and handles the requests that it returns.
//!
//! ```text
//! directory.rs    a directory that no other user can enter
//! lock.rs         one supervisor for each socket
//! listener.rs     bind and accept
//! socket_state.rs whether the socket and the lock are still ours
//! connection.rs   one client: Greeting -> Open -> Closing
//! greeting.rs     whether the peer is a client at all
//! request.rs      the requests of clients
//! files.rs        descriptors of files that are inputs
//! pages.rs        lists as JSON, page by page
//! peer.rs         the process at the other end
//! client.rs       the client's end of the socket, blocking: for the command line and for programs
//! ```
//!
//! Only [`client`] blocks. What one call does is bounded by the constants below, so that no client delays the others.
//! How long a client may take is decided by the server's timers.

pub mod client;
mod connection;
mod directory;
mod files;
mod greeting;
mod listener;
mod lock;
mod pages;
mod peer;
mod request;
mod socket_state;
#[cfg(test)]
mod tests;

pub use crate::input_file::FilePlaces;
pub use crate::limits::{FLUSH_MAX, REQUESTS_PER_CALL_MAX};
pub use crate::peer::{Peer, is_client_name};
pub use crate::wire::Flushed;
pub use connection::{Connection, ConnectionError, FindRoom, Received, Room};
pub use directory::check_folder;
pub use listener::{AcceptError, BindError, Listener};
pub use pages::{RowWriter, to_json};
pub use request::{Request, SubmittedFile};
pub use socket_state::{SocketState, owner_of};

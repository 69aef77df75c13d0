//! The first message of a connection. It distinguishes a client from any other program that may connect to the socket,
//! such as a browser.

use super::connection::{ConnectionError, violation};
use crate::peer::{Peer, is_client_name};
use offload_protocol::codec;
use offload_protocol::frame::{Frame, FrameError};
use offload_protocol::greeting::Greeting;
use offload_protocol::limits::NAME_MAX;
use offload_protocol::messages::{CLIENT_CAPABILITIES, CLIENT_MAGIC, ToSupervisor};

/// The first four bytes of HTTP requests.
const METHODS: [&[u8; 4]; 9] =
    [b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC"];

/// Which protocol the peer speaks, given that its first eight bytes are no valid prefix of a frame. The first four of
/// them were read as a length.
pub(super) fn identify_protocol(error: &FrameError) -> ConnectionError {
    match error {
        FrameError::HeaderLength { length }
            if METHODS.iter().any(|method| u32::from_le_bytes(**method) as usize == *length) =>
        {
            ConnectionError::Http
        }
        FrameError::HeaderLength { .. } | FrameError::PayloadLength { .. } => ConnectionError::NotAClient,
    }
}

/// What a client states in its hello.
pub(super) struct ClientHello {
    /// Its name; empty if it has none.
    pub(super) name: String,
    /// The capabilities that it shares with this supervisor.
    pub(super) capabilities: u64,
}

/// Reads the hello of a client.
pub(super) fn client_hello(frame: &Frame<'_>) -> Result<ClientHello, ConnectionError> {
    if let Some(greeting) = Greeting::of(&frame.header)
        && greeting.magic == CLIENT_MAGIC
        && greeting.is_foreign()
    {
        return Err(ConnectionError::Version(greeting));
    }
    let Ok(ToSupervisor::Hello { magic: CLIENT_MAGIC, client, capabilities, .. }) =
        codec::decode(&frame.header)
    else {
        return Err(ConnectionError::NotAClient);
    };
    if !frame.payload.is_empty() {
        return Err(violation("a payload with the hello"));
    }
    if !is_client_name(client) {
        return Err(violation(format!(
            "a client's name has at most {NAME_MAX} bytes and no control characters"
        )));
    }
    if Peer::may_be_called(client) {
        return Err(violation(format!("'{client}' is what a client without a name is called")));
    }
    Ok(ClientHello { name: client.to_owned(), capabilities: capabilities & CLIENT_CAPABILITIES })
}

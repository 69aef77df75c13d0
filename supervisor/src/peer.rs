//! Who a client is: the name that it states, or else its process.

use offload_protocol::limits::NAME_MAX;
use std::fmt;
use std::net::IpAddr;

/// The peer of a connection, whatever name it claims: a process, however many connections it has. A process in another
/// pid namespace cannot be seen from here and is known by its connection only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// A process, by its id.
    Process(u32),
    /// A connection, by its number in this supervisor.
    Connection(u64),
}

const PROCESS: &str = "process ";
const CONNECTION: &str = "connection ";
/// Before the address of a client over HTTP that has shown no token, or over a Unix socket its process.
const ANONYMOUS: &str = "anonymous ";

impl Peer {
    /// Whether this is a name that a client without a name is shown under. No client may choose such a name.
    pub fn may_be_called(name: &str) -> bool {
        let is_a_peer = |name: &str| {
            let number = name.strip_prefix(PROCESS).or_else(|| name.strip_prefix(CONNECTION));
            number.is_some_and(|number| number.parse::<u64>().is_ok())
        };
        let anonymous = name.strip_prefix(ANONYMOUS);
        is_a_peer(name) || anonymous.is_some_and(|whom| whom.parse::<IpAddr>().is_ok() || is_a_peer(whom))
    }
}

/// The name of whoever has shown no token, by its address or process.
pub(crate) fn anonymous(whom: impl fmt::Display) -> String {
    format!("{ANONYMOUS}{whom}")
}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Process(number) => write!(formatter, "{PROCESS}{number}"),
            Peer::Connection(number) => write!(formatter, "{CONNECTION}{number}"),
        }
    }
}

/// Whether a client may have this name.
pub fn is_client_name(name: &str) -> bool {
    name.len() <= NAME_MAX && !name.contains(is_unprintable)
}

/// Whether a character could forge a line in a table or a log, which show names.
fn is_unprintable(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}')
}

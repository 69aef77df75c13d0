//! What a client and its supervisor agreed on.

use super::Client;
use offload_protocol::messages::FILES;

impl Client {
    /// The capabilities that both ends have ([`offload_protocol::messages::CAPABILITIES`]).
    pub fn capabilities(&self) -> u64 {
        self.capabilities
    }

    /// Whether the supervisor takes an input that is a file ([`Client::queue_with_file`]).
    pub fn takes_files(&self) -> bool {
        self.capabilities & FILES != 0
    }
}

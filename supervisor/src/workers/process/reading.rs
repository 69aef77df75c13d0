//! What has come from the process.

use super::Process;
use crate::workers::allowance::Allowance;
use crate::workers::link::{LinkError, Received};
use bytes::Bytes;
use offload_protocol::messages::FromWorker;

impl Process {
    /// Reads once, at most [`offload_protocol::limits::READ_CHUNK`] bytes, and passes every complete message with its
    /// payload to `sink`, as far as is allowed; if messages are left, the next call passes these on and reads nothing. Whether
    /// a message is legal at this point is not checked.
    ///
    /// # Errors
    /// [`LinkError`] if the bytes are not messages, or the socket fails. Do not read again.
    pub fn receive(
        &mut self,
        allowance: &mut Allowance,
        sink: &mut dyn FnMut(FromWorker<'_>, Bytes),
    ) -> Result<Received, LinkError> {
        self.link.receive(allowance, sink)
    }

    /// Whether [`Process::receive`] has something to do although nothing more comes.
    pub fn has_rest(&self) -> bool {
        self.link.has_rest()
    }

    /// Whether a message has arrived in part. A worker that stops now is stuck or gone.
    pub fn is_mid_frame(&self) -> bool {
        self.link.is_mid_frame()
    }

    /// How many bytes are still to be copied of the output that is being copied.
    pub fn uncopied(&self) -> usize {
        self.link.uncopied()
    }

    /// Whether an output is being copied out of a segment, piece by piece: each call of [`Process::receive`] copies what may
    /// be copied in this turn, and reads nothing.
    pub fn is_copying(&self) -> bool {
        self.link.is_copying()
    }
}

//! The number by which the answers to a request are recognized.

use crate::messages::{ToClient, ToSupervisor};

impl ToSupervisor<'_> {
    /// The same request under another ticket. A hello has none and stays as it is.
    pub fn with_ticket(&self, number: u64) -> Self {
        let mut request = self.clone();
        match &mut request {
            ToSupervisor::Hello { .. } => {}
            ToSupervisor::Submit { ticket, .. }
            | ToSupervisor::InputFile { ticket, .. }
            | ToSupervisor::Wait { ticket, .. }
            | ToSupervisor::Result { ticket, .. }
            | ToSupervisor::Cancel { ticket, .. }
            | ToSupervisor::Show { ticket, .. }
            | ToSupervisor::Page { ticket, .. }
            | ToSupervisor::Drain { ticket }
            | ToSupervisor::DrainWithin { ticket, .. }
            | ToSupervisor::Stop { ticket }
            | ToSupervisor::Explain { ticket, .. }
            | ToSupervisor::Dead { ticket, .. }
            | ToSupervisor::Reload { ticket }
            | ToSupervisor::Operate { ticket, .. } => *ticket = number,
        }
        request
    }
}

impl ToClient<'_> {
    /// The ticket of the request that this answers; none if it answers no request.
    pub fn ticket(&self) -> Option<u64> {
        match self {
            ToClient::Accepted { ticket, .. }
            | ToClient::Rejected { ticket, .. }
            | ToClient::Finished { ticket, .. }
            | ToClient::Answer { ticket }
            | ToClient::Part { ticket }
            | ToClient::SendInput { ticket } => Some(*ticket),
            ToClient::Welcome { .. } | ToClient::Goodbye { .. } => None,
        }
    }
}

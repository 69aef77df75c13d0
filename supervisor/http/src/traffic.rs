//! What has gone over the connections of one server, for monitoring.

use crate::tls::TlsVersion;
use http::StatusCode;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Counts since the server was made. Those of a connection that is open are in them.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    received: Cell<u64>,
    sent: Cell<u64>,
    opened: Cell<u64>,
    closed: Cell<u64>,
    answers: RefCell<BTreeMap<u16, u64>>,
    handshakes: RefCell<BTreeMap<TlsVersion, u64>>,
    failed_handshakes: Cell<u64>,
}

fn add(counter: &Cell<u64>, more: usize) {
    counter.set(counter.get() + more as u64);
}

impl Traffic {
    pub(crate) fn receive(&self, bytes: usize) {
        add(&self.received, bytes);
    }

    pub(crate) fn send(&self, bytes: usize) {
        add(&self.sent, bytes);
    }

    pub(crate) fn open(&self) {
        add(&self.opened, 1);
    }

    pub(crate) fn close(&self) {
        add(&self.closed, 1);
    }

    /// A request has an answer with this status.
    pub(crate) fn answer(&self, status: StatusCode) {
        *self.answers.borrow_mut().entry(status.as_u16()).or_default() += 1;
    }

    /// The handshake of a TLS connection is complete, and a request has come.
    pub(crate) fn complete_handshake(&self, version: TlsVersion) {
        *self.handshakes.borrow_mut().entry(version).or_default() += 1;
    }

    /// A TLS connection ends before its handshake is complete.
    pub(crate) fn fail_handshake(&self) {
        add(&self.failed_handshakes, 1);
    }

    /// The counts as they are now.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            received: self.received.get(),
            sent: self.sent.get(),
            opened: self.opened.get(),
            open: self.opened.get() - self.closed.get(),
            answers: self.answers.borrow().iter().map(|(status, count)| (*status, *count)).collect(),
            handshakes: self.handshakes.borrow().iter().map(|(version, count)| (*version, *count)).collect(),
            failed_handshakes: self.failed_handshakes.get(),
        }
    }
}

/// See [`Traffic`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Bytes, with heads.
    pub(crate) received: u64,
    /// Bytes, with heads.
    pub(crate) sent: u64,
    /// Connections.
    pub(crate) opened: u64,
    /// Connections that have not ended.
    pub(crate) open: u64,
    /// Answers to requests, by their status.
    pub(crate) answers: Vec<(u16, u64)>,
    /// TLS connections with a request, by version.
    pub(crate) handshakes: Vec<(TlsVersion, u64)>,
    /// TLS connections that ended before.
    pub(crate) failed_handshakes: u64,
}

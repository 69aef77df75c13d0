//! The trays of the workers, and the job in each. The core decides what is put into a tray and what is taken back; here it
//! is done, and the core is told whether the worker has seen the job.
//!
//! ```text
//!             the core prefetches a job               the turn ends
//!   Empty --------------------------------> ToSend -------------------> InTray
//!     ^                                        |                          |
//!     |    the core wants it back: TakenBack   |                          | the core wants it back, or the process has
//!     |<---------------------------------------'                          | ended: the kernel says whether the worker has
//!     |                                                                   | seen it: TakenBack or NotInTray
//!     |<------------------------------------------------------------------|
//!     '<------------------------------------------------------------------' the worker has started it
//! ```
//!
//! Packets are sent after everything else that the turn has for workers, because whoever is idle comes first. A tray that
//! fails is not used again. Its worker is well, and gets its jobs only when it is idle.

use super::{Hub, PendingEvent, run_message};
use crate::workers::Tray;
use offload_core::event::Event;
use offload_core::ids::{JobId, WorkerId};
use offload_protocol::codec;
use offload_protocol::limits::TRAY_PACKET_MAX;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Trays {
    trays: BTreeMap<WorkerId, WorkerTray>,
    /// Workers whose trays have a packet to send.
    to_send: Vec<WorkerId>,
}

struct WorkerTray {
    tray: Tray,
    state: State,
}

enum State {
    Empty,
    ToSend { job: JobId, packet: Vec<u8> },
    InTray { job: JobId },
}

impl State {
    fn job(&self) -> Option<JobId> {
        match self {
            State::Empty => None,
            State::ToSend { job, .. } | State::InTray { job } => Some(*job),
        }
    }
}

impl Trays {
    /// Makes a tray for a worker. Returns the end that the worker gets; `None` if no descriptors are left.
    pub(super) fn make(&mut self, worker: WorkerId) -> Option<Arc<OwnedFd>> {
        let tray = Tray::new().ok()?;
        let end = tray.workers_end();
        self.trays.insert(worker, WorkerTray { tray, state: State::Empty });
        Some(end)
    }

    pub(super) fn has(&self, worker: WorkerId) -> bool {
        self.trays.contains_key(&worker)
    }

    /// The job that was put into the worker's tray, as far as is known here.
    pub(super) fn job(&self, worker: WorkerId) -> Option<JobId> {
        self.trays.get(&worker)?.state.job()
    }

    /// Puts a packet into an empty tray at the end of the turn. Returns false if that is not possible.
    fn put(&mut self, worker: WorkerId, job: JobId, packet: Vec<u8>) -> bool {
        let is_empty = |tray: &&mut WorkerTray| matches!(tray.state, State::Empty);
        let Some(tray) = self.trays.get_mut(&worker).filter(is_empty) else { return false };
        if packet.len() > TRAY_PACKET_MAX {
            return false;
        }
        tray.state = State::ToSend { job, packet };
        self.to_send.push(worker);
        true
    }

    /// Sends all packets. Returns the workers whose trays have failed, with their jobs.
    fn send_all(&mut self) -> Vec<(WorkerId, JobId)> {
        let mut failed = Vec::new();
        for worker in self.to_send.drain(..) {
            let Some(tray) = self.trays.get_mut(&worker) else { continue };
            let State::ToSend { job, packet } = &tray.state else { continue };
            let (job, sent) = (*job, tray.tray.put(packet));
            tray.state = State::InTray { job };
            if sent.is_err() {
                self.trays.remove(&worker);
                failed.push((worker, job));
            }
        }
        failed
    }

    /// Takes a job out of the worker's tray. True if the worker has not seen it, and never will.
    fn take_back(&mut self, worker: WorkerId, job: JobId) -> bool {
        let has_it = |tray: &&mut WorkerTray| tray.state.job() == Some(job);
        let Some(tray) = self.trays.get_mut(&worker).filter(has_it) else { return false };
        match std::mem::replace(&mut tray.state, State::Empty) {
            State::ToSend { .. } => true,
            State::Empty | State::InTray { .. } => tray.tray.take_back(),
        }
    }

    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.trays.remove(&worker);
    }
}

impl Hub {
    pub(super) fn prefetch(&mut self, worker: WorkerId, job: JobId, attempt: u32) {
        let packet = self.packet(job, attempt);
        if !packet.is_some_and(|packet| self.trays.put(worker, job, packet)) {
            self.tray_failed(worker, job);
        }
    }

    fn packet(&self, job: JobId, attempt: u32) -> Option<Vec<u8>> {
        let live_job = self.records.live(job)?;
        let message = run_message(&self.core, self.time.last_told(), live_job, (job, attempt));
        let input = live_job.input.bytes();
        let mut packet = Vec::new();
        codec::encode(&message, input.len(), &mut packet).ok()?;
        packet.extend_from_slice(input);
        Some(packet)
    }

    pub(super) fn take_back(&mut self, worker: WorkerId, job: JobId) {
        let event = self.taken_back(worker, job);
        self.inbox.push_front(event);
    }

    fn taken_back(&mut self, worker: WorkerId, job: JobId) -> PendingEvent {
        let event = match self.trays.take_back(worker, job) {
            true => Event::TakenBack { worker, job },
            false => Event::NotInTray { worker, job },
        };
        event.into()
    }

    /// The tray cannot be used, and the job is not in it.
    fn tray_failed(&mut self, worker: WorkerId, job: JobId) {
        self.trays.forget(worker);
        self.inbox.push_front(Event::TakenBack { worker, job }.into());
        self.inbox.push_front(Event::TrayFailed { worker }.into());
    }

    /// Puts into the trays what the turn has for them.
    pub(super) fn fill_trays(&mut self) {
        for (worker, job) in self.trays.send_all() {
            self.tray_failed(worker, job);
        }
        if !self.inbox.is_empty() {
            self.drain_inbox();
        }
    }

    /// What a process that has ended has left in its tray was never seen by it.
    pub(super) fn report_left_in_tray(&mut self, worker: WorkerId) {
        if let Some(job) = self.trays.job(worker) {
            let event = self.taken_back(worker, job);
            self.inbox.push_back(event);
        }
    }

    /// A worker says that it has started this job. If the job was in its tray, the packet must be gone. If the packet is still
    /// there, the worker has broken a rule: it may have read the packet without taking it out, and begun the job. So the core is
    /// told three things, in this order: that the worker has the job (what is returned), the violation, and the message
    /// again. Because the message then comes from a worker that has broken a rule, the core knows that the job may have begun.
    pub(super) fn check_tray(&mut self, event: &Event) -> Option<Event> {
        let Event::Started { worker, job, .. } = *event else { return None };
        if self.trays.job(worker) != Some(job) || !self.trays.take_back(worker, job) {
            return None;
        }
        let message = "it started a job that it had not taken out of its tray".to_owned();
        self.inbox.push_front(event.clone().into());
        self.inbox.push_front(Event::Violation { worker, message }.into());
        Some(Event::NotInTray { worker, job })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKER: WorkerId = WorkerId(1);
    const JOB: JobId = JobId(7);

    fn with_packet() -> (Trays, Arc<OwnedFd>) {
        let mut trays = Trays::default();
        let end = trays.make(WORKER).unwrap();
        assert!(trays.put(WORKER, JOB, vec![1; 10]));
        (trays, end)
    }

    fn take(end: &OwnedFd) -> bool {
        rustix::net::recv(end, &mut [0; 100], rustix::net::RecvFlags::DONTWAIT).is_ok()
    }

    #[test]
    fn a_packet_is_in_the_tray_once_the_turn_has_ended() {
        let (mut trays, end) = with_packet();
        assert!(!take(&end));
        assert!(trays.send_all().is_empty() && trays.send_all().is_empty());
        assert_eq!(trays.job(WORKER), Some(JOB));
        assert!(!trays.put(WORKER, JobId(8), vec![1]), "there is one");
        assert!(take(&end) && !take(&end));
        assert!(!trays.take_back(WORKER, JOB), "the worker has it");
        assert_eq!(trays.job(WORKER), None);
    }

    #[test]
    fn what_is_taken_back_is_not_seen_whether_it_was_sent_or_not() {
        for is_sent in [false, true] {
            let (mut trays, end) = with_packet();
            if is_sent {
                assert!(trays.send_all().is_empty());
            }
            assert!(!trays.take_back(WORKER, JobId(8)), "another job");
            assert!(trays.take_back(WORKER, JOB) && !trays.take_back(WORKER, JOB));
            assert!(trays.send_all().is_empty() && !take(&end));
            assert!(trays.put(WORKER, JobId(8), vec![1]));
        }
    }

    #[test]
    fn a_tray_that_fails_is_gone() {
        let (mut trays, end) = with_packet();
        rustix::net::shutdown(&*end, rustix::net::Shutdown::Both).unwrap();
        assert_eq!(trays.send_all(), [(WORKER, JOB)]);
        assert!(!trays.has(WORKER) && !trays.put(WORKER, JOB, vec![1]));
        assert!(!trays.take_back(WORKER, JOB));
        let (mut trays, _end) = with_packet();
        assert!(trays.take_back(WORKER, JOB));
        assert!(!trays.put(WORKER, JOB, vec![1; TRAY_PACKET_MAX + 1]), "too long");
    }
}

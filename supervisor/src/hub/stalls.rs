//! Stalled workers: those that stop in the middle of a message, and idle ones that do not read what is written to them or
//! do not confirm that they have mapped or left a segment, whose memory is kept until then. They are looked for at
//! intervals. Starting, running and ending have time limits in the core and are not checked here. Checks
//! are counted instead of time, so no worker is blamed for a pause in which the supervisor itself did not run.
//!
//! ```text
//!   anything happens ---> a check 250 ms later ---> all workers idle, no bytes expected ---> no more checks
//!                                ^      |
//!                                '------'  as long as a worker has something to do
//! ```
//!
//! The same checks find stopped workers and stray processes (`strays.rs`). An idle supervisor is not woken for any of this. If the memory of workers is limited, idle workers are measured at longer
//! intervals.

use super::Hub;
use super::check_schedule::NextCheck;
use crate::limits::WORKER_STALL_TIMEOUT;
use crate::workers::Allowance;
use offload_core::event::Event;
use offload_core::ids::WorkerId;
use offload_core::slots::SlotState;
use offload_event_loop::TimerId;
use std::time::{Duration, Instant};

/// Interval between checks while anything is in progress.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// A worker that was silent at this many checks in a row is stalled.
const STALL_CHECKS: u32 = (WORKER_STALL_TIMEOUT.as_millis() / CHECK_INTERVAL.as_millis()) as u32;

/// Interval between measurements of idle workers, if their memory is limited.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(4);

impl Hub {
    /// Something happened: schedules a check, unless one is scheduled already.
    pub(super) fn schedule_checks(&mut self) {
        if self.checks.wake(&self.handle) {
            self.schedule_check(CHECK_INTERVAL);
        }
    }

    fn schedule_check(&self, time: Duration) -> TimerId {
        let me = self.me.clone();
        let timer = self.handle.set_timeout(time, move |_| Hub::with(&me, Hub::check));
        self.handle.unref(timer);
        timer
    }

    fn check(&mut self) {
        let last_check = self.checks.begin_check();
        self.report_stops();
        self.check_stalls(last_check);
        self.check_memory();
        self.sweep_if_any_has_died();
        self.tell_of_silent_starts();
        self.log.catch_up();
        let next = if self.is_anything_under_way() {
            self.schedule_check(CHECK_INTERVAL);
            NextCheck::Soon
        } else if self.core.config().max_rss.is_some() {
            NextCheck::Late(self.schedule_check(IDLE_CHECK_INTERVAL))
        } else {
            NextCheck::Never
        };
        self.checks.end_check(next);
    }

    fn is_anything_under_way(&self) -> bool {
        // A stopped worker may go on, and then there may be a job for it.
        let is_at_rest = |state: &SlotState| match state {
            SlotState::Vacant => true,
            SlotState::Idle { worker } => worker.stopped_at.is_none(),
            _ => false,
        };
        self.checks.is_measuring()
            || self.log.owes()
            || self.core.slots().iter().any(|slot| !is_at_rest(&slot.state))
            || self.processes.ids().any(|worker| self.owes_bytes(worker))
    }

    fn check_stalls(&mut self, last_check: Instant) {
        let is_silent = |worker: &WorkerId| {
            self.processes.is_silent_since(*worker, last_check) && self.owes_bytes(*worker)
        };
        let silent: Vec<WorkerId> = self.processes.ids().filter(is_silent).collect();
        self.processes.count_checks(&silent);
        for worker in silent {
            if !self.is_stalled(worker) {
                continue;
            }
            let seconds = WORKER_STALL_TIMEOUT.as_secs();
            let message = match self.processes.owes_bytes(worker, self.runs(worker)) {
                true => format!("it stopped in the middle of a message for {seconds} s"),
                false => format!(
                    "it said nothing of a segment that it was given, or was to leave, for {seconds} s"
                ),
            };
            // The worker's next bytes would be part of the unfinished message, so nothing that it sends can be
            // understood.
            self.handle_event(Event::Garbled { worker, message });
        }
    }

    /// Whether the worker was silent at every check for [`WORKER_STALL_TIMEOUT`]. What it sent before this check is
    /// read first.
    fn is_stalled(&mut self, worker: WorkerId) -> bool {
        if self.processes.silent_checks(worker) < STALL_CHECKS {
            return false;
        }
        let _ = self.read_all_from(worker, &mut Allowance::of_a_turn());
        self.processes.is_silent_since(worker, self.checks.last_check_at())
    }

    /// Measures the memory of some workers, taking turns.
    fn check_memory(&mut self) {
        for worker in self.checks.next_to_measure(self.processes.ids()) {
            if let Some(resident_bytes) = self.processes.resident_bytes(worker) {
                self.handle_event(Event::Measured { worker, resident_bytes });
            }
        }
    }

    fn owes_bytes(&self, worker: WorkerId) -> bool {
        let runs = self.runs(worker);
        self.processes.owes_bytes(worker, runs)
            || (!runs && !self.is_stopped(worker) && self.processes.owes_segment_answer(worker))
    }

    fn runs(&self, worker: WorkerId) -> bool {
        let load = self.core.slot_of(worker).and_then(|slot| self.core.slots()[slot].load());
        load.is_some_and(|load| load.running.is_some())
    }

    /// The core has a time limit for stopped workers.
    fn is_stopped(&self, worker: WorkerId) -> bool {
        let ready = self.core.slot_of(worker).and_then(|slot| self.core.slots()[slot].ready_worker());
        ready.is_some_and(|ready| ready.stopped_at.is_some())
    }
}

//! What a job used that was cancelled or late. A worker says what its job used when it answers. Of a job that is cut off, only the
//! kernel can tell: its worker has used so much since the job started. That counts if the worker cannot have run anything else
//! meanwhile. Otherwise the receipt says nothing, which is better than what others used.
//!
//! ```text
//!   a job starts ---> one timer for all ---> the job still runs after BASELINE_AFTER: what its worker has used is read, once
//!                       ^                    it started later --.
//!                       '---------------------------------------'
//!   the job is cut off, and was alone ---> what its worker has used since that reading
//! ```
//!
//! A short job costs a look whether the timer is set. What a job uses before the reading is not counted, and each time is rounded
//! down. So a receipt may say less CPU time than was used, and never more. The peak of memory is that of the worker's whole life.

use super::Hub;
use super::live_jobs::micros;
use crate::limits::BASELINE_AFTER;
use crate::workers::CpuTime;
use offload_core::action::Ended;
use offload_core::ids::{JobId, WorkerId};
use offload_protocol::nouns::{OutcomeCode, Usage};
use std::collections::BTreeMap;

/// What workers had used when their jobs began. See the module's documentation.
#[derive(Default)]
pub(super) struct Baselines {
    of: BTreeMap<WorkerId, Baseline>,
    is_scheduled: bool,
}

/// What a worker had used soon after this attempt had started.
struct Baseline {
    attempt: (JobId, u32),
    cpu_time: CpuTime,
}

impl Baselines {
    fn of(&self, worker: WorkerId, attempt: (JobId, u32)) -> Option<CpuTime> {
        let baseline = self.of.get(&worker).filter(|baseline| baseline.attempt == attempt)?;
        Some(baseline.cpu_time)
    }

    /// A worker is gone.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.of.remove(&worker);
    }
}

impl Hub {
    /// A job has started, or a young one runs.
    pub(super) fn schedule_baselines(&mut self) {
        if std::mem::replace(&mut self.baselines.is_scheduled, true) {
            return;
        }
        let me = self.me.clone();
        let timer = self.handle.set_timeout(BASELINE_AFTER, move |_| Hub::with(&me, Hub::read_baselines));
        self.handle.unref(timer);
    }

    /// Reads what workers have used whose job has run for long enough and is alone.
    fn read_baselines(&mut self) {
        self.baselines.is_scheduled = false;
        let now = self.now();
        let (mut old, mut is_any_young) = (Vec::new(), false);
        for slot in self.core.slots() {
            let Some((worker, load)) = slot.worker().zip(slot.load()) else { continue };
            let Some(running) = load.running.filter(|running| !running.had_company) else { continue };
            match now - running.started_at >= BASELINE_AFTER {
                true => old.push((worker, (running.job, running.attempt))),
                false => is_any_young = true,
            }
        }
        for (worker, attempt) in old {
            if self.baselines.of(worker, attempt).is_none()
                && let Some(cpu_time) = self.processes.own_cpu_time(worker)
            {
                self.baselines.of.insert(worker, Baseline { attempt, cpu_time });
            }
        }
        if is_any_young {
            self.schedule_baselines();
        }
    }

    /// What a job has used, as far as its worker or the kernel can tell.
    pub(super) fn used(&self, ended: &Ended) -> Usage {
        let is_cut_off = matches!(ended.outcome, OutcomeCode::Cancelled | OutcomeCode::Timeout)
            && ended.usage == Usage::default();
        let (Some(place), Some(attempt), true) = (ended.place, ended.alone, is_cut_off) else {
            return ended.usage;
        };
        let used = || {
            let before = self.baselines.of(place.worker, (ended.job, attempt))?;
            Some(self.processes.own_cpu_time(place.worker)?.since(before))
        };
        let CpuTime { user, system } = used().unwrap_or_default();
        Usage {
            cpu_user_us: micros(user),
            cpu_system_us: micros(system),
            peak_rss_bytes: self.processes.peak_rss(place.worker).unwrap_or(0),
        }
    }
}

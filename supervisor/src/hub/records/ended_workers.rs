//! The last workers that have ended, in whatever slot: whoever comes later can see what happened.

use super::super::Hub;
use super::super::live_jobs::micros;
use super::super::view::several;
use crate::limits::ENDED_WORKERS_MAX;
use crate::views::EndedWorker;
use offload_core::action::Notice;
use std::collections::VecDeque;
use std::time::Instant;

/// The newest one is the last. At most [`ENDED_WORKERS_MAX`] are remembered.
#[derive(Default)]
pub(super) struct EndedWorkers {
    last: VecDeque<(Instant, EndedWorker)>,
    all: u64,
}

impl EndedWorkers {
    fn add(&mut self, ended: EndedWorker) {
        self.all += 1;
        self.last.push_back((Instant::now(), EndedWorker { number: self.all, ..ended }));
        while self.last.len() > ENDED_WORKERS_MAX {
            self.last.pop_front();
        }
    }
}

impl Hub {
    /// Remembers the worker whose end is told here, if one's is.
    pub(crate) fn note_ended_worker(&mut self, notice: &Notice) {
        let Notice::WorkerEnded { worker, slot, program, how, why, jobs } = notice else { return };
        let ended = EndedWorker {
            number: 0,
            slot: *slot,
            program: self.program_name(*program).to_owned(),
            pid: self.processes.pid(*worker),
            ago_us: 0,
            how: how.clone(),
            why: why.clone(),
            job: jobs.first().filter(|_| jobs.len() == 1).map(|job| self.name(*job)),
            batch: several(jobs.len() as u32),
            batch_jobs: jobs.iter().filter(|_| jobs.len() > 1).map(|job| self.name(*job)).collect(),
        };
        self.records.ended_workers.add(ended);
    }

    /// The newest one first.
    pub(crate) fn ended_workers(&self) -> Vec<EndedWorker> {
        let last = self.records.ended_workers.last.iter().rev();
        last.map(|(at, ended)| EndedWorker { ago_us: micros(at.elapsed()), ..ended.clone() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_ones_are_forgotten() {
        let mut ended = EndedWorkers::default();
        (0..ENDED_WORKERS_MAX + 5).for_each(|slot| ended.add(EndedWorker { slot, ..EndedWorker::default() }));
        let (first, last) = (&ended.last[0].1, &ended.last[ENDED_WORKERS_MAX - 1].1);
        assert_eq!((ended.last.len(), first.slot, first.number), (ENDED_WORKERS_MAX, 5, 6));
        assert_eq!(last.slot, ENDED_WORKERS_MAX + 4);
    }
}

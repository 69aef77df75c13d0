//! Records of starts: how many processes there are, and how often they may be started (O5, O6).
//!
//! In any window of 10 s, a program may fail to start once for each of its places. Beyond that, it may fail only as often
//! as the backoff allows: after each failed start the pause doubles, and only one start is tried at a time, until a new
//! worker has done a job.

use super::workers::WorkerBook;
use super::{Failure, Oracle, demand};
use offload_core::ids::{Mono, ProgramIndex, Version, WorkerId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct StartBook {
    pub(super) total: u64,
    /// The last worker that was ordered.
    pub(super) newest: Option<WorkerId>,
    programs: BTreeMap<ProgramIndex, Starts>,
}

#[derive(Default)]
struct Starts {
    /// Starts that failed.
    failed: VecDeque<Mono>,
    /// Jobs that may have ended a time of failing starts.
    resets: VecDeque<Mono>,
    is_good_since: bool,
    /// Some of them failed after their hello, which had let others be started meanwhile.
    after_hello: bool,
}

impl StartBook {
    pub(super) fn proved_good(&mut self, program: ProgramIndex) {
        self.programs.entry(program).or_default().is_good_since = true;
    }

    pub(super) fn did_a_job(&mut self, program: ProgramIndex) {
        self.programs.entry(program).or_default().is_good_since = true;
    }

    /// The past of all programs is forgotten.
    pub(super) fn forget(&mut self, programs: usize) {
        (0..programs).for_each(|program| self.did_a_job(program));
    }

    pub(super) fn died(
        &mut self,
        now: Mono,
        program: ProgramIndex,
        is_failed_start: bool,
        after_hello: bool,
    ) {
        let starts = self.programs.entry(program).or_default();
        if is_failed_start {
            starts.failed.push_back(now);
            starts.after_hello |= after_hello;
            let is_reset = std::mem::take(&mut starts.is_good_since);
            starts.resets.extend(is_reset.then_some(now));
        }
    }
}

impl Oracle {
    pub(super) fn judge_spawn(
        &mut self,
        now: Mono,
        worker: WorkerId,
        program: ProgramIndex,
        version: Version,
    ) -> Result<(), Failure> {
        let places = self.most_workers + 1 + self.reloads.places_for_trials();
        // A place that was given up keeps its process until that is gone, and one of another version is not taken back.
        let is_given_up = |book: &WorkerBook| book.is_leaving || book.version != version;
        let counts = |book: &&WorkerBook| !(book.is_gone || self.is_resized && is_given_up(book));
        let living = self.workers.values().filter(counts).count();
        demand(living < places, "O5", || format!("{worker} is one too many"))?;
        demand(!self.is_stopping && !self.is_over, "O5", || format!("{worker} is started at the end"))?;
        self.judge_version(program, version)?;
        let book = WorkerBook::new(now, program, version);
        demand(self.workers.insert(worker, book).is_none(), "O5", || format!("{worker} exists"))?;
        self.starts.total += 1;
        self.starts.newest = Some(worker);
        let by_backoff = self.starts_by_backoff();
        let starts = self.starts.programs.entry(program).or_default();
        for queue in [&mut starts.failed, &mut starts.resets] {
            while queue.front().is_some_and(|at| *at + WINDOW < now) {
                queue.pop_front();
            }
        }
        let at_a_time = if starts.after_hello { places } else { 1 };
        let budget = (1 + starts.resets.len()) * (places + by_backoff * at_a_time);
        demand(starts.failed.len() <= budget, "O6", || {
            format!("{} failed starts in 10 s, {budget} are allowed", starts.failed.len())
        })
    }

    /// How often the doubling pauses let a start be tried in the window, all of them failing.
    fn starts_by_backoff(&self) -> usize {
        let (first, longest) = self.least_backoff;
        let (mut pause, mut waited, mut starts) = (first.min(longest), Duration::ZERO, 1);
        while waited < WINDOW && pause < longest {
            waited += pause;
            pause = (pause * 2).min(longest);
            starts += 1;
        }
        starts + (WINDOW.saturating_sub(waited).as_nanos() / longest.as_nanos()) as usize + 1
    }
}

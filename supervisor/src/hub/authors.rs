//! Which job a line belongs to that a worker has printed. Lines come by a pipe and messages by a socket, so a line is often
//! read only after its job has ended. Nothing is done for a job that prints nothing, except to note its end.
//!
//! Each round of the event loop begins with a poll, which tells of everything that can be read. If a job ended before the
//! last two polls, what it printed was read after the first of these. The socket is read after the pipe. If a job's start
//! is not in it, the job had not begun when the line was printed. What is left:
//!
//! ```text
//!        the poll before        the last poll         the pipe is read, then the socket
//!  ------------|-----------------------|--------------------------|--------------------------> time
//!   an end      an end, or a suspension: it may have printed       a start: it may have printed, too
//!   heard of
//!   here: no
//! ```
//!
//! A line that was read in several pieces may be of all who may have printed a piece.
//!
//! If that is one job, the line is its line. If they are a few, the line names them all. If they are many, or if not all
//! that was printed before could be read in time, it names none. So no line is ascribed to a job that has not printed it,
//! as long as a worker prints nothing when it has no job.

use super::Hub;
use super::live_jobs::LiveJob;
use crate::limits::{ENDS_NOTED_MAX, LINE_AUTHORS_MAX};
use crate::workers::{Captured, OutputStream, escape_line};
use offload_core::event::Event;
use offload_core::ids::{JobId, Mono, WorkerId};
use offload_core::jobs::JobState;
use std::collections::BTreeMap;

/// The jobs that ended lately. See the module's documentation.
#[derive(Default)]
pub(super) struct Authors {
    now: Round,
    before: Round,
    /// Streams of which not everything has been read that was printed before this time.
    behind: BTreeMap<(WorkerId, u8), Mono>,
    /// Of streams with a line that has begun and not ended: who may have printed its beginning.
    begun: BTreeMap<(WorkerId, u8), Possible>,
}

/// The jobs that may have printed something, at most [`LINE_AUTHORS_MAX`], the first one first; none if that is not known.
type Possible = Option<Vec<JobId>>;

/// The jobs of both, each once.
fn either(some: Possible, others: Possible) -> Possible {
    let mut jobs: Vec<JobId> = Vec::new();
    some?.into_iter().chain(others?).for_each(|job| {
        if !jobs.contains(&job) {
            jobs.push(job);
        }
    });
    (jobs.len() <= LINE_AUTHORS_MAX).then_some(jobs)
}

/// One round of the event loop.
#[derive(Default)]
struct Round {
    number: u64,
    /// When the first event of the round was handled.
    since: Mono,
    ended: Vec<(WorkerId, JobId)>,
}

impl Round {
    /// The jobs of this worker that ended in this round. None if they are too many to be noted.
    fn ended_at(&self, worker: WorkerId) -> Option<impl Iterator<Item = JobId>> {
        let of_worker = move |(its, job): &(WorkerId, JobId)| (*its == worker).then_some(*job);
        (self.ended.len() < ENDS_NOTED_MAX).then(|| self.ended.iter().filter_map(of_worker))
    }
}

impl Authors {
    /// Something happens in this round.
    pub(super) fn enter(&mut self, number: u64, now: Mono) {
        if number == self.now.number {
            return;
        }
        std::mem::swap(&mut self.now, &mut self.before);
        if self.before.number + 1 != number {
            // Nothing happened in the round before.
            (self.before.number, self.before.since) = (number.saturating_sub(1), now);
            self.before.ended.clear();
        }
        (self.now.number, self.now.since) = (number, now);
        self.now.ended.clear();
    }

    /// A job that ran has ended.
    pub(super) fn ended(&mut self, worker: WorkerId, job: JobId) {
        if self.now.ended.len() < ENDS_NOTED_MAX {
            self.now.ended.push((worker, job));
        }
    }

    /// The jobs of a worker that have ended, and may have printed what is read now; the first one first. None if they are
    /// too many.
    fn ended_lately(&self, worker: WorkerId) -> Option<Vec<JobId>> {
        Some(self.before.ended_at(worker)?.chain(self.now.ended_at(worker)?).collect())
    }

    /// What was printed before this time has been read.
    fn horizon(&self) -> Mono {
        self.before.since
    }

    /// Whether everything that a stream had was read. Returns since when it was not, before this.
    fn note_read(&mut self, worker: WorkerId, stream: OutputStream, is_all: bool) -> Option<Mono> {
        let (key, horizon) = ((worker, stream as u8), self.horizon());
        let was_behind = self.behind.get(&key).copied();
        match is_all {
            true => drop(self.behind.remove(&key)),
            false => _ = self.behind.entry(key).or_insert(horizon),
        }
        was_behind
    }

    /// Who may have printed the lines of a read, if what was read was printed by these. Of the first line, the beginning may have been
    /// read before; and the beginning of the last one may be all that was read.
    fn lines_by(&mut self, key: (WorkerId, u8), now: Possible, captured: &Captured) -> Possible {
        let began = self.begun.remove(&key).unwrap_or(Some(Vec::new()));
        let lines_by = either(began, now.clone());
        if captured.has_begun {
            let has_ended_one = !captured.lines.is_empty() || captured.dropped > 0;
            self.begun.insert(key, if has_ended_one { now } else { lines_by.clone() });
        }
        lines_by
    }

    /// A worker is gone.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            self.behind.remove(&(worker, stream as u8));
            self.begun.remove(&(worker, stream as u8));
        }
    }
}

impl Hub {
    /// The job that ends if the core is told this event: one that runs at the worker which says so.
    pub(super) fn job_that_ends(&self, event: &Event) -> Option<(WorkerId, JobId)> {
        let (Event::Finished { worker, job, .. }
        | Event::Failed { worker, job, .. }
        | Event::Yielded { worker, job, .. }) = *event
        else {
            return None;
        };
        let state = self.core.jobs().get(job)?.state;
        let runs = matches!(state, JobState::Running { worker: its, .. } if its == worker);
        runs.then_some((worker, job))
    }

    /// A pipe of this worker has been read. The jobs that may have printed the lines; none if that is not known.
    pub(super) fn authors(
        &mut self,
        worker: WorkerId,
        stream: OutputStream,
        captured: &Captured,
    ) -> Vec<JobId> {
        let is_all_heard = self.hear_of_starts(worker);
        self.authors.enter(self.handle.polls(), self.time.now());
        let behind_since = self.authors.note_read(worker, stream, captured.is_all);
        let is_known = is_all_heard && behind_since.is_none_or(|since| self.runs_since(worker, since));
        let possible = self.possible_authors(worker).filter(|_| is_known);
        self.authors.lines_by((worker, stream as u8), possible, captured).unwrap_or_default()
    }

    /// Reads the messages of a worker that may have started another job. Returns whether all are read.
    fn hear_of_starts(&mut self, worker: WorkerId) -> bool {
        let load = self.core.slot_of(worker).and_then(|slot| self.core.slots()[slot].load());
        let may_have_started = load.is_some_and(|load| !load.waiting.is_empty());
        if !may_have_started {
            return true;
        }
        // A worker gets no more of a turn by printing.
        let mut share = self.processes.allowance.take_share();
        let is_all_heard = !self.leave_unread(worker) && !self.read_all_from(worker, &mut share);
        self.processes.allowance.give_back(share);
        is_all_heard
    }

    fn possible_authors(&self, worker: WorkerId) -> Possible {
        let mut possible = self.authors.ended_lately(worker)?;
        if let Some(load) = self.core.slot_of(worker).and_then(|slot| self.core.slots()[slot].load()) {
            let horizon = self.authors.horizon();
            let was_suspended = |suspended_at: Option<Mono>| suspended_at.is_some_and(|at| at >= horizon);
            let suspended = load.suspended.filter(|suspended| was_suspended(suspended.suspended_at));
            possible.extend(suspended.map(|suspended| suspended.job));
            possible.extend(load.running_job());
            possible.extend(load.together.iter().map(|running| running.job));
            // The worker is ended because of this one, and may still run it.
            possible.extend(load.ended);
        }
        either(Some(Vec::new()), Some(possible))
    }

    /// Whether the worker has run one job, or the same ones together, since before this time, and no other.
    fn runs_since(&self, worker: WorkerId, since: Mono) -> bool {
        let load = self.core.slot_of(worker).and_then(|slot| self.core.slots()[slot].load());
        let running = load.and_then(|load| load.running);
        running.is_some_and(|running| running.started_at < since && running.stood_still.is_zero())
    }

    /// The words for these jobs in front of a line: one job with its metadata, several without.
    pub(super) fn author_words(&self, jobs: &[JobId]) -> String {
        match jobs {
            [] => String::new(),
            [job] => format!(" job {}{}", self.name(*job), self.metadata_words(*job)),
            several => {
                let names: Vec<String> = several.iter().map(|job| self.name(*job)).collect();
                format!(" job {}", names.join(" or "))
            }
        }
    }

    /// The metadata of a job, as log lines show it.
    fn metadata_words(&self, job: JobId) -> String {
        let live = self.records.live(job).map(LiveJob::metadata);
        let metadata = live.or_else(|| Some(self.records.finished().record(job)?.report.metadata()));
        metadata.map_or_else(String::new, |metadata| {
            metadata.iter().map(|(key, value)| format!(" {key}={}", escape_line(value.as_bytes()))).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workers::CaptureState;

    const WORKER: WorkerId = WorkerId(1);

    fn at(nanos: u64) -> Mono {
        Mono::from_nanos(nanos)
    }

    #[test]
    fn a_job_may_have_printed_what_is_read_in_the_round_of_its_end_and_the_next_and_no_later() {
        let mut authors = Authors::default();
        authors.enter(5, at(50));
        authors.ended(WORKER, JobId(1));
        authors.ended(WorkerId(2), JobId(2));
        assert_eq!(authors.ended_lately(WORKER), Some(vec![JobId(1)]));
        authors.enter(6, at(60));
        authors.ended(WORKER, JobId(3));
        assert_eq!(authors.ended_lately(WORKER), Some(vec![JobId(1), JobId(3)]));
        authors.enter(7, at(70));
        assert_eq!(authors.ended_lately(WORKER), Some(vec![JobId(3)]));
        authors.enter(9, at(90));
        assert_eq!(authors.ended_lately(WORKER), Some(vec![]));
    }

    #[test]
    fn too_many_ends_are_not_noted_and_then_no_job_is_named() {
        let mut authors = Authors::default();
        authors.enter(1, at(1));
        (0..2 * ENDS_NOTED_MAX as u64).for_each(|job| authors.ended(WORKER, JobId(job)));
        assert_eq!((authors.ended_lately(WORKER), authors.now.ended.len()), (None, ENDS_NOTED_MAX));
    }

    fn read(lines: &[&str], has_begun: bool) -> Captured {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        let (dropped, last_dropped) = (0, Vec::new());
        Captured { lines, dropped, last_dropped, is_all: true, has_begun, state: CaptureState::Open }
    }

    /// As when a worker prints a line and its end one after the other, which are read one after the other.
    #[test]
    fn a_line_that_is_read_piece_by_piece_is_of_all_who_may_have_printed_a_piece() {
        let by = |jobs: &[u64]| Some(jobs.iter().map(|job| JobId(*job)).collect::<Vec<_>>());
        let key = (WORKER, 0);
        let mut authors = Authors::default();
        authors.lines_by(key, by(&[1]), &read(&[], true));
        assert_eq!(authors.lines_by(key, by(&[1]), &read(&["one"], false)), by(&[1]));
        authors.lines_by(key, by(&[1]), &read(&[], true));
        authors.lines_by(key, by(&[2]), &read(&[], true));
        assert_eq!(authors.lines_by(key, by(&[3]), &read(&["two", "three"], true)), by(&[1, 2, 3]));
        assert_eq!(
            authors.lines_by(key, by(&[4]), &read(&["four"], false)),
            by(&[3, 4]),
            "of the last one only what began"
        );
        assert_eq!(authors.lines_by(key, by(&[5]), &read(&["five"], false)), by(&[5]));
        authors.lines_by(key, None, &read(&[], true));
        assert_eq!(authors.lines_by(key, by(&[6]), &read(&["six"], true)), None, "nobody knows who began it");
        assert_eq!(authors.lines_by(key, by(&[7]), &read(&["seven"], false)), by(&[6, 7]));
        assert_eq!(
            authors.lines_by(key, by(&[1, 2, 3, 4, 5]), &read(&["x"], false)),
            None,
            "too many to be named"
        );
        authors.lines_by(key, by(&[8]), &read(&[], true));
        authors.forget(WORKER);
        assert!(authors.begun.is_empty());
    }

    #[test]
    fn what_was_not_read_in_time_is_remembered_until_all_is_read() {
        let mut authors = Authors::default();
        authors.enter(1, at(10));
        authors.enter(2, at(20));
        assert_eq!(authors.note_read(WORKER, OutputStream::Stdout, false), None);
        authors.enter(3, at(30));
        assert_eq!(authors.note_read(WORKER, OutputStream::Stderr, true), None);
        assert_eq!(authors.note_read(WORKER, OutputStream::Stdout, false), Some(at(10)));
        assert_eq!(authors.note_read(WORKER, OutputStream::Stdout, true), Some(at(10)));
        assert_eq!(authors.note_read(WORKER, OutputStream::Stdout, true), None);
        authors.note_read(WORKER, OutputStream::Stdout, false);
        authors.forget(WORKER);
        assert!(authors.behind.is_empty());
    }
}

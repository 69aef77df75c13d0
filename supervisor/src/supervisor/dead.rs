//! Dead letters: jobs whose every allowed attempt ended its worker, with their inputs and with all that is known of
//! how that went, until somebody drops them or has them done again. The oldest make room for the youngest; one whose
//! input alone is over the limit is not kept.

use super::orders::{Order, micros};
use super::{Hub, Refused, Submitted};
use crate::core::action::{Ended, LostAttempt};
use crate::core::ids::JobId;
use crate::job::Job;
use crate::limits::{DEAD_BYTES_MAX, DEAD_LETTERS_MAX, LISTED_LINE_MAX};
use crate::views::{AttemptView, DeadView, UsageView};
use offload_protocol::nouns::{Report, cut};
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct DeadLetters {
    letters: BTreeMap<JobId, Letter>,
    /// In the order in which they died.
    order: VecDeque<JobId>,
    input_bytes: usize,
}

#[derive(Debug)]
struct Letter {
    job: Job,
    died_at: Instant,
    error: String,
    attempts: Vec<AttemptView>,
}

impl DeadLetters {
    fn insert(&mut self, id: JobId, letter: Letter) {
        if letter.job.input.len() > DEAD_BYTES_MAX {
            return;
        }
        self.input_bytes += letter.job.input.len();
        self.letters.insert(id, letter);
        self.order.push_back(id);
        while self.letters.len() > DEAD_LETTERS_MAX || self.input_bytes > DEAD_BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            self.remove(oldest);
        }
    }

    fn remove(&mut self, id: JobId) -> Option<Letter> {
        let letter = self.letters.remove(&id)?;
        self.input_bytes -= letter.job.input.len();
        self.order.retain(|other| *other != id);
        Some(letter)
    }
}

impl Hub {
    /// A job has died for good.
    pub(super) fn bury_letter(&mut self, ended: &Ended, order: &Order, report: &Report) {
        let attempts = self.attempt_views(&ended.lost);
        let error =
            report.error.as_ref().map_or(String::new(), |error| format!("{}: {}", error.code, error.message));
        let mut options = order.options.clone();
        // Another try is another job.
        options.idempotency = None;
        let job = Job::new(&order.task)
            .input(order.input.clone())
            .content(order.content)
            .options(options)
            .client(&order.client);
        self.dead.insert(ended.job, Letter { job, died_at: Instant::now(), error, attempts });
    }

    /// Those that are older than this one, the youngest first, with few of the last words.
    pub(super) fn dead_before(&self, id: JobId) -> impl Iterator<Item = (JobId, DeadView)> {
        let letters = self.dead.letters.range(..id).rev();
        letters.map(|(id, letter)| (*id, self.dead_view(*id, letter, letter.attempts.iter().map(brief))))
    }

    /// One of them.
    pub(crate) fn dead_letter(&self, id: JobId) -> Option<DeadView> {
        let letter = self.dead.letters.get(&id)?;
        Some(self.dead_view(id, letter, letter.attempts.iter().cloned()))
    }

    /// Forgets one. False if it is not there.
    pub(crate) fn drop_dead_letter(&mut self, id: JobId) -> bool {
        self.dead.remove(id).is_some()
    }

    /// Submits the job again, as a new one whose output is kept, and forgets the letter if that was accepted. None if
    /// it is not there.
    pub(crate) fn retry_dead_letter(&mut self, id: JobId) -> Option<Result<Submitted, Refused>> {
        let job = self.dead.letters.get(&id)?.job.clone();
        let submitted = self.submit(job, true, None);
        if submitted.is_ok() {
            self.dead.remove(id);
        }
        Some(submitted)
    }

    fn dead_view(&self, id: JobId, letter: &Letter, attempts: impl Iterator<Item = AttemptView>) -> DeadView {
        DeadView {
            job: self.name(id),
            task: letter.job.task.clone(),
            client: letter.job.client.clone(),
            dead_for_us: micros(letter.died_at.elapsed()),
            input_bytes: letter.job.input.len() as u64,
            error: letter.error.clone(),
            attempts: attempts.collect(),
        }
    }

    pub(super) fn attempt_views(&self, lost: &[LostAttempt]) -> Vec<AttemptView> {
        lost.iter().map(|lost| self.attempt_view(lost)).collect()
    }

    fn attempt_view(&self, lost: &LostAttempt) -> AttemptView {
        AttemptView {
            attempt: lost.attempt,
            worker_pid: lost.place.and_then(|place| self.pid_of(place.worker)).unwrap_or(0),
            slot: lost.place.map(|place| place.slot),
            ran_us: micros(lost.ran),
            code: lost.code.to_string(),
            what: lost.what.clone(),
            signal: lost.exit.signal(),
            exit_code: lost.exit.code(),
            last_lines: lost.last_lines.clone(),
            usage: lost.usage.map(|usage| UsageView {
                cpu_user_us: micros(usage.cpu_user),
                cpu_system_us: micros(usage.cpu_system),
                peak_rss_bytes: usage.peak_rss_bytes,
            }),
            previous_jobs: lost.previous.iter().map(|job| self.name(*job)).collect(),
            blamed: lost.is_blamed,
        }
    }
}

/// An attempt as a list shows it: of what its worker printed last, the beginning of the last line.
fn brief(attempt: &AttemptView) -> AttemptView {
    let last = attempt.last_lines.last().map(|line| cut(line, LISTED_LINE_MAX).to_owned());
    AttemptView {
        attempt: attempt.attempt,
        worker_pid: attempt.worker_pid,
        slot: attempt.slot,
        ran_us: attempt.ran_us,
        code: attempt.code.clone(),
        what: attempt.what.clone(),
        signal: attempt.signal,
        exit_code: attempt.exit_code,
        last_lines: last.into_iter().collect(),
        usage: attempt.usage,
        previous_jobs: attempt.previous_jobs.clone(),
        blamed: attempt.blamed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(bytes: usize) -> Letter {
        let job = Job::new("x").input(vec![0; bytes]);
        Letter { job, died_at: Instant::now(), error: String::new(), attempts: Vec::new() }
    }

    #[test]
    fn the_oldest_letters_make_room_by_number_and_by_bytes() {
        let mut dead = DeadLetters::default();
        (1..=DEAD_LETTERS_MAX as u64 + 2).for_each(|job| dead.insert(JobId(job), letter(1)));
        assert_eq!(dead.letters.len(), DEAD_LETTERS_MAX);
        assert!(!dead.letters.contains_key(&JobId(2)) && dead.letters.contains_key(&JobId(3)));
        dead.insert(JobId(4999), letter(DEAD_BYTES_MAX + 1));
        assert_eq!(dead.letters.len(), DEAD_LETTERS_MAX, "one that can never fit costs no other its place");
        dead.insert(JobId(5000), letter(DEAD_BYTES_MAX));
        assert_eq!((dead.letters.len(), dead.input_bytes), (1, DEAD_BYTES_MAX));
        assert!(dead.remove(JobId(5000)).is_some() && dead.remove(JobId(5000)).is_none());
        assert_eq!(dead.input_bytes, 0);
    }
}

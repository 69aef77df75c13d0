//! Dead letters: jobs that were given up because every allowed attempt ended its worker process. Each is kept with its
//! input and the record of its attempts until a user deletes or retries it, or until its time is over. The core
//! decides which ones are kept, and for how long (`core::letters`).

use super::live_jobs::{LiveJob, micros};
use super::{Hub, RefusedJob};
use crate::job::{Input, Job};
use crate::limits::LISTED_LINE_MAX;
use crate::peer::Peer;
use crate::views::{AttemptView, DeadView, UsageView};
use bytes::Bytes;
use offload_core::action::{Accepted, Ended, LetterKept, LostAttempt};
use offload_core::event::Event;
use offload_core::ids::JobId;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode, Report, cut};
use std::collections::BTreeMap;
use std::time::Instant;

/// The kept dead letters. See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct DeadLetters {
    letters: BTreeMap<JobId, Letter>,
}

#[derive(Debug)]
struct Letter {
    job: Job,
    /// There was room for the input as well, so the job can be retried.
    has_input: bool,
    /// The input was a file. Only its length is kept.
    was_file: bool,
    input_bytes: u64,
    died_at: Instant,
    error: String,
    attempts: Vec<AttemptView>,
}

impl DeadLetters {
    /// Removes a dead letter. Returns false if it does not exist.
    pub(super) fn forget(&mut self, id: JobId) -> bool {
        self.letters.remove(&id).is_some()
    }

    /// The task of each dead letter.
    pub(super) fn tasks(&self) -> impl Iterator<Item = &str> {
        self.letters.values().map(|letter| letter.job.task())
    }

    fn get(&self, id: JobId) -> Option<&Letter> {
        self.letters.get(&id)
    }

    /// The dead letters that are older than this job, the youngest first.
    fn before(&self, id: JobId) -> impl Iterator<Item = (JobId, &Letter)> {
        self.letters.range(..id).rev().map(|(id, letter)| (*id, letter))
    }
}

impl Hub {
    /// Keeps a job that has died for good as a dead letter, if the core has made room for it.
    pub(super) fn add_dead_letter(
        &mut self,
        ended: &Ended,
        letter: LetterKept,
        live_job: &LiveJob,
        report: &Report,
    ) {
        let has_input = match letter {
            LetterKept::Whole => !live_job.input.is_file(),
            LetterKept::WithoutInput => false,
            LetterKept::Not => return,
        };
        let attempts = self.attempt_views(&ended.lost);
        let error = report.error.as_ref().map_or(String::new(), ToString::to_string);
        let mut options = live_job.options();
        // A retry is a new job, so it does not reuse the idempotency key, and nobody reads it as a stream.
        options.stream = false;
        options.idempotency = None;
        let input = match &live_job.input {
            Input::Bytes(bytes) if has_input => bytes.clone(),
            Input::Bytes(_) | Input::File(_) => Bytes::new(),
        };
        let job = Job::new(&*ended.task)
            .input(input)
            .media_type(live_job.media_type.clone())
            .options(options)
            .client(live_job.client(&ended.account));
        let (died_at, input_bytes) = (Instant::now(), live_job.input.length());
        let was_file = live_job.input.is_file();
        let letter = Letter { job, has_input, was_file, input_bytes, died_at, error, attempts };
        self.records.dead_mut().letters.insert(ended.job, letter);
    }

    /// The dead letters that are older than this job, the youngest first. Of what the workers printed last they show
    /// little.
    pub(super) fn dead_before(&self, id: JobId) -> impl Iterator<Item = (JobId, DeadView)> {
        let letters = self.records.dead().before(id);
        letters.map(|(id, letter)| (id, self.dead_view(id, letter, letter.attempts.iter().map(brief))))
    }

    /// One dead letter in full.
    pub(crate) fn dead_letter(&self, id: JobId) -> Option<DeadView> {
        let letter = self.records.dead().get(id)?;
        Some(self.dead_view(id, letter, letter.attempts.iter().cloned()))
    }

    /// Explains to a user why there is no dead letter of the job with this name.
    pub(crate) fn why_no_letter(&self, name: &str) -> String {
        let none = "there is no dead letter of this job";
        let Some(job) = self.find(name) else {
            return format!("{none}; `offload dead list` shows those that there are");
        };
        match self.records.finished().record(job).map(|record| record.report.outcome) {
            None if self.core.jobs().get(job).is_some() => format!("{none}: it has not ended"),
            None => format!("{none}: {}", self.why_unknown(name)),
            Some(OutcomeCode::Ok) => format!("{none}: it has ended well"),
            Some(OutcomeCode::Poison) => {
                format!("{none} any more: it was retried, dropped or forgotten, or there was no room for it")
            }
            Some(outcome) => format!(
                "{none}: it has ended as {outcome}, and the input is kept only of jobs that crashed a worker in each of \
                 several attempts; submit it anew"
            ),
        }
    }

    /// Deletes a dead letter. Returns false if it does not exist.
    pub(crate) fn drop_dead_letter(&mut self, id: JobId) -> bool {
        let was_there = self.records.dead_mut().forget(id);
        self.handle_event(Event::LetterDropped { job: id });
        was_there
    }

    /// Submits the job again, as a new job whose output is kept, and deletes the dead letter if the job was accepted.
    /// The new job belongs to the client (name and process) that asks for it. None if the dead letter does not exist.
    pub(crate) fn retry_dead_letter(
        &mut self,
        id: JobId,
        (client, peer): (&str, Peer),
    ) -> Option<Result<Accepted, RefusedJob>> {
        let letter = self.records.dead().get(id)?;
        if !letter.has_input {
            let bytes = letter.input_bytes;
            let message = match letter.was_file {
                true => {
                    format!("its input was a file of {bytes} bytes, which is not kept; submit the job anew")
                }
                false => format!(
                    "there was no room to keep the input of {bytes} bytes with the dead letter; submit the job anew"
                ),
            };
            let error = ErrorDetail::new(OutcomeCode::StorageFull, message);
            let task = letter.job.task.clone();
            return Some(Err(RefusedJob { error, task, subscriber: None }));
        }
        let job = Job { peer: Some(peer), ..letter.job.clone().client(client) };
        let submitted = self.submit(job, true, None);
        if submitted.is_ok() {
            self.drop_dead_letter(id);
        }
        Some(submitted)
    }

    fn dead_view(&self, id: JobId, letter: &Letter, attempts: impl Iterator<Item = AttemptView>) -> DeadView {
        DeadView {
            job: self.name(id),
            task: letter.job.task.clone(),
            client: letter.job.client.as_ref().to_owned(),
            dead_for_us: micros(letter.died_at.elapsed()),
            input_bytes: letter.input_bytes,
            has_input: letter.has_input,
            kept_for_us: self.core.letters().kept_until(id).map_or(0, |until| micros(until - self.now())),
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

/// An attempt as lists show it: of the worker's last lines, only the beginning of the last one.
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

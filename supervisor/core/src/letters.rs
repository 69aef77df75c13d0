//! Dead letters: jobs whose every allowed attempt ended its worker. The shell keeps them with their inputs, so that
//! people can see what happened or have a job tried again. The core decides which dead letters are kept, and until
//! when.
//!
//! A dead letter that is kept stays until its time is over, or until somebody drops it or has it tried again. No
//! other letter, of the same client or of another, ever takes its place. When a client already has as many as it
//! leaves free, or none is free, the *new* letter is not kept, and the job's error says so. A shortage of room for
//! letters never refuses a job at submission: otherwise the bad inputs of a client would stop its good ones. If only
//! the input finds no room, the letter is kept without its input.

use super::Core;
use super::action::{Action, Ended, LetterKept, Notice};
use super::ids::{JobId, Mono};
use super::kept::{Kept, share, whose};
use super::turn::Turn;
use crate::limits::PROMISE_BYTES;
use offload_protocol::nouns::OutcomeCode;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All dead letters.
#[derive(Debug, Default)]
pub struct Letters {
    by_job: BTreeMap<JobId, Letter>,
    kept: Kept,
    ends: BTreeSet<(Mono, JobId)>,
    not_kept: u64,
}

#[derive(Debug)]
struct Letter {
    account: Arc<str>,
    bytes: u64,
    until: Mono,
}

impl Letters {
    /// How many letters there are and how many bytes they hold, by account and in total.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// How many jobs became dead letters that could not be kept.
    pub fn not_kept(&self) -> u64 {
        self.not_kept
    }

    /// Until when the letter of this job is kept, if there is one.
    pub fn kept_until(&self, job: JobId) -> Option<Mono> {
        self.by_job.get(&job).map(|letter| letter.until)
    }

    /// When the next letter's time is over.
    pub fn next_end(&self) -> Option<Mono> {
        self.ends.first().map(|(when, _)| *when)
    }

    fn insert(&mut self, job: JobId, letter: Letter) {
        self.kept.hold(&letter.account, letter.bytes);
        self.ends.insert((letter.until, job));
        self.by_job.insert(job, letter);
    }

    fn remove(&mut self, job: JobId) {
        let Some(letter) = self.by_job.remove(&job) else { return };
        self.kept.release(&letter.account, letter.bytes);
        self.ends.remove(&(letter.until, job));
    }

    /// Checks the sums.
    pub(super) fn check(&self) -> Result<(), String> {
        let bytes: u64 = self.by_job.values().map(|letter| letter.bytes).sum();
        let sum = super::kept::Sum { count: self.by_job.len(), bytes };
        let is_right = sum == self.kept.all() && self.ends.len() == self.by_job.len();
        if is_right { Ok(()) } else { Err("dead letters do not add up".to_owned()) }
    }
}

impl Core {
    /// The dead letters.
    pub fn letters(&self) -> &Letters {
        &self.letters
    }

    /// A job has ended. If it is a dead letter, decides whether it is kept, and notes that in `ended`.
    pub(super) fn keep_letter(&mut self, turn: &mut Turn<'_>, input_bytes: u64, ended: &mut Ended) {
        if ended.outcome != OutcomeCode::Poison {
            return;
        }
        let account = &ended.account.clone();
        let record = PROMISE_BYTES + ended.text_bytes();
        let (own, all) = (self.letters.kept.of(account), self.letters.kept.all());
        let (most, most_bytes) = (self.config.max_dead_letters as u64, self.config.max_dead_bytes);
        let has_place = share(own.count as u64, all.count as u64, 1, most).is_ok();
        let fits = |bytes: u64| has_place && share(own.bytes, all.bytes, bytes, most_bytes).is_ok();
        let letter = match () {
            () if fits(record + input_bytes) => LetterKept::Whole,
            () if fits(record) => LetterKept::WithoutInput,
            () => LetterKept::Not,
        };
        ended.letter = Some(letter);
        let why = match letter {
            LetterKept::Whole => None,
            LetterKept::WithoutInput => Some("its dead letter is kept without the input"),
            LetterKept::Not => Some("it is not kept as a dead letter"),
        };
        if let (Some(why), Some(error)) = (why, &mut ended.error) {
            error.message.push_str(&format!(
                "; {why}: there are {} letters of {} with {} bytes, and {} with {} bytes in all; the limits are {most} \
                 and {most_bytes}, and of one client as much is kept as it leaves free",
                own.count,
                whose(account),
                own.bytes,
                all.count,
                all.bytes
            ));
        }
        if letter == LetterKept::Not {
            self.letters.not_kept += 1;
            turn.push(Action::Log(Notice::LetterNotKept { job: ended.job }));
            return;
        }
        let bytes = record + if letter == LetterKept::Whole { input_bytes } else { 0 };
        let until = turn.now + self.config.keep_dead_letters;
        self.letters.insert(ended.job, Letter { account: account.clone(), bytes, until });
    }

    /// Forgets the letters whose time is over.
    pub(super) fn end_letters(&mut self, turn: &mut Turn<'_>) {
        while let Some(&(_, job)) = self.letters.ends.first().filter(|(when, _)| *when <= turn.now) {
            self.letters.remove(job);
            turn.push(Action::ForgetLetter { job });
        }
    }

    /// Somebody has dropped a letter, or has had its job tried again.
    pub(super) fn on_letter_dropped(&mut self, job: JobId) {
        self.letters.remove(job);
    }

    /// The supervisor has ended: nobody can come back for a letter, so all are forgotten. The count of letters not
    /// kept stays.
    pub(super) fn forget_letters(&mut self) {
        let not_kept = self.letters.not_kept;
        self.letters = Letters { not_kept, ..Letters::default() };
    }
}

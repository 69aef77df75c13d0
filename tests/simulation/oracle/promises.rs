//! The books about what was promised beyond the end of a job (O17): keys, results that nobody has taken, dead letters.

use super::{Failure, Oracle, demand};
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::core::Core;
use offload_supervisor::core::action::{Action, Ended, Keep, LetterKept, Released};
use offload_supervisor::core::event::{Event, JobRequest, Key};
use offload_supervisor::core::ids::{JobId, Mono};
use offload_supervisor::core::jobs::JobState;
use offload_supervisor::core::kept::{Owner, Sum};
use offload_supervisor::limits::PROMISE_BYTES;
use std::collections::{BTreeMap, BTreeSet};

/// What was promised and is not over.
#[derive(Debug, Default)]
pub(super) struct PromiseBooks {
    promises: BTreeMap<JobId, PromiseBook>,
    letters: BTreeMap<JobId, LetterBook>,
    /// What has to be released by this event, and has not been.
    due: BTreeSet<JobId>,
    letters_due: BTreeSet<JobId>,
}

#[derive(Debug)]
struct PromiseBook {
    owner: Owner,
    key: Option<Key>,
    task: String,
    bytes: u64,
    /// Once the job has ended.
    until: Option<Mono>,
    /// Somebody waits for it, and there is no key.
    is_taken_at_once: bool,
}

#[derive(Debug)]
struct LetterBook {
    owner: Owner,
    bytes: u64,
    until: Mono,
}

fn sum_of(bytes: impl Iterator<Item = u64>) -> Sum {
    bytes.fold(Sum::default(), |sum, bytes| Sum { count: sum.count + 1, bytes: sum.bytes + bytes })
}

impl PromiseBooks {
    fn kept_for(&self, owner: &Owner) -> Sum {
        sum_of(self.promises.values().filter(|book| book.owner == *owner).map(|book| book.bytes))
    }

    fn kept(&self) -> Sum {
        sum_of(self.promises.values().map(|book| book.bytes))
    }

    /// When the next promise or letter is over.
    pub(super) fn next_end(&self) -> Option<Mono> {
        let promises = self.promises.values().filter_map(|book| book.until);
        promises.chain(self.letters.values().map(|book| book.until)).min()
    }

    pub(super) fn count(&self) -> usize {
        self.promises.len() + self.letters.len()
    }

    /// It is over with all of it.
    pub(super) fn clear(&mut self) {
        *self = PromiseBooks::default();
    }
}

impl PromiseBooks {
    /// Whether something was promised of this job.
    pub(super) fn has(&self, job: JobId) -> bool {
        self.promises.contains_key(&job)
    }
}

impl Oracle {
    /// Whether the key stands for a job already, and for the same.
    pub(super) fn known(&self, request: &JobRequest) -> Option<(JobId, bool)> {
        let key = request.key.as_ref()?;
        let is_it = |book: &PromiseBook| {
            book.owner == request.owner && book.key.as_ref().is_some_and(|known| known.name == key.name)
        };
        let (id, book) = self.promises.promises.iter().find(|(_, book)| is_it(book))?;
        Some((*id, book.key.as_ref() == Some(key) && book.task == request.task))
    }

    /// Whether another promise has no room among those of its owner, and among all; none if none is asked for.
    pub(super) fn is_full_of_promises(&self, request: &JobRequest) -> (bool, bool) {
        if request.key.is_none() && !request.keeps_output {
            return (false, false);
        }
        let (own, all) = (self.promises.kept_for(&request.owner).bytes, self.promises.kept().bytes);
        let config = &self.config;
        (own + PROMISE_BYTES > config.max_kept_bytes / 2, all + PROMISE_BYTES > config.max_kept_bytes)
    }

    pub(super) fn promise(&mut self, id: JobId, request: &JobRequest) {
        if request.key.is_none() && !request.keeps_output {
            return;
        }
        let book = PromiseBook {
            owner: request.owner.clone(),
            key: request.key.clone(),
            task: request.task.clone(),
            bytes: PROMISE_BYTES,
            until: None,
            is_taken_at_once: false,
        };
        self.promises.promises.insert(id, book);
    }

    /// What an event means for promises, before anything is done about it.
    pub(super) fn note_promises(&mut self, now: Mono, event: &Event) {
        let books = &mut self.promises;
        let is_over = |until: Mono| until <= now;
        let over = books.promises.iter().filter(|(_, book)| book.until.is_some_and(is_over));
        books.due = over.map(|(job, _)| *job).collect();
        let over = books.letters.iter().filter(|(_, book)| is_over(book.until));
        books.letters_due = over.map(|(job, _)| *job).collect();
        match event {
            Event::Collected { job } => {
                let book = books.promises.get(job).filter(|book| book.until.is_some() && book.key.is_none());
                books.due.extend(book.map(|_| *job));
            }
            Event::Awaited { job } => {
                if let Some(book) = books.promises.get_mut(job) {
                    book.is_taken_at_once = book.key.is_none();
                }
            }
            Event::LetterDropped { job } if !books.letters_due.contains(job) => {
                books.letters.remove(job);
            }
            _ => {}
        }
    }

    pub(super) fn judge_release(
        &mut self,
        now: Mono,
        event: &Event,
        job: JobId,
        why: Released,
    ) -> Result<(), Failure> {
        let is_due = self.promises.due.remove(&job);
        let book = self.promises.promises.remove(&job);
        let is_over = book.as_ref().and_then(|book| book.until).is_some_and(|until| until <= now);
        let was_collected = matches!(event, Event::Collected { job: collected } if *collected == job);
        let is_right = match why {
            Released::TimeIsOver => is_over,
            Released::Collected => was_collected && !is_over,
        };
        demand(is_due && is_right, "O17", || format!("{job} is released, {why:?}: {book:?}"))
    }

    pub(super) fn judge_letter_forgotten(&mut self, job: JobId) -> Result<(), Failure> {
        let is_due = self.promises.letters_due.remove(&job);
        self.promises.letters.remove(&job);
        demand(is_due, "O17", || format!("the dead letter of {job} is forgotten before its time"))
    }

    /// A job has ended: what was promised must be kept from now on.
    pub(super) fn judge_keeping(&mut self, now: Mono, event: &Event, ended: &Ended) -> Result<(), Failure> {
        let id = ended.job;
        let is_ending = self.is_ending();
        let kept = self.promises.kept().bytes;
        let owner = self.promises.promises.get(&id).map(|book| book.owner.clone()).unwrap_or_default();
        let own = self.promises.kept_for(&owner).bytes;
        let output = match event {
            Event::Finished { output_bytes, job, .. } if *job == id && ended.outcome == OutcomeCode::Ok => {
                *output_bytes
            }
            _ => 0,
        };
        let config = &self.config;
        let Some(book) = self.promises.promises.get_mut(&id) else {
            return demand(ended.keep == Keep::AsCourtesy, "O17", || {
                format!("{id} is kept and nothing was promised")
            });
        };
        let time =
            if book.key.is_some() { config.keep_keys.max(config.keep_results) } else { config.keep_results };
        book.until = Some(now + time);
        let more = ended.text_bytes() + output;
        let lacks_room = own + more > config.max_kept_bytes / 2 || kept + more > config.max_kept_bytes;
        if ended.keep == Keep::Promised {
            book.bytes = PROMISE_BYTES + more;
        }
        let is_kept = match ended.keep {
            Keep::AsCourtesy => false,
            Keep::Promised => !(book.is_taken_at_once && lacks_room),
            Keep::WithoutOutput => (book.is_taken_at_once || is_ending) && lacks_room,
        };
        demand(is_kept, "O17", || format!("{id} is not kept as was promised: {:?}", ended.keep))
    }

    /// A job has died, or has not: whether there is a letter.
    pub(super) fn judge_letter(&mut self, now: Mono, ended: &Ended) -> Result<(), Failure> {
        let id = ended.job;
        let Some(letter) = ended.letter else {
            return demand(ended.outcome != OutcomeCode::Poison, "O17", || format!("no letter of {id}"));
        };
        let book = &self.jobs[&id];
        let (owner, input) = (book.owner.clone(), book.bytes);
        let message = ended.error.as_ref().map_or("", |error| &error.message);
        let added = message.find("; it").map_or(0, |at| message.len() - at) as u64;
        let record = PROMISE_BYTES + ended.text_bytes() - added;
        let all = sum_of(self.promises.letters.values().map(|book| book.bytes));
        let of_owner = self.promises.letters.values().filter(|book| book.owner == owner);
        let own = sum_of(of_owner.map(|book| book.bytes));
        let (count, bytes) = (self.config.max_dead_letters, self.config.max_dead_bytes);
        let fits = |more: u64| {
            own.count < count.div_ceil(4)
                && own.bytes + more <= bytes / 4
                && all.count < count
                && all.bytes + more <= bytes
        };
        let expected = match (fits(record + input), fits(record)) {
            (true, _) => LetterKept::Whole,
            (false, true) => LetterKept::WithoutInput,
            (false, false) => LetterKept::Not,
        };
        let until = now + self.config.keep_dead_letters;
        if letter != LetterKept::Not {
            let bytes = record + if letter == LetterKept::Whole { input } else { 0 };
            self.promises.letters.insert(id, LetterBook { owner, bytes, until });
        }
        demand(letter == expected, "O17", || {
            format!("the letter of {id} is kept: {letter:?}, not {expected:?}")
        })
    }

    /// A job is given out: there must be room for what it returns, if that is to be kept.
    pub(super) fn judge_room(&self, id: JobId) -> Result<(), Failure> {
        let is_over = self.is_over_its_room(id, 0) && !self.is_ending();
        demand(!is_over, "O16", || format!("{id} is given out and there is no room for its output"))
    }

    /// Whether the job's output is to be kept, and what is kept is over its limit less one part in so many.
    fn is_over_its_room(&self, id: JobId, less: u64) -> bool {
        let books = &self.promises;
        let Some(book) = books.promises.get(&id).filter(|book| !book.is_taken_at_once) else { return false };
        let part = |limit: u64| limit - limit.checked_div(less).unwrap_or(0);
        let kept_of_ended = |of: Option<&Owner>| {
            let ended = books.promises.values().filter(|book| book.until.is_some());
            let whose = ended.filter(|book| of.is_none_or(|owner| book.owner == *owner));
            whose.map(|book| book.bytes).sum::<u64>()
        };
        let most = self.config.max_kept_bytes;
        kept_of_ended(Some(&book.owner)) > part(most / 2) || kept_of_ended(None) > part(most)
    }

    pub(super) fn compare_promises(&self, core: &Core) -> Result<(), Failure> {
        let books = &self.promises;
        demand(books.due.is_empty(), "O17", || format!("kept beyond its time: {:?}", books.due))?;
        demand(books.letters_due.is_empty(), "O17", || "letters are kept beyond their time".to_owned())?;
        let (here, there) = (books.kept(), core.promises().kept().all());
        demand(here == there, "O17", || format!("{here:?} is kept, not {there:?}"))?;
        for (job, book) in &books.promises {
            demand(core.promises().kept_until(*job) == book.until, "O17", || {
                format!("{job} is kept until {:?}: {book:?}", core.promises().kept_until(*job))
            })?;
            let (here, there) = (books.kept_for(&book.owner), core.promises().kept().of(&book.owner));
            demand(here == there, "O17", || format!("{here:?} of {}, not {there:?}", book.owner))?;
        }
        let (here, there) =
            (sum_of(books.letters.values().map(|book| book.bytes)), core.letters().kept().all());
        demand(here == there, "O17", || format!("{here:?} of dead letters, not {there:?}"))?;
        for id in &self.live {
            let is_held = core.jobs().get(*id).is_some_and(|job| job.state == JobState::Held);
            let is_excused = || self.is_over_its_room(*id, 8) && !self.is_ending();
            demand(!is_held || is_excused(), "O9", || format!("{id} is held back and there is room"))?;
        }
        Ok(())
    }

    /// Releases and letters of one event.
    pub(super) fn judge_promise_action(
        &mut self,
        now: Mono,
        event: &Event,
        action: &Action,
    ) -> Result<(), Failure> {
        match action {
            Action::Release { job, why } => self.judge_release(now, event, *job, *why),
            Action::ForgetLetter { job } => self.judge_letter_forgotten(*job),
            Action::Finish(ended) => {
                self.judge_letter(now, ended)?;
                self.judge_keeping(now, event, ended)
            }
            Action::Run { job, .. } => self.judge_room(*job),
            Action::Over => {
                self.promises.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

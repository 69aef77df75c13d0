//! Records of what is kept beyond the end of a job (O17): keys, uncollected results, dead letters.

mod room;

use super::{Failure, Oracle, demand};
use offload_core::Core;
use offload_core::action::{Action, Ended, Keep, LetterKept, Released};
use offload_core::event::{Event, JobRequest, Key};
use offload_core::ids::{JobId, Mono, WorkerId};
use offload_core::jobs::JobState;
use offload_core::kept::{Owner, Sum};
use offload_core::limits::{ACCOUNTS_CAPPED, LEFT_FOR_OTHERS, PROMISE_BYTES};
use offload_protocol::nouns::OutcomeCode;
use std::collections::{BTreeMap, BTreeSet};

/// What was promised and is not over.
#[derive(Debug, Default)]
pub(super) struct PromiseBooks {
    promises: BTreeMap<JobId, PromiseBook>,
    letters: BTreeMap<JobId, LetterBook>,
    /// What has to be released by this event, and has not been.
    due: BTreeSet<JobId>,
    letters_due: BTreeSet<JobId>,
    /// Jobs that were held back after the event before.
    held: BTreeSet<JobId>,
    /// The job that a client has beyond its share, because somebody waited for it.
    beyond: BTreeMap<String, JobId>,
    /// What is expected of jobs in flight at least: of those that were so all the while, and of those that this event has
    /// started.
    coming: BTreeMap<JobId, u64>,
    /// What is expected of jobs in flight after this event. Taken from the core, which has learned it.
    coming_then: BTreeMap<JobId, u64>,
}

#[derive(Debug)]
struct PromiseBook {
    client: String,
    owner: Owner,
    key: Option<Key>,
    task: String,
    bytes: u64,
    is_of_stranger: bool,
    /// Once the job has ended.
    until: Option<Mono>,
    /// Somebody waits for it, and there is no key.
    is_awaited: bool,
    /// It has ended, with much more than was reserved for it.
    has_left_much: bool,
}

#[derive(Debug)]
struct LetterBook {
    client: String,
    bytes: u64,
    until: Mono,
}

/// Whether somebody who has so much may have so much more, where there is so much in all: as much as is left free then,
/// or anything where there is nothing.
fn fits((own, all): (u64, u64), more: u64, limit: u64) -> bool {
    all + more <= limit && (all == 0 || own + more <= limit - all - more)
}

fn sum_of(bytes: impl Iterator<Item = u64>) -> Sum {
    bytes.fold(Sum::default(), |sum, bytes| Sum { count: sum.count + 1, bytes: sum.bytes + bytes })
}

impl PromiseBooks {
    fn kept_for(&self, client: &str) -> Sum {
        sum_of(self.promises.values().filter(|book| book.client == client).map(|book| book.bytes))
    }

    /// The same of jobs that have ended.
    fn kept_of_ended(&self, client: Option<&str>) -> u64 {
        let ended = self.promises.values().filter(|book| book.until.is_some());
        let whose = ended.filter(|book| client.is_none_or(|client| book.client == client));
        whose.map(|book| book.bytes).sum()
    }

    /// What is expected of jobs in flight.
    fn coming(&self, client: Option<&str>) -> u64 {
        let is_of = |job: &JobId| {
            client.is_none_or(|client| self.promises.get(job).is_some_and(|book| book.client == client))
        };
        self.coming.iter().filter(|(job, _)| is_of(job)).map(|(_, bytes)| bytes).sum()
    }

    fn kept(&self) -> Sum {
        sum_of(self.promises.values().map(|book| book.bytes))
    }

    /// How much of all that takes room from others, or only of jobs that have ended: of the clients that have most, one after
    /// the other, no more than they leave free.
    fn counted(&self, only_of_ended: bool, limit: u64) -> u64 {
        let mut by_client: BTreeMap<&str, u64> = BTreeMap::new();
        for book in self.promises.values().filter(|book| book.until.is_some() || !only_of_ended) {
            *by_client.entry(&book.client).or_default() += book.bytes;
        }
        let mut sizes: Vec<u64> = by_client.into_values().collect();
        sizes.sort_unstable_by_key(|bytes| std::cmp::Reverse(*bytes));
        sizes.into_iter().enumerate().fold(0, |counted, (place, bytes)| {
            let share = limit.saturating_sub(counted) / 2;
            counted + if place < ACCOUNTS_CAPPED { bytes.min(share) } else { bytes }
        })
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

    /// Whether the output of this job must be kept, because nobody is told of its end who could be given it.
    pub(super) fn must_keep(&self, job: JobId) -> bool {
        self.promises.get(&job).is_some_and(|book| !book.is_awaited)
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

    /// Whether another promise has no room in its client's share, or among all; neither if none is asked for.
    pub(super) fn is_full_of_promises(&self, request: &JobRequest) -> (bool, bool) {
        if request.key.is_none() && !request.keeps_output {
            return (false, false);
        }
        let limit = self.config.max_kept_bytes;
        let (own, all) = (self.promises.kept_for(&request.client).bytes, self.promises.counted(false, limit));
        let more = PROMISE_BYTES + request.tag_bytes;
        let has_room_for_others = fits((0, all), more, limit);
        let is_full = !fits((own, all), more, limit);
        (is_full && has_room_for_others, is_full && !has_room_for_others)
    }

    pub(super) fn promise(&mut self, id: JobId, request: &JobRequest) {
        if request.key.is_none() && !request.keeps_output {
            return;
        }
        let book = PromiseBook {
            client: request.client.to_string(),
            owner: request.owner.clone(),
            key: request.key.clone(),
            task: request.task.clone(),
            bytes: PROMISE_BYTES + request.tag_bytes,
            is_of_stranger: request.is_of_stranger,
            until: None,
            is_awaited: false,
            has_left_much: false,
        };
        self.promises.promises.insert(id, book);
    }

    /// What an event means for promises, before anything is done about it.
    pub(super) fn note_promises(
        &mut self,
        now: Mono,
        event: Option<&Event>,
        actions: &[Action],
        core: &Core,
    ) {
        let books = &mut self.promises;
        let promised = core.jobs().iter().map(|(job, _)| job);
        let expected = promised.filter_map(|job| Some((job, core.promises().expected_of(job)?)));
        books.coming_then = expected.collect();
        let was_started = |job: &JobId| {
            let is_start = |action: &Action| match action {
                Action::Run { job: started, .. }
                | Action::RunHere { job: started, .. }
                | Action::Prefetch { job: started, .. } => started == job,
                _ => false,
            };
            actions.iter().any(is_start)
        };
        let has_ended = |job: &JobId| {
            actions.iter().any(|action| matches!(action, Action::Finish(ended) if ended.job == *job))
        };
        books.beyond.retain(|_, job| {
            let is_out = books.coming_then.contains_key(job) && !was_started(job);
            is_out || has_ended(job) || books.promises.get(job).is_some_and(|book| book.until.is_some())
        });
        books.coming.retain(|job, _| books.coming_then.contains_key(job) && !was_started(job));
        let is_over = |until: Mono| until <= now;
        let over = books.promises.iter().filter(|(_, book)| book.until.is_some_and(is_over));
        books.due = over.map(|(job, _)| *job).collect();
        let over = books.letters.iter().filter(|(_, book)| is_over(book.until));
        books.letters_due = over.map(|(job, _)| *job).collect();
        match event {
            Some(Event::Collected { job }) => {
                let book = books.promises.get(job).filter(|book| book.until.is_some() && book.key.is_none());
                books.due.extend(book.map(|_| *job));
            }
            Some(Event::Awaited { job }) => {
                if let Some(book) = books.promises.get_mut(job) {
                    book.is_awaited = book.key.is_none();
                }
            }
            Some(Event::Abandoned { job }) => {
                if let Some(book) = books.promises.get_mut(job) {
                    book.is_awaited = false;
                }
            }
            Some(Event::LetterDropped { job }) if !books.letters_due.contains(job) => {
                books.letters.remove(job);
            }
            _ => {}
        }
    }

    pub(super) fn judge_release(
        &mut self,
        now: Mono,
        event: Option<&Event>,
        job: JobId,
        why: Released,
    ) -> Result<(), Failure> {
        let is_due = self.promises.due.remove(&job);
        let book = self.promises.promises.remove(&job);
        if let Some(book) = &book
            && !self.promises.beyond.get(&book.client).is_some_and(|beyond| self.takes_the_place(*beyond))
        {
            self.promises.beyond.remove(&book.client);
        }
        let is_over = book.as_ref().and_then(|book| book.until).is_some_and(|until| until <= now);
        let was_collected = matches!(event, Some(Event::Collected { job: collected }) if *collected == job);
        let is_right = match why {
            Released::TimeIsOver => is_over,
            Released::Collected { .. } => was_collected && !is_over,
        };
        demand(is_due && is_right, "O17", || format!("{job} is released, {why:?}: {book:?}"))
    }

    pub(super) fn judge_letter_forgotten(&mut self, job: JobId) -> Result<(), Failure> {
        let is_due = self.promises.letters_due.remove(&job);
        self.promises.letters.remove(&job);
        demand(is_due, "O17", || format!("the dead letter of {job} is forgotten before its time"))
    }

    /// A job has ended: what was promised must be kept from now on.
    pub(super) fn judge_keeping(
        &mut self,
        now: Mono,
        event: Option<&Event>,
        ended: &Ended,
    ) -> Result<(), Failure> {
        let id = ended.job;
        let is_ending = self.is_ending();
        let kept = self.promises.kept().bytes;
        let counted = self.promises.counted(false, self.config.max_kept_bytes);
        let client = self.promises.promises.get(&id).map(|book| book.client.clone()).unwrap_or_default();
        let own = self.promises.kept_for(&client).bytes;
        let output = match event {
            Some(Event::Finished { output_bytes, job, .. })
                if *job == id && ended.outcome == OutcomeCode::Ok =>
            {
                output_bytes + self.jobs[&id].parts.sent
            }
            Some(Event::RanHere { result: Ok(bytes), job }) if *job == id => *bytes,
            _ => 0,
        };
        let config = &self.config;
        let was_read = self.jobs[&id].is_here;
        let Some(book) = self.promises.promises.get_mut(&id) else {
            return demand(ended.keep == Keep::AsCourtesy, "O17", || {
                format!("{id} is kept and nothing was promised")
            });
        };
        let time =
            if book.key.is_some() { config.keep_keys.max(config.keep_results) } else { config.keep_results };
        book.until = Some(now + time);
        let was_done = was_read && matches!(event, Some(Event::RanHere { result: Ok(_), job }) if *job == id);
        // The error of one that lacks room is no part of what lacks room.
        let text = if was_done { 0 } else { ended.text_bytes() - ended.tag_bytes };
        let more = text + output;
        let limit = config.max_kept_bytes;
        let lacks_room = !fits((own, counted), more, limit);
        let most = limit + config.max_payload * config.workers as u64;
        let leaves_too_little = kept + more > limit - limit / LEFT_FOR_OTHERS || book.is_of_stranger;
        let may_lack = match was_read && !is_ending {
            true => output > PROMISE_BYTES && (lacks_room || kept + more > most) && leaves_too_little,
            false => lacks_room && (is_ending || book.is_of_stranger),
        };
        let is_well = ended.outcome == OutcomeCode::Ok;
        if was_done && !is_ending {
            // It must not end well if its output must be kept, and is not.
            let may_end_well = book.is_awaited || !may_lack;
            demand(may_end_well == is_well, "O17", || {
                format!("{id} has ended with {}, and lacks room: {may_lack}", ended.outcome)
            })?;
        }
        let may_lack = may_lack && (is_well || !was_done);
        let output = if ended.keep == Keep::Promised && (is_well || !was_done) { output } else { 0 };
        let bytes = PROMISE_BYTES + ended.text_bytes() + output;
        book.has_left_much = bytes - book.bytes > PROMISE_BYTES;
        book.bytes = bytes;
        let is_kept = match ended.keep {
            Keep::AsCourtesy => false,
            Keep::Promised => is_ending || !may_lack,
            Keep::WithoutOutput => may_lack,
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
        let (client, input) = (book.client.clone(), book.bytes - ended.tag_bytes);
        let message = ended.error.as_ref().map_or("", |error| &error.message);
        let added = message.find("; it").map_or(0, |at| message.len() - at) as u64;
        let record = PROMISE_BYTES + ended.text_bytes() - added;
        let all = sum_of(self.promises.letters.values().map(|book| book.bytes));
        let of_client = self.promises.letters.values().filter(|book| book.client == client);
        let own = sum_of(of_client.map(|book| book.bytes));
        let (count, bytes) = (self.config.max_dead_letters as u64, self.config.max_dead_bytes);
        let has_place = fits((own.count as u64, all.count as u64), 1, count);
        let has_room = |more: u64| has_place && fits((own.bytes, all.bytes), more, bytes);
        let expected = match (has_room(record + input), has_room(record)) {
            (true, _) => LetterKept::Whole,
            (false, true) => LetterKept::WithoutInput,
            (false, false) => LetterKept::Not,
        };
        let until = now + self.config.keep_dead_letters;
        if letter != LetterKept::Not {
            let bytes = record + if letter == LetterKept::Whole { input } else { 0 };
            self.promises.letters.insert(id, LetterBook { client, bytes, until });
        }
        demand(letter == expected, "O17", || {
            format!("the letter of {id} is kept: {letter:?}, not {expected:?}")
        })
    }

    /// A job is given out: there must be room for what it returns, if that is to be kept.
    pub(super) fn judge_room(&mut self, id: JobId) -> Result<(), Failure> {
        let is_over = self.is_over_its_room(id, 0) && !self.is_ending();
        if self.is_beyond_its_share(id, 0)
            && let Some(book) = self.promises.promises.get(&id).filter(|book| book.is_awaited)
        {
            self.promises.beyond.insert(book.client.clone(), id);
        }
        demand(!is_over, "O16", || format!("{id} is given out and there is no room for its output"))
    }

    /// A job joins others at a worker: there must be room for what all in flight are expected to return.
    fn judge_company(&mut self, worker: WorkerId, id: JobId) -> Result<(), Failure> {
        let of_this = self.promises.coming_then.get(&id).copied();
        let is_stepped = |id: &JobId| self.jobs.get(id).is_some_and(|job| job.is_stepped());
        let given = self.workers.get(&worker).map(|book| &book.given);
        // One may run between the steps of another.
        let has_company = given
            .is_some_and(|given| given.iter().any(|other| *other != id) && !given.iter().any(is_stepped));
        if let Some((book, of_this)) = self.promises.promises.get(&id).zip(of_this)
            && has_company
            && !self.is_ending()
        {
            let books = &self.promises;
            let all = books.counted(true, self.config.max_kept_bytes) + books.coming(None) + of_this;
            let own = books.kept_of_ended(Some(&book.client)) + books.coming(Some(&book.client)) + of_this;
            let free = self.config.max_kept_bytes.checked_sub(all);
            let fits = free.is_some_and(|free| own <= free);
            demand(fits, "O16", || {
                format!("{id} joins others at {worker}, and {own} of {all} bytes are expected")
            })?;
        }
        self.promises.coming.extend(of_this.map(|bytes| (id, bytes)));
        Ok(())
    }

    /// Who has jobs that were held back before this event and after it, for want of room in his share, has started none
    /// that is kept as well, unless something was released or the limits have changed: then there may have been room
    /// meanwhile.
    fn demand_none_was_passed(
        &mut self,
        event: Option<&Event>,
        actions: &[Action],
        core: &Core,
    ) -> Result<(), Failure> {
        let held = |id: &JobId| core.jobs().get(*id).is_some_and(|job| job.state == JobState::Held);
        let held: BTreeSet<JobId> = self.live.iter().copied().filter(held).collect();
        let before = std::mem::replace(&mut self.promises.held, held);
        let was_released = actions.iter().any(|action| matches!(action, Action::Release { .. }));
        if was_released || matches!(event, Some(Event::Configure(_))) || self.is_ending() {
            return Ok(());
        }
        let waits: Vec<JobId> = self.promises.held.intersection(&before).copied().collect();
        for action in actions {
            let (Action::Run { job, .. } | Action::RunHere { job, .. }) = action else { continue };
            let Some(book) = self.promises.promises.get(job) else { continue };
            let is_passed =
                |id: &&JobId| self.promises.promises.get(*id).is_some_and(|held| held.client == book.client);
            let is_over = !book.is_awaited && self.is_over_its_share(*job, 8);
            let passed = waits.iter().find(is_passed).filter(|_| is_over);
            demand(passed.is_none(), "O9", || format!("{job} has passed {passed:?}, which is held back"))?;
        }
        Ok(())
    }

    pub(super) fn compare_promises(
        &mut self,
        event: Option<&Event>,
        actions: &[Action],
        core: &Core,
    ) -> Result<(), Failure> {
        self.demand_none_was_passed(event, actions, core)?;
        self.promises.coming = std::mem::take(&mut self.promises.coming_then);
        for (job, bytes) in &self.promises.coming {
            let at_least = self.promises.promises.get(job).map_or(0, |book| book.bytes);
            let at_most = at_least + self.memory.longest;
            demand((at_least..=at_most).contains(bytes), "O17", || {
                format!("{bytes} bytes are expected of {job}, which are not {at_least} to {at_most}")
            })?;
        }
        let books = &self.promises;
        demand(books.due.is_empty(), "O17", || format!("kept beyond its time: {:?}", books.due))?;
        demand(books.letters_due.is_empty(), "O17", || "letters are kept beyond their time".to_owned())?;
        let (here, there) = (books.kept(), core.promises().kept().all());
        demand(here == there, "O17", || format!("{here:?} is kept, not {there:?}"))?;
        for (job, book) in &books.promises {
            demand(core.promises().kept_until(*job) == book.until, "O17", || {
                format!("{job} is kept until {:?}: {book:?}", core.promises().kept_until(*job))
            })?;
            let (here, there) = (books.kept_for(&book.client), core.promises().kept().of(&book.client));
            demand(here == there, "O17", || format!("{here:?} of {}, not {there:?}", book.client))?;
        }
        let (here, there) =
            (sum_of(books.letters.values().map(|book| book.bytes)), core.letters().kept().all());
        demand(here == there, "O17", || format!("{here:?} of dead letters, not {there:?}"))?;
        for id in self.live.iter().filter(|_| core.is_settled()) {
            let is_held = core.jobs().get(*id).is_some_and(|job| job.state == JobState::Held);
            let is_full = || self.is_over_its_room(*id, 8);
            let is_late = || self.is_beyond_its_share(*id, 8) && self.is_another_first(*id, core);
            let is_excused = || (is_full() || is_late()) && !self.is_ending();
            demand(!is_held || is_excused(), "O9", || format!("{id} is held back and there is room"))?;
        }
        Ok(())
    }

    /// Releases and letters of one event.
    pub(super) fn judge_promise_action(
        &mut self,
        now: Mono,
        event: Option<&Event>,
        action: &Action,
    ) -> Result<(), Failure> {
        match action {
            Action::Release { job, why } => self.judge_release(now, event, *job, *why),
            Action::ForgetLetter { job } => self.judge_letter_forgotten(*job),
            Action::Finish(ended) => {
                self.judge_letter(now, ended)?;
                self.judge_keeping(now, event, ended)
            }
            Action::Run { worker, job, .. } => {
                self.judge_room(*job)?;
                self.judge_company(*worker, *job)
            }
            Action::Prefetch { worker, job, .. } => {
                self.judge_room(*job)?;
                self.judge_company(*worker, *job)
            }
            Action::RunHere { job, .. } => {
                let of_this = self.promises.coming_then.get(job).copied();
                self.promises.coming.extend(of_this.map(|bytes| (*job, bytes)));
                self.judge_room(*job)
            }
            Action::Over => {
                self.promises.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

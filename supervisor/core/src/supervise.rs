//! The life of worker processes: they say hello, break the protocol, stop responding, are killed, and exit.

use super::Core;
use super::action::{Action, Kill, Notice};
use super::clients::Track;
use super::ids::{Mono, ProgramIndex, SlotIndex, Version, WorkerId};
use super::jobs::Job;
use super::lose::End;
use super::registry::{Offered, Offers, OffersOfWorker, Promise, merged};
use super::restarts::Suspects;
use super::slots::{Cause, Going, Load, Retire, Role, Slot, SlotState, Tenure, Worker};
use super::starts::{Death, FailedStart};
use super::turn::Turn;
use crate::exit::{Exit, ExitUsage};
use crate::limits::{HANGING_MAX, RECENT_JOBS, TASKS_OF_PROGRAM_MAX};
use offload_protocol::limits::{NAME_MAX, TASKS_OFFERED_MAX};
use offload_protocol::nouns::{TaskOffer, cut, is_task_name};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// SIGKILL. A process does not send this signal to itself by mistake.
pub(super) const KILLED: Exit = Exit::Signal(9);

/// What is wrong with the tasks that a worker offers, if anything is.
fn why_no_offer(tasks: &[TaskOffer<'_>]) -> Option<String> {
    if tasks.len() > TASKS_OFFERED_MAX {
        return Some(format!("it offers {} tasks, and {TASKS_OFFERED_MAX} is the limit", tasks.len()));
    }
    let nameless = tasks.iter().find(|task| !is_task_name(&task.name))?;
    Some(format!("it offers a task without a proper name: {:?}", cut(&nameless.name, NAME_MAX)))
}

impl Core {
    /// A worker is ready for jobs: it offers these tasks, and takes inputs that are files or does not.
    pub(super) fn on_hello(
        &mut self,
        turn: &mut Turn<'_>,
        id: WorkerId,
        (tasks, takes_files): (&[TaskOffer<'static>], bool),
    ) {
        let Some(&slot) = self.places.get(&id) else { return };
        let SlotState::Starting { version, since, .. } = self.slots[slot].state else {
            return self.on_violation(turn, id, "said hello again".to_owned());
        };
        if let Some(message) = why_no_offer(tasks) {
            return self.on_unfit(turn, id, message);
        }
        let offered = |task: &TaskOffer<'static>| Offered { offer: task.clone(), takes_files };
        let offers: Offers = tasks.iter().map(|task| (Arc::from(&*task.name), offered(task))).collect();
        if let Some(message) = self.why_too_many(self.slots[slot].program, &offers) {
            return self.on_unfit(turn, id, message);
        }
        let worker = self.fresh_worker(turn.now, id, version);
        self.slot_mut(slot).state = SlotState::Idle { worker };
        self.places_changed = true;
        self.learn_worker_cost(slot, turn.now - since);
        turn.push(Action::Ready { worker: id, slot });
        self.learn_tasks(turn, slot, offers);
    }

    /// A worker that has just said hello. Its limits get some jitter, so that workers that were started together do
    /// not retire together.
    fn fresh_worker(&mut self, now: Mono, id: WorkerId, version: Version) -> Worker {
        let retire_after = self.config.max_jobs_per_worker.map(|most| self.rng.stretched(most));
        let retire_at = self.config.max_age.map(|most| now + self.rng.stretched_time(most));
        let recent = [None; RECENT_JOBS];
        Worker {
            id,
            version,
            ready_at: now,
            jobs_done: 0,
            retire_after,
            retire_at,
            has_tray: false,
            stopped_at: None,
            recent,
        }
    }

    /// A stopped worker is given no jobs. If nobody lets it go on, it is killed.
    pub(super) fn on_stopped(&mut self, now: Mono, worker: WorkerId) {
        self.set_stopped(worker, Some(now));
    }

    pub(super) fn on_continued(&mut self, worker: WorkerId) {
        self.set_stopped(worker, None);
    }

    fn set_stopped(&mut self, worker: WorkerId, since: Option<Mono>) {
        let Some(&slot) = self.places.get(&worker) else { return };
        if let Some(worker) = self.slot_mut(slot).worker_mut()
            && worker.stopped_at.is_some() != since.is_some()
        {
            worker.stopped_at = since;
            self.places_changed = true;
        }
    }

    pub(super) fn on_measured(&mut self, worker: WorkerId, resident_bytes: u64) {
        let Some(&slot) = self.places.get(&worker) else { return };
        if self.config.max_rss.is_some_and(|most| resident_bytes > most) {
            self.retire(slot, Retire::Memory);
        }
    }

    fn learn_tasks(&mut self, turn: &mut Turn<'_>, slot: SlotIndex, offers: Offers) {
        let (program, version) = (self.slots[slot].program, self.slots[slot].version());
        if self.programs[program].restarts.said_hello() {
            turn.push(Action::Log(Notice::Recovered { program }));
        }
        let version = version.unwrap_or_default();
        // Usually all processes of a version offer the same. Then the offers are kept once.
        let known = self.programs[program].offers.get(&version).filter(|known| ***known == offers);
        let offers = known.cloned().unwrap_or_else(|| Arc::new(offers));
        if let Some(worker) = self.slots[slot].worker() {
            self.offers.insert(worker, OffersOfWorker::new(offers.clone()));
        }
        self.programs[program].offers.insert(version, offers);
        self.settle_offers(program);
    }

    /// What this very process promises of a task; `None` if it does not offer the task. Another process of the same
    /// version may promise something else, for example because a script was edited between their starts.
    pub(super) fn promise_of(&self, worker: WorkerId, task: &str) -> Option<Promise> {
        self.offers.get(&worker)?.promise_of(task)
    }

    /// Updates what a program offers: all that any of its workers offers and, for workers that are still to come,
    /// what the last worker of their version offered. What a newer worker promises of a task counts until a worker
    /// has the job.
    pub(super) fn settle_offers(&mut self, program: ProgramIndex) {
        let versions: Vec<Version> = self.programs[program].offers.keys().copied().collect();
        let has_worker = |version| {
            self.slots.iter().any(|slot| slot.program == program && slot.version() == Some(version))
        };
        let gone =
            versions.into_iter().filter(|&version| !self.may_start_version(version) && !has_worker(version));
        for version in gone.collect::<Vec<_>>() {
            self.programs[program].offers.remove(&version);
        }
        let sources = self.sources_of_offers(program);
        let all = match &sources[..] {
            [one] => Arc::clone(one),
            _ => Arc::new(merged(&sources)),
        };
        self.programs[program].offers_differ = sources.iter().any(|offers| *offers != all);
        let changes = self.registry.offer(program, all);
        self.files.look_again();
        self.offers.values_mut().for_each(|offers| offers.learn_indexes(&self.registry));
        if changes.has_moved || !changes.gone.is_empty() {
            self.requeue_all();
        }
        if self.registry.has_too_many_gone() {
            self.forget_tasks();
        }
    }

    /// Why this offer of another worker is more than a program may have, if it is.
    fn why_too_many(&self, program: ProgramIndex, offers: &Offers) -> Option<String> {
        // All that its workers offer is among what it is known to offer.
        if self.registry.count_with(program, offers) <= TASKS_OF_PROGRAM_MAX {
            return None;
        }
        let workers = self.slots.iter().filter(|slot| slot.program == program).filter_map(Slot::worker);
        let others = workers.filter_map(|id| Some(&**self.offers.get(&id)?.all()));
        let names: BTreeSet<&str> = others.chain([offers]).flatten().map(|(name, _)| &**name).collect();
        let count = names.len();
        (count > TASKS_OF_PROGRAM_MAX).then(|| {
            format!("its program's workers would offer {count} different tasks, and {TASKS_OF_PROGRAM_MAX} is the limit")
        })
    }

    /// Forgets tasks that are long gone. Those of jobs, and those that are paused, stay; so do those that jobs without a place
    /// ask for, because these end in another way than jobs of a task that never was.
    fn forget_tasks(&mut self) {
        let mut used = vec![false; self.registry.places()];
        let of_job = |job: &Job| job.task.or_else(|| self.registry.find_known(self.task_name(job)));
        let of_jobs = self.jobs.iter().filter_map(|(_, job)| of_job(job));
        of_jobs.chain(self.pauses.tasks()).for_each(|task| used[task as usize] = true);
        self.registry.forget_gone(|task| used[task as usize]);
        self.programs.iter_mut().for_each(|program| program.gatherings.forget_empty());
    }

    /// What the processes of a program offer, the newest last. If another process is to come, also what the last one
    /// of its version offered, since jobs wait for that process.
    fn sources_of_offers(&self, program: ProgramIndex) -> Vec<Arc<Offers>> {
        let slots = self.slots.iter().filter(|slot| slot.program == program);
        let of_slot = |slot: &Slot| {
            let worker = slot.worker()?;
            Some((slot.version()?, Some(worker), self.offers.get(&worker)?.all()))
        };
        let mut sources: Vec<_> = slots.filter_map(of_slot).collect();
        let is_to_come = |slot: &Slot| {
            slot.program == program && slot.role != Role::Surplus && slot.ready_worker().is_none()
        };
        let is_one_to_come = self.slots.iter().any(is_to_come);
        for (&version, offers) in &self.programs[program].offers {
            if is_one_to_come || !sources.iter().any(|(of, ..)| *of == version) {
                sources.push((version, None, offers));
            }
        }
        sources.sort_unstable_by_key(|(version, worker, _)| (*version, *worker));
        let mut sources: Vec<Arc<Offers>> = sources.into_iter().map(|(.., offers)| offers.clone()).collect();
        sources.dedup_by(|one, other| Arc::ptr_eq(one, other));
        sources
    }

    /// Tasks have moved to other programs or are gone: each waiting job goes into the queue where its task is now.
    fn requeue_all(&mut self) {
        let mut waiting = Vec::new();
        for (index, program) in self.programs.iter_mut().enumerate() {
            program.backlog = Duration::ZERO;
            let jobs = program.queues_mut().flat_map(|queue| std::mem::take(queue).into_jobs());
            waiting.extend(jobs.map(|job| (index, job)));
        }
        for (program, id) in &waiting {
            let Some(job) = self.jobs.get(*id) else { continue };
            self.clients.goes(job.client, *program, Track::of(job.line().class));
            self.clients.waits_no_more(job.client);
            if let Some(task) = job.task {
                self.registry.task_mut(task).waits_no_more(job.input_bytes);
            }
        }
        waiting.into_iter().for_each(|(_, id)| self.enqueue(id));
    }

    /// A process no longer has a place. Returns the place that it had.
    fn forget_process(&mut self, worker: WorkerId) -> Option<SlotIndex> {
        self.offers.remove(&worker);
        self.places.remove(&worker)
    }

    /// A place no longer has a process. Returns the state that it had.
    pub(super) fn vacate(&mut self, slot: SlotIndex) -> SlotState {
        let state = std::mem::take(&mut self.slot_mut(slot).state);
        self.places_changed = true;
        self.slots[slot].tenure = Tenure::Stays;
        let program = self.slots[slot].program;
        if self.programs[program].offers_differ {
            // This may have been the last process of its version.
            self.settle_offers(program);
        }
        state
    }

    pub(super) fn on_unfit(&mut self, turn: &mut Turn<'_>, worker: WorkerId, message: String) {
        if let Some(&slot) = self.places.get(&worker) {
            self.leave(turn, slot, Cause::Unfit(message), Some(Kill::Kill));
        }
    }

    /// A worker that breaks the protocol is neither answered nor given another chance: it is killed.
    pub(super) fn on_violation(&mut self, turn: &mut Turn<'_>, worker: WorkerId, message: String) {
        if let Some(&slot) = self.places.get(&worker) {
            self.leave(turn, slot, Cause::Violation(message), Some(Kill::Kill));
        }
    }

    /// Usually the process has ended as well. Its exit, which decides everything, will be known soon.
    pub(super) fn on_closed(&mut self, turn: &mut Turn<'_>, worker: WorkerId) {
        if let Some(&slot) = self.places.get(&worker) {
            self.leave(turn, slot, Cause::Closed, None);
        }
    }

    /// Makes a worker leave. No effect on one that is leaving already: its reason and its time limit stand.
    pub(super) fn leave(&mut self, turn: &mut Turn<'_>, slot: SlotIndex, cause: Cause, how: Option<Kill>) {
        let Some(place) = self.slots[slot].worker().and_then(|worker| self.place(worker)) else { return };
        self.want_back(turn, slot);
        let config = &self.config;
        let going = match (how, &cause) {
            (Some(Kill::Kill), _) => Going::Killed { reap_by: turn.now + config.reap_timeout },
            (_, Cause::Closed) => Going::Asked { kill_at: turn.now + config.closed_grace },
            _ => Going::Asked { kill_at: turn.now + config.kill_grace },
        };
        let version = self.slots[slot].version().unwrap_or_default();
        let (was, load) = match std::mem::take(&mut self.slot_mut(slot).state) {
            SlotState::Busy { worker, load, .. } => (Some(worker), load),
            SlotState::Idle { worker } => (Some(worker), Load::default()),
            SlotState::Vacant | SlotState::Starting { .. } => (None, Load::default()),
            leaving @ SlotState::Leaving { .. } => {
                self.slots[slot].state = leaving;
                return;
            }
        };
        if let Some(why) = why(&cause) {
            turn.push(Action::Log(Notice::WorkerKilled { worker: place.worker, slot, why }));
        }
        turn.extend(how.map(|how| Action::Kill { worker: place.worker, how }));
        let is_heard = !matches!(cause, Cause::Violation(_) | Cause::Unfit(_));
        self.slots[slot].state = SlotState::Leaving { place, version, was, load, cause, going, is_heard };
        self.slots[slot].tenure = Tenure::Stays;
        self.places_changed = true;
    }

    /// A worker sent something that is no valid message: it is killed. From a worker that is leaving already, nothing
    /// counts from now on, but the reason for which it had to leave stays: its remaining jobs are not to blame for
    /// the end of another. (That a leaving worker's message comes out of turn is no reason: it may be the answer to a
    /// job that was withdrawn.)
    pub(super) fn on_bad_message(&mut self, turn: &mut Turn<'_>, worker: WorkerId, message: String) {
        let Some(&slot) = self.places.get(&worker) else { return };
        let reap_by = turn.now + self.config.reap_timeout;
        if !self.slots[slot].is_trusted() {
            return;
        }
        if let SlotState::Leaving { going, is_heard, .. } = &mut self.slot_mut(slot).state {
            *is_heard = false;
            *going = Going::Killed { reap_by };
            return turn.push(Action::Kill { worker, how: Kill::Kill });
        }
        self.on_violation(turn, worker, message);
    }

    /// A worker sent something that cannot be read. All its later messages are lost with it.
    pub(super) fn on_garbled(&mut self, turn: &mut Turn<'_>, worker: WorkerId, message: String) {
        if let Some(&slot) = self.places.get(&worker) {
            self.doubt_all(slot);
        }
        self.on_bad_message(turn, worker, message);
    }

    /// A process was killed and is not gone: it hangs in the kernel, for example on a dead file system. It will never
    /// do anything again, so its jobs are lost. Its place is filled again, unless too many processes hang already.
    pub(super) fn give_up(&mut self, turn: &mut Turn<'_>, slot: SlotIndex) {
        let reap_by = turn.now + self.config.reap_timeout;
        // During the end of the supervisor, nobody waits for hanging processes.
        let is_ending = self.phase == super::Phase::Stopping;
        let is_filled = self.hanging.len() < HANGING_MAX || is_ending;
        let SlotState::Leaving { place, version, was, load, cause, going, .. } =
            &mut self.slot_mut(slot).state
        else {
            return;
        };
        *going = Going::Killed { reap_by };
        if !is_filled && load.is_empty() {
            return;
        }
        let (place, version, was, cause) = (*place, *version, *was, cause.clone());
        let load = std::mem::take(load);
        turn.push(Action::Log(Notice::WorkerHangs { worker: place.worker, slot }));
        if is_filled {
            self.forget_process(place.worker);
            self.hanging.insert(place.worker, place);
            self.vacate(slot);
        }
        if is_filled && was.is_none() {
            let start = FailedStart { worker: place.worker, program: self.slots[slot].program, version };
            self.blame_start(turn, start, Some(&cause), KILLED, "");
        }
        let (last_lines, usage) = (Vec::new(), None);
        let end = End { cause: Some(cause), exit: KILLED, place: Some(place), was, last_lines, usage };
        self.lose(turn, load, &end);
    }

    pub(super) fn on_exited(
        &mut self,
        turn: &mut Turn<'_>,
        worker: WorkerId,
        exit: Exit,
        last_lines: Vec<String>,
        usage: Option<ExitUsage>,
    ) {
        let place = self.place(worker);
        if self.hanging.remove(&worker).is_some() {
            self.places_changed = true;
            return;
        }
        let Some(slot) = self.forget_process(worker) else { return };
        let home = place.map_or(slot, |place| place.slot);
        let program = self.slots[slot].program;
        let state = self.vacate(slot);
        self.slots[home].ended += 1;
        self.slots[home].last_exit = Some(exit.to_string());
        let words = last_lines.last().map_or(String::new(), |words| format!("; it printed last: {words}"));
        let (version, was, load, cause) = match state {
            SlotState::Vacant => return,
            SlotState::Starting { version, .. } => (version, None, Load::default(), None),
            SlotState::Idle { worker } => (worker.version, Some(worker), Load::default(), None),
            SlotState::Busy { worker, load, .. } => (worker.version, Some(worker), load, None),
            SlotState::Leaving { version, was, load, cause, .. } => (version, was, load, Some(cause)),
        };
        if was.is_some() && matches!(cause, None | Some(Cause::Closed | Cause::ClosedAndLivedOn)) {
            let jobs = load.running_jobs();
            turn.push(Action::Log(Notice::WorkerDied { worker, slot: home, how: exit.to_string(), jobs }));
        }
        let why = cause.as_ref().and_then(why);
        let (how, jobs) = (exit.to_string(), load.running_jobs());
        turn.push(Action::Log(Notice::WorkerEnded {
            worker,
            slot: home,
            program,
            how,
            why: why.clone(),
            jobs,
        }));
        let ended = match why {
            Some(why) => format!("was ended ({why})"),
            None => format!("ended with {exit}"),
        };
        let to_blame = load.running.filter(|running| !running.is_bystander).map(|running| running.job);
        match was {
            None => {
                let start = FailedStart { worker, program, version };
                self.blame_start(turn, start, cause.as_ref(), exit, &words);
            }
            Some(worker)
                if is_unasked(cause.as_ref())
                    && self.note_unproven_death(turn, program, worker, (&ended, &words, to_blame)) => {}
            Some(worker) if load.running.is_none() && is_unasked(cause.as_ref()) => {
                let accounts =
                    load.jobs().filter_map(|job| self.jobs.get(job)).map(|job| self.account_of(job).clone());
                let suspects = match load.is_empty() {
                    true => Suspects::Program,
                    false => Suspects::Clients(accounts.collect()),
                };
                let was_test = load.not_begun.is_some_and(|taken_back| taken_back.before.test.is_some())
                    || load.jobs().any(|job| self.programs[program].probation.is_testing(job));
                let death = Death { cause: cause.as_ref(), exit, suspects, was_test, words: &words };
                self.on_idle_death(turn, program, worker, &death);
            }
            Some(_) => {}
        }
        let end = End { cause, exit, place, was, last_lines, usage };
        self.lose(turn, load, &end);
    }
}

/// Why a worker has to leave, for the log; `None` if that is no news.
fn why(cause: &Cause) -> Option<String> {
    match cause {
        Cause::Dismissed | Cause::Closed | Cause::ClosedAndLivedOn => None,
        Cause::JobEnded => Some("its job timed out or was cancelled".to_owned()),
        Cause::Silent => Some("it did not say hello in time".to_owned()),
        Cause::Stuck => Some("it had a job and did not start it".to_owned()),
        Cause::Stopped => Some("it was stopped, and nobody let it go on".to_owned()),
        Cause::Hung => Some("it did not say how far its job was, as it had promised".to_owned()),
        Cause::TogetherTooLong => Some("its jobs ran longer together than one of them may".to_owned()),
        Cause::Violation(what) => Some(format!("it broke the protocol: {what}")),
        Cause::Unfit(what) => Some(format!("it is not a worker for this supervisor: {what}")),
    }
}

/// Whether a worker that ended for this reason ended without having been asked to.
fn is_unasked(cause: Option<&Cause>) -> bool {
    !matches!(cause, Some(Cause::Dismissed | Cause::JobEnded | Cause::TogetherTooLong))
}

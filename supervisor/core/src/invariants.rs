//! What must be true between any two events, and when everything is settled. It is written down a second time here, so that
//! tests can check it.

use super::Core;
use super::ids::{JobId, SlotIndex};
use super::jobs::{Job, JobState, RanUnder};
use super::ledger::Holding;
use super::slots::{Load, Role, SlotState};
use super::trays::TrayState;
use crate::limits::{UNSTARTED_MAX, WINDOW_MAX};
use crate::small_map::SmallSet;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

impl Core {
    /// Checks all invariants, or, if [`Core::settle`] has not been called, those that hold even then. For tests and
    /// simulations: it takes time in proportion to the number of jobs.
    ///
    /// # Errors
    /// The first invariant that does not hold, in words for developers.
    pub fn check(&self) -> Result<(), String> {
        self.check_books()?;
        self.check_tasks()?;
        self.jobs.iter().try_for_each(|(id, job)| self.check_job(id, job))?;
        if !self.is_settled {
            return Ok(());
        }
        self.check_places()?;
        self.check_here()?;
        let is_moving = self.has_more_to_move;
        let kept =
            self.programs_of_workers().find(|&program| !is_moving && self.place_for_spare(program).is_some());
        ensure(kept.is_none(), || "a job waits that only the spare can do".into())?;
        self.check_short()?;
        (0..self.slots.len()).try_for_each(|slot| self.check_slot(slot))
    }

    /// A digest of the whole state. The same state gives the same number, in this run and in any other run of the
    /// same program.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        format!("{self:?}").hash(&mut hasher);
        hasher.finish()
    }

    /// Accepted = waiting + running + ended.
    pub fn is_balanced(&self) -> bool {
        let (waiting, running) = self.waiting_and_running();
        self.tally.accepted() == (waiting + running) as u64 + self.tally.ended_in_all()
    }

    fn check_books(&self) -> Result<(), String> {
        let live = self.jobs.len() as u64;
        let bytes: u64 = self.jobs.iter().map(|(_, job)| job.held_bytes()).sum();
        let queued: usize = self.programs.iter().map(super::Program::waiting).sum();
        let states =
            |state: fn(&JobState) -> bool| self.jobs.iter().filter(|(_, job)| state(&job.state)).count();
        ensure(self.tally.accepted() == live + self.tally.ended_in_all(), || {
            "the books do not balance".into()
        })?;
        ensure(self.is_balanced(), || "the public books do not balance".into())?;
        ensure(bytes == self.jobs.held_bytes(), || "the bytes do not add up".into())?;
        self.check_ledger()?;
        ensure(queued == states(|state| *state == JobState::Queued), || "queues and states differ".into())?;
        ensure(self.jobs.parked_count() == states(|state| *state == JobState::Parked), || {
            "parked differ".into()
        })?;
        let tested = self.programs.iter().filter_map(|program| program.probation.tested());
        ensure(tested.clone().all(|job| self.jobs.get(job).is_some()), || {
            "a job under test has ended".into()
        })?;
        self.clients.check(self.jobs.iter().map(|(_, job)| (job.client, self.account_of(job))))?;
        let waiting: usize = self.clients.active().map(|client| client.waiting).sum();
        let held = self.promises.held_count();
        ensure(held == states(|state| *state == JobState::Held), || "held jobs differ".into())?;
        let paused = self.pauses.waiting_count();
        ensure(paused == states(|state| *state == JobState::Paused), || "paused jobs differ".into())?;
        self.check_pauses()?;
        ensure(waiting == queued + held + paused, || "the clients' counts of waiting jobs are wrong".into())?;
        self.check_tracks()?;
        self.check_estimates()?;
        self.letters.check()?;
        self.files.check(
            self.jobs
                .iter()
                .filter(|(_, job)| job.has_file)
                .map(|(id, job)| (id, self.clients.name_of(job.client))),
        )?;
        if self.phase == super::Phase::Running {
            let is_moving = self.has_more_to_move || !self.is_settled;
            self.promises.check_held(self.config.kept_limits(), is_moving)?;
        }
        self.promises.check(|job| self.jobs.get(job).is_some())
    }

    /// Checks that the accounts add up to the total, and that inputs and expected outputs are those of the jobs.
    fn check_ledger(&self) -> Result<(), String> {
        let mut of_jobs: BTreeMap<Arc<str>, (u64, u64)> = BTreeMap::new();
        for (_, job) in self.jobs.iter() {
            let (inputs, expected) = of_jobs.entry(self.account_of(job).clone()).or_default();
            *inputs += job.held_bytes();
            *expected += job.expected_output;
            let is_out = job.state.is_dispatched();
            ensure(is_out || job.expected_output == 0, || {
                "an output is reserved for a job that no worker has".into()
            })?;
        }
        let mut sum = 0;
        for (client, account) in self.ledger.accounts() {
            sum += account.total();
            let is = (account.of(Holding::Inputs), account.of(Holding::Expected));
            let should_be = of_jobs.remove(client).unwrap_or_default();
            ensure(is == should_be, || format!("{client} holds {is:?}, its jobs {should_be:?}"))?;
            ensure(account.total() > 0, || format!("{client} has an account and holds nothing"))?;
        }
        ensure(sum == self.ledger.all().total(), || "the accounts do not add up".into())?;
        let left = of_jobs.values().all(|held| *held == (0, 0));
        ensure(left, || "a job's bytes are on nobody's account".into())
    }

    fn check_places(&self) -> Result<(), String> {
        let occupied = self.slots.iter().filter(|slot| slot.worker().is_some()).count();
        ensure(self.places.len() == occupied, || "processes and occupied places differ".into())?;
        let there = self.slots.iter().filter(|slot| slot.is_there()).count();
        ensure(self.places.len() <= there, || "too many processes".into())?;
        ensure(self.count(Role::Work) == self.config.workers, || "another number of slots".into())?;
        let tried = if self.tried_version().is_some() { self.config.programs } else { 0 };
        ensure(self.count(Role::Trial) == tried, || "another number of places for trials".into())?;
        ensure(self.count(Role::Spare) == self.config.spares, || "another number of spares".into())?;
        for (worker, &slot) in self.places.iter() {
            ensure(self.slots[slot].worker() == Some(worker), || format!("{worker} is not in slot {slot}"))?;
            ensure(!self.hanging.contains_key(&worker), || {
                format!("{worker} is in a place and among the hanging ones")
            })?;
        }
        let ready = self.slots.iter().filter(|slot| !slot.is_starting() && slot.worker().is_some());
        ensure(self.offers.len() == ready.count(), || "offers and processes differ".into())?;
        ensure(self.unlisted.is_empty(), || "a changed slot was not listed again".into())?;
        let trays: usize = self.programs.iter().map(|program| program.trays.len()).sum();
        let listed = self.slots.iter().filter(|slot| slot.listed.tray != TrayState::None).count();
        ensure(trays == listed, || "lists of trays and slots differ".into())?;
        let unfit = self.programs.iter().any(|program| !program.trays.unfit.is_empty());
        ensure(!unfit, || "a job is left in a tray where it must not be".into())?;
        let due = self.slots.iter().filter(|slot| slot.listed.due.is_some()).count();
        ensure(self.due.len() == due, || "deadlines and slots differ".into())
    }

    /// What refers to a task by its index means the task that is there.
    fn check_tasks(&self) -> Result<(), String> {
        let stranger = self.offers.iter().find(|(_, offers)| !offers.check_indexes(&self.registry));
        ensure(stranger.is_none(), || {
            format!("{:?} is given jobs by wrong indexes", stranger.map(|(id, _)| id))
        })?;
        let paused = self.pauses.tasks().map(|task| &*self.registry.task(task).name);
        let paused: BTreeSet<&str> = paused.collect();
        ensure(paused.into_iter().eq(self.pauses.names()), || {
            "names and tasks that are paused differ".into()
        })?;
        let nameless =
            self.jobs.iter().find(|(_, job)| job.task.is_some_and(|task| !self.registry.has(task)));
        ensure(nameless.is_none(), || {
            format!("{:?} is of a task that is forgotten", nameless.map(|(id, _)| id))
        })
    }

    fn check_job(&self, id: JobId, job: &Job) -> Result<(), String> {
        match job.state {
            JobState::Held => ensure(self.promises.has(id), || format!("{id} is held back for no promise")),
            JobState::Paused => ensure(self.pauses.has(id, job), || format!("{id} is not among the paused")),
            JobState::Parked => ensure(job.task.is_none(), || format!("{id} is parked with a known task")),
            JobState::Queued => {
                let queue =
                    job.task.and_then(|task| self.programs[self.program_of(task)].queue_of(job.line(), task));
                let is_there = queue.is_some_and(|queue| queue.contains(job.client, job.rank(id)));
                ensure(is_there, || format!("{id} is queued but in no queue"))?;
                let listed = queue.and_then(|queue| queue.level_of(job.client));
                ensure(listed == Some(self.ledger.level_of(self.account_of(job))), || {
                    format!("{id} is listed under outputs that its client does not have: {listed:?}")
                })
            }
            JobState::Assigned { worker, .. } | JobState::Running { worker, .. } => {
                let load = self.slot_of(worker).and_then(|slot| self.slots[slot].load());
                let is_running = matches!(job.state, JobState::Running { .. });
                let place = load.map(|load| (load.jobs().any(|job| job == id), load.is_started(id)));
                ensure(place == Some((true, is_running)), || format!("{id} is not where it says it is"))
            }
            JobState::Here { .. } => {
                ensure(self.has_taken(id), || format!("{id} is done here and has no place"))
            }
        }?;
        let takes_files = || job.task.is_some_and(|task| self.registry.task(task).promise.takes_files);
        let is_queued = job.state == JobState::Queued;
        ensure(!job.has_file || !is_queued || takes_files(), || {
            format!("{id} waits with a file that no worker takes")
        })?;
        ensure(!job.has_file || !job.state.is_dispatched() || job.promise.takes_files, || {
            format!("{id} was given with a file to a worker that takes none")
        })?;
        let is_expected = job.state.is_dispatched() && self.promises.has(id);
        ensure(self.promises.expected_of(id).is_some() == is_expected, || {
            format!("{id}: what is expected of it is {:?}", self.promises.expected_of(id))
        })?;
        let allowed = self.attempts_allowed(job);
        // If nobody offers the task for now, the number of attempts that it allows is not known.
        let is_tested = self.programs.iter().any(|program| program.probation.is_testing(id));
        let is_assigned = matches!(job.state, JobState::Assigned { .. });
        ensure(is_assigned || !is_tested, || format!("{id} is tested and has no worker"))?;
        ensure(is_tested || !is_assigned || job.past.unstarted < UNSTARTED_MAX, || {
            format!("{id} is on probation and dispatched, but not under test")
        })?;
        // A job that yielded with a checkpoint goes on from there, which does not count as running twice.
        let goes_on = job.state.is_dispatched() || job.past.checkpoint_bytes > 0;
        let is_last = job.ran_under == RanUnder::NotIdempotent && goes_on;
        let is_last = is_last || (job.has_delivered() && job.state.is_dispatched());
        ensure(job.past.crashes < allowed || job.task.is_none() || is_last, || {
            format!("{id} was lost too often")
        })?;
        let is_running = matches!(job.state, JobState::Running { .. });
        ensure(is_running || job.past.parts.sent == 0, || format!("{id} has sent parts and does not run"))?;
        ensure(job.past.parts.delivered <= job.past.parts.sent, || {
            format!("more of {id} was delivered than sent")
        })?;
        ensure(!job.is_abandoned || job.state.is_dispatched(), || {
            format!("{id} waits, and nobody wants it")
        })?;
        ensure(!job.is_abandoned || !self.promises.has(id), || format!("{id} is promised, and abandoned"))?;
        ensure(job.past.unstarted == 0 || job.is_suspect, || format!("{id} was lost and is no suspect"))
    }

    fn check_slot(&self, slot: SlotIndex) -> Result<(), String> {
        let place = &self.slots[slot];
        let works = matches!(place.role, Role::Work | Role::Trial);
        if let SlotState::Busy { load, .. } = &place.state {
            ensure(!load.is_empty(), || format!("slot {slot} is busy without a job"))?;
            ensure(load.len() <= WINDOW_MAX, || format!("slot {slot} has too many jobs"))?;
            ensure(place.role != Role::Spare, || "the spare has a job".into())?;
        }
        if let Some(load) = place.load() {
            let is_leaving = matches!(place.state, SlotState::Leaving { .. });
            ensure(load.doubtful <= load.waiting.len() && (is_leaving || load.doubtful == 0), || {
                format!("slot {slot} has more jobs in doubt than waiting jobs, or is not leaving")
            })?;
            let waits = load.tray.is_none_or(|tray| load.waiting.iter().eq([&tray.job]));
            ensure(waits && (load.tray.is_none() || load.suspended.is_none()), || {
                format!("slot {slot} has a job in its tray beside others that wait")
            })?;
            let is_alone = load.suspended.is_none() || load.waiting.len() <= 1;
            ensure(is_alone, || format!("slot {slot} has several waiting jobs beside a suspended one"))?;
            let is_suspect = |job| self.jobs.get(job).is_some_and(|job| job.is_suspect);
            ensure(load.len() == 1 || !load.batch.is_empty() || !load.jobs().any(is_suspect), || {
                format!("slot {slot} has a suspect and other jobs")
            })?;
            self.check_batch(load).map_err(|what| format!("slot {slot} {what}"))?;
            let is_known_tiny = load.tiny_as_of.get() == self.tiny_changes;
            ensure(is_leaving || !is_known_tiny || self.find_all_tiny(load), || {
                format!("slot {slot} has a job that is not tiny, and it is not known")
            })?;
            ensure(load.suspended.is_none() || load.running.is_some(), || {
                format!("slot {slot} has a suspended job and no running one")
            })?;
        }
        ensure(place.listed.tray == self.tray_state(slot), || {
            format!("the tray of slot {slot} is listed wrongly")
        })?;
        let lists = &self.programs[place.program];
        let is_in = |list: &SmallSet<(usize, SlotIndex)>| list.iter().any(|(_, open)| *open == slot);
        let is_proven = is_in(&lists.open) || is_in(&lists.open_reserved);
        let is_open = is_proven || is_in(&lists.open_unproven);
        ensure(!is_proven || !self.is_unproven(slot), || format!("slot {slot} is listed as proven"))?;
        let is_alone = place.load().is_none_or(|load| load.len() <= 1 || !place.is_ready());
        ensure(is_alone || !self.is_unproven(slot), || format!("slot {slot} is unproven and has many jobs"))?;
        ensure(!is_open || (place.is_ready() && works), || format!("slot {slot} is listed as open"))?;
        let must_be_open = matches!(place.state, SlotState::Idle { .. }) && self.room(slot).is_some();
        ensure(is_open || !must_be_open, || format!("slot {slot} is idle and not listed"))?;
        let due = place.deadline(self.config.hang_timeout);
        ensure(due == place.listed.due, || format!("slot {slot} is listed under another time"))
    }
}

impl Core {
    fn check_batch(&self, load: &Load) -> Result<(), String> {
        if load.batch.is_empty() {
            return ensure(load.together.is_empty(), || {
                "runs jobs together that were not given together".into()
            });
        }
        let is_alone = load.suspended.is_none() && load.tray.is_none();
        ensure(is_alone, || "has a batch, and a suspended job or one in its tray".into())?;
        let is_one_of_it = |id: JobId| load.batch.iter().any(|(given, _)| *given == id);
        ensure(load.jobs().all(is_one_of_it), || "has a batch and other jobs".into())?;
        ensure(load.running.is_none() || load.waiting.is_empty(), || "runs a part of a batch".into())?;
        ensure(load.running.is_some() || load.together.is_empty(), || {
            "runs a batch without its first job".into()
        })?;
        let members: Vec<&Job> = load.jobs().filter_map(|id| self.jobs.get(id)).collect();
        let kind = |job: &Job| (job.task, job.run_limit, job.is_suspect);
        let are_alike = members.windows(2).all(|pair| kind(pair[0]) == kind(pair[1]));
        ensure(are_alike, || "has a batch of jobs that may not go together".into())?;
        let is_plain = |job: &&Job| {
            job.promise.idempotent && !job.has_file && !job.is_streamed() && !job.promise.is_stepped
        };
        ensure(members.iter().all(is_plain), || "has a batch with a job that must be alone".into())?;
        let is_small_enough =
            |job: &&Job| !job.is_suspect || load.batch.len() <= job.past.together_most as usize;
        ensure(members.iter().all(is_small_enough), || {
            "has a batch that is larger than half of the one before".into()
        })
    }
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

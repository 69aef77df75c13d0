//! Jobs that are held back until there is room for the outputs that were promised to be kept.

use super::{Mark, Promise, Promises, Stage};
use crate::config::KeptLimits;
use crate::ids::JobId;
use crate::jobs::JobState;
use crate::limits::MOVED_MAX;
use crate::{Core, Phase};
use std::collections::BTreeSet;

impl Promises {
    /// The job that an account has beyond its share: in flight, or with an output that is kept.
    pub fn beyond(&self, account: &str) -> Option<JobId> {
        self.beyond.get(account).copied()
    }

    /// Whether an account has a job beyond its share, so that it may have no other one. A job that has ended counts only while
    /// the account is over its share.
    pub(super) fn has_one_beyond(&self, account: &str, limit: u64) -> bool {
        let stage = self.beyond(account).and_then(|job| self.by_job.get(&job)).map(|promise| promise.stage);
        match stage {
            None => false,
            Some(Stage::Kept { .. }) => self.is_over_its_share(account, Mark::High, limit),
            Some(Stage::Open | Stage::InFlight { .. }) => true,
        }
    }

    /// What was promised of this job, if its output must be kept. None if nothing was promised, or if somebody waits for the job and
    /// it has no key: whoever waits is given the output.
    pub(crate) fn to_be_kept(&self, job: JobId) -> Option<&Promise> {
        self.by_job.get(&job).filter(|promise| !promise.is_awaited)
    }

    /// The job that its account has beyond its share, if this one is held back although somebody waits for it.
    pub(crate) fn held_by_one_beyond(&self, job: JobId, account: &str, limit: u64) -> Option<JobId> {
        let is_awaited = self.held_awaited.get(account).is_some_and(|jobs| jobs.contains(&job));
        self.beyond(account).filter(|_| is_awaited && self.has_one_beyond(account, limit))
    }

    /// What all accounts have, and how much that may be, if that is what holds back jobs of this one, and not its share.
    pub(crate) fn held_by_all(&self, account: &str, limits: KeptLimits) -> Option<(u64, u64)> {
        let is_over_its_share = self.is_over_its_share(account, Mark::Low, limits.shares);
        (!is_over_its_share && self.is_over(Mark::Low, limits))
            .then(|| (self.kept_of_ended.all().bytes, limits.all))
    }

    /// If it was the job that its account had beyond its share, another one may be that.
    pub(crate) fn is_not_beyond(&mut self, job: JobId) {
        let Some(promise) = self.by_job.get(&job) else { return };
        if self.beyond.get(&promise.account) == Some(&job) {
            self.beyond.remove(&promise.account);
            self.has_more_room = true;
        }
    }

    /// While older jobs are held back, the lower mark applies. Otherwise younger jobs would use up the room between the two marks
    /// again and again.
    fn own_mark(&self, account: &str) -> Mark {
        match self.held.contains_key(account) || self.held_awaited.contains_key(account) {
            true => Mark::Low,
            false => Mark::High,
        }
    }

    /// Checks that each job that is held back has a reason under these limits. `is_moving`: jobs are being released a
    /// few at a time, so some may still be held without a reason.
    pub(crate) fn check_held(&self, limits: KeptLimits, is_moving: bool) -> Result<(), String> {
        let limit = limits.shares;
        let is_over = is_moving || self.is_over(Mark::Low, limits);
        let has_room = |account: &str| !is_over && !self.is_over_its_share(account, Mark::Low, limit);
        let without = self.held.keys().find(|account| has_room(account));
        let may_have_one =
            |account: &str| !is_over && !self.has_one_beyond(account, limit) && !self.has_one_queued(account);
        let awaited = self.held_awaited.keys().find(|account| has_room(account) || may_have_one(account));
        let lists = self.held.values().chain(self.held_awaited.values());
        let count: usize = lists.map(BTreeSet::len).sum();
        match without.or(awaited) {
            Some(account) => Err(format!("jobs of {account} are held back, and there is room")),
            None if count != self.held_count => Err("held jobs do not add up".into()),
            None => Ok(()),
        }
    }

    /// Whether a job of this account that somebody waits for is in a queue. It may go beyond the share when it is its turn.
    fn has_one_queued(&self, account: &str) -> bool {
        let held = self.held_awaited.get(account);
        self.by_job.iter().any(|(job, promise)| {
            let is_open = promise.is_awaited && promise.stage == Stage::Open && *promise.account == *account;
            is_open && !held.is_some_and(|jobs| jobs.contains(job))
        })
    }
}

impl Core {
    /// Somebody waits for the job. If it has no key, its output will soon be collected, so it may start beyond the share of its
    /// account, if no other job of the account has.
    pub(crate) fn on_awaited(&mut self, job: JobId) {
        let Some(promise) = self.promises.by_job.get_mut(&job).filter(|promise| promise.key.is_none()) else {
            return;
        };
        if !std::mem::replace(&mut promise.is_awaited, true) && self.release_held(job) {
            self.wait_again(job);
        }
    }

    /// Nobody waits for the job any more. If it is held back, it goes through the queue again, and from now on its
    /// account's share counts.
    pub(crate) fn on_unawaited(&mut self, job: JobId) {
        let promise = self.promises.by_job.get_mut(&job).filter(|promise| promise.is_awaited);
        let Some(promise) = promise else { return };
        promise.is_awaited = false;
        // In a queue, it may have been the one that was to go beyond the share.
        self.promises.has_more_room |= self.promises.held_awaited.contains_key(&promise.account);
        if self.release_held(job) {
            self.wait_again(job);
        }
    }

    /// Called when it is the job's turn. Returns true if the job cannot start because there is no room to keep its
    /// output; the job is then held back until there is.
    pub(crate) fn hold_back(&mut self, id: JobId) -> bool {
        if self.is_never_held_back() {
            return false;
        }
        let Some(promise) = self.promises.by_job.get(&id) else { return false };
        let (account, is_awaited) = (promise.account.clone(), promise.is_awaited);
        let (limits, limit) = (self.config.kept_limits(), self.config.max_kept_bytes);
        let own = self.promises.own_mark(&account);
        let all = if self.promises.waits_for_all { Mark::Low } else { Mark::High };
        let is_beyond = self.promises.is_over_its_share(&account, own, limit);
        let may_be_beyond = is_awaited && !self.promises.has_one_beyond(&account, limit);
        let is_over_its_share = is_beyond && !may_be_beyond;
        if !is_over_its_share && !self.promises.is_over(all, limits) {
            if is_beyond {
                self.promises.beyond.insert(account, id);
            }
            return false;
        }
        self.dequeue(id);
        let Some(job) = self.jobs.get_mut(id) else { return false };
        job.state = JobState::Held;
        // The job still waits, and counts among the waiting jobs of its client.
        self.clients.waits(job.client);
        self.promises.waits_for_all |= !is_over_its_share;
        let held = if is_awaited { &mut self.promises.held_awaited } else { &mut self.promises.held };
        held.entry(account).or_default().insert(id);
        self.promises.held_count += 1;
        true
    }

    /// Whether there is room for what this job is expected to return, beside what is kept and what the jobs in flight are
    /// expected to return. If not, it starts only at an idle worker.
    pub(crate) fn fits_beside_others(&self, id: JobId) -> bool {
        let Some(promise) = self.promises.by_job.get(&id).filter(|_| !self.is_never_held_back()) else {
            return true;
        };
        let (ended, coming, limit) =
            (&self.promises.kept_of_ended, &self.promises.coming, self.config.max_kept_bytes);
        let of_this = promise.bytes + self.jobs.get(id).map_or(0, |job| self.likely_output(job));
        let all = of_this + ended.within_shares(limit) + coming.all().bytes;
        let own = of_this + [ended, coming].map(|sum| sum.of(&promise.account).bytes).iter().sum::<u64>();
        limit.checked_sub(all).is_some_and(|free| own <= free)
    }

    fn is_never_held_back(&self) -> bool {
        self.phase != Phase::Running
    }

    /// Puts held-back jobs into their queues again if there is room. Somewhat more room is needed than for one job,
    /// so that thousands of jobs are not moved back and forth whenever one of them runs.
    pub(crate) fn resume_held(&mut self) {
        if !std::mem::take(&mut self.promises.has_more_room) {
            return;
        }
        let (promises, limit) = (&self.promises, self.config.max_kept_bytes);
        let is_free = self.is_never_held_back();
        let has_room = |account: &str| is_free || !promises.is_over_its_share(account, Mark::Low, limit);
        let with_room = promises.held.iter().filter(|(account, _)| has_room(account));
        let of_accounts = with_room.flat_map(|(_, jobs)| jobs.iter().copied());
        let awaited = promises.held_awaited.iter().flat_map(|(account, jobs)| {
            if has_room(account) {
                return jobs.iter().copied().take(MOVED_MAX + 1).collect();
            }
            if promises.has_one_beyond(account, limit) { Vec::new() } else { self.first_of_each_task(jobs) }
        });
        let free = of_accounts.chain(awaited);
        let free: Vec<JobId> = free.take(MOVED_MAX + 1).collect();
        // These jobs lack only room among all. While the total is over the lower mark they stay held back, and no
        // other job may take the room.
        self.promises.waits_for_all =
            !is_free && !free.is_empty() && promises.is_over(Mark::Low, self.config.kept_limits());
        if self.promises.waits_for_all {
            return;
        }
        self.has_more_to_move |= free.len() > MOVED_MAX;
        self.promises.has_more_room |= self.has_more_to_move;
        for id in free.into_iter().take(MOVED_MAX) {
            self.release_held(id);
            self.wait_again(id);
        }
    }

    /// Any of these jobs may be the one beyond the share, so one for each task goes to its queue: what the first one waits for, another
    /// need not. If there are many, only the oldest are looked at.
    fn first_of_each_task(&self, jobs: &BTreeSet<JobId>) -> Vec<JobId> {
        let mut tasks = BTreeSet::new();
        let is_first = |id: &JobId| self.jobs.get(*id).is_some_and(|job| tasks.insert(job.task));
        jobs.iter().copied().take(MOVED_MAX).filter(is_first).collect()
    }

    /// A job that was held back goes into its queue again. In the meantime its task may have become unavailable,
    /// which is checked after this.
    fn wait_again(&mut self, id: JobId) {
        self.enqueue(id);
        self.places_changed = true;
    }

    /// Ends the holding back of a job; the caller decides where the job goes. False if it was not held back.
    pub(crate) fn release_held(&mut self, id: JobId) -> bool {
        let Some(job) = self.jobs.get(id).filter(|job| job.state == JobState::Held) else { return false };
        self.clients.waits_no_more(job.client);
        let account = self.clients.name_of(job.client).clone();
        for held in [&mut self.promises.held, &mut self.promises.held_awaited] {
            if let Some(jobs) = held.get_mut(&account) {
                jobs.remove(&id);
                if jobs.is_empty() {
                    held.remove(&account);
                }
            }
        }
        // If this was the last job that waited for the room, others may have it.
        self.promises.has_more_room = true;
        self.promises.held_count -= 1;
        true
    }
}

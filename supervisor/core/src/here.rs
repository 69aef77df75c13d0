//! Jobs that the shell does itself, on threads of its own: they wait for something outside, such as a file, and need no
//! worker. Everything else is the same for them: they are accepted, wait in order, are charged and end as all jobs do.
//!
//! ```text
//!                its turn, and a place is free             RanHere
//!    Queued ------------------------------------> Here ---------------> ended
//!                  RunHere to the shell             |                     ^
//!                                                   '-- cancelled, out of time: StopHere to the shell
//!
//!    place:  free ---------- RunHere ------------> taken --- RanHere ---> free
//! ```
//!
//! A job ends as soon as it is cancelled or its time is over, but its place stays taken until the shell says `RanHere`: a
//! thread that waits for a file system cannot be interrupted. The shell says so in any case, once the time is over that
//! `RunHere` names. So there are never more of these jobs with the shell than there are places, and a thread that is stuck
//! holds up others for a limited time.
//!
//! Their queue is that of one more program, behind those of workers, which has no slots.
//!
//! How long a file is, is known when it was read, and several are read at a time. If there is no room to keep what was read, its
//! job fails.

use super::action::Action;
use super::config::{CoreConfig, KeptLimits};
use super::ids::{JobId, Mono, ProgramIndex};
use super::jobs::{JobState, RanUnder};
use super::outcome::{self, human};
use super::promises::Promise;
use super::registry::{Class, Offered, Offers};
use super::turn::Turn;
use super::{Charge, Core, Ending, Phase};
use crate::limits::{HERE_TIME_MAX, HERE_TIME_MIN, LEFT_FOR_OTHERS, MOVED_MAX, PROMISE_BYTES};
use offload_protocol::limits::MESSAGE_MAX;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode, TaskOffer, Usage, cut};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Tasks that are done here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TasksHere {
    /// What they promise. No worker is asked for a task of such a name.
    pub offers: Vec<TaskOffer<'static>>,
    /// How many of their jobs the shell has at a time. At least 1, if there are any.
    pub places: usize,
}

/// How a job ended that was done here.
pub type RanHere = Result<u64, (OutcomeCode, String)>;

/// The places, and who has them.
#[derive(Debug, Default)]
pub(super) struct Here {
    /// When the time of each job is over; none if it has ended already.
    taken: BTreeMap<JobId, Option<Mono>>,
}

impl Here {
    fn next_due(&self) -> Option<Mono> {
        self.taken.values().flatten().min().copied()
    }
}

impl Core {
    /// The program whose jobs are done here.
    pub(super) fn program_here(&self) -> Option<ProgramIndex> {
        Some(self.config.programs).filter(|&program| program < self.programs.len())
    }

    /// The programs that workers run.
    pub(super) fn programs_of_workers(&self) -> Range<ProgramIndex> {
        0..self.config.programs
    }

    /// How many places there are for jobs of this program.
    pub(super) fn places_of(&self, program: ProgramIndex) -> usize {
        match self.program_here() == Some(program) {
            true => self.config.here.places,
            false => self.slots_of(program).filter(|&slot| self.slots[slot].is_ready()).count(),
        }
    }

    /// How many jobs the shell has, those that have ended in the meantime included.
    pub fn taken_here(&self) -> usize {
        self.here.taken.len()
    }

    pub(super) fn has_taken(&self, id: JobId) -> bool {
        self.here.taken.contains_key(&id)
    }

    pub(super) fn next_due_here(&self) -> Option<Mono> {
        self.here.next_due()
    }

    /// The jobs that are done here.
    pub(super) fn jobs_here(&self) -> impl Iterator<Item = JobId> + '_ {
        self.here.taken.keys().copied()
    }

    pub(super) fn offer_here(&mut self) {
        let Some(program) = self.program_here() else { return };
        let offered = |offer: &TaskOffer<'static>| {
            let offered = Offered { offer: offer.clone(), takes_files: false };
            (Arc::from(&*offer.name), offered)
        };
        let offers: Offers = self.config.here.offers.iter().map(offered).collect();
        self.registry.offer_here(program, offers);
    }

    /// Gives waiting jobs to the shell while places are free; nothing if the most that one event may move have expired in this one.
    pub(super) fn dispatch_here(&mut self, turn: &mut Turn<'_>, expired: usize) {
        let Some(program) = self.program_here() else { return };
        let mut moved = expired + self.set_paused_aside(program, MOVED_MAX - expired);
        while self.here.taken.len() < self.config.here.places {
            let Some((next, _)) = self.heads_to_start(program).next() else { return };
            if moved == MOVED_MAX {
                self.has_more_to_move = true;
                return;
            }
            match self.hold_back(next.job()) {
                true => moved += 1,
                false => self.begin_here(turn, next.job()),
            }
            moved += self.set_paused_aside(program, MOVED_MAX - moved);
        }
    }

    fn begin_here(&mut self, turn: &mut Turn<'_>, id: JobId) {
        self.dequeue(id);
        if let Some(program) = self.program_here() {
            self.note_expected_run(id, program);
        }
        let waited_as = self.jobs.get(id).map_or(Class::Long, |job| job.class);
        self.charge_expected(id, None, waited_as);
        self.expect_output(id);
        self.check_estimate(turn.now, id);
        let Some(task) = self.jobs.get(id).and_then(|job| job.task) else { return };
        let promise = self.registry.task(task).promise;
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.state = JobState::Here { started_at: turn.now };
        job.attempts += 1;
        job.promise = promise;
        job.ran_under = RanUnder::default().and(promise);
        let time = time_here(job.run_timeout());
        self.here.taken.insert(id, Some(turn.now + time));
        turn.push(Action::RunHere { job: id, within: time.max(HERE_TIME_MIN) });
    }

    /// The shell is done with a job, whatever became of it. Its place is free.
    pub(super) fn on_ran_here(&mut self, turn: &mut Turn<'_>, id: JobId, result: RanHere) {
        if self.here.taken.remove(&id).is_none() {
            return;
        }
        let Some(JobState::Here { started_at }) = self.jobs.get(id).map(|job| job.state) else { return };
        let run = turn.now - started_at;
        let result = result.map_err(|(code, message)| outcome::error(code, cut(&message, MESSAGE_MAX)));
        self.learn_run(id, run, result.as_ref().ok().copied());
        let result = result.and_then(|output_bytes| self.check_room_for_what_was_read(id, output_bytes));
        let output = result.as_ref().ok().copied();
        self.hold_output(id, output.unwrap_or(0));
        let error: Option<ErrorDetail> = result.err();
        let ending = Ending {
            outcome: error.as_ref().map_or(OutcomeCode::Ok, |error| error.code),
            error,
            run: Some(run),
            place: None,
            usage: Usage::default(),
            output_bytes: output.unwrap_or(0),
            charge: Charge::ForTheRun,
        };
        self.finish(turn, id, ending);
    }

    /// A job whose output was promised to be kept, and is not, has failed: `ok` would say that the output can be collected. If
    /// somebody waits for the job and it has no key, the output is given to whoever waits, and need not be kept.
    fn check_room_for_what_was_read(&self, id: JobId, output_bytes: u64) -> Result<u64, ErrorDetail> {
        let Some(promise) = self.promises.to_be_kept(id).filter(|_| self.phase == Phase::Running) else {
            return Ok(output_bytes);
        };
        if self.keeps_what_was_read(promise, output_bytes, output_bytes) {
            return Ok(output_bytes);
        }
        let (all, limit) = (self.promises.kept().all().bytes, self.config.max_kept_bytes);
        let message = format!(
            "the output has {output_bytes} bytes, and there is no room to keep it (storage_full): all clients hold {all} \
             bytes, the limit is {limit}; a job without an idempotency key that somebody waits for needs no such room"
        );
        Err(outcome::error(OutcomeCode::IoError, message))
    }

    /// Whether there is room to keep an output that was read: if it is small, if it is within the share of its account, or if a thirty-second
    /// of the limit stays free for the others and it is not a stranger's. Several files of any length may be read at a time, each begun
    /// while there was room. Kept together they could use up the room of all clients until their time is over; and a file is still there.
    pub(super) fn keeps_what_was_read(&self, promise: &Promise, output_bytes: u64, more: u64) -> bool {
        let KeptLimits { shares, all } = self.config.kept_limits();
        let then = self.promises.kept().all().bytes.saturating_add(more);
        let leaves_some = || then <= shares - shares / LEFT_FOR_OTHERS;
        output_bytes <= PROMISE_BYTES
            || (self.has_room_for(&promise.account, more) && then <= all)
            || (!promise.is_of_stranger && leaves_some())
    }

    /// The job has ended before the shell was done with it.
    pub(super) fn stop_here(&mut self, turn: &mut Turn<'_>, id: JobId) {
        if let Some(due) = self.here.taken.get_mut(&id) {
            *due = None;
            turn.push(Action::StopHere { job: id });
        }
    }

    /// Ends the jobs whose time is over.
    pub(super) fn end_overdue_here(&mut self, turn: &mut Turn<'_>) {
        let is_over = |due: &Option<Mono>| due.is_some_and(|due| due <= turn.now);
        let overdue: Vec<JobId> =
            self.here.taken.iter().filter(|(_, due)| is_over(due)).map(|(&id, _)| id).collect();
        for id in overdue {
            let Some(job) = self.jobs.get(id) else { continue };
            let message = format!("ran longer than {}", human(time_here(job.run_timeout())));
            self.withdraw(turn, id, Ending::of(outcome::for_anybody(OutcomeCode::Timeout, message)));
        }
    }

    /// Checks the places against the jobs.
    pub(super) fn check_here(&self) -> Result<(), String> {
        let are_here =
            |id: &JobId| matches!(self.jobs.get(*id).map(|job| job.state), Some(JobState::Here { .. }));
        if let Some((id, _)) = self.here.taken.iter().find(|(id, due)| due.is_some() != are_here(id)) {
            return Err(format!("{id} has a place here, and its state is another one"));
        }
        if self.here.taken.len() > self.config.here.places {
            return Err("more jobs are done here than there are places".to_owned());
        }
        let waits = self.program_here().is_some_and(|program| self.heads_to_start(program).next().is_some());
        let is_free = self.here.taken.len() < self.config.here.places;
        if waits && is_free && !self.has_more_to_move {
            return Err("a job waits, and a place here is free".to_owned());
        }
        Ok(())
    }
}

/// The longest run of a job that is done here.
fn time_here(run_timeout: Duration) -> Duration {
    run_timeout.min(HERE_TIME_MAX)
}

impl CoreConfig {
    /// How many programs have queues: those of workers, and one for what is done here.
    pub(super) fn queues(&self) -> usize {
        self.programs + usize::from(!self.here.offers.is_empty())
    }
}

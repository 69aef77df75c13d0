//! What the shell calls: requests and events go in, and what is to be done comes out.
//!
//! ```text
//!              submit, handle                     (settled: the shell may wait)
//!   settled -------------------------------------> settled
//!      |                                             ^
//!      | submit_unsettled, handle_unsettled of a     | settle; before a job is refused it happens by itself
//!      | start, an end, or bytes that are held       |
//!      '---> unsettled ------------------------------'
//!             '----^ the same again
//! ```
//!
//! Dispatching takes a look at all queues and slots that have changed, and is the larger part of what an event costs. Where a
//! shell has ten answers and ten requests at once, one look is enough for all of them.

use super::Core;
use super::abandoned::CLIENT_GONE;
use super::action::{Accepted, Actions};
use super::event::{Event, JobRequest};
use super::ids::Mono;
use super::run;
use super::turn::Turn;
use offload_protocol::nouns::ErrorDetail;

impl Core {
    /// Accepts or refuses a job, and appends to `actions` what the shell has to do about it. These actions may
    /// already dispatch the job to a worker, or even end it. `now` must not go backwards.
    ///
    /// # Errors
    /// Why the job is refused. A refused job is counted and has no other effect.
    pub fn submit(
        &mut self,
        now: Mono,
        request: &JobRequest,
        actions: &mut Actions,
    ) -> Result<Accepted, ErrorDetail> {
        let verdict = self.submit_unsettled(now, request, actions);
        self.settle_all(&mut Turn::new(now, actions));
        verdict
    }

    /// Like [`Core::submit`], but does not dispatch the job. The shell calls [`Core::settle`] before it waits for anything. Before
    /// a job is refused, what came in earlier calls is settled: that may make room.
    ///
    /// # Errors
    /// As in [`Core::submit`].
    pub fn submit_unsettled(
        &mut self,
        now: Mono,
        request: &JobRequest,
        actions: &mut Actions,
    ) -> Result<Accepted, ErrorDetail> {
        let turn = &mut Turn::new(now, actions);
        let before = turn.action_count();
        self.end_what_is_over(turn);
        let has_ended = turn.action_count() > before;
        let verdict = self.on_submit(turn, request);
        self.is_settled &= !has_ended;
        verdict
    }

    /// Handles an event that happened at `now`, and appends to `actions` what the shell has to do about it.
    ///
    /// Any event is legal in any state. `now` must not go backwards.
    pub fn handle(&mut self, now: Mono, event: Event, actions: &mut Actions) {
        self.settle(now, actions);
        self.take(now, event, actions);
        self.settle_all(&mut Turn::new(now, actions));
    }

    /// Like [`Core::handle`], but where [`Event::may_be_settled_later`] allows it, nothing is dispatched yet. The shell calls
    /// [`Core::settle`] before it waits for anything, and also before it tells of any other event: what was decided for the
    /// earlier ones is to be carried out before that.
    pub fn handle_unsettled(&mut self, now: Mono, event: Event, actions: &mut Actions) {
        match event.may_be_settled_later() {
            true => self.take(now, event, actions),
            false => self.handle(now, event, actions),
        }
    }

    /// Decides what follows from everything that has happened since the last time, as if all of it had happened at `now`, and
    /// appends to `actions` what the shell has to do. Does nothing if nothing has happened.
    pub fn settle(&mut self, now: Mono, actions: &mut Actions) {
        if !self.is_settled {
            let turn = &mut Turn::new(now, actions);
            self.end_what_is_over(turn);
            self.settle_all(turn);
        }
    }

    /// Whether nothing has happened since the last [`Core::settle`]. If something has, [`Core::next_deadline`] and
    /// [`Core::has_untaken`] say nothing, and waits and explanations are those of jobs that may be dispatched at once.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    fn take(&mut self, now: Mono, event: Event, actions: &mut Actions) {
        let turn = &mut Turn::new(now, actions);
        self.end_what_is_over(turn);
        self.is_settled = false;
        match event {
            Event::Cancel { job } => self.on_cancel(turn, job, "cancelled on request"),
            Event::ClientGone { job } => self.on_cancel(turn, job, CLIENT_GONE),
            Event::Awaited { job } => {
                self.want_again(job);
                self.on_awaited(job);
            }
            Event::Abandoned { job } => {
                self.on_unawaited(job);
                self.stop_reading(turn, job);
                self.on_abandoned(job);
            }
            Event::Collected { job } => self.on_collected(turn, job),
            Event::LetterDropped { job } => self.on_letter_dropped(job),
            Event::Refused { code } => self.tally.reject(code),
            Event::Launched { worker } => self.on_launched(turn.now, worker),
            Event::SpawnFailed { worker, fatal, message } => {
                self.on_spawn_failed(turn, worker, fatal, &message);
            }
            Event::Hello { worker, tasks, takes_files } => {
                self.on_hello(turn, worker, (&tasks, takes_files));
            }
            Event::Unfit { worker, message } => self.on_unfit(turn, worker, message),
            Event::Started { worker, job, attempt } => self.on_started(turn, worker, job, attempt),
            Event::Finished { worker, job, attempt, run, usage, output_bytes } => {
                let answer = run::Answer { job, attempt, run, usage, result: Ok(output_bytes) };
                self.on_ran(turn, worker, answer);
            }
            Event::Failed { worker, job, attempt, run, kind, message, usage } => {
                let answer = run::Answer { job, attempt, run, usage, result: Err((kind, message)) };
                self.on_ran(turn, worker, answer);
            }
            Event::Progress { worker, job, attempt, done, total } => {
                self.on_progress(turn, worker, (job, attempt), (done, total));
            }
            Event::Checkpoint { worker, job, attempt, bytes } => {
                self.on_checkpoint(turn, worker, (job, attempt), bytes);
            }
            Event::Part { worker, job, attempt, bytes } => self.on_part(turn, worker, (job, attempt), bytes),
            Event::RanHere { job, result } => self.on_ran_here(turn, job, result),
            Event::Delivered { job, bytes } => self.on_delivered(turn, job, bytes),
            Event::Yielded { worker, job, attempt, run, bytes } => {
                self.on_yielded(turn, worker, (job, attempt), run, bytes);
            }
            Event::Skipped { worker, job } => self.on_skipped(turn, worker, job),
            Event::NotBegun { worker, job, attempt } => self.on_not_begun(turn, worker, (job, attempt)),
            Event::BrokeRules { worker, of_another, how } => {
                self.on_broke_rules(turn, worker, of_another, how);
            }
            Event::Violation { worker, message } => self.on_bad_message(turn, worker, message),
            Event::Garbled { worker, message } => self.on_garbled(turn, worker, message),
            Event::TrayMade { worker } => self.on_tray(worker, true),
            Event::TrayFailed { worker } => self.on_tray(worker, false),
            Event::TakenBack { worker, job } => self.on_taken_back(turn.now, worker, job),
            Event::NotInTray { worker, job } => self.on_not_in_tray(turn, worker, job),
            Event::EndOfTurn => self.on_end_of_turn(turn),
            Event::Unsent { worker, jobs } => self.on_unsent(worker, &jobs),
            Event::Closed { worker } => self.on_closed(turn, worker),
            Event::Exited { worker, exit, last_lines, usage } => {
                self.on_exited(turn, worker, exit, last_lines, usage);
            }
            Event::Stopped { worker } => self.on_stopped(turn.now, worker),
            Event::Continued { worker } => self.on_continued(worker),
            Event::Measured { worker, resident_bytes } => self.on_measured(worker, resident_bytes),
            Event::Held { client, what, bytes } => self.on_held(&client, what, bytes),
            Event::Released { client, what, bytes } => self.on_released(&client, what, bytes),
            Event::Tick => self.on_time(turn),
            Event::RequestsInFlight { some } => self.has_requests = some,
            Event::Drain { limit } => self.on_drain(turn.now, limit),
            Event::Stop => self.on_stop(turn),
            Event::Configure(config) => self.on_configure(*config),
            Event::Pause { task } => self.on_pause(turn, task),
            Event::Resume { task } => self.on_resume(task),
            Event::Reload { version } => self.on_reload(turn, version),
        }
    }

    /// Ends promises and dead letters whose time is over, before the event itself is looked at.
    fn end_what_is_over(&mut self, turn: &mut Turn<'_>) {
        self.end_promises(turn);
        self.end_letters(turn);
    }

    /// When [`Event::Tick`] is due if nothing happens before; `None` if the core waits for no time.
    pub fn next_deadline(&self) -> Option<Mono> {
        let slots = self.due.first().map(|(when, _)| *when);
        let jobs = self.jobs.first_deadline().map(|(when, _)| when);
        let drain = self.drain_ends_at();
        let others = [
            slots,
            jobs,
            drain,
            self.next_start(),
            self.next_test(),
            self.next_lending(),
            self.trial_ends_at(),
            self.next_overdue_tray(),
            self.next_due_here(),
            self.next_ripe_batch(),
            self.promises.next_end(),
            self.letters.next_end(),
            self.has_more_to_move.then(Mono::default),
        ];
        others.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Action;
    use crate::config::CoreConfig;
    use crate::exit::Exit;
    use crate::ids::{JobId, WorkerId};
    use crate::limits::MOVED_MAX;
    use offload_protocol::nouns::{OutcomeCode, TaskOffer, Usage};
    use std::time::Duration;

    const WORKER: WorkerId = WorkerId(1);

    /// A core with one worker, which is ready.
    fn core(max_jobs: usize) -> Result<Core, String> {
        let config = CoreConfig { workers: 1, spares: 0, max_jobs, ..CoreConfig::default() };
        let mut core = Core::new(config)?;
        let hello = Event::Hello { worker: WORKER, tasks: vec![TaskOffer::new("sum")], takes_files: true };
        for event in [Event::Tick, Event::Launched { worker: WORKER }, hello] {
            core.handle(Mono::default(), event, &mut Actions::new());
        }
        Ok(core)
    }

    fn submit(core: &mut Core) -> (Result<Accepted, ErrorDetail>, Vec<JobId>) {
        let mut actions = Actions::new();
        let request = JobRequest { task: "sum".to_owned(), ..JobRequest::default() };
        let verdict = core.submit_unsettled(Mono::default(), &request, &mut actions);
        (verdict, given(&actions))
    }

    /// The jobs that are given to workers.
    fn given(actions: &[Action]) -> Vec<JobId> {
        let job = |action: &Action| match action {
            Action::Run { job, .. } => Some(*job),
            _ => None,
        };
        actions.iter().filter_map(job).collect()
    }

    fn settled(core: &mut Core) -> Vec<JobId> {
        let mut actions = Actions::new();
        core.settle(Mono::default(), &mut actions);
        assert!(core.is_settled());
        given(&actions)
    }

    #[test]
    fn what_comes_together_is_dispatched_together() -> Result<(), String> {
        let mut core = core(10)?;
        assert_eq!(submit(&mut core).1, []);
        assert_eq!(submit(&mut core).1, []);
        assert!(!core.is_settled());
        assert_eq!(settled(&mut core), [JobId(1)]);
        assert_eq!(settled(&mut core), [], "there is nothing more to decide");

        let (mut actions, now) = (Actions::new(), Mono::default());
        let (job, attempt, run, usage) = (JobId(1), 1, Duration::ZERO, Usage::default());
        core.handle_unsettled(now, Event::Started { worker: WORKER, job, attempt }, &mut actions);
        let finished = Event::Finished { worker: WORKER, job, attempt, run, usage, output_bytes: 0 };
        core.handle_unsettled(now, finished, &mut actions);
        assert!(matches!(&actions[..], [Action::Finish(ended)] if ended.outcome == OutcomeCode::Ok));
        assert_eq!(settled(&mut core), [JobId(2)]);
        Ok(())
    }

    #[test]
    fn of_those_that_come_together_the_most_urgent_is_first() -> Result<(), String> {
        let mut core = core(10)?;
        assert!(submit(&mut core).0.is_ok());
        let urgent = JobRequest { task: "sum".to_owned(), priority: 5, ..JobRequest::default() };
        assert!(core.submit_unsettled(Mono::default(), &urgent, &mut Actions::new()).is_ok());
        assert_eq!(settled(&mut core), [JobId(2)]);
        Ok(())
    }

    #[test]
    fn everything_else_comes_after_what_was_not_settled() -> Result<(), String> {
        let mut core = core(10)?;
        assert!(submit(&mut core).0.is_ok());
        let mut actions = Actions::new();
        core.handle_unsettled(Mono::default(), Event::Cancel { job: JobId(1) }, &mut actions);
        assert_eq!(given(&actions), [JobId(1)], "it was given to the worker before it was cancelled");
        assert!(core.is_settled());
        Ok(())
    }

    /// A worker that ends after its answer takes no job with it that came meanwhile.
    #[test]
    fn a_worker_that_has_gone_is_given_nothing() -> Result<(), String> {
        let mut core = core(10)?;
        assert!(submit(&mut core).0.is_ok());
        let (mut actions, now) = (Actions::new(), Mono::default());
        core.handle_unsettled(now, Event::Closed { worker: WORKER }, &mut actions);
        assert_eq!((given(&actions), settled(&mut core)), (vec![], vec![]));
        let exited = Event::Exited { worker: WORKER, exit: Exit::Code(0), last_lines: vec![], usage: None };
        core.handle(now, exited, &mut actions);
        let job = core.jobs().get(JobId(1)).ok_or("it has not ended")?;
        assert!(!job.is_suspect && job.past.lost.is_empty(), "{job:?}");
        Ok(())
    }

    /// It may end because of the one before, and does if it ends after each job. One that had done nothing else says more.
    #[test]
    fn a_worker_that_had_done_another_job_does_not_count_against_one_that_it_had_not_started()
    -> Result<(), String> {
        for (has_done_others, unstarted) in [(true, 0), (false, 1)] {
            let (mut core, mut actions, now) = (core(10)?, Actions::new(), Mono::default());
            if has_done_others {
                assert!(submit(&mut core).0.is_ok());
                settled(&mut core);
                let (job, attempt, run, usage) = (JobId(1), 1, Duration::ZERO, Usage::default());
                core.handle(now, Event::Started { worker: WORKER, job, attempt }, &mut actions);
                let finished = Event::Finished { worker: WORKER, job, attempt, run, usage, output_bytes: 0 };
                core.handle(now, finished, &mut actions);
            }
            let job = submit(&mut core).0.map_err(|error| error.message)?.job;
            assert_eq!(settled(&mut core), [job]);
            let exited =
                Event::Exited { worker: WORKER, exit: Exit::Code(0), last_lines: vec![], usage: None };
            core.handle(now, exited, &mut actions);
            let job = core.jobs().get(job).ok_or("it has not ended")?;
            assert_eq!((job.is_suspect, job.past.unstarted), (true, unstarted));
        }
        Ok(())
    }

    /// Otherwise whoever submits more of them in each turn than one event may end would keep all others from being served.
    #[test]
    fn however_many_come_that_are_late_at_once_others_are_dispatched() -> Result<(), String> {
        let mut core = core(10_000)?;
        let other = submit(&mut core).0.map_err(|error| error.message)?.job;
        let deadline = Some(Duration::ZERO);
        let late = JobRequest { task: "sum".to_owned(), deadline, ..JobRequest::default() };
        let mut dispatched = vec![];
        for _ in 0..10 {
            for _ in 0..3 * MOVED_MAX {
                let submitted = core.submit_unsettled(Mono::default(), &late, &mut Actions::new());
                submitted.map_err(|error| error.message)?;
            }
            dispatched.extend(settled(&mut core));
        }
        assert_eq!((dispatched, core.jobs().len()), (vec![other], 1));
        Ok(())
    }

    #[test]
    fn what_came_before_makes_room_before_a_job_is_refused() -> Result<(), String> {
        let mut core = core(1)?;
        assert!(submit(&mut core).0.is_ok());
        let (verdict, given) = submit(&mut core);
        assert!(verdict.is_ok(), "the first job does not wait any more: {verdict:?}");
        assert_eq!(given, [JobId(1)]);
        let refused = submit(&mut core).0.err().map(|error| error.code);
        assert_eq!(refused, Some(OutcomeCode::Overloaded));
        Ok(())
    }
}

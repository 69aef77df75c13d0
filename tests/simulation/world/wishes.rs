//! Turns the wishes of the script into requests, as the shell would.

use super::{MOMENT, Thing, World};
use crate::oracle::{Failure, Submission};
use crate::script::{TASKS, Wish};
use offload_core::action::{Action, Actions};
use offload_core::event::{Event, JobRequest};
use offload_core::ids::{JobId, TaskIndex, WorkerId};
use offload_core::ledger::Holding;
use offload_protocol::nouns::OutcomeCode;
use std::sync::Arc;

impl World {
    pub(super) fn wish(&mut self, index: usize) -> Result<(), Failure> {
        let event = match self.script.wishes[index].1.clone() {
            Wish::Submit(request) => return self.submit(index, request),
            Wish::CancelOf(wish) => match self.job_of.get(&wish) {
                // What is asked for and what its client leaves behind is cancelled alike.
                Some(&job) if job.0 % 2 == 0 => Event::ClientGone { job },
                Some(&job) => Event::Cancel { job },
                None => return Ok(()),
            },
            Wish::AwaitOf(wish)
            | Wish::AbandonOf(wish)
            | Wish::CollectOf(wish)
            | Wish::DropLetterOf(wish) => {
                let Some(&job) = self.job_of.get(&wish) else { return Ok(()) };
                match self.script.wishes[index].1 {
                    Wish::AwaitOf(_) => Event::Awaited { job },
                    Wish::AbandonOf(_) => Event::Abandoned { job },
                    Wish::CollectOf(_) => Event::Collected { job },
                    _ => Event::LetterDropped { job },
                }
            }
            Wish::CancelUnknown => Event::Cancel { job: JobId(1 << 40) },
            Wish::Refuse => Event::Refused { code: OutcomeCode::TooLarge },
            Wish::Configure(config) => Event::Configure(config),
            Wish::Measure(worker) => Event::Measured { worker: WorkerId(worker), resident_bytes: 2000 },
            Wish::Reload(version) => {
                self.on_disk = self.on_disk.max(version);
                Event::Reload { version }
            }
            Wish::Arrival { client, bytes, is_over } => {
                let time = if is_over { MOMENT } else { 100 * MOMENT };
                let client: Arc<str> = client.into();
                self.out.schedule(self.out.now + time, Thing::ArrivalEnds(client.clone(), bytes));
                Event::Held { client, what: Holding::Arriving, bytes }
            }
            // One that comes late, because the shell stood still, would never end.
            Wish::Pause(_) if self.is_calm => return Ok(()),
            Wish::Pause(task) => match self.task_called(task) {
                Some(task) => Event::Pause { task },
                None => return Ok(()),
            },
            Wish::Resume(task) => match self.task_called(task) {
                Some(task) => Event::Resume { task },
                None => return Ok(()),
            },
            Wish::Tick => Event::Tick,
            Wish::Drain(limit) => Event::Drain { limit },
            Wish::Stop => Event::Stop,
        };
        self.tell(event, true)
    }

    /// The task of this name, if there is a name. None if the core has not heard of it yet.
    fn task_called(&self, name: Option<&str>) -> Option<Option<TaskIndex>> {
        match name {
            None => Some(None),
            Some(name) => self.core.registry().find_known(name).map(Some),
        }
    }

    /// Asks the core for a job, and tells it what follows in the same breath.
    fn submit(&mut self, wish: usize, request: JobRequest) -> Result<(), Failure> {
        let now = self.out.now;
        self.count(now)?;
        self.verdict.coverage.see_request(&self.core);
        let mut actions = Actions::new();
        let (was_settled, is_settled) = (self.core.is_settled(), !self.is_put_off());
        let verdict = match is_settled {
            true => self.core.submit(now, &request, &mut actions),
            false => self.core.submit_unsettled(now, &request, &mut actions),
        };
        let told = format!("{request:?} -> {verdict:?}");
        self.write_down(|| told.clone(), &told, &actions);
        let submission = Submission { wish, request, verdict, was_settled, is_settled };
        self.out.oracle.see_submission(now, &submission, &actions, &self.core)?;
        match submission.verdict {
            Ok(accepted) => self.accept(wish, accepted.job),
            Err(error) => self.verdict.coverage.see_refusal(error.code),
        }
        self.handle_parts(&Event::Tick, &actions);
        self.check_and_apply(&actions)?;
        self.out.complaint.take().map_or(Ok(()), Err)?;
        self.tell_what_follows()
    }

    pub(super) fn accept(&mut self, wish: usize, job: JobId) {
        self.job_of.insert(wish, job);
        if let Wish::Submit(request) = &self.script.wishes[wish].1 {
            // One that was known already stays whose it is.
            self.client_of.entry(job).or_insert_with(|| request.client.clone());
            let task = TASKS.iter().position(|task| task.name == request.task);
            self.task_of.insert(job, task.unwrap_or(0));
            if request.stream {
                self.readers.streams.insert(job);
            }
            self.guilt_of.extend(self.script.guilt.get(&wish).map(|guilt| (job, *guilt)));
        }
    }

    /// A client is sent its output, and takes it soon, or late, or not at all.
    pub(super) fn deliver_output(&mut self, event: &Event, actions: &[Action]) {
        let (Event::Finished { output_bytes, .. } | Event::RanHere { result: Ok(output_bytes), .. }) = event
        else {
            return;
        };
        for action in actions {
            let Action::Finish(ended) = action else { continue };
            if ended.outcome != OutcomeCode::Ok || *output_bytes == 0 {
                continue;
            }
            let client = self.client_of.get(&ended.job).cloned().unwrap_or_default();
            let time = self.reading_time(ended.job);
            self.out.schedule(self.out.now + time, Thing::OutputRead(client, *output_bytes));
        }
    }
}

//! What the core has to do about an event, and whether it has done it.

use super::whose_fault::EndOfWorker;
use super::{Failure, Oracle, demand};
use offload_core::action::{Action, Kill, Notice};
use offload_core::ids::{JobId, ProgramIndex, WorkerId};
use offload_protocol::nouns::OutcomeCode;

/// What the core has to do about an event, whatever else it does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Duty {
    Nothing,
    /// End this job so.
    End(JobId, OutcomeCode),
    /// End this job, which the shell has done: well, if there is room for what has to be kept of it.
    EndRead(JobId),
    /// Kill this worker.
    Punish(WorkerId),
    /// Tell this worker that nobody wants this job any more.
    Forget(WorkerId, JobId),
    /// Keep what came with this job.
    Keep(JobId),
    /// The worker on trial has ended: take its version back, unless its job is to show whose fault that was.
    Judge(EndOfWorker),
    /// The same of one that was told to end for what it did.
    MayJudge(EndOfWorker),
    /// A worker that had proved itself has ended: if a version waits for what its job does, try that with another worker.
    Acquit(EndOfWorker),
    /// Refuse jobs of this program: it has never said anything.
    Refuse(ProgramIndex),
    /// Count a failed start of this program.
    CountFailure(ProgramIndex),
}

impl Oracle {
    pub(super) fn demand_duty(&self, duty: &Duty, actions: &[Action]) -> Result<(), Failure> {
        match *duty {
            Duty::Nothing | Duty::MayJudge(_) => Ok(()),
            Duty::End(id, code) => {
                let is_done = |action: &Action| matches!(action, Action::Finish(ended) if ended.job == id && ended.outcome == code);
                demand(actions.iter().any(is_done), "O2", || format!("{id} should have ended with {code}"))
            }
            Duty::EndRead(id) => {
                let is_done = |action: &Action| matches!(action, Action::Finish(ended) if ended.job == id);
                demand(actions.iter().any(is_done), "O2", || format!("{id} is done and should have ended"))
            }
            Duty::Forget(of, id) => {
                let is_done = |action: &Action| matches!(action, Action::CancelRun { worker, job } if (*worker, *job) == (of, id));
                demand(actions.iter().any(is_done), "O22", || format!("{of} is not told to forget {id}"))
            }
            Duty::Keep(id) => {
                let is_done = |action: &Action| matches!(action, Action::Keep { job } if *job == id);
                demand(actions.iter().any(is_done), "O2", || format!("the state of {id} is not kept"))
            }
            Duty::Refuse(of) => {
                let is_done = self.programs[of].is_refusing;
                demand(is_done, "O12", || format!("program {of} never said anything and is waited for"))
            }
            Duty::Judge(end) => self.judge_end_on_trial(end, actions),
            Duty::Acquit(end) => self.judge_answer(end, actions),
            Duty::CountFailure(of) => {
                let is_done = |action: &Action| matches!(action, Action::Log(Notice::StartFailed { program, .. } | Notice::Degraded { program, .. }) if *program == of);
                demand(actions.iter().any(is_done), "O20", || {
                    format!("the end of an unproven worker of {of} goes unnoticed")
                })
            }
            Duty::Punish(id) => {
                let is_done = |action: &Action| matches!(action, Action::Kill { worker, how: Kill::Kill } if *worker == id);
                demand(actions.iter().any(is_done), "O15", || format!("{id} broke a rule and goes on"))
            }
        }
    }
}

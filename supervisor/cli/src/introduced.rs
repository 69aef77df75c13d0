//! What worker programs say of their tasks, without a supervisor: each program is started once, introduces itself, and is
//! ended.

use super::embedded::{advice_for, explained, new_event_loop, not_started};
use super::failure::Failure;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::views::TaskView;
use offload_supervisor::{ComputePool, Finished, Job, PoolConfig};
use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;

/// The tasks that the programs of this pool offer.
///
/// # Errors
/// If a program cannot be started or does not keep the protocol: [`OutcomeCode::Unavailable`], with the reason.
pub(crate) fn introduced_tasks(config: PoolConfig) -> Result<Vec<TaskView>, Failure> {
    let mut event_loop = new_event_loop()?;
    let advice = advice_for(&config.programs);
    let pool = ComputePool::start(config, &event_loop.handle()).map_err(not_started)?;
    let answer = Rc::new(RefCell::new(None));
    let (asked, answered) = (pool.clone(), Rc::clone(&answer));
    // A job for a task that nobody offers is refused once every program has introduced itself, or has failed to.
    pool.submit(Job::new(nobodys_task()), move |finished, _| {
        answered.replace(Some((finished, asked.tasks())));
        asked.shutdown(|_| {});
    });
    event_loop.run().map_err(|error| Failure::internal("the event loop failed", error))?;
    let Some((finished, tasks)) = answer.take() else {
        return Err(Failure::Internal("the event loop ended before the workers were ready".to_owned()));
    };
    let Finished { report, .. } = explained(finished, advice);
    match report.error {
        Some(error) if error.code != OutcomeCode::UnknownTask => {
            Err(Failure::outcome(error.code, error.message))
        }
        _ => Ok(tasks),
    }
}

/// A name that no program knows in advance.
fn nobodys_task() -> String {
    format!("nobodys-{:x}", RandomState::new().hash_one("a task"))
}

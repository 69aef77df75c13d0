//! `w5` of the protocol for comparing pools: a job sleeps for 50 ms and then kills its own process, 100 jobs of 3 ms are
//! queued behind it. All times count from the kill, by the clocks of the workers.
//!
//! | field | is |
//! |---|---|
//! | `crash_job` | how the caller of the crashed job was told |
//! | `ok`, `failed`, `hung` | what became of the 100; `hung` had no outcome after 4 s |
//! | `next_job_ms`, `new_worker_job_ms` | until any job, or one on a worker that did not exist before, was done |
//! | `all_done_ms` | until the last was done |
//! | `pool_usable_after`, `workers_after` | whether one more job is done; how many workers there are a second later |

use super::super::super::failure::Failure;
use super::super::super::render;
use super::burn::unix_ms;
use super::compute::run_for;
use super::rig::{Rig, any, json_job};
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::Finished;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Jobs behind the one that crashes.
const QUEUED: usize = 100;

/// Without an outcome after this time a job counts as hung.
const HUNG_AFTER: Duration = Duration::from_secs(4);

/// Process and moment of a finished job, in milliseconds since 1970.
type Told = (u32, f64);

/// The fields of `w5`.
///
/// # Errors
/// If the pool does not start.
pub(super) fn measure(workers: usize) -> Result<Value, Failure> {
    let mut rig = Rig::burning(workers)?;
    let rounds = rig.calibrate(1_000)?.rounds;
    rig.burst(64, |_| json_job("burn", rounds.to_string()), any)?;
    let before: BTreeSet<u32> =
        tell_many(&mut rig, rounds, 16)?.done.iter().map(|(process, _)| *process).collect();
    let moment = unix_ms() + 50.0;
    let crashed = submit(&rig, "die_at", &moment.to_string(), 1);
    let queued = submit(&rig, "burn_and_tell", &(rounds * 3).to_string(), QUEUED);
    wait(&mut rig, &[&crashed, &queued], HUNG_AFTER)?;
    let counts = Counts::of(&queued.borrow(), QUEUED);
    let usable = tell_many(&mut rig, rounds, 1)?.done.len() == 1;
    run_for(&mut rig, Duration::from_secs(1))?;
    let after: BTreeSet<u32> =
        tell_many(&mut rig, rounds * 10, 24)?.done.iter().map(|(process, _)| *process).collect();
    let times = Since::the_kill(&counts.done, moment, &before);
    Ok(json!({
        "crash_job": crashed.borrow().first().map_or_else(|| "hung".to_owned(), outcome),
        "ok": counts.done.len(), "failed": counts.failed, "hung": counts.hung,
        "next_job_ms": times.next, "new_worker_job_ms": times.on_a_new_process, "all_done_ms": times.all,
        "pool_usable_after": usable, "workers_after": after.len(),
    }))
}

type Ended = Rc<RefCell<Vec<Finished>>>;

fn submit(rig: &Rig, task: &str, input: &str, jobs: usize) -> EndedJobs {
    let ended = Ended::default();
    for _ in 0..jobs {
        let ended = Rc::clone(&ended);
        rig.pool
            .submit(json_job(task, input.to_owned()), move |finished, _cx| ended.borrow_mut().push(finished));
    }
    EndedJobs { ended, jobs }
}

/// Jobs that were submitted together, and those of them that have ended.
struct EndedJobs {
    ended: Ended,
    jobs: usize,
}

impl EndedJobs {
    fn borrow(&self) -> std::cell::Ref<'_, Vec<Finished>> {
        self.ended.borrow()
    }
}

/// Runs the loop until all of them have ended, or for so long.
fn wait(rig: &mut Rig, batches: &[&EndedJobs], limit: Duration) -> Result<(), Failure> {
    let end = Instant::now() + limit;
    while Instant::now() < end && batches.iter().any(|batch| batch.borrow().len() < batch.jobs) {
        run_for(rig, Duration::from_millis(1))?;
    }
    Ok(())
}

fn tell_many(rig: &mut Rig, rounds: u64, jobs: usize) -> Result<Counts, Failure> {
    let batch = submit(rig, "burn_and_tell", &rounds.to_string(), jobs);
    wait(rig, &[&batch], HUNG_AFTER)?;
    let counts = Counts::of(&batch.borrow(), jobs);
    Ok(counts)
}

/// What became of jobs.
struct Counts {
    done: Vec<Told>,
    failed: usize,
    hung: usize,
}

impl Counts {
    fn of(ended: &[Finished], jobs: usize) -> Counts {
        let done: Vec<Told> =
            ended.iter().filter_map(|finished| serde_json::from_slice(&finished.output).ok()).collect();
        Counts { failed: ended.len() - done.len(), hung: jobs - ended.len(), done }
    }
}

fn outcome(finished: &Finished) -> String {
    match finished.report.outcome {
        OutcomeCode::Ok => "ok?".to_owned(),
        outcome => format!("error: {outcome}: {}", render::message(&finished.report)),
    }
}

/// Times since the kill, in milliseconds.
#[derive(Debug, PartialEq)]
struct Since {
    next: Option<f64>,
    on_a_new_process: Option<f64>,
    all: Option<f64>,
}

impl Since {
    fn the_kill(done: &[Told], moment: f64, before: &BTreeSet<u32>) -> Since {
        let after =
            || done.iter().map(|(process, end)| (process, end - moment)).filter(|(_, since)| *since > 0.0);
        let earliest = |times: &mut dyn Iterator<Item = f64>| times.min_by(f64::total_cmp);
        Since {
            next: earliest(&mut after().map(|(_, since)| since)),
            on_a_new_process: earliest(
                &mut after().filter(|(process, _)| !before.contains(process)).map(|(_, since)| since),
            ),
            all: after().map(|(_, since)| since).max_by(f64::total_cmp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_the_kill_and_new_processes_are_told_apart() {
        let done = [(1, 90.0), (1, 103.0), (7, 104.5), (1, 106.0), (7, 107.5)];
        let since = Since::the_kill(&done, 100.0, &BTreeSet::from([1, 2]));
        assert_eq!(since, Since { next: Some(3.0), on_a_new_process: Some(4.5), all: Some(7.5) });
        let nothing = Since::the_kill(&[], 100.0, &BTreeSet::new());
        assert_eq!(nothing, Since { next: None, on_a_new_process: None, all: None });
    }
}

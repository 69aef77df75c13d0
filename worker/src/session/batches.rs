//! Jobs that run together. One Started stands for all of them, and each has an answer of its own.

use super::{Ended, Session};
use crate::batch::{Member, MemberResult};
use crate::inbox::Job;
use crate::link::Stop;
use crate::session_error::SessionError;
use crate::usage::{Meter, Spent};
use bytes::Bytes;
use offload_protocol::messages::FromWorker;
use offload_protocol::nouns::{FailureKind, Usage};
use std::time::Instant;

/// A job whose input is there, or could not be read.
type Read = Result<Member, (u64, u32, String)>;

impl Session {
    /// Runs several jobs of a task in batches, from Started to the last answer.
    pub(super) fn run_together(&mut self, jobs: Vec<Job>) -> Result<Spent, Stop> {
        let Some(first) = jobs.first() else { return Err(Stop::Error(SessionError::Batch(0))) };
        let index = self.index_of(&first.task)?;
        if !self.tasks[index].takes_batches() || jobs.iter().any(|job| job.task != first.task) {
            return Err(Stop::Error(SessionError::Batch(jobs.len() as u32)));
        }
        let started = FromWorker::Started { job: first.id, attempt: first.attempt };
        self.link.push(&started, &Bytes::new());
        self.link.flush()?;

        let meter = Meter::start(&mut self.reading, Instant::now());
        let read: Vec<Read> = jobs.into_iter().map(read).collect();
        let members: Vec<Member> = read.iter().filter_map(|read| read.as_ref().ok().cloned()).collect();
        let mut results = self.tasks[index].run_together(&members).into_iter();
        let now = Instant::now();
        let spent = meter.stop(&mut self.reading, now);

        let share = share_of(spent, read.len());
        for read in read {
            let (named, ended) = match read {
                Ok(Member { job, attempt, .. }) => ((job, attempt), results.next().map(ended)),
                Err((job, attempt, why)) => ((job, attempt), Some(Ended::Failed(FailureKind::AppError, why))),
            };
            let ended = ended.unwrap_or_else(|| Ended::Failed(FailureKind::AppError, String::new()));
            self.answer(named, ended, share);
        }
        self.link.ended(now, spent.run);
        Ok(spent)
    }
}

fn read(job: Job) -> Read {
    let Job { id, attempt, input, metadata, .. } = job;
    match input.read() {
        Ok(input) => Ok(Member { job: id, attempt, input, metadata }),
        Err(why) => Err((id, attempt, why)),
    }
}

fn ended(result: MemberResult) -> Ended {
    match result {
        Ok(output) => Ended::Returned(output),
        Err(error) => Ended::Failed(error.kind(), error.to_string()),
    }
}

/// What falls to each of so many jobs of what they used together. The peak of memory is that of the process.
fn share_of(spent: Spent, jobs: usize) -> Spent {
    let jobs = u32::try_from(jobs).unwrap_or(u32::MAX).max(1);
    let Spent { run, usage } = spent;
    let part = |all: u64| all / u64::from(jobs);
    let usage = Usage {
        cpu_user_us: part(usage.cpu_user_us),
        cpu_system_us: part(usage.cpu_system_us),
        peak_rss_bytes: usage.peak_rss_bytes,
    };
    Spent { run: run / jobs, usage }
}

#[cfg(test)]
mod tests {
    use crate::task::{Output, Task};
    use crate::test_supervisor::{Said, TestSupervisor};
    use crate::worker::Worker;
    use offload_protocol::messages::{BATCHES, ToWorker};
    use offload_protocol::nouns::{Batching, FailureKind, MediaType};
    use std::time::Duration;

    fn sums() -> Worker {
        let sums = Task::json_batch("sums", 4, Duration::from_millis(2), |pairs: Vec<(u32, u32)>| {
            let most = pairs.len();
            assert!(!pairs.contains(&(6, 6)), "evil");
            pairs.into_iter().map(|(a, b)| a.checked_add(b).map(|sum| (sum, most)).ok_or("too big")).collect()
        });
        Worker::new().with(sums).raw("echo", |input, _| Ok(Output::bytes(input.bytes)))
    }

    fn finished(job: u64, output: &str) -> Said {
        Said::Finished { job, attempt: 1, media_type: MediaType::JSON, output: output.into() }
    }

    fn started(job: u64) -> Said {
        Said::Started { job, attempt: 1 }
    }

    #[test]
    fn batches_are_offered_only_to_a_supervisor_that_can() {
        for (capabilities, offered) in [(BATCHES, Some(Batching { max: 4, wait_us: 2000 })), (0, None)] {
            let (mut supervisor, serving) = TestSupervisor::welcoming(capabilities, sums);
            let batchings: Vec<_> = supervisor.offers.iter().map(|(offer, _)| offer.batching).collect();
            assert_eq!(batchings, [offered, None]);
            supervisor.add_run(1, "sums", "[1,2]").send();
            assert_eq!(supervisor.hear(), started(1));
            assert_eq!(supervisor.hear(), finished(1, "[3,1]"), "one job is a batch of one");
            drop(supervisor);
            serving.end().unwrap();
        }
    }

    #[test]
    fn one_started_stands_for_all_and_each_has_its_own_answer() {
        let (mut supervisor, serving) = TestSupervisor::welcoming(BATCHES, sums);
        supervisor.add(&ToWorker::Batch { jobs: 4 }, "").add_run(1, "sums", "[1,2]").add_run(
            2,
            "sums",
            "[4294967295,1]",
        );
        supervisor.add_run(3, "sums", "?").add_run(4, "sums", "[3,4]").add_run(5, "echo", "x").send();
        assert_eq!(supervisor.hear(), started(1));
        assert_eq!(supervisor.hear(), finished(1, "[3,3]"));
        let message = "too big".to_owned();
        assert_eq!(
            supervisor.hear(),
            Said::Failed { job: 2, attempt: 1, kind: FailureKind::AppError, message }
        );
        assert!(matches!(supervisor.hear(), Said::Failed { job: 3, .. }));
        assert_eq!(supervisor.hear(), finished(4, "[7,3]"));
        assert_eq!(supervisor.hear(), started(5));
        assert!(matches!(supervisor.hear(), Said::Finished { job: 5, .. }));
        drop(supervisor);
        serving.end().unwrap();
    }

    #[test]
    fn of_jobs_that_panic_together_only_the_guilty_one_fails_and_a_cancel_changes_nothing() {
        let (mut supervisor, serving) = TestSupervisor::welcoming(BATCHES, sums);
        supervisor
            .add(&ToWorker::Batch { jobs: 3 }, "")
            .add_run(1, "sums", "[1,2]")
            .add_run(2, "sums", "[6,6]");
        supervisor.add(&ToWorker::Cancel { job: 1 }, "").add_run(3, "sums", "[3,4]").send();
        assert_eq!(supervisor.hear(), started(1));
        assert_eq!(supervisor.hear(), finished(1, "[3,1]"));
        assert!(matches!(supervisor.hear(), Said::Failed { job: 2, kind: FailureKind::Panic, .. }));
        assert_eq!(supervisor.hear(), finished(3, "[7,1]"));
        drop(supervisor);
        serving.end().unwrap();
    }

    #[test]
    fn a_batch_that_cannot_be_ends_the_session() {
        for jobs in [0, 1, 33] {
            let (mut supervisor, serving) = TestSupervisor::welcoming(BATCHES, sums);
            supervisor.add(&ToWorker::Batch { jobs }, "").send();
            let error = serving.end().unwrap_err().to_string();
            assert!(error.contains(&format!("a batch of {jobs} jobs")), "{error}");
        }
        let (mut supervisor, serving) = TestSupervisor::welcoming(BATCHES, sums);
        supervisor.add(&ToWorker::Batch { jobs: 2 }, "").add_run(1, "sums", "").add_run(2, "echo", "").send();
        assert!(serving.end().is_err());
    }
}

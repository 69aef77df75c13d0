//! One row of the matrix: what goes wrong, and what has to come of it.

use offload_protocol::nouns::OutcomeCode;
use std::time::Duration;

/// How long a victim may take unless its row says otherwise. Deadlines are for tests that hang, not for figures.
const BOUND: Duration = Duration::from_secs(20);
/// The time limit of jobs that are to run into it.
const TIME_LIMIT: Duration = Duration::from_millis(200);
/// The same for jobs that run together with others.
const TIME_LIMIT_TOGETHER: Duration = Duration::from_secs(1);
/// How long clients wait for jobs that no worker lives to start.
const TIME_UNTIL_GIVEN_UP: Duration = Duration::from_secs(2);

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// `phase:act`, as the worker understands it.
    pub(crate) fault: &'static str,
    /// `act` may be tried again, `charge` may not.
    pub(crate) task: &'static str,
    pub(crate) timeout: Option<Duration>,
    /// From submission on, whether it has been started or not.
    pub(crate) deadline: Option<Duration>,
    pub(crate) outcome: OutcomeCode,
    /// Part of the error's message.
    pub(crate) cause: &'static str,
    pub(crate) attempts: u32,
    /// Of this many jobs that are all victims.
    pub(crate) victims: usize,
    /// Jobs of the same task that do nothing wrong, half of them before the victims: all of them can go together.
    pub(crate) company: usize,
    /// Its output is read in parts, as they come; they are this long together.
    pub(crate) stream: Option<usize>,
    /// Bytes of input that the victim has beside its fault.
    pub(crate) padding: usize,
    /// Its input is a file, whose descriptor is passed on.
    pub(crate) is_file: bool,
    /// Whether a worker ends because of it, which has to be seen before the pool counts as whole again.
    pub(crate) ends_a_worker: bool,
    /// From submission to outcome.
    pub(crate) bound: Duration,
}

impl Case {
    const fn new(fault: &'static str, outcome: OutcomeCode, cause: &'static str) -> Case {
        Case {
            fault,
            task: "charge",
            timeout: None,
            deadline: None,
            outcome,
            cause,
            attempts: 1,
            victims: 1,
            company: 0,
            stream: None,
            padding: 0,
            is_file: false,
            ends_a_worker: true,
            bound: BOUND,
        }
    }

    /// Whether others may have begun on a worker that broke a rule because of this one.
    pub(crate) fn goes_on(&self) -> bool {
        GOES_ON_AFTER.iter().any(|act| self.fault.contains(act))
    }

    /// Its output is a stream, of which so many bytes come.
    pub(crate) const fn stream(self, bytes: usize) -> Case {
        Case { stream: Some(bytes), ..self }
    }

    /// Its input is a file.
    pub(crate) const fn file(self) -> Case {
        Case { is_file: true, padding: 100_000, ..self }
    }

    /// Its worker ends too, because it does not listen.
    pub(crate) const fn ending_its_worker(self) -> Case {
        Case { ends_a_worker: true, ..self }
    }

    /// It may run twice, and is not run again.
    pub(crate) const fn idempotent(self) -> Case {
        Case { task: "act", ..self }
    }

    /// It goes together with seven others that do nothing wrong. If it ends every worker, it does so with 8, 4 and 2 jobs before
    /// it is alone and blamed; these attempts are not counted. All of them have the same time limit, in which an innocent job is done on
    /// any machine.
    pub(crate) const fn together(self) -> Case {
        let (timeout, cause) = match self.timeout {
            Some(_) => (Some(TIME_LIMIT_TOGETHER), "ran longer than 1 s"),
            None => (None, self.cause),
        };
        let attempts = if matches!(self.outcome, OutcomeCode::Ok) { 1 } else { self.attempts };
        Case { task: "member", company: 7, timeout, cause, attempts, ..self }
    }

    pub(crate) const fn task(self, task: &'static str, victims: usize, padding: usize) -> Case {
        Case { task, victims, padding, ..self }
    }
}

/// Acts after which a worker that was found out by them may have begun another job, before it was ended.
const GOES_ON_AFTER: &[&str] = &[
    "garbage",
    "hugelen",
    "unknown",
    "wrongid",
    "double",
    "finished",
    "failed",
    "started",
    "part",
    "startedother",
    "startedattempt",
    "skipped",
    "secondhello",
    "outputin",
    "segmentready",
    "segmentleft",
    "outside",
    "unfinished",
    "keeptwice",
    "again",
];

/// The job must not run twice and its worker ends: that is its outcome, with this cause.
pub(crate) const fn crashes(fault: &'static str, cause: &'static str) -> Case {
    Case::new(fault, OutcomeCode::WorkerCrashed, cause)
}

/// Every worker ends before it has started the job: it is blamed for nothing, and waits until its client gives it up.
pub(crate) const fn never_started(fault: &'static str) -> Case {
    let case = Case::new(fault, OutcomeCode::Timeout, "before it was started");
    Case { attempts: 0, deadline: Some(TIME_UNTIL_GIVEN_UP), ..case }
}

/// The worker breaks a rule of the protocol while it has the job.
pub(crate) const fn breaks(fault: &'static str, cause: &'static str) -> Case {
    Case::new(fault, OutcomeCode::WorkerProtocol, cause)
}

/// The time of the job is used up.
pub(crate) const fn times_out(fault: &'static str) -> Case {
    let case = Case::new(fault, OutcomeCode::Timeout, "ran longer than 200 ms");
    Case { timeout: Some(TIME_LIMIT), ..case }
}

/// The worker breaks a rule before it says that it has started the job, and then does the job: it must not run twice, and
/// nobody knows how far it came.
pub(crate) const fn begins_unseen(fault: &'static str, cause: &'static str) -> Case {
    Case { attempts: 0, ..Case::new(fault, OutcomeCode::Indeterminate, cause) }
}

/// The job may run twice, and each time its worker ends.
pub(crate) const fn poisons(fault: &'static str, cause: &'static str) -> Case {
    Case { task: "act", attempts: 3, ..Case::new(fault, OutcomeCode::Poison, cause) }
}

/// The job may run twice, and does.
pub(crate) const fn retried(fault: &'static str) -> Case {
    Case { task: "act", attempts: 2, ..Case::new(fault, OutcomeCode::Ok, "") }
}

/// A worker ends, and the job never knows: it was not started, or answered already.
pub(crate) const fn unharmed(fault: &'static str) -> Case {
    Case::new(fault, OutcomeCode::Ok, "")
}

/// As [`unharmed`], of a job that may run twice.
pub(crate) const fn given_back(fault: &'static str) -> Case {
    Case { task: "act", ..unharmed(fault) }
}

/// Strange, and allowed.
pub(crate) const fn allowed(fault: &'static str) -> Case {
    Case { ends_a_worker: false, ..unharmed(fault) }
}

/// The task says that it failed, and its worker lives.
pub(crate) const fn fails(fault: &'static str, outcome: OutcomeCode, cause: &'static str) -> Case {
    Case { ends_a_worker: false, ..Case::new(fault, outcome, cause) }
}

/// There is no victim: a worker ends before it is ready, and no job has been anywhere near it.
pub(crate) const fn all_well(fault: &'static str) -> Case {
    Case { task: "-", victims: 0, ..unharmed(fault) }
}

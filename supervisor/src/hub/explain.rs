//! Explanations for users: sentences that say why a job is in its state.

use super::Hub;
use super::finished::Record;
use super::live_jobs::micros;
use crate::views::{ExplanationView, GlanceView, OpenState};
use offload_core::ids::JobId;
use offload_core::jobs::JobState;
use offload_core::kept::whose;
use offload_core::outcome::human;
use offload_core::registry::Class;
use offload_core::{Explanation, Glance, Held, Waiting, WhyUnknown};
use std::time::Duration;

/// The shortest expected wait that is shown: forecasts are not more exact than this.
const A_MOMENT: Duration = Duration::from_millis(1);

impl Hub {
    /// Explains the state of a job. None if the job was never known or is forgotten.
    pub(crate) fn explain(&self, id: JobId) -> Option<ExplanationView> {
        match self.core.explain(self.now(), id) {
            Some(explanation) => Some(self.explain_living(id, &explanation)),
            None => self.records.finished().record(id).map(|record| self.explain_ended(id, record)),
        }
    }

    /// What changes of a job as it goes on. None if the job was never known or is forgotten.
    pub(crate) fn glance(&self, id: JobId) -> Option<GlanceView> {
        match self.core.glance(id) {
            Some(Glance { state, is_paused, attempts, progress }) => Some(GlanceView {
                state: open_state(state, is_paused).as_str(),
                attempts,
                progress: progress.map(|progress| (progress.done, progress.total)),
            }),
            None => self.records.finished().record(id).map(|record| GlanceView {
                state: record.report.outcome.as_str(),
                attempts: record.report.attempts,
                progress: None,
            }),
        }
    }

    fn explain_living(&self, id: JobId, job: &Explanation) -> ExplanationView {
        let place = job.running.map(|(place, _)| place).or(job.given_to);
        ExplanationView {
            job: self.name(id),
            task: job.task.to_string(),
            client: job.client.to_string(),
            state: open_state(job.state, job.waiting.as_ref().is_some_and(|waiting| waiting.is_paused))
                .as_str()
                .to_owned(),
            labels: self.labels_of(id),
            reasons: self.reasons(job),
            age_us: micros(job.age),
            attempts: job.attempts,
            attempts_allowed: Some(job.crashes.1),
            expected_wait_us: job.waiting.as_ref().and_then(|waiting| waiting.expected.ok()).map(micros),
            ahead: job.waiting.as_ref().map(|waiting| waiting.ahead_of_its_own),
            class: Some(class(job.class).to_owned()),
            slot: place.map(|place| place.slot),
            worker_pid: place.and_then(|place| self.pid_of(place.worker)),
            progress: job.progress.map(|progress| (progress.done, progress.total)),
            checkpoint_bytes: job.checkpoint_bytes,
            lost: self.attempt_views(&job.lost),
        }
    }

    fn reasons(&self, job: &Explanation) -> Vec<String> {
        let mut reasons = match job.state {
            JobState::Parked => vec![format!(
                "no worker has said yet whether it offers the task {}: the workers are still starting",
                job.task
            )],
            JobState::Queued | JobState::Paused => {
                job.waiting.as_ref().map_or_else(Vec::new, |waiting| self.why_waiting(job, waiting))
            }
            JobState::Held => {
                let beyond = |held: &Held| held.beyond.map(|beyond| self.name(beyond));
                job.held.iter().flat_map(|held| why_held(held, beyond(held))).collect()
            }
            JobState::Assigned { .. } => vec![self.why_given(job)],
            JobState::Running { .. } => self.why_running(job),
            JobState::Here { .. } => job.here.iter().map(|ran| why_here(*ran)).collect(),
        };
        if job.unstarted > 1 {
            reasons.push(format!(
                "{} workers in a row ended before they had started it: such jobs are tried one at a time and ever more \
                 slowly, and given up in the end",
                job.unstarted
            ));
        }
        if job.is_abandoned {
            reasons.push(
                "its client is gone, and nobody waits for it: it may end, and is not tried again".to_owned(),
            );
        }
        if job.is_suspect {
            reasons.push(
                "a worker ended that had it: until it has ended, it runs only where no other job is"
                    .to_owned(),
            );
        }
        if job.checkpoint_bytes > 0 {
            reasons.push(format!(
                "another attempt would go on from a checkpoint of {} bytes",
                job.checkpoint_bytes
            ));
        }
        if let Some(before) = job.key_before {
            let before = self.name(before);
            reasons.push(format!("its key stood for job {before}, until the time of the key was over"));
        }
        reasons.extend(job.lost.iter().map(|lost| loss(lost.attempt, &lost.what)));
        reasons
    }

    fn why_given(&self, job: &Explanation) -> String {
        let worker = self.worker_words(job.given_to);
        match job.behind {
            Some(before) => {
                let before = self.name(before);
                format!(
                    "it lies ready for {worker}, behind job {before}, and goes elsewhere if that takes long"
                )
            }
            None => format!("it was given to {worker} and waits for its turn there"),
        }
    }

    fn why_running(&self, job: &Explanation) -> Vec<String> {
        let Some((place, ran)) = job.running else { return Vec::new() };
        let mut reasons = vec![format!("{} has run it for {}", self.worker_words(Some(place)), human(ran))];
        if let Some(expected) = job.expected_run {
            reasons.push(format!("jobs like it take {} on average", human(expected)));
        }
        if job.together > 1 {
            reasons.push(format!("it runs together with others: {} jobs were given at once", job.together));
        }
        reasons.extend(job.progress.map(|progress| match progress.total {
            0 => format!("it has said that {} units are done", progress.done),
            total => format!("it has said that {} of {total} units are done", progress.done),
        }));
        reasons
    }

    fn why_waiting(&self, job: &Explanation, waiting: &Waiting) -> Vec<String> {
        let holders = waiting.holders.iter().map(|(holder, ran)| self.holder(*holder, *ran));
        let (_, _, busy) = waiting.slots;
        why_waiting(job, waiting, held_by(busy, holders.collect()))
    }

    /// What keeps a worker busy.
    fn holder(&self, id: JobId, ran: Duration) -> String {
        let (name, ran) = (self.name(id), human(ran.max(A_MOMENT)));
        match self.core.jobs().get(id) {
            Some(job) => {
                let (task, account) = (self.core.task_name(job), self.core.account_of(job));
                format!("job {name} of {} (task {task}), which has run for {ran}", whose(account))
            }
            None => format!("job {name}, which nobody wants any more"),
        }
    }

    fn explain_ended(&self, id: JobId, record: &Record) -> ExplanationView {
        let until = self.core.promises().kept_until(id);
        let kept = until.map(|until| format!("its result is kept for another {}", human(until - self.now())));
        let why_not = || record.finished().is_none().then(|| record.why_no_output());
        explain_ended(record, kept.or_else(why_not))
    }

    fn worker_words(&self, place: Option<offload_core::ids::WorkerInSlot>) -> String {
        let Some(place) = place else { return "a worker".to_owned() };
        let pid = self.pid_of(place.worker).unwrap_or(0);
        format!("worker {pid} (slot {})", place.slot)
    }
}

pub(super) fn open_state(state: JobState, is_paused: bool) -> OpenState {
    match state {
        JobState::Parked => OpenState::Parked,
        JobState::Assigned { .. } => OpenState::Assigned,
        JobState::Running { .. } | JobState::Here { .. } => OpenState::Running,
        _ if is_paused => OpenState::Paused,
        JobState::Queued | JobState::Paused => OpenState::Queued,
        JobState::Held => OpenState::Held,
    }
}

fn class(class: Class) -> &'static str {
    match class {
        Class::Short => "short",
        Class::Long => "long",
        Class::Together => "batch",
    }
}

/// `beyond` is the name of the job that its account has beyond its share.
fn why_held(held: &Held, beyond: Option<String>) -> Vec<String> {
    let Held { account, kept_bytes, free_bytes, .. } = held;
    let full = "it is its turn, but there is no room to keep its output";
    if let Some((bytes, limit)) = held.of_all {
        return vec![
            format!(
                "{full}: {bytes} bytes are kept for all clients together, what some have beyond their shares included, and the \
                 most is {limit}"
            ),
            "it goes on when somewhat less is kept: when results without a key are collected, or their time is over".to_owned(),
        ];
    }
    let of_waiters = match beyond {
        Some(job) => format!(
            "somebody waits for it, and of such jobs a client has one at a time beyond its share: now that is job {job}, whose \
             output has to be collected first"
        ),
        None if held.has_key => {
            "whether somebody waits for it does not count, because it has a key".to_owned()
        }
        None => "if anything is free, a client may have one job that somebody waits for beyond its share"
            .to_owned(),
    };
    vec![
        format!(
            "{full}: {kept_bytes} bytes are kept for {} and {free_bytes} are free, and a client may keep as much as it leaves free",
            whose(account)
        ),
        "it goes on when somewhat more than that is free: when results without a key are collected, or the time of others \
         is over"
            .to_owned(),
        of_waiters,
    ]
}

fn why_here(ran: Duration) -> String {
    format!("a thread of the supervisor has done it for {}: it needs no worker", human(ran))
}

/// The sentence on what keeps this many workers busy.
fn held_by(busy: usize, holders: Vec<String>) -> Option<String> {
    let others = match busy.saturating_sub(holders.len()) {
        0 => None,
        1 => Some("1 other".to_owned()),
        others => Some(format!("{others} others")),
    };
    let named = holders.into_iter().chain(others).collect::<Vec<_>>().join("; ");
    (!named.is_empty()).then(|| format!("they run {named}"))
}

fn why_waiting(job: &Explanation, waiting: &Waiting, held_by: Option<String>) -> Vec<String> {
    let (there, ready, busy) = waiting.slots;
    let mut reasons: Vec<String> =
        waiting.unavailable.iter().map(|why| format!("no worker can be had: {why}")).collect();
    let of_workers = || match ready {
        0 => format!("none of the {there} workers of its program is ready"),
        _ => format!("{busy} of {there} workers of its program have jobs"),
    };
    let here = waiting.here.map(|(places, taken)| {
        format!("{taken} of {places} threads of the supervisor have jobs: it needs no worker")
    });
    let needs_workers = here.is_none();
    reasons.push(here.unwrap_or_else(of_workers));
    reasons.extend(held_by.filter(|_| needs_workers));
    if let Some(rest) = waiting.gathers {
        reasons.push(format!(
            "it waits for other jobs of its task to run together with, for {} at the most",
            human(rest.max(A_MOMENT))
        ));
    }
    if let Some((outputs, free)) = waiting.held_back {
        reasons.push(format!(
            "its client has {outputs} bytes of output that are not read, or are expected of its jobs, and {free} bytes \
             are free: it waits until more is read"
        ));
    }
    if waiting.kept_for_short > 0 && job.class != Class::Short {
        reasons.push(format!(
            "{} idle, kept for short jobs as long as some come: this one counts as long",
            waiting.kept_for_short
        ));
    }
    reasons.push(what_is_before(waiting));
    if waiting.is_paused {
        reasons.insert(0, "it is paused: it starts after `offload resume`".to_owned());
        return reasons;
    }
    reasons.extend(when_it_starts(waiting.expected));
    reasons
}

fn what_is_before(waiting: &Waiting) -> String {
    let own = match waiting.ahead_of_its_own {
        0 => "no job of its own client is before it".to_owned(),
        1 => "1 job of its own client is before it".to_owned(),
        jobs => format!("{jobs} jobs of its own client are before it"),
    };
    let clients = match waiting.clients.saturating_sub(1) {
        0 => "no other client waits".to_owned(),
        1 if waiting.clients_before == 0 => "the turn of the other client is after its own".to_owned(),
        1 => "the turn of the other client is before its own".to_owned(),
        others => {
            format!("the turns of {} of {others} other clients are before its own", waiting.clients_before)
        }
    };
    format!("{own}, and {clients}; jobs that wait with it: {}", waiting.all.saturating_sub(1))
}

/// A sentence about the time at which a job will start; none if another one has said why nobody knows.
fn when_it_starts(expected: Result<Duration, WhyUnknown>) -> Option<String> {
    Some(match expected {
        Ok(Duration::ZERO) => "it is expected to start at once".to_owned(),
        Ok(expected) => format!("it is expected to start within {}", human(expected.max(A_MOMENT))),
        Err(WhyUnknown::HeldUp) => return None,
        Err(WhyUnknown::OnProbation(None)) => {
            "the last workers ended before they had started it: it waits while another such job is tried".to_owned()
        }
        Err(WhyUnknown::OnProbation(Some(Duration::ZERO))) => {
            "the last workers ended before they had started it: it is tried as soon as a worker has nothing else to do"
                .to_owned()
        }
        Err(WhyUnknown::OnProbation(Some(pause))) => {
            let pause = human(pause.max(A_MOMENT));
            format!("the last workers ended before they had started it: the next such job is tried in {pause}")
        }
        Err(WhyUnknown::JobsBefore) => {
            "when it will start is unknown: nothing like one of the jobs that may come before it has ever run to its end"
                .to_owned()
        }
        Err(WhyUnknown::Workers) => {
            "when it will start is unknown: of no worker that may take it is it known when it will be free".to_owned()
        }
        Err(WhyUnknown::Threads) => return None,
    })
}

/// A sentence about a worker that ended while it had the job.
fn loss(attempt: u32, what: &str) -> String {
    match attempt {
        0 => format!("a worker ended before it started the job: {what}"),
        attempt => format!("attempt {attempt} was lost: {what}"),
    }
}

fn explain_ended(record: &Record, kept: Option<String>) -> ExplanationView {
    let report = &record.report;
    let ran = report.receipt.worker_pid != 0;
    let reason = match &report.error {
        None => format!("it has ended: the task returned {} bytes", report.receipt.output_bytes),
        Some(error) if error.code == report.outcome => format!("it has ended: {}", error.message),
        Some(error) => format!("it has ended: {error}"),
    };
    let lost = record.lost.iter().map(|lost| loss(lost.attempt, &lost.what));
    ExplanationView {
        job: report.job.to_text(),
        task: report.task.to_string(),
        client: record.client.to_string(),
        state: report.outcome.to_string(),
        labels: report.labels(),
        reasons: std::iter::once(reason).chain(kept).chain(lost).collect(),
        age_us: record.age_us,
        attempts: report.attempts,
        attempts_allowed: None,
        expected_wait_us: None,
        ahead: None,
        class: None,
        slot: ran.then_some(report.receipt.slot as usize),
        worker_pid: ran.then_some(report.receipt.worker_pid),
        progress: None,
        checkpoint_bytes: 0,
        lost: record.lost.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_keep_workers_busy_are_named_and_the_rest_is_counted() {
        assert_eq!(held_by(0, Vec::new()), None);
        let one = || vec!["job 1".to_owned()];
        assert_eq!(held_by(1, one()).as_deref(), Some("they run job 1"));
        assert_eq!(held_by(2, one()).as_deref(), Some("they run job 1; 1 other"));
        assert_eq!(held_by(4, one()).as_deref(), Some("they run job 1; 3 others"));
    }

    #[test]
    fn what_a_job_on_probation_waits_for_is_its_probation() {
        let told = |pause| when_it_starts(Err(WhyUnknown::OnProbation(pause))).unwrap_or_default();
        assert!(told(Some(Duration::from_secs(2))).ends_with("the next such job is tried in 2 s"));
        assert!(told(Some(Duration::ZERO)).ends_with("as soon as a worker has nothing else to do"));
        assert!(told(None).ends_with("it waits while another such job is tried"));
    }

    #[test]
    fn a_held_job_is_told_what_is_full_what_makes_room_and_what_a_waiter_changes() {
        let held = |has_key| Held {
            account: "me".into(),
            kept_bytes: 70,
            free_bytes: 58,
            of_all: None,
            has_key,
            beyond: None,
        };
        let told = why_held(&held(false), Some("01J".to_owned()));
        assert!(told[0].contains("70 bytes are kept for client me and 58 are free"), "{told:?}");
        assert!(told[1].contains("results without a key are collected"), "{told:?}");
        assert!(told[2].ends_with("now that is job 01J, whose output has to be collected first"), "{told:?}");
        assert!(why_held(&held(false), None)[2].contains("if anything is free"));
        assert!(why_held(&held(true), None)[2].contains("it has a key"));
        let told = why_held(&Held { of_all: Some((300, 256)), ..held(false) }, None);
        assert!(told[0].contains("300 bytes are kept for all clients together"), "{told:?}");
        assert!(told[0].ends_with("the most is 256") && told.len() == 2, "{told:?}");
    }

    #[test]
    fn nothing_is_added_where_another_sentence_has_said_why() {
        for why in [WhyUnknown::HeldUp, WhyUnknown::Threads] {
            assert_eq!(when_it_starts(Err(why)), None);
        }
        let ever_run = when_it_starts(Err(WhyUnknown::JobsBefore)).unwrap_or_default();
        assert!(ever_run.contains("has ever run"), "{ever_run}");
        let workers = when_it_starts(Err(WhyUnknown::Workers)).unwrap_or_default();
        assert!(workers.contains("no worker"), "{workers}");
    }
}

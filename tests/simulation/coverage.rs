//! What the seeds have reached: which event came in which state, which answers were given, which outcomes there were. A
//! simulator that never reaches a state proves nothing about it. So `reachable.txt` lists what has to be reached.

use offload_core::action::{Action, Notice, Released, ReloadEnd};
use offload_core::event::Event;
use offload_core::ids::{JobId, WorkerId};
use offload_core::jobs::JobState;
use offload_core::slots::{Cause, SlotState};
use offload_core::{Core, Phase};
use offload_protocol::nouns::OutcomeCode;
use std::collections::BTreeMap;
#[cfg(test)]
use std::fmt::Write;

/// How often each pair was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage {
    pairs: BTreeMap<(&'static str, &'static str), u64>,
}

impl Coverage {
    /// Counts an event, in the state that it meets.
    pub(crate) fn see(&mut self, core: &Core, event: &Event) {
        let pair = match event {
            Event::Refused { .. } => (phase(core), "refused"),
            Event::Held { .. } => (phase(core), "held"),
            Event::Released { .. } => (phase(core), "released"),
            Event::Tick => (phase(core), "tick"),
            Event::RequestsInFlight { .. } => (phase(core), "requests"),
            Event::Drain { .. } => (phase(core), "drain"),
            Event::Stop => (phase(core), "stop"),
            Event::Pause { .. } => (phase(core), "pause"),
            Event::Resume { .. } => (phase(core), "resume"),
            Event::Configure(_) => (phase(core), "configure"),
            Event::Awaited { job } => (job_state(core, *job), "awaited"),
            Event::Abandoned { job } => (job_state(core, *job), "abandoned"),
            Event::Collected { job } => (job_state(core, *job), "collected"),
            Event::LetterDropped { .. } => (phase(core), "letter_dropped"),
            Event::Cancel { job } => (job_state(core, *job), "cancel"),
            Event::ClientGone { job } => (job_state(core, *job), "client_gone"),
            Event::Launched { worker } => (slot_state(core, *worker), "launched"),
            Event::SpawnFailed { worker, .. } => (slot_state(core, *worker), "spawn_failed"),
            Event::Hello { worker, .. } => (slot_state(core, *worker), "hello"),
            Event::Unfit { worker, .. } => (slot_state(core, *worker), "unfit"),
            Event::Started { worker, .. } => (slot_state(core, *worker), "started"),
            Event::Finished { worker, .. } => (slot_state(core, *worker), "finished"),
            Event::Failed { worker, .. } => (slot_state(core, *worker), "failed"),
            Event::NotBegun { worker, .. } => (slot_state(core, *worker), "not_begun"),
            Event::BrokeRules { worker, .. } => (slot_state(core, *worker), "broke_rules"),
            Event::Skipped { worker, .. } => (slot_state(core, *worker), "skipped"),
            Event::Violation { worker, .. } => (slot_state(core, *worker), "violation"),
            Event::Garbled { worker, .. } => (slot_state(core, *worker), "garbled"),
            Event::TrayMade { worker } => (slot_state(core, *worker), "tray_made"),
            Event::TrayFailed { worker } => (slot_state(core, *worker), "tray_failed"),
            Event::TakenBack { worker, .. } => (slot_state(core, *worker), "taken_back"),
            Event::NotInTray { worker, .. } => (slot_state(core, *worker), "not_in_tray"),
            Event::EndOfTurn => (phase(core), "end_of_turn"),
            Event::Unsent { worker, .. } => (slot_state(core, *worker), "unsent"),
            Event::Progress { worker, .. } => (slot_state(core, *worker), "progress"),
            Event::Part { worker, .. } => (slot_state(core, *worker), "part"),
            Event::RanHere { job, .. } => (job_state(core, *job), "ran_here"),
            Event::Delivered { job, .. } => (job_state(core, *job), "delivered"),
            Event::Checkpoint { worker, .. } => (slot_state(core, *worker), "checkpoint"),
            Event::Yielded { worker, .. } => (slot_state(core, *worker), "yielded"),
            Event::Stopped { worker } => (slot_state(core, *worker), "stopped"),
            Event::Continued { worker } => (slot_state(core, *worker), "continued"),
            Event::Measured { worker, .. } => (slot_state(core, *worker), "measured"),
            Event::Reload { .. } => (phase(core), "reload"),
            Event::Closed { worker } => (slot_state(core, *worker), "closed"),
            Event::Exited { worker, .. } => (slot_state(core, *worker), "exited"),
        };
        self.count(core, pair);
    }

    /// Counts a request, in the state that it meets.
    pub(crate) fn see_request(&mut self, core: &Core) {
        self.count(core, (phase(core), "submit"));
    }

    fn count(&mut self, core: &Core, pair: (&'static str, &'static str)) {
        *self.pairs.entry(pair).or_default() += 1;
        if core.promises().held_count() > 0 {
            *self.pairs.entry(("held", "anything")).or_default() += 1;
        }
    }

    /// Counts a refusal.
    pub(crate) fn see_refusal(&mut self, code: OutcomeCode) {
        *self.pairs.entry(("rejected", code.as_str())).or_default() += 1;
    }

    /// Counts answers and outcomes.
    pub(crate) fn see_actions(&mut self, actions: &[Action]) {
        for action in actions {
            let pair = match action {
                Action::Release { why: Released::Collected { .. }, .. } => ("released", "collected"),
                Action::Release { why: Released::TimeIsOver, .. } => ("released", "time_is_over"),
                Action::ForgetLetter { .. } => ("released", "dead_letter"),
                Action::Log(Notice::KeyUsedAgain { .. }) => ("accepted", "expired_key"),
                Action::Log(Notice::LetterNotKept { .. }) => ("dead_letter", "not_kept"),
                Action::Finish(ended) => ("ended", ended.outcome.as_str()),
                Action::Reloaded { end: ReloadEnd::Done, .. } => ("reloaded", "new_version"),
                Action::Reloaded { end: ReloadEnd::TakenBack { .. }, .. } => ("reloaded", "old_version"),
                Action::Reloaded { end: ReloadEnd::OldStay(_), .. } => ("reloaded", "cut_short"),
                Action::Reloaded { end: ReloadEnd::SomeStay(_), .. } => ("reloaded", "in_part"),
                Action::Log(Notice::TrialGoesOn { .. }) => ("reloaded", "goes_on"),
                Action::Yield { .. } => ("asked", "to_yield"),
                Action::Prefetch { .. } => ("run", "soon"),
                Action::TakeBack { .. } => ("asked", "to_take_back"),
                Action::Batch { .. } => ("run", "together"),
                Action::Collect { .. } => ("parts", "collected"),
                Action::PassOn { .. } => ("parts", "passed_on"),
                Action::DropParts { .. } => ("parts", "dropped"),
                Action::Credit { .. } => ("parts", "credit"),
                Action::Run { resume: true, .. } => ("run", "from_checkpoint"),
                _ => continue,
            };
            *self.pairs.entry(pair).or_default() += 1;
        }
    }
}

/// The pairs that can be seen, one a line. Those that only many more seeds than usual come upon end in "rare".
#[cfg(test)]
const REACHABLE: &str = include_str!("reachable.txt");

#[cfg(test)]
impl Coverage {
    /// Adds what another run has seen.
    pub(crate) fn add(&mut self, other: &Coverage) {
        for (pair, count) in &other.pairs {
            *self.pairs.entry(*pair).or_default() += count;
        }
    }

    /// How many different pairs were seen.
    pub(crate) fn len(&self) -> usize {
        self.pairs.len()
    }

    /// What is listed and was not seen, and what was seen and is not listed.
    pub(crate) fn differences(&self) -> (Vec<String>, Vec<String>) {
        let lines = REACHABLE.lines().filter(|line| !line.starts_with('#'));
        let (rare, usual): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.ends_with(" rare"));
        let listed: Vec<&str> =
            usual.iter().copied().chain(rare.iter().map(|line| line.trim_end_matches(" rare"))).collect();
        let seen: Vec<String> = self.pairs.keys().map(|(state, event)| format!("{state} {event}")).collect();
        let missing = usual.iter().filter(|line| !seen.iter().any(|pair| pair == *line));
        let missing = missing.map(|line| (*line).to_owned()).collect();
        let new = seen.iter().filter(|pair| !listed.contains(&pair.as_str())).cloned().collect();
        (missing, new)
    }

    /// The table, for people.
    pub(crate) fn table(&self) -> String {
        let mut table = String::new();
        for ((state, event), count) in &self.pairs {
            let _ = writeln!(table, "{state} {event} {count}");
        }
        table
    }
}

fn phase(core: &Core) -> &'static str {
    match core.phase() {
        Phase::Running => "open",
        Phase::Draining { .. } => "draining",
        Phase::Stopping => "stopping",
        Phase::Over => "over",
    }
}

fn job_state(core: &Core, job: JobId) -> &'static str {
    match core.jobs().get(job).map(|job| job.state) {
        None => "no_job",
        Some(JobState::Parked) => "parked",
        Some(JobState::Queued | JobState::Paused) => "queued",
        Some(JobState::Held) => "held",
        Some(JobState::Assigned { .. }) => "assigned",
        Some(JobState::Running { .. }) => "running",
        Some(JobState::Here { .. }) => "here",
    }
}

fn slot_state(core: &Core, worker: WorkerId) -> &'static str {
    let Some(slot) = core.slot_of(worker) else { return "gone" };
    match &core.slots()[slot].state {
        SlotState::Vacant => "vacant",
        SlotState::Starting { .. } => "starting",
        SlotState::Idle { .. } => "idle",
        SlotState::Busy { load, .. } if load.suspended.is_some() => "busy_between",
        SlotState::Busy { load, .. } if load.tray.is_some() && load.running.is_some() => "busy_tray",
        SlotState::Busy { load, .. } if load.tray.is_some() => "busy_untaken",
        SlotState::Busy { load, .. } if load.running.is_some() => "busy_running",
        SlotState::Busy { .. } => "busy_assigned",
        SlotState::Leaving { cause, .. } => match cause {
            Cause::Dismissed => "leaving_dismissed",
            Cause::JobEnded => "leaving_job_ended",
            Cause::Silent => "leaving_silent",
            Cause::Stuck => "leaving_stuck",
            Cause::Stopped => "leaving_stopped",
            Cause::Hung => "leaving_hung",
            Cause::TogetherTooLong => "leaving_together_too_long",
            Cause::Closed => "leaving_closed",
            Cause::ClosedAndLivedOn => "leaving_closed_alive",
            Cause::Violation(_) => "leaving_violation",
            Cause::Unfit(_) => "leaving_unfit",
        },
    }
}

//! What the log is told: what the core finds worth a line, and what workers print.
//!
//! A program that cannot be started is tried again and again, and says the same each time. So of failed starts in a row
//! there is a line a second at the most, which tells how many there were; the rest is for who wants everything.

use super::Hub;
use crate::core::action::Notice;
use crate::core::ids::{ProgramIndex, WorkerId};
use crate::workers::Captured;
use std::time::{Duration, Instant};

/// The log is told of failed starts of one program no more often.
const START_FAILED_EVERY: Duration = Duration::from_secs(1);

impl Hub {
    pub(super) fn note(&mut self, notice: &Notice) {
        if let Notice::WorkerReady { worker, .. } = notice {
            self.crew.look_at_confinement(*worker);
            self.on_ready.drain(..).for_each(|then| self.handle.set_pending(then));
        }
        let line = self.describe(notice);
        let is_repeated = match notice {
            Notice::StartFailed { program, again_in: Some(_), .. } => self.is_repeated(*program),
            _ => false,
        };
        match notice {
            Notice::WorkerReady { .. } | Notice::WorkerRetires { .. } | Notice::Recovered { .. } => {
                self.log.info(format_args!("{line}"));
            }
            Notice::Degraded { .. } => self.log.error(format_args!("{line}")),
            _ if is_repeated => self.log.info(format_args!("{line}")),
            _ => self.log.warn(format_args!("{line}")),
        }
    }

    /// Whether there was a line about a failed start of this program just now.
    fn is_repeated(&mut self, program: ProgramIndex) -> bool {
        let now = Instant::now();
        let last = self.start_failed_at.get(&program);
        let is_repeated = last.is_some_and(|last| now.saturating_duration_since(*last) < START_FAILED_EVERY);
        if !is_repeated {
            self.start_failed_at.insert(program, now);
        }
        is_repeated
    }

    pub(super) fn log_output(&self, worker: WorkerId, captured: &Captured) {
        if captured.lines.is_empty() && captured.dropped == 0 {
            return;
        }
        let tag = self.tag(worker);
        // The line about its end repeats what a worker that fails to start printed last.
        let is_repeated = self.core.is_starting_again(worker);
        let say = |line: std::fmt::Arguments<'_>| match is_repeated {
            true => self.log.info(line),
            false => self.log.warn(line),
        };
        for line in &captured.lines {
            say(format_args!("{tag} {line}"));
        }
        if captured.dropped > 0 {
            say(format_args!("{tag} ({} lines dropped, it prints too fast)", captured.dropped));
        }
    }

    /// Who printed a line: slot, process and job.
    fn tag(&self, worker: WorkerId) -> String {
        let pid = self.crew.pid(worker).unwrap_or(0);
        let load = self.core.slot_of(worker).and_then(|slot| self.core.slots()[slot].load());
        match (self.core.home_of(worker), load.and_then(|load| load.running_job())) {
            (Some(slot), Some(job)) => format!("[slot {slot} pid {pid} job {}]", self.name(job)),
            (Some(slot), None) => format!("[slot {slot} pid {pid}]"),
            (None, _) => format!("[pid {pid}]"),
        }
    }

    /// A notice as a line for the log.
    fn describe(&self, notice: &Notice) -> String {
        let pid = |worker: &WorkerId| self.crew.pid(*worker).unwrap_or(0);
        match notice {
            Notice::WorkerReady { worker, slot } => {
                format!("slot {slot}: worker process {} is ready", pid(worker))
            }
            Notice::WorkerDied { worker, slot, how, job } => {
                let job = job.map_or(String::new(), |job| format!(" while it ran job {}", self.name(job)));
                format!("slot {slot}: worker process {} ended with {how}{job}", pid(worker))
            }
            Notice::WorkerKilled { worker, slot, why } => {
                format!("slot {slot}: worker process {} is ended: {why}", pid(worker))
            }
            Notice::StartFailed { program, failures, why, again_in } => {
                let name = self.program_name(*program);
                let again = match again_in {
                    Some(wait) => format!("next start in {}", crate::core::outcome::human(*wait)),
                    None => "it is not started again".to_owned(),
                };
                let starts = if *failures == 1 { "start" } else { "starts" };
                format!("program `{name}`: {why} ({failures} failed {starts} in a row; {again})")
            }
            Notice::Degraded { program, why } => {
                format!(
                    "program `{}`: no worker can be had, its jobs are refused: {why}",
                    self.program_name(*program)
                )
            }
            Notice::WorkerRetires { worker, slot, why } => {
                format!("slot {slot}: worker process {} is replaced: {why}", pid(worker))
            }
            Notice::WorkerHangs { worker, slot } => {
                format!(
                    "slot {slot}: worker process {} was killed and is not gone: it hangs in the kernel",
                    pid(worker)
                )
            }
            Notice::TrialPassed { program } => {
                format!(
                    "program `{}`: the new version works, the other workers follow",
                    self.program_name(*program)
                )
            }
            Notice::RolledBack { program, why } => {
                format!("program `{}`: the new version is taken back: {why}", self.program_name(*program))
            }
            Notice::Recovered { program } => {
                format!("program `{}`: a worker is ready, jobs are taken again", self.program_name(*program))
            }
        }
    }
}

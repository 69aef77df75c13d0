//! Writes to the log: notices of the core, and the output of workers.
//!
//! A program that cannot be started is tried again and again, and prints the same each time. So failed starts in a row
//! get at most one line a second, which says how many there were. Lines that an earlier one of these starts has
//! printed are left out. `--verbose` shows everything.

use super::Hub;
use crate::limits::{FAILED_START_LINES_MAX, JOBS_NAMED_MAX, START_FAILED_EVERY};
use crate::log::{Level, LineKind};
use crate::workers::{Captured, OutputStream, escape_line};
use offload_core::action::Notice;
use offload_core::event::Event;
use offload_core::ids::{JobId, ProgramIndex, SlotIndex, WorkerId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Arguments;
use std::time::{Duration, Instant};

/// What the log was told about a series of failed starts of one program.
#[derive(Default)]
struct FailuresInARow {
    /// When the log was last told of a failed start, and whether that start was the last attempt.
    told: Option<(Instant, bool)>,
    /// Lines that these starts have printed.
    lines: BTreeSet<String>,
    /// Whether the log was told that a worker is silent.
    is_silence_told: bool,
}

/// The series of failed starts of each program.
#[derive(Default)]
pub(super) struct StartFailures(BTreeMap<ProgramIndex, FailuresInARow>);

impl StartFailures {
    /// Notes a failed start. Returns whether the log should be told of it.
    fn note_start(&mut self, program: ProgramIndex, is_for_good: bool) -> bool {
        let now = Instant::now();
        let row = self.0.entry(program).or_default();
        let is_repeated = row.told.is_some_and(|(when, was_for_good)| {
            now.saturating_duration_since(when) < START_FAILED_EVERY && was_for_good >= is_for_good
        });
        if !is_repeated {
            row.told = Some((now, is_for_good));
        }
        !is_repeated
    }

    /// Notes a line of a failed start. Returns whether no start of this series has printed it before.
    fn note_line(&mut self, program: ProgramIndex, line: &str) -> bool {
        let lines = &mut self.0.entry(program).or_default().lines;
        let is_new = !lines.contains(line);
        if is_new && lines.len() < FAILED_START_LINES_MAX {
            lines.insert(line.to_owned());
        }
        is_new
    }

    /// Notes that a worker of this program is silent. Returns whether the log should be told.
    pub(super) fn note_silence(&mut self, program: ProgramIndex) -> bool {
        !std::mem::replace(&mut self.0.entry(program).or_default().is_silence_told, true)
    }

    fn end(&mut self, program: ProgramIndex) {
        self.0.remove(&program);
    }
}

impl Hub {
    /// A worker has said hello. Looks at its confinement, and calls the callbacks that wait for a ready worker.
    pub(super) fn ready(&mut self, worker: WorkerId, slot: SlotIndex) {
        self.processes.read_confinement(worker);
        if self.trays.has(worker) {
            self.inbox.push_front(Event::TrayMade { worker }.into());
        }
        let program = self.core.slots()[slot].program;
        self.start_failures.end(program);
        let sdk = escape_line(self.introductions.settle(worker, program).as_bytes());
        let told = self.callbacks.take_ready();
        self.call_soon(told);
        let line = format!("slot {slot}: {} is ready ({sdk})", self.worker_name(worker));
        self.log.say(LineKind::Named("workers ready"), Level::Verbose, format_args!("{line}"));
    }

    pub(super) fn log_notice(&mut self, notice: &Notice) {
        self.note_ended_worker(notice);
        let line = self.describe(notice);
        let kind = LineKind::Named(line_kind(notice));
        if let Notice::StartFailed { program, why, .. } | Notice::Degraded { program, why, .. } = notice
            && !self.core.has_had_worker(*program)
            && let Some(then) = self.callbacks.take_no_worker()
        {
            let reason = format!("program `{}`: {why}", self.program_name(*program));
            self.handle.set_pending(move |cx| then(reason, cx));
        }
        let is_repeated = match notice {
            Notice::StartFailed { program, again_in, .. } => {
                !self.start_failures.note_start(*program, again_in.is_none())
            }
            Notice::Degraded { program, again_in, .. } => {
                // This notice is always written, and the lines about the same failed start need not be.
                self.start_failures.note_start(*program, again_in.is_none());
                false
            }
            _ => false,
        };
        match notice {
            Notice::WorkerEnded { .. } | Notice::WorkerRetires { .. } | Notice::Recovered { .. } => {
                self.log.say(kind, Level::Verbose, format_args!("{line}"));
            }
            // If the worker was still starting, what was wrong is told when its process is gone.
            Notice::WorkerKilled { slot, .. } if self.core.slots()[*slot].is_starting() => {
                self.log.say(kind, Level::Verbose, format_args!("{line}"));
            }
            Notice::TrialPassed { .. } => self.log.tell_kind(kind, format_args!("{line}")),
            Notice::Degraded { .. } => self.log.say(kind, Level::Quiet, format_args!("{line}")),
            _ if is_repeated => self.log.say(kind, Level::Verbose, format_args!("{line}")),
            _ => self.log.say(kind, Level::Normal, format_args!("{line}")),
        }
    }

    pub(super) fn log_output(&mut self, worker: WorkerId, stream: OutputStream, captured: &Captured) {
        let authors = self.authors(worker, stream, captured);
        if captured.lines.is_empty() && captured.dropped == 0 {
            return;
        }
        self.keep_printed(worker, stream, captured, &authors);
        let tag = self.line_prefix(worker, &authors);
        let slot = self.core.slot_of(worker).map(|slot| &self.core.slots()[slot]);
        let starting = slot.filter(|slot| slot.is_starting()).map(|slot| slot.program);
        let is_in_a_row = starting.is_some_and(|program| self.core.failed_starts(program) > 0);
        for line in &captured.lines {
            let is_new = starting.is_none_or(|program| self.start_failures.note_line(program, line));
            self.log_line(is_in_a_row && !is_new, format_args!("{tag} {line}"));
        }
        // Lines that were dropped because the worker printed too fast are counted together with the lines that the log
        // itself leaves out.
        self.log.leave_out(LineKind::Output, captured.dropped);
    }

    fn log_line(&self, is_repeated: bool, line: Arguments<'_>) {
        let level = if is_repeated { Level::Verbose } else { Level::Normal };
        self.log.say(LineKind::Output, level, line);
    }

    /// A worker, as the log names it.
    fn worker_name(&self, worker: WorkerId) -> String {
        match self.processes.pid(worker) {
            Some(pid) => format!("worker process {pid}"),
            None if self.launches.is_launching(worker) => "a worker whose start has not come back".to_owned(),
            None => "a worker".to_owned(),
        }
    }

    fn line_prefix(&self, worker: WorkerId, authors: &[JobId]) -> String {
        let pid = self.processes.pid(worker).unwrap_or(0);
        match self.core.home_of(worker) {
            Some(slot) => format!("[slot {slot} pid {pid}{}]", self.author_words(authors)),
            None => format!("[pid {pid}]"),
        }
    }

    /// The line that the log shows for a notice.
    fn describe(&self, notice: &Notice) -> String {
        match notice {
            Notice::WorkerEnded { worker, slot, how, why, .. } => {
                let why = why.as_ref().map_or(String::new(), |why| format!(": {why}"));
                format!("slot {slot}: {} is gone, with {how}{why}", self.worker_name(*worker))
            }
            Notice::WorkerDied { worker, slot, how, jobs } => {
                let names: Vec<String> =
                    jobs.iter().take(JOBS_NAMED_MAX).map(|job| self.name(*job)).collect();
                let jobs = while_it_ran(jobs.len(), &names);
                format!("slot {slot}: {} ended with {how}{jobs}", self.worker_name(*worker))
            }
            Notice::WorkerKilled { worker, slot, why } => {
                format!("slot {slot}: {} is ended: {why}", self.worker_name(*worker))
            }
            Notice::StartFailed { program, failures, why, again_in } => {
                format!(
                    "program `{}`: {why} ({})",
                    self.program_name(*program),
                    count_starts(*failures, *again_in)
                )
            }
            Notice::Degraded { program, failures, why, again_in } => {
                format!(
                    "program `{}`: no worker can be had, its jobs are refused: {why} ({})",
                    self.program_name(*program),
                    count_starts(*failures, *again_in)
                )
            }
            Notice::WorkerRetires { worker, slot, why } => {
                format!("slot {slot}: {} is replaced: {why}", self.worker_name(*worker))
            }
            Notice::WorkerHangs { worker, slot } => {
                format!(
                    "slot {slot}: {} was killed and is not gone: it hangs in the kernel",
                    self.worker_name(*worker)
                )
            }
            Notice::TrialPassed { program } => {
                format!(
                    "program `{}`: the new version works, the other workers follow",
                    self.program_name(*program)
                )
            }
            Notice::TrialGoesOn { program, job, is_guilty } => {
                let why = match is_guilty {
                    true => "has ended an old one, too",
                    false => "has ended its worker, and is cancelled or late before an old one has run it",
                };
                format!(
                    "program `{}`: the new version is tried with another worker, because job {} {why}",
                    self.program_name(*program),
                    self.name(*job)
                )
            }
            Notice::RolledBack { program, why } => {
                format!(
                    "program `{}`: the new version is taken back, the old workers stay: {why}",
                    self.program_name(*program)
                )
            }
            Notice::KeyUsedAgain { job, before } => {
                let (job, before) = (self.name(*job), self.name(*before));
                format!("job {job}: its key stood for job {before}, until the time of the key was over")
            }
            Notice::LetterNotKept { job } => {
                format!(
                    "job {} died, and there is no room for another dead letter; `offload dead list` shows those \
                     that there are",
                    self.name(*job)
                )
            }
            Notice::Recovered { program } => {
                format!("program `{}`: a worker is ready, jobs are taken again", self.program_name(*program))
            }
        }
    }
}

fn count_starts(failures: u32, again_in: Option<Duration>) -> String {
    let again = match again_in {
        Some(wait) => format!("next start in {}", offload_core::outcome::human(wait)),
        None => "it is not started again".to_owned(),
    };
    let starts = if failures == 1 { "start" } else { "starts" };
    format!("{failures} failed {starts} in a row; {again}")
}

/// What a worker did when it ended. Of jobs that ran together nobody knows which one was to blame, so all of them are counted, and
/// the first few named.
fn while_it_ran(count: usize, names: &[String]) -> String {
    match (count, names) {
        (0, _) | (_, []) => String::new(),
        (1, [name, ..]) => format!(" while it ran job {name}"),
        _ if count > names.len() => {
            format!(" while it ran {count} jobs together: {}, and others", names.join(", "))
        }
        _ => format!(" while it ran {count} jobs together: {}", names.join(", ")),
    }
}

/// The kind of line that a notice is. All lines of one kind share one rate limit in the log.
fn line_kind(notice: &Notice) -> &'static str {
    match notice {
        Notice::WorkerEnded { .. } => "workers that are gone",
        Notice::WorkerDied { .. } => "workers that ended",
        Notice::WorkerKilled { .. } => "workers that were ended",
        Notice::StartFailed { .. } => "failed starts",
        Notice::Degraded { .. } => "programs without workers",
        Notice::WorkerRetires { .. } => "workers replaced",
        Notice::WorkerHangs { .. } => "workers that hang",
        Notice::TrialPassed { .. } => "new versions that work",
        Notice::TrialGoesOn { .. } => "new versions tried again",
        Notice::RolledBack { .. } => "new versions taken back",
        Notice::KeyUsedAgain { .. } => "keys used again",
        Notice::LetterNotKept { .. } => "dead letters not kept",
        Notice::Recovered { .. } => "programs that work again",
    }
}

#[cfg(test)]
mod tests {
    use super::while_it_ran;

    #[test]
    fn the_log_accuses_a_job_only_if_it_was_the_only_one() {
        let names: Vec<String> = ["A", "B", "C"].map(str::to_owned).into();
        assert_eq!(while_it_ran(0, &[]), "");
        assert_eq!(while_it_ran(1, &names[..1]), " while it ran job A");
        assert_eq!(while_it_ran(2, &names[..2]), " while it ran 2 jobs together: A, B");
        assert_eq!(while_it_ran(9, &names), " while it ran 9 jobs together: A, B, C, and others");
    }
}

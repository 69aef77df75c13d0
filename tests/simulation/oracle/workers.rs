//! Records of workers and programs: which workers are healthy, which jobs they have, and which have broken a rule.

use super::duties::Duty;
use super::whose_fault::EndOfWorker;
use super::{JobBook, Oracle};
use offload_core::event::Event;
use offload_core::exit::Exit;
use offload_core::ids::{JobId, Mono, ProgramIndex, Version, WorkerId};
use offload_protocol::nouns::{FailureKind, OutcomeCode};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// One living process.
#[derive(Clone, Debug)]
pub(super) struct WorkerBook {
    pub(super) program: ProgramIndex,
    pub(super) hello_at: Option<Mono>,
    /// When it was started, got its first job, or was last heard of.
    pub(super) heard_at: Mono,
    /// It was told to go, or its channel has ended.
    pub(super) is_leaving: bool,
    /// It hangs in the kernel, or has ended.
    pub(super) is_gone: bool,
    pub(super) is_stopped: bool,
    /// It was stopped at some time.
    pub(super) was_stopped: bool,
    /// It has said what no honest worker says.
    pub(super) is_liar: bool,
    /// ... and what cannot be read: what it says from now on is lost.
    pub(super) is_garbled: bool,
    /// It ends because the program behind it broke its rules.
    pub(super) has_broken_program: bool,
    /// Jobs of whose runs it spoke when it had lied, or lied of, and those that were to come before them.
    pub(super) doubtful: BTreeSet<JobId>,
    /// It was ended because it did not say hello.
    pub(super) is_silent: bool,
    /// The abandoned job for which it named a wrong attempt, which does not matter any more.
    pub(super) unnoticed_lie: Option<JobId>,
    /// What it was given and has not started, or not ended.
    pub(super) given: VecDeque<JobId>,
    /// It takes inputs that are files.
    pub(super) takes_files: bool,
    /// It looks for jobs in a tray.
    pub(super) has_tray: bool,
    /// The last of `given`, while it may lie in the tray, and whether it is wanted back.
    pub(super) tray: Option<JobId>,
    pub(super) is_tray_asked: bool,
    /// What it has said that it started and not that it ended; the last one runs.
    pub(super) started: Vec<JobId>,
    pub(super) version: Version,
    /// The core told it to end.
    pub(super) is_asked: bool,
    /// The core said why it ends it.
    pub(super) is_accused: bool,
    /// It was ended because its job did not say how far it is.
    pub(super) has_hung: bool,
    /// It was ended because one of its jobs timed out or was cancelled, which has its outcome already.
    pub(super) is_ended_for_a_job: bool,
    /// What it offers, and whether it promised that it may be run twice.
    pub(super) offers: BTreeMap<String, bool>,
    /// It was ended because it lied.
    pub(super) is_punished: bool,
    pub(super) jobs_done: u64,
    /// How many it may be given.
    pub(super) most_jobs: Option<u64>,
    /// The job that it was asked to give back.
    pub(super) wanted_back: Option<JobId>,
}

impl WorkerBook {
    /// A process that was started now.
    pub(super) fn new(now: Mono, program: ProgramIndex, version: Version) -> WorkerBook {
        WorkerBook {
            program,
            version,
            hello_at: None,
            heard_at: now,
            is_leaving: false,
            is_gone: false,
            is_stopped: false,
            was_stopped: false,
            is_liar: false,
            is_garbled: false,
            has_broken_program: false,
            doubtful: BTreeSet::new(),
            is_silent: false,
            unnoticed_lie: None,
            given: VecDeque::new(),
            takes_files: false,
            has_tray: false,
            tray: None,
            is_tray_asked: false,
            started: Vec::new(),
            is_asked: false,
            is_accused: false,
            has_hung: false,
            is_ended_for_a_job: false,
            offers: BTreeMap::new(),
            is_punished: false,
            jobs_done: 0,
            most_jobs: None,
            wanted_back: None,
        }
    }

    /// It does not have this job any more.
    fn drop_job(&mut self, now: Mono, id: JobId) {
        self.heard_at = now;
        self.given.retain(|given| *given != id);
        self.started.retain(|started| *started != id);
    }

    /// Whether it has promised that jobs of this task may be run twice.
    pub(super) fn promises(&self, task: &str) -> bool {
        self.offers.get(task).copied().unwrap_or(false)
    }

    pub(super) fn is_well(&self) -> bool {
        self.hello_at.is_some() && !self.is_leaving && !self.is_stopped && !self.is_gone
    }
}

/// One program.
#[derive(Clone, Debug, Default)]
pub(super) struct ProgramBook {
    /// Some worker of it has said that it takes no files.
    pub(super) had_one_without_files: bool,
    pub(super) offers: Vec<String>,
    /// What some worker offered and the one before or after it did not.
    pub(super) dropped: Vec<String>,
    pub(super) has_said_hello: bool,
    /// Its jobs are refused, as the log was told.
    pub(super) is_refusing: bool,
    /// Ends of processes, since one was last proved to be good, that may count as failed starts.
    failures: u32,
    pub(super) has_failed: bool,
    failed_at: Mono,
    /// When a worker last ended before it had started a job that was known for that, if none was started since.
    pub(super) unstarted_at: Option<Mono>,
    /// The same, of one of which that may be so, and whether or not one was started since.
    pub(super) perhaps_unstarted_at: Option<Mono>,
    /// Since the last hello there was an end that may say that no retry helps.
    pub(super) may_be_broken: bool,
}

impl ProgramBook {
    pub(super) fn may_refuse(&self, least_restarts: u32) -> bool {
        self.may_be_broken || self.failures >= least_restarts
    }

    pub(super) fn fail(&mut self, now: Mono, is_fatal: bool) {
        self.failures += 1;
        self.has_failed = true;
        self.failed_at = now;
        self.may_be_broken |= is_fatal;
    }
}

impl Oracle {
    /// Takes note of an event.
    pub(super) fn take_note(&mut self, now: Mono, event: &Event, is_honest: bool) -> Duty {
        self.note_doubt(event, is_honest);
        if let Event::Abandoned { job } = event {
            self.reader_left(*job);
        }
        match event {
            Event::Refused { .. } => self.rejected += 1,
            Event::Cancel { job } | Event::ClientGone { job } if self.live.contains(job) => {
                return Duty::End(*job, OutcomeCode::Cancelled);
            }
            Event::Abandoned { job } if !self.promises.has(*job) && self.live.contains(job) => {
                let book = self.jobs.get_mut(job).expect("it lives");
                book.is_abandoned = true;
                if !book.is_out() {
                    return Duty::End(*job, OutcomeCode::Cancelled);
                }
            }
            Event::Awaited { job } => {
                self.jobs.entry(*job).and_modify(|book| book.is_abandoned = false);
            }
            Event::Hello { worker, tasks, takes_files } => {
                if is_honest {
                    self.note_files(*worker, *takes_files);
                }
                return self.hello(now, *worker, tasks, is_honest);
            }
            Event::RanHere { job, result } => {
                self.note_ran_here(event);
                if self.live.contains(job) {
                    return match result {
                        Ok(_) => Duty::EndRead(*job),
                        Err((code, _)) => Duty::End(*job, *code),
                    };
                }
            }
            Event::Started { worker, job, .. } => return self.started(now, *worker, *job, is_honest),
            Event::Finished { worker, job, output_bytes, .. } => {
                let is_too_long = self.is_too_long(*job, *output_bytes);
                let code = if is_too_long { OutcomeCode::AppError } else { OutcomeCode::Ok };
                return self.ran(now, *worker, *job, is_honest, code);
            }
            Event::Part { worker, job, bytes, .. } => {
                return self.part_came(*worker, *job, *bytes, is_honest);
            }
            Event::Delivered { job, bytes } => self.part_taken(*job, *bytes),
            Event::Failed { worker, job, kind, .. } => {
                let code = match kind {
                    FailureKind::AppError
                    | FailureKind::Deliberate
                    | FailureKind::Exited { .. }
                    | FailureKind::Signalled { .. } => OutcomeCode::AppError,
                    FailureKind::Panic => OutcomeCode::Panic,
                    FailureKind::TimedOut => OutcomeCode::Timeout,
                    FailureKind::OutOfMemory => OutcomeCode::WorkerOom,
                };
                return self.ran(now, *worker, *job, is_honest, code);
            }
            Event::Skipped { worker, job } => return self.skipped(now, *worker, *job, is_honest),
            Event::Violation { worker, .. } | Event::Garbled { worker, .. }
                if self.sends_nonsense_at_its_end(*worker) => {}
            Event::Violation { worker, .. } | Event::Garbled { worker, .. } | Event::Unfit { worker, .. } => {
                return self.lied(*worker);
            }
            Event::NotBegun { worker, .. } if !is_honest => return self.lied(*worker),
            Event::NotBegun { worker, job, .. } => self.not_begun(*worker, *job),
            Event::BrokeRules { worker, of_another, .. } => self.broke_rules(*worker, *of_another),
            Event::TrayMade { worker } | Event::TrayFailed { worker } => {
                let works = matches!(event, Event::TrayMade { .. });
                self.workers.entry(*worker).and_modify(|book| book.has_tray = works);
            }
            Event::TakenBack { worker, job } => self.taken_back(*worker, *job),
            Event::NotInTray { worker, job } => return self.not_in_tray(*worker, *job),
            Event::EndOfTurn => {}
            Event::Unsent { worker, jobs } => self.unsent(*worker, jobs),
            Event::Closed { worker } => {
                if let Some(book) = self.workers.get_mut(worker) {
                    book.is_leaving = true;
                }
            }
            Event::SpawnFailed { worker, fatal, .. } => return self.died(now, *worker, *fatal, false),
            Event::Exited { worker, exit, .. } => {
                let mute = self.mute_program_of(*worker);
                let is_content = *exit == Exit::Code(0) && self.silence_may_be_final;
                let is_fatal = *exit == Exit::Code(64) || is_content;
                let duty = self.died(now, *worker, is_fatal, *exit == Exit::Signal(9));
                return mute.map_or(duty, Duty::Refuse);
            }
            Event::Tick if self.drain_ends.is_some_and(|end| end <= now) => {
                // What is late at this very tick is not cut short: its own deadline comes first. That of a run counts if it ends
                // the job at once, as it does here: a worker has to be asked to end first.
                let is_over =
                    |book: &JobBook| book.is_late(now) || book.is_here && book.has_run_too_long(now);
                self.stop(|book| !is_over(book));
            }
            Event::Tick => {}
            Event::RequestsInFlight { some } => self.has_requests = *some,
            Event::Drain { limit } => {
                self.is_draining = true;
                self.drain_ends = self.drain_ends.into_iter().chain(limit.map(|limit| now + limit)).min();
            }
            Event::Stop => self.stop(|_| true),
            Event::Configure(config) => self.configure(config),
            Event::Stopped { worker } => self.set_stopped(*worker, true),
            Event::Continued { worker } => self.set_stopped(*worker, false),
            Event::Yielded { worker, .. } if !is_honest => return self.lied(*worker),
            Event::Yielded { worker, job, .. } => return self.yielded(now, *worker, *job),
            Event::Progress { worker, job, .. } => {
                if let Some(book) = self.jobs.get_mut(job).filter(|book| book.holder == Some(*worker)) {
                    book.heard_at = now;
                }
            }
            Event::Reload { version } => self.reloads.asked(*version),
            Event::Launched { worker } => {
                if let Some(book) = self.workers.get_mut(worker) {
                    book.heard_at = now;
                }
            }
            Event::Checkpoint { .. } | Event::Measured { .. } => {}
            Event::Cancel { .. } | Event::ClientGone { .. } => {}
            Event::Held { .. } | Event::Released { .. } => {}
            Event::Pause { .. } | Event::Resume { .. } => {}
            Event::Abandoned { .. } | Event::Collected { .. } | Event::LetterDropped { .. } => {}
        }
        Duty::Nothing
    }

    /// A process does not go although it was killed: that may count as a failed start as well.
    pub(super) fn hangs(&mut self, now: Mono, worker: WorkerId) {
        if let Some(book) = self.workers.get(&worker) {
            let may_be_no_worker = book.is_silent && self.silence_may_be_final;
            let is_fatal = book.hello_at.is_none() && (book.is_liar || may_be_no_worker);
            self.programs[book.program].fail(now, is_fatal);
        }
    }

    fn set_stopped(&mut self, worker: WorkerId, is_stopped: bool) {
        if let Some(book) = self.workers.get_mut(&worker) {
            book.is_stopped = is_stopped;
            book.was_stopped |= is_stopped;
        }
    }

    fn configure(&mut self, config: &offload_core::config::CoreConfig) {
        let programs = self.config.programs;
        let workers = config.workers.max(programs);
        self.most_workers = self.most_workers.max(workers);
        self.is_resized |= (workers, config.spares) != (self.config.workers, self.config.spares);
        self.least_window = self.least_window.min(config.window);
        self.config = offload_core::config::CoreConfig { workers, programs, ..config.clone() };
        self.least_restarts = self.least_restarts.min(config.max_restarts);
        self.silence_may_be_final |= config.max_silent_starts == 1;
        let (hello, start) = self.least_patience;
        self.least_patience = (hello.min(config.hello_timeout), start.min(config.start_timeout));
        let (first, longest) = self.least_backoff;
        self.least_backoff = (first.min(config.backoff_min), longest.min(config.backoff_max));
        self.longest_backoff = self.longest_backoff.max(config.backoff_max);
    }

    fn note_files(&mut self, worker: WorkerId, takes_files: bool) {
        let Some(book) = self.workers.get_mut(&worker) else { return };
        book.takes_files = takes_files;
        self.programs[book.program].had_one_without_files |= !takes_files;
    }

    fn hello(
        &mut self,
        now: Mono,
        worker: WorkerId,
        tasks: &[offload_protocol::nouns::TaskOffer<'static>],
        is_honest: bool,
    ) -> Duty {
        if !is_honest {
            return self.lied(worker);
        }
        let Some(book) = self.workers.get_mut(&worker).filter(|book| !book.is_leaving) else {
            return Duty::Nothing;
        };
        book.hello_at = Some(now);
        book.most_jobs = self.config.max_jobs_per_worker.map(|most| most + most / 4);
        book.offers = tasks.iter().map(|task| (task.name.to_string(), task.idempotent)).collect();
        let program = &mut self.programs[book.program];
        program.has_said_hello = true;
        program.may_be_broken = false;
        let offers: Vec<String> = tasks.iter().map(|task| task.name.to_string()).collect();
        let of_one_only = |name: &&String| offers.contains(name) != program.offers.contains(name);
        let dropped: Vec<String> =
            offers.iter().chain(&program.offers).filter(of_one_only).cloned().collect();
        program.dropped.extend(dropped);
        program.offers = offers;
        Duty::Nothing
    }

    fn started(&mut self, now: Mono, worker: WorkerId, id: JobId, is_honest: bool) -> Duty {
        if !is_honest {
            let is_withdrawn = !self.live.contains(&id);
            let duty = self.lied(worker);
            let Some(book) = self.workers.get_mut(&worker).filter(|_| is_withdrawn) else { return duty };
            book.unnoticed_lie = Some(id);
            return Duty::Nothing;
        }
        let Some(book) = self.workers.get_mut(&worker) else { return Duty::Nothing };
        let outer = book.started.last().copied();
        book.started.push(id);
        book.tray.take_if(|in_tray| *in_tray == id);
        if let Some(outer) = outer.and_then(|outer| self.jobs.get_mut(&outer)) {
            outer.suspend(now);
        }
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.holder == Some(worker)) else {
            return Duty::Nothing;
        };
        job.is_doubtful |= book.is_liar;
        if self.live.contains(&id) {
            if job.is_on_probation() {
                self.programs[book.program].unstarted_at = None;
            }
            job.start(now, book.promises(&job.task));
            job.is_bystander = book.is_leaving;
        }
        Duty::Nothing
    }

    fn ran(&mut self, now: Mono, worker: WorkerId, id: JobId, is_honest: bool, code: OutcomeCode) -> Duty {
        if !is_honest {
            let duty = self.lied(worker);
            let unnoticed = self.workers.get_mut(&worker).and_then(|book| book.unnoticed_lie.take());
            return if unnoticed == Some(id) { Duty::Nothing } else { duty };
        }
        self.dropped(now, worker, id);
        let Some(book) = self.workers.get(&worker) else { return Duty::Nothing };
        let is_its_own = self.live.contains(&id) && self.jobs[&id].holder == Some(worker);
        if !is_its_own || book.is_liar {
            return Duty::Nothing;
        }
        let run = self.jobs[&id].ran(now);
        self.shares.used(&self.jobs[&id].client, run);
        let (of, version) = (book.program, book.version);
        // That one which has to prove itself fails a job proves nothing.
        if code == OutcomeCode::Ok || !self.reloads.is_unproven(of, worker) {
            let program = &mut self.programs[of];
            if book.is_well() && book.hello_at.is_some_and(|hello| hello > program.failed_at) {
                program.failures = 0;
                self.starts.proved_good(of);
            }
            self.starts.did_a_job(of);
        }
        if code == OutcomeCode::Ok {
            self.reloads.proved(of, worker, version);
        }
        Duty::End(id, code)
    }

    /// A worker has ended a job: the one that was suspended, if there is one, goes on.
    fn dropped(&mut self, now: Mono, worker: WorkerId, id: JobId) {
        let Some(book) = self.workers.get_mut(&worker) else { return };
        book.drop_job(now, id);
        book.jobs_done += 1;
        // Nothing counts that is said by one who is ended for a lie.
        let counts = !(book.is_liar && book.is_leaving);
        let outer = book.started.last().filter(|_| counts);
        if let Some(outer) = outer.and_then(|outer| self.jobs.get_mut(outer)) {
            outer.resume(now);
        }
    }

    fn yielded(&mut self, now: Mono, worker: WorkerId, id: JobId) -> Duty {
        let is_its_own = self.live.contains(&id) && self.jobs[&id].holder == Some(worker);
        self.dropped(now, worker, id);
        let Some(book) = self.workers.get_mut(&worker) else { return Duty::Nothing };
        book.wanted_back = None;
        if is_its_own && !book.is_liar { Duty::Keep(id) } else { Duty::Nothing }
    }

    fn skipped(&mut self, now: Mono, worker: WorkerId, id: JobId, is_honest: bool) -> Duty {
        if let Some(book) = self.workers.get_mut(&worker)
            && book.given.contains(&id)
            && !book.started.contains(&id)
        {
            book.drop_job(now, id);
        }
        let is_wanted = self.live.contains(&id);
        if is_honest || !is_wanted {
            let book = self.workers.get_mut(&worker);
            book.into_iter().for_each(|book| _ = book.tray.take_if(|in_tray| *in_tray == id));
            return Duty::Nothing;
        }
        self.jobs.entry(id).and_modify(|job| job.is_doubtful = true);
        self.lied(worker)
    }

    fn died(&mut self, now: Mono, worker: WorkerId, is_fatal: bool, is_killed: bool) -> Duty {
        let Some(book) = self.workers.get(&worker) else { return Duty::Nothing };
        let (program, version) = (book.program, book.version);
        let is_start = book.hello_at.is_none();
        let may_be_no_worker = book.is_silent && self.silence_may_be_final;
        self.programs[program].fail(now, is_start && (is_fatal || book.is_liar || may_be_no_worker));
        // One that breaks a rule right after its hello is as bad as one that never said it.
        let window = self.least_window.max(self.least_backoff.0);
        let is_young = book.hello_at.is_some_and(|hello| now - hello < window);
        let is_of_no_use = book.is_punished && is_young && book.jobs_done == 0 && book.given.is_empty();
        let is_on_trial = self.reloads.is_on_trial(version);
        let (end, is_for_a_job) = (self.end_of(worker), book.is_ended_for_a_job);
        let is_failed_start = is_start && !book.is_leaving && !is_killed;
        let is_unasked = !(book.is_asked || book.is_gone);
        let is_unproven = !is_start && is_unasked && self.reloads.is_unproven(program, worker);
        // What one that has lied had begun, only it knows.
        let had = book.started.iter().chain(&book.given).filter_map(|job| self.jobs.get(job));
        let tasks: Vec<String> = had.map(|job| job.task.clone()).collect();
        let may_be_excused = tasks.iter().any(|task| self.reloads.may_be_deadly(task));
        if !self.reloads.is_surely_unproven(program, worker) {
            tasks.into_iter().for_each(|task| self.reloads.note_deadly(task));
        }
        let counts = is_unproven && !may_be_excused;
        let has_failed = (is_failed_start || is_of_no_use || counts) && !is_on_trial;
        self.starts.died(now, program, has_failed, is_of_no_use);
        match is_unasked {
            true if is_on_trial && is_start => {
                Duty::Judge(EndOfWorker { program, job: None, is_certain: true })
            }
            true if is_on_trial => end.map_or(Duty::Nothing, Duty::Judge),
            false if is_on_trial && !is_start && !is_for_a_job => {
                end.map_or(Duty::Nothing, |end| Duty::MayJudge(EndOfWorker { is_certain: false, ..end }))
            }
            true if !is_start && self.reloads.is_surely_unproven(program, worker) => match may_be_excused {
                true => Duty::Nothing,
                false => Duty::CountFailure(program),
            },
            true if !is_unproven && !is_start => end.map_or(Duty::Nothing, Duty::Acquit),
            _ => Duty::Nothing,
        }
    }

    /// The program of a worker that is ended for its silence, if that program is to be given up: none of its workers ever
    /// said hello, and one that says nothing is enough. One that hung in the kernel was judged when that was found out.
    fn mute_program_of(&self, worker: WorkerId) -> Option<ProgramIndex> {
        let is_mute = |book: &&WorkerBook| book.is_silent && !book.is_liar && !book.is_gone;
        let book = self.workers.get(&worker).filter(is_mute)?;
        let is_final = self.config.max_silent_starts == 1 && !self.reloads.has_been_asked();
        (is_final && !self.programs[book.program].has_said_hello).then_some(book.program)
    }
}

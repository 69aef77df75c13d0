//! The core, driven by hand: no process, no clock, no I/O. Time passes when the test says so, workers do what the test
//! says, and after every single event all invariants are checked.

mod fake;

use offload_core::Core;
use offload_core::action::{Action, Actions, Ended, Kill, Notice, Released, ReloadEnd};
use offload_core::config::CoreConfig;
use offload_core::event::{Event, JobRequest};
use offload_core::exit::Exit;
use offload_core::ids::{JobId, Mono, ProgramIndex, WorkerId};
use offload_protocol::nouns::{Batching, ErrorDetail, OutcomeCode, TaskOffer, Usage};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub use fake::{FakeParts, FakeWorker};

/// What a worker of the test offers: `sum` may be run twice, `charge` may not; `climb` may, is done in steps, gives
/// checkpoints and says every second how far it is; up to eight of `tile` run together, and the first waits 2 ms for others.
pub fn offers() -> Vec<TaskOffer<'static>> {
    let sum = TaskOffer { idempotent: true, ..TaskOffer::new("sum") };
    let climb = TaskOffer { idempotent: true, stepped: true, checkpoints: true, ..TaskOffer::new("climb") };
    let tile = TaskOffer {
        idempotent: true,
        batching: Some(Batching { max: 8, wait_us: 2000 }),
        ..TaskOffer::new("tile")
    };
    vec![sum, TaskOffer::new("charge"), TaskOffer { progress_ms: 1000, ..climb }, tile]
}

/// How the workers of the test behave when they are not told otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// They say hello at once.
    Hello,
    /// They end at once with exit code 1.
    Die,
    /// They do nothing; the test calls `hello` or `exit`.
    Wait,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct PoolUnderTest {
    /// The thing itself.
    pub core: Core,
    /// The time.
    pub now: Mono,
    /// Living processes.
    pub workers: BTreeMap<WorkerId, FakeWorker>,
    /// Jobs that have ended.
    pub ended: BTreeMap<JobId, Ended>,
    /// Jobs of which nothing is promised any more, and why.
    pub released: BTreeMap<JobId, Released>,
    /// Jobs whose dead letters are forgotten.
    pub forgotten_letters: Vec<JobId>,
    /// Why requests were refused.
    pub rejected: Vec<ErrorDetail>,
    /// What was logged.
    pub notices: Vec<Notice>,
    /// When processes were started.
    pub spawned_at: Vec<Mono>,
    /// Most processes that lived at a time.
    pub most_processes: usize,
    /// Jobs that workers were told to forget.
    pub cancelled: Vec<(WorkerId, JobId)>,
    /// Jobs that the shell was told to do itself, and after which time it has to be done with each.
    pub here: Vec<(JobId, Duration)>,
    /// Those that it was told to stop.
    pub stopped_here: Vec<JobId>,
    /// How many jobs workers were given together.
    pub batches: Vec<(WorkerId, u32)>,
    /// How often a job was wanted back from a tray.
    pub wanted_back: usize,
    /// Jobs that workers were asked to give back.
    pub asked_to_yield: Vec<(WorkerId, JobId)>,
    /// How many checkpoints were kept of each job.
    pub kept: BTreeMap<JobId, usize>,
    /// What became of the parts of outputs.
    pub parts: BTreeMap<JobId, FakeParts>,
    /// How reloads ended.
    pub reloads: Vec<ReloadEnd>,
    /// It said that it is over.
    pub is_over: bool,
    start: Start,
    dies_of_term: bool,
    dies_of_kill: bool,
    channel_ends_first: bool,
    has_trays: bool,
    /// What the shell has not answered yet, if it answers late.
    unanswered: Option<Vec<(WorkerId, JobId)>>,
    pending: VecDeque<Event>,
    /// New workers take inputs that are files.
    pub take_files: bool,
}

fn request(task: &str, change: impl FnOnce(&mut JobRequest)) -> JobRequest {
    let mut request = JobRequest { task: task.to_owned(), input_bytes: 10, ..JobRequest::default() };
    change(&mut request);
    request
}

impl PoolUnderTest {
    /// So many slots, no spare, workers that say hello at once.
    pub fn slots(workers: usize) -> PoolUnderTest {
        PoolUnderTest::with(CoreConfig { workers, spares: 0, ..CoreConfig::default() }, Start::Hello)
    }

    /// So many slots and a spare.
    pub fn slots_and_spare(workers: usize) -> PoolUnderTest {
        PoolUnderTest::with(CoreConfig { workers, spares: 1, ..CoreConfig::default() }, Start::Hello)
    }

    /// As configured.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn with(config: CoreConfig, start: Start) -> PoolUnderTest {
        let mut pool = PoolUnderTest {
            core: Core::new(config).expect("a valid configuration"),
            now: Mono::default(),
            workers: BTreeMap::new(),
            ended: BTreeMap::new(),
            released: BTreeMap::new(),
            forgotten_letters: Vec::new(),
            rejected: Vec::new(),
            notices: Vec::new(),
            spawned_at: Vec::new(),
            most_processes: 0,
            cancelled: Vec::new(),
            here: Vec::new(),
            stopped_here: Vec::new(),
            batches: Vec::new(),
            wanted_back: 0,
            asked_to_yield: Vec::new(),
            kept: BTreeMap::new(),
            parts: BTreeMap::new(),
            reloads: Vec::new(),
            is_over: false,
            start,
            dies_of_term: true,
            dies_of_kill: true,
            channel_ends_first: true,
            has_trays: false,
            unanswered: None,
            pending: VecDeque::new(),
            take_files: true,
        };
        pool.event(Event::Tick);
        pool
    }

    /// From now on new workers behave so.
    pub fn workers_start_with(&mut self, start: Start) {
        self.start = start;
    }

    /// The workers of now, and those to come, look for jobs in trays.
    pub fn workers_have_trays(&mut self) {
        self.has_trays = true;
        let workers: Vec<WorkerId> = self.workers.keys().copied().collect();
        workers.into_iter().for_each(|worker| self.event(Event::TrayMade { worker }));
    }

    /// From now on the shell answers late when it is told to take jobs out of trays: when the test calls
    /// [`PoolUnderTest::answer`].
    pub fn answers_come_late(&mut self) {
        self.unanswered = Some(Vec::new());
    }

    /// The shell takes out of the trays what it was told to, and answers.
    pub fn answer(&mut self) {
        let asked = self.unanswered.as_mut().map(std::mem::take).unwrap_or_default();
        asked.into_iter().for_each(|(worker, job)| self.take_back(worker, job));
        self.work_off();
    }

    fn take_back(&mut self, worker: WorkerId, job: JobId) {
        let fake = self.workers.get_mut(&worker);
        let was_there = fake.is_some_and(|fake| fake.tray.take_if(|(in_tray, _)| *in_tray == job).is_some());
        self.pending.push_back(match was_there {
            true => Event::TakenBack { worker, job },
            false => Event::NotInTray { worker, job },
        });
    }

    /// The worker in whose tray the job lies.
    pub fn tray_with(&self, job: JobId) -> Option<WorkerId> {
        let has_it = |fake: &FakeWorker| fake.tray.is_some_and(|(in_tray, _)| in_tray == job);
        self.workers.iter().find(|(_, fake)| has_it(fake)).map(|(worker, _)| *worker)
    }

    /// A worker takes the job out of its tray; it has not started it yet.
    ///
    /// # Panics
    /// If the job is in no tray.
    pub fn take(&mut self, job: JobId) -> WorkerId {
        let worker = self.tray_with(job).unwrap_or_else(|| panic!("{job} is in no tray"));
        let fake = self.workers.get_mut(&worker).expect("it lives");
        fake.given.extend(fake.tray.take());
        worker
    }

    /// Everything that workers have sent until now was reported.
    pub fn end_turn(&mut self) {
        if self.core.has_untaken() {
            self.event(Event::EndOfTurn);
        }
    }

    /// From now on SIGTERM is ignored.
    pub fn workers_ignore_term(&mut self) {
        self.dies_of_term = false;
    }

    /// From now on workers hang in the kernel when they are killed.
    pub fn workers_survive_sigkill(&mut self) {
        self.dies_of_kill = false;
    }

    /// From now on the exit of a worker is known before the end of its channel. Usually it is the other way round.
    pub fn exits_are_known_first(&mut self) {
        self.channel_ends_first = false;
    }

    /// Tells the core that something happened, and what follows from it by itself.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn event(&mut self, event: Event) {
        self.pending.push_back(event);
        self.work_off();
    }

    fn work_off(&mut self) {
        while let Some(event) = self.pending.pop_front() {
            let mut actions = Actions::new();
            let description = format!("{event:?}");
            if let Event::SpawnFailed { worker, .. } | Event::Exited { worker, .. } = &event {
                self.workers.remove(worker);
            }
            self.core.handle(self.now, event, &mut actions);
            self.check_and_act(&description, actions);
        }
    }

    fn check_and_act(&mut self, description: &str, actions: Actions) {
        if let Err(broken) = self.core.check() {
            panic!("after {description}: {broken}\n{:#?}", self.core);
        }
        for action in actions {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Spawn { worker, program, version, .. } => self.spawn(worker, program, version),
            Action::Run { worker, job, attempt, resume } => {
                if let Some(worker) = self.workers.get_mut(&worker) {
                    worker.given.push_back((job, attempt));
                    worker.resumed.extend(resume.then_some(job));
                }
            }
            Action::Batch { worker, jobs } => self.batches.push((worker, jobs)),
            Action::Prefetch { worker, job, attempt } => {
                let fake =
                    self.workers.get_mut(&worker).expect("a job is put into the tray of a living worker");
                assert!(fake.tray.replace((job, attempt)).is_none(), "{job} is the second one in a tray");
            }
            Action::TakeBack { worker, job } => {
                self.wanted_back += 1;
                match &mut self.unanswered {
                    Some(unanswered) => unanswered.push((worker, job)),
                    None => self.take_back(worker, job),
                }
            }
            Action::RunHere { job, within } => self.here.push((job, within)),
            Action::StopHere { job } => self.stopped_here.push(job),
            Action::CancelRun { worker, job } => self.cancelled.push((worker, job)),
            Action::Ready { worker, .. } => {
                self.pending.extend(self.has_trays.then_some(Event::TrayMade { worker }));
            }
            Action::Dismiss { worker } => self.dies(worker, Exit::Code(0)),
            Action::Kill { worker, how } => self.signal(worker, how),
            Action::Yield { worker, job } => self.asked_to_yield.push((worker, job)),
            Action::Collect { job } => self.parts.entry(job).or_default().collected += 1,
            Action::PassOn { job } => self.parts.entry(job).or_default().passed_on += 1,
            Action::DropParts { job } => self.parts.entry(job).or_default().dropped += 1,
            Action::Credit { job, bytes, .. } => self.parts.entry(job).or_default().credit += bytes,
            Action::Keep { job } => *self.kept.entry(job).or_default() += 1,
            Action::Reloaded { end, .. } => self.reloads.push(end),
            Action::Finish(ended) => {
                let job = ended.job;
                assert!(self.ended.insert(job, *ended).is_none(), "{job} ended twice");
            }
            Action::Release { job, why } => {
                assert!(self.released.insert(job, why).is_none(), "{job} is released twice");
            }
            Action::ForgetLetter { job } => self.forgotten_letters.push(job),
            Action::Log(notice) => self.notices.push(notice),
            Action::Over => {
                assert!(!self.is_over, "over twice");
                self.is_over = true;
            }
        }
    }

    fn spawn(&mut self, worker: WorkerId, program: ProgramIndex, version: u64) {
        self.workers.insert(worker, FakeWorker { program, version, ..FakeWorker::default() });
        self.spawned_at.push(self.now);
        self.most_processes = self.most_processes.max(self.workers.len());
        match self.start {
            Start::Hello => {
                let takes_files = self.take_files;
                self.pending.push_back(Event::Hello { worker, tasks: offers(), takes_files });
            }
            Start::Die => self.dies(worker, Exit::Code(1)),
            Start::Wait => {}
        }
    }

    fn signal(&mut self, worker: WorkerId, how: Kill) {
        let Some(fake) = self.workers.get_mut(&worker) else { return };
        fake.signals.push(how);
        match how {
            Kill::Kill if self.dies_of_kill => self.dies(worker, Exit::Signal(9)),
            Kill::Kill => {}
            Kill::Term if self.dies_of_term => self.dies(worker, Exit::Signal(15)),
            Kill::Term => {}
        }
    }

    fn dies(&mut self, worker: WorkerId, exit: Exit) {
        if let Some(fake) = self.workers.remove(&worker) {
            let left = fake.tray.map(|(job, _)| Event::TakenBack { worker, job });
            let words = (exit == Exit::Code(1)).then(|| "no such file: model.bin".to_owned());
            let last_lines = words.into_iter().collect();
            self.pending.extend(self.channel_ends_first.then_some(Event::Closed { worker }));
            self.pending.extend(left);
            self.pending.push_back(Event::Exited { worker, exit, last_lines, usage: None });
        }
    }

    /// Submits a job; `None` if it is refused.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn try_submit(&mut self, request: &JobRequest) -> Option<JobId> {
        let mut actions = Actions::new();
        let verdict = self.core.submit(self.now, request, &mut actions);
        self.check_and_act(&format!("{request:?}"), actions);
        self.work_off();
        verdict.map(|accepted| accepted.job).map_err(|error| self.rejected.push(error)).ok()
    }

    /// Submits a job with default options.
    ///
    /// # Panics
    /// If it is refused.
    pub fn submit(&mut self, task: &str) -> JobId {
        self.submit_with(task, |_| ())
    }

    /// Submits a job with other options.
    ///
    /// # Panics
    /// If it is refused.
    pub fn submit_with(&mut self, task: &str, change: impl FnOnce(&mut JobRequest)) -> JobId {
        self.try_submit(&request(task, change))
            .unwrap_or_else(|| panic!("refused: {:?}", self.rejected.last()))
    }

    /// Why a job with default options is refused.
    ///
    /// # Panics
    /// If it is accepted.
    pub fn refusal(&mut self, task: &str) -> ErrorDetail {
        self.refusal_with(task, |_| ())
    }

    /// Submits a job. Returns whether it is accepted.
    pub fn accepts(&mut self, task: &str, change: impl FnOnce(&mut JobRequest)) -> bool {
        self.try_submit(&request(task, change)).is_some()
    }

    /// Why a job with other options is refused.
    ///
    /// # Panics
    /// If it is accepted.
    pub fn refusal_with(&mut self, task: &str, change: impl FnOnce(&mut JobRequest)) -> ErrorDetail {
        assert_eq!(self.try_submit(&request(task, change)), None, "it was accepted");
        self.rejected.last().expect("an answer").clone()
    }

    /// The worker that has the job.
    pub fn worker_with(&self, job: JobId) -> Option<WorkerId> {
        let has_it = |fake: &FakeWorker| fake.given.iter().any(|(given, _)| *given == job);
        self.workers.iter().find(|(_, fake)| has_it(fake)).map(|(worker, _)| *worker)
    }

    /// The worker that has the job says that it started.
    ///
    /// # Panics
    /// If none has it.
    pub fn start(&mut self, job: JobId) -> WorkerId {
        let worker = self.worker_with(job).unwrap_or_else(|| panic!("no worker has {job}"));
        let attempt = self.attempt(worker, job);
        self.event(Event::Started { worker, job, attempt });
        worker
    }

    fn attempt(&self, worker: WorkerId, job: JobId) -> u32 {
        let given = self.workers[&worker].given.iter().find(|(given, _)| *given == job);
        given.expect("it was given").1
    }

    /// The worker that has the job says that it is done.
    ///
    /// # Panics
    /// If none has it.
    pub fn finish(&mut self, job: JobId) {
        self.finish_after(job, Duration::from_millis(1));
    }

    /// The worker that has the job says that it is done and took so long.
    ///
    /// # Panics
    /// If none has it.
    pub fn finish_after(&mut self, job: JobId, run: Duration) {
        self.finish_with(job, run, 10);
    }

    /// The worker that has the job says that it is done, and returns so many bytes.
    ///
    /// # Panics
    /// If none has it.
    pub fn finish_with(&mut self, job: JobId, run: Duration, output_bytes: u64) {
        let worker = self.worker_with(job).unwrap_or_else(|| panic!("no worker has {job}"));
        let attempt = self.attempt(worker, job);
        self.now = self.now + run;
        self.workers.get_mut(&worker).expect("it lives").given.retain(|(given, _)| *given != job);
        self.event(Event::Finished { worker, job, attempt, run, usage: Usage::default(), output_bytes });
    }

    /// The worker that runs the job sends a part of its output.
    ///
    /// # Panics
    /// If none has it.
    pub fn part(&mut self, job: JobId, bytes: u64) {
        let worker = self.worker_with(job).unwrap_or_else(|| panic!("no worker has {job}"));
        let attempt = self.attempt(worker, job);
        self.event(Event::Part { worker, job, attempt, bytes });
    }

    /// Starts and finishes a job.
    pub fn run(&mut self, job: JobId) {
        self.start(job);
        self.finish(job);
    }

    /// A worker ends by itself.
    pub fn exit(&mut self, worker: WorkerId, exit: Exit) {
        self.dies(worker, exit);
        self.work_off();
    }

    /// Starts the job and lets its worker die of SIGSEGV.
    pub fn crash_the_worker_running(&mut self, job: JobId) {
        let worker = self.start(job);
        self.exit(worker, Exit::Signal(11));
    }

    /// Lets time pass; everything that falls due on the way is done when it is due.
    pub fn wait(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(due) = self.core.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.event(Event::Tick);
        }
        self.now = end;
    }

    /// The outcome of a job that has ended.
    pub fn outcome(&self, job: JobId) -> Option<OutcomeCode> {
        self.ended.get(&job).map(|ended| ended.outcome)
    }

    /// The human sentence of a job that has failed.
    ///
    /// # Panics
    /// If it has not.
    pub fn message(&self, job: JobId) -> &str {
        let ended = self.ended.get(&job).unwrap_or_else(|| panic!("{job} has not ended"));
        &ended.error.as_ref().expect("a failure").message
    }
}

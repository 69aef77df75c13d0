//! The documents behind `status`, `workers`, `jobs` and `tasks`, made from the state of the hub and the core.

use super::Hub;
use super::explain::open_state;
use super::finished::Record;
use super::live_jobs::micros;
use crate::limits::CLIENTS_SHOWN_MAX;
use crate::views::{
    ClientView, DeadCounts, IoPoolView, JobView, KeptCounts, LedgerView, LoopView, OpenState, Percentiles,
    ProgramView, QueueCounts, SlowCallback, Status, TaskView, TasksSummary, WaitEstimate, WorkerCounts,
    WorkerView,
};
use crate::workers::Confinement;
use offload_core::Phase;
use offload_core::clients::Account;
use offload_core::ids::{JobId, SlotIndex};
use offload_core::jobs::{Job, JobState};
use offload_core::registry::Task;
use offload_core::slots::{Load, Retire, Role, Running, Slot, SlotState};
use offload_protocol::nouns::{DescribedTask, Labels, OutcomeCode, TaskOffer};
use std::collections::BTreeMap;

impl Hub {
    pub(crate) fn status(&self, io_pool: IoPoolView) -> Status {
        let (waiting, _) = self.core.waiting_and_running();
        let config = self.core.config();
        let programs = self.program_views();
        let reason = programs.iter().find_map(|program| program.reason.clone());
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.time.uptime().as_secs_f64(),
            state: self.state().to_owned(),
            reason,
            programs,
            workers: self.worker_counts(),
            wait_estimate: self.wait_estimate(),
            clients: self.client_views(),
            paused: self.paused(),
            queue: QueueCounts {
                jobs: waiting,
                bytes: self.core.ledger().all().in_memory(),
                max_jobs: config.max_jobs,
                max_bytes: config.max_bytes,
                segment_bytes: self.segments.bytes(),
                files: self.core.files().open(),
            },
            kept: self.kept_counts(),
            dead_letters: self.dead_counts(),
            jobs: self.job_counts(),
            rejections: self.rejections(),
            ledger: LedgerView { balanced: self.core.is_balanced() },
            event_loop: self.loop_view(),
            io_pool,
        }
    }

    /// The state of the supervisor in one word, as [`Status::state`] has it.
    pub(crate) fn state(&self) -> &'static str {
        let is_degraded = || (0..self.launches.program_count()).any(|it| self.core.trouble(it).is_some());
        match self.core.phase() {
            Phase::Running if is_degraded() => "degraded",
            Phase::Running if !self.core.knows_all_tasks() => "starting",
            Phase::Running => "running",
            Phase::Draining { .. } => "draining",
            Phase::Stopping | Phase::Over => "stopped",
        }
    }

    fn program_views(&self) -> Vec<ProgramView> {
        let is_ready =
            |program| self.core.slots().iter().any(|slot| slot.program == program && slot.is_ready());
        let view = |program| {
            let reason = self.core.trouble(program).map(str::to_owned);
            let state = match &reason {
                Some(_) => "degraded",
                None if is_ready(program) => "ready",
                None => "starting",
            };
            ProgramView {
                program: self.program_name(program).to_owned(),
                state: state.to_owned(),
                failed_starts: self.core.failed_starts(program),
                reason,
                hint: self
                    .core
                    .slots()
                    .iter()
                    .filter(|slot| slot.program == program)
                    .find_map(|slot| self.silence_of(slot)),
                refuses: self.core.refuses(program),
            }
        };
        (0..self.launches.program_count()).map(view).collect()
    }

    fn wait_estimate(&self) -> WaitEstimate {
        let estimates = self.core.wait_estimates();
        let error = |percent| estimates.error.quantile(percent).map_or(0, micros);
        WaitEstimate {
            now_us: micros(self.core.longest_wait(self.now())),
            checked: estimates.checked,
            error_p50_us: error(50),
            error_p90_us: error(90),
        }
    }

    fn client_views(&self) -> Vec<ClientView> {
        let mut clients: Vec<_> = self.core.clients().active().collect();
        clients.sort_by_key(|account| std::cmp::Reverse((account.used, account.jobs)));
        let view = |account: &Account| ClientView {
            client: account.name.to_string(),
            weight: account.weight,
            jobs: account.jobs,
            waiting: account.waiting,
            bytes: self.core.ledger().of(&account.name).in_memory(),
        };
        clients.into_iter().take(CLIENTS_SHOWN_MAX).map(view).collect()
    }

    fn worker_counts(&self) -> WorkerCounts {
        let count = |role: Role, is: fn(&Slot) -> bool| {
            self.core.slots().iter().filter(|slot| slot.role == role && is(slot)).count()
        };
        WorkerCounts {
            configured: self.core.config().workers,
            ready: count(Role::Work, Slot::is_ready),
            busy: count(Role::Work, |slot| matches!(slot.state, SlotState::Busy { .. })),
            spares: count(Role::Spare, Slot::is_ready),
            restarts: self.core.tally().restarts(),
            prefetched: self.core.tally().prefetched(),
            taken_back: self.core.tally().taken_back(),
            batches: self.core.tally().batches().0,
            batched_jobs: self.core.tally().batches().1,
            halved_batches: self.core.tally().halved(),
        }
    }

    fn job_counts(&self) -> BTreeMap<String, u64> {
        let tally = self.core.tally();
        let (waiting, running) = self.core.waiting_and_running();
        let mut counts: BTreeMap<String, u64> = OutcomeCode::ALL
            .iter()
            .filter(|code| **code != OutcomeCode::NoSuchJob)
            .map(|code| (code.as_str().to_owned(), tally.ended(*code)))
            .collect();
        counts.insert("accepted".to_owned(), tally.accepted());
        counts.insert("rejected".to_owned(), tally.rejected());
        counts.insert("queued".to_owned(), waiting as u64);
        counts.insert("running".to_owned(), running as u64);
        counts
    }

    fn rejections(&self) -> BTreeMap<String, u64> {
        let counted = OutcomeCode::ALL.iter().map(|code| (code, self.core.tally().rejected_as(*code)));
        counted
            .filter(|(_, count)| *count > 0)
            .map(|(code, count)| (code.as_str().to_owned(), count))
            .collect()
    }

    fn kept_counts(&self) -> KeptCounts {
        let (promises, config) = (self.core.promises(), self.core.config());
        let all = promises.kept().all();
        KeptCounts {
            jobs: all.count,
            bytes: all.bytes,
            max_bytes: config.max_kept_bytes,
            max_bytes_per_client: config.kept_bytes_of_one(),
            held: promises.held_count(),
        }
    }

    fn dead_counts(&self) -> DeadCounts {
        let letters = self.core.letters();
        let all = letters.kept().all();
        DeadCounts { letters: all.count, bytes: all.bytes, not_kept: letters.not_kept() }
    }

    fn loop_view(&self) -> LoopView {
        let metrics = self.handle.metrics();
        LoopView {
            iterations: metrics.iterations,
            lag_us: Percentiles { p50: metrics.lag.p50_us, p99: metrics.lag.p99_us, max: metrics.lag.max_us },
            slowest_callback: metrics
                .slowest_callback
                .map(|slowest| SlowCallback { site: slowest.site.to_string(), us: micros(slowest.duration) }),
        }
    }

    pub(crate) fn workers(&self) -> Vec<WorkerView> {
        let slots = self.core.slots();
        (0..slots.len()).filter(|&slot| slots[slot].is_there()).map(|slot| self.worker_view(slot)).collect()
    }

    /// What runs there; of several jobs the first one that somebody wants.
    fn running_here(&self, load: &Load) -> Option<Running> {
        let wanted = |running: &&Running| self.core.jobs().get(running.job).is_some();
        load.running.iter().chain(&load.together).find(wanted).copied().or(load.running)
    }

    pub(super) fn worker_view(&self, index: SlotIndex) -> WorkerView {
        let slot = &self.core.slots()[index];
        let is_spare = slot.role == Role::Spare;
        let worker = slot.worker();
        let running = slot.load().and_then(|load| self.running_here(load));
        let job = running.map(|running| running.job);
        let confinement = worker.and_then(|worker| self.processes.confinement(worker));
        WorkerView {
            slot: index,
            program: self.program_name(slot.program).to_owned(),
            pid: worker.and_then(|worker| self.processes.pid(worker)),
            incarnation: slot.incarnation,
            state: if is_spare && slot.is_ready() { "spare" } else { slot.word() }.to_owned(),
            job: job.map(|job| self.name(job)),
            task: job
                .and_then(|job| self.core.jobs().get(job))
                .map(|job| self.core.task_name(job).to_string()),
            batch: worker.and_then(|worker| several(self.core.batch_of(worker))),
            running_us: running.map(|running| micros(self.now() - running.started_at)),
            jobs_done: slot.jobs_done,
            rss_bytes: worker.and_then(|worker| self.processes.resident_bytes(worker)),
            restarts: slot.ended,
            last_exit: slot.last_exit.clone(),
            tier: confinement.as_ref().and_then(Confinement::tier),
            confinement: confinement.and_then(|confinement| serde_json::to_value(confinement).ok()),
            progress: job
                .and_then(|job| self.core.jobs().get(job)?.past.progress)
                .map(|progress| (progress.done, progress.total)),
            retires: retirement(slot).map(str::to_owned),
            hint: self.silence_of(slot),
        }
    }

    pub(super) fn ended_job_view(record: &Record) -> JobView {
        let report = &record.report;
        JobView {
            job: report.job.to_text(),
            task: report.task.to_string(),
            client: record.client.to_string(),
            state: report.outcome.to_string(),
            attempts: report.attempts,
            age_us: record.age_us,
            slot: (report.receipt.worker_pid != 0).then_some(report.receipt.slot as usize),
            batch: several(record.together),
            input_bytes: report.receipt.input_bytes,
            error: report.error.as_ref().map(|error| error.message.clone()),
            labels: report.labels(),
        }
    }

    pub(super) fn live_job_view(&self, id: JobId, job: &Job) -> JobView {
        let worker = match job.state {
            JobState::Parked | JobState::Queued | JobState::Held => None,
            JobState::Paused | JobState::Here { .. } => None,
            JobState::Assigned { worker, .. } | JobState::Running { worker, .. } => Some(worker),
        };
        JobView {
            job: self.name(id),
            task: self.core.task_name(job).to_string(),
            client: self.core.account_of(job).to_string(),
            state: self.listed_state(job).as_str().to_owned(),
            attempts: job.attempts_had(),
            age_us: micros(self.now() - job.accepted_at),
            slot: worker.and_then(|worker| self.core.home_of(worker)),
            batch: worker.and_then(|worker| several(self.core.batch_of(worker))),
            input_bytes: job.input_bytes,
            error: None,
            labels: self.labels_of(id),
        }
    }

    /// The state of a job that has not ended, as lists have it.
    pub(super) fn listed_state(&self, job: &Job) -> OpenState {
        let is_paused = job.task.is_some_and(|task| self.core.pauses().holds(task));
        open_state(job.state, is_paused).in_lists()
    }

    /// The labels of a job that has not ended.
    pub(super) fn labels_of(&self, id: JobId) -> Labels {
        self.records.live(id).map(|live_job| live_job.labels()).unwrap_or_default()
    }

    pub(crate) fn tasks(&self) -> Vec<TaskView> {
        self.core.registry().on_offer().map(|task| self.task_view(task)).collect()
    }

    pub(crate) fn tasks_summary(&self) -> TasksSummary {
        let registry = self.core.registry();
        let version = registry.version() + self.introductions.changes();
        TasksSummary { count: registry.on_offer_count(), version }
    }

    pub(crate) fn task(&self, name: &str) -> Option<TaskView> {
        let registry = self.core.registry();
        registry.find(name).map(|index| self.task_view(registry.task(index)))
    }

    pub(super) fn task_view(&self, task: &Task) -> TaskView {
        let offer = TaskOffer {
            idempotent: task.promise.idempotent,
            lane: task.lane,
            stepped: task.promise.is_stepped,
            checkpoints: task.promise.yields,
            batching: self.core.batching_of(task),
            ..TaskOffer::new(&*task.name)
        };
        let unknown = DescribedTask::default();
        let described = self.introductions.described(task.program, &task.name).unwrap_or(&unknown);
        TaskView::new(&offer, described, self.program_name(task.program))
    }
}

/// How many jobs are together, if they are several.
pub(super) fn several(jobs: u32) -> Option<u32> {
    (jobs > 1).then_some(jobs)
}

fn retirement(slot: &Slot) -> Option<&'static str> {
    match (slot.role, slot.tenure.retire()) {
        (_, Some(Retire::Reload)) => Some("reload"),
        (Role::Surplus, _) => Some("surplus"),
        (_, Some(Retire::Jobs)) => Some("jobs"),
        (_, Some(Retire::Age)) => Some("age"),
        (_, Some(Retire::Memory)) => Some("memory"),
        (_, None) => None,
    }
}

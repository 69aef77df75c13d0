//! Jobs that this process does itself, on the threads of an I/O pool. What they are is in `io_tasks.rs`, and when which of
//! them is done is up to the core.
//!
//! ```text
//!   RunHere  ---> a task of the pool, with the time after which its thread is given up ---.
//!   StopHere ---> the task is cancelled: at once, or after the part that runs             |
//!   core <------- RanHere <------- done, failed, cancelled, given up <--------------------'
//! ```

use super::{Hub, Payload, PendingEvent};
use crate::io_tasks::{self, IoEnd, IoTask, Root};
use offload_core::event::Event;
use offload_core::here::TasksHere;
use offload_core::ids::JobId;
use offload_event_loop::io_pool::{IoPool, TaskId};
use offload_protocol::nouns::OutcomeCode;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// The name that `tasks` shows in place of a program.
pub(super) const SUPERVISOR: &str = "supervisor";

/// What the jobs are done with.
pub(crate) struct IoTools {
    root: Root,
    io_pool: Rc<IoPool>,
}

impl IoTools {
    /// With the threads of this pool, and the files below this directory.
    ///
    /// # Errors
    /// A sentence that says why these files cannot be read.
    pub(crate) fn new(root: &Path, io_pool: Rc<IoPool>) -> Result<IoTools, String> {
        let opened = Root::open(root);
        let root = opened.map_err(|error| format!("io.root {}: {error}", root.display()))?;
        Ok(IoTools { root, io_pool })
    }

    /// What the core has to know. The slow lane of a pool has half of its threads.
    pub(super) fn tasks(&self) -> TasksHere {
        let offers = io_tasks::offers().into_iter().map(|(offer, _)| offer).collect();
        TasksHere { offers, places: self.io_pool.stats().threads.div_ceil(2).max(1) }
    }
}

/// The jobs that are done here.
#[derive(Default)]
pub(super) struct JobsHere {
    tools: Option<IoTools>,
    running: BTreeMap<JobId, TaskId>,
}

impl JobsHere {
    pub(super) fn with(tools: Option<IoTools>) -> JobsHere {
        JobsHere { tools, running: BTreeMap::new() }
    }
}

impl Hub {
    /// Notes what the tasks say of themselves, for whoever asks.
    pub(super) fn describe_here(&mut self) {
        if self.here.tools.is_some() {
            let described = io_tasks::offers().into_iter();
            let described =
                described.map(|(offer, described)| (offer.name.into_owned(), described)).collect();
            self.introductions.describe(self.core.config().programs, described);
        }
    }

    pub(super) fn run_here(&mut self, job: JobId, within: Duration) {
        match self.begin_here(job, within) {
            Ok(task) => drop(self.here.running.insert(job, task)),
            Err(message) => self.push_ran_here(job, Err((OutcomeCode::AppError, message))),
        }
    }

    fn begin_here(&self, job: JobId, within: Duration) -> Result<TaskId, String> {
        let live = self.core.jobs().get(job).zip(self.records.live(job));
        let Some(((asked, live_job), tools)) = live.zip(self.here.tools.as_ref()) else {
            return Err("this supervisor does no such tasks".to_owned());
        };
        let task = IoTask::of(self.core.task_name(asked), live_job.input.bytes())?;
        let max_bytes = usize::try_from(self.core.config().max_payload).unwrap_or(usize::MAX);
        let me = self.me.clone();
        let done = move |end| Hub::with(&me, |hub| hub.ran_here(job, end));
        Ok(task.submit(&tools.io_pool.within(within), &tools.root, max_bytes, done))
    }

    pub(super) fn stop_here(&mut self, job: JobId) {
        if let (Some(&task), Some(tools)) = (self.here.running.get(&job), &self.here.tools) {
            tools.io_pool.cancel(task);
        }
    }

    fn ran_here(&mut self, job: JobId, end: IoEnd) {
        self.here.running.remove(&job);
        self.push_ran_here(job, end);
        self.drain_inbox();
    }

    fn push_ran_here(&mut self, job: JobId, end: IoEnd) {
        let (result, payload) = match end {
            Ok((media_type, bytes)) => (Ok(bytes.len() as u64), Payload { media_type, bytes }),
            Err(failure) => (Err(failure), Payload::default()),
        };
        self.inbox.push_back(PendingEvent { event: Event::RanHere { job, result }, payload });
    }
}

//! Messages that the shell has not yet written to a fake worker: the worker cannot know of them, and the shell knows
//! which these are.

use crate::process::{FakeProcess, Said, ToFake};
use crate::world::Outside;
use offload_core::event::Event;
use offload_core::ids::JobId;

impl ToFake {
    /// The job that it brings.
    fn job(self) -> Option<JobId> {
        match self {
            ToFake::Run(given) => Some(given.job),
            ToFake::Cancel(_) | ToFake::Yield(_) | ToFake::Credit(..) | ToFake::Drain => None,
        }
    }
}

impl FakeProcess {
    /// The next message is written.
    pub(crate) fn write(&mut self, out: &mut Outside) {
        if let Some(message) = self.unwritten.pop_front() {
            self.put_on_its_way(message, out);
        }
    }

    /// What the shell has not written is thrown away. Returns what it tells the core, if jobs were among it.
    pub(crate) fn condemn(&mut self) -> Option<Said> {
        let jobs: Vec<JobId> = self.unwritten.drain(..).filter_map(ToFake::job).collect();
        let is_any = !jobs.is_empty();
        is_any.then_some(Said { event: Event::Unsent { worker: self.id, jobs }, is_honest: true })
    }

    /// Whether the shell knows that it cannot know of this job.
    pub(crate) fn has_not_seen(&self, job: JobId) -> bool {
        self.unwritten.iter().any(|&message| message.job() == Some(job))
    }
}

/// The job of whose run the event tells.
pub(crate) fn job_of(event: &Event) -> Option<JobId> {
    match event {
        Event::Started { job, .. }
        | Event::Finished { job, .. }
        | Event::Failed { job, .. }
        | Event::Progress { job, .. }
        | Event::Checkpoint { job, .. }
        | Event::Part { job, .. }
        | Event::Yielded { job, .. } => Some(*job),
        _ => None,
    }
}

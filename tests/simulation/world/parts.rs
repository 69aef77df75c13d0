//! What the shell does with the parts of outputs, and what the readers of streams do.
//!
//! ```text
//!   PassOn ---> unread ---- the reader takes it: Delivered ---> written to its socket ---> Released
//!   Collect --> collected --- the job ends, or is run again ---> Released
//! ```

use super::{Thing, World};
use crate::choices::Tape;
use crate::oracle::Failure;
use offload_core::action::Action;
use offload_core::event::Event;
use offload_core::ids::{JobId, WorkerId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The parts of one job that are here.
#[derive(Debug, Default)]
struct PartsHere {
    collected: u64,
    unread: VecDeque<u64>,
    is_abandoned: bool,
}

/// The parts of all jobs, and the choices of those who read them.
pub(super) struct Readers {
    parts: BTreeMap<JobId, PartsHere>,
    /// The jobs whose outputs are read in parts.
    pub(super) streams: BTreeSet<JobId>,
    tape: Tape,
}

impl Readers {
    pub(super) fn new() -> Readers {
        Readers { parts: BTreeMap::new(), streams: BTreeSet::new(), tape: Tape::new(1 << 34) }
    }
}

impl World {
    /// Sends a credit to a worker.
    pub(super) fn send_credit(&mut self, worker: WorkerId, job: JobId, bytes: u64) {
        if let Some(process) = self.processes.get_mut(&worker) {
            process.send_credit(job, bytes, &mut self.out);
        }
    }

    fn client(&self, job: JobId) -> Arc<str> {
        self.client_of.get(&job).cloned().unwrap_or_default()
    }

    /// How long the client of a job takes to read something.
    pub(super) fn reading_time(&mut self, job: JobId) -> Duration {
        let time = self.script.readers.get(&*self.client(job)).copied().unwrap_or_default();
        match self.is_calm {
            true => Duration::ZERO,
            false => self.out.choices.delay(&mut self.tape, time),
        }
    }

    /// The same for a part. It changes no other choice of a seed.
    fn reading_time_of_part(&mut self, job: JobId) -> Duration {
        std::mem::swap(&mut self.tape, &mut self.readers.tape);
        let time = self.reading_time(job);
        std::mem::swap(&mut self.tape, &mut self.readers.tape);
        time
    }

    /// Keeps the part that came with an event, or passes it on, or drops what is there.
    pub(super) fn handle_parts(&mut self, event: &Event, actions: &[Action]) {
        let bytes = if let Event::Part { bytes, .. } = event { *bytes } else { 0 };
        for action in actions {
            match action {
                Action::Collect { job } => self.readers.parts.entry(*job).or_default().collected += bytes,
                Action::PassOn { job } => {
                    let here = self.readers.parts.entry(*job).or_default();
                    if !here.is_abandoned {
                        here.unread.push_back(bytes);
                        let at = self.out.now + self.reading_time_of_part(*job);
                        self.out.schedule(at, Thing::ReadPart(*job));
                    }
                }
                Action::DropParts { job } => self.drop_parts(*job),
                Action::Finish(ended) => {
                    let collected = self
                        .readers
                        .parts
                        .get_mut(&ended.job)
                        .map_or(0, |here| std::mem::take(&mut here.collected));
                    self.release(ended.job, collected);
                }
                _ => {}
            }
        }
        if let Event::Abandoned { job } = event {
            self.drop_parts(*job);
            self.readers.parts.entry(*job).or_default().is_abandoned = true;
        }
    }

    fn drop_parts(&mut self, job: JobId) {
        let Some(here) = self.readers.parts.get_mut(&job) else { return };
        let bytes = std::mem::take(&mut here.collected) + here.unread.drain(..).sum::<u64>();
        self.release(job, bytes);
    }

    fn release(&mut self, job: JobId, bytes: u64) {
        if bytes > 0 {
            self.out.schedule(self.out.now, Thing::OutputRead(self.client(job), bytes));
        }
    }

    /// The reader of a stream takes the next part. It is held until it is written to the reader's socket.
    pub(super) fn read_part(&mut self, job: JobId) -> Result<(), Failure> {
        let part = self.readers.parts.get_mut(&job).and_then(|here| here.unread.pop_front());
        let Some(bytes) = part else { return Ok(()) };
        let at = self.out.now + self.reading_time_of_part(job);
        self.out.schedule(at, Thing::OutputRead(self.client(job), bytes));
        self.tell(Event::Delivered { job, bytes }, true)
    }
}

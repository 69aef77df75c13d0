//! Events about a process after its exit was reported. The shell never sends such events; the core must ignore them.

use crate::faults::Fault;
use crate::process::FakeProcess;
use crate::world::Outside;
use offload_core::event::Event;
use offload_core::exit::Exit;
use offload_core::ids::JobId;
use offload_protocol::nouns::{FailureKind, Usage};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

impl FakeProcess {
    /// Something that is heard of it although its exit was told already.
    pub(crate) fn ghost(&mut self, out: &mut Outside) -> Option<Event> {
        let worker = self.id;
        let job = JobId(1 + self.runs);
        let events = [
            Event::Closed { worker },
            Event::Exited { worker, exit: Exit::Unknown, last_lines: Vec::new(), usage: None },
            Event::Started { worker, job, attempt: 1 },
            Event::Finished { worker, job, attempt: 1, run: MS, usage: Usage::default(), output_bytes: 0 },
            Event::Failed {
                worker,
                job,
                attempt: 1,
                run: MS,
                kind: FailureKind::Panic,
                message: String::new(),
                usage: Usage::default(),
            },
            Event::Progress { worker, job, attempt: 1, done: 1, total: 2 },
            Event::Part { worker, job, attempt: 1, bytes: 1 },
            Event::Delivered { job, bytes: 1 },
            Event::Checkpoint { worker, job, attempt: 1, bytes: 1 },
            Event::Yielded { worker, job, attempt: 1, run: MS, bytes: 1 },
            Event::Stopped { worker },
            Event::Continued { worker },
            Event::Measured { worker, resident_bytes: 1 << 40 },
            Event::Hello { worker, tasks: Vec::new(), takes_files: true },
            Event::Skipped { worker, job },
            Event::NotBegun { worker, job, attempt: 1 },
            Event::BrokeRules { worker, of_another: true, how: String::new() },
            Event::Unfit { worker, message: String::new() },
            Event::Violation { worker, message: String::new() },
            Event::Garbled { worker, message: String::new() },
            Event::TrayMade { worker },
            Event::TrayFailed { worker },
            Event::TakenBack { worker, job },
            Event::NotInTray { worker, job },
            Event::Unsent { worker, jobs: vec![job] },
            Event::Launched { worker },
            Event::SpawnFailed { worker, fatal: true, message: String::new() },
        ];
        self.strikes(Fault::Ghost, out).then(|| out.choices.pick(&mut self.tape, &events))
    }
}

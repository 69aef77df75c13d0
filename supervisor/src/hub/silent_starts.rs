//! Workers that run and have not said hello for a while. Some programs only take long to start, so none is ended for it before
//! its `hello_timeout`. But whoever has named the wrong program is told soon, by the log and by the views.

use super::Hub;
use crate::limits::SILENT_START;
use crate::log::{Level, LineKind};
use offload_core::ids::WorkerId;
use offload_core::slots::{Slot, SlotState};

impl Hub {
    /// Tells the log of programs whose workers are silent: once, until one of their workers is ready.
    pub(super) fn tell_of_silent_starts(&mut self) {
        let silent: Vec<_> = self
            .core
            .slots()
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| Some((index, slot.program, self.silence_of(slot)?)))
            .collect();
        for (index, program, hint) in silent {
            if self.start_failures.note_silence(program) {
                let name = self.program_name(program);
                let line = format!("slot {index}: no hello from program `{name}` yet: {hint}");
                self.log.say(LineKind::Named("silent workers"), Level::Normal, format_args!("{line}"));
            }
        }
    }

    /// What the program of this slot looks like, if its worker has been silent for too long.
    pub(super) fn silence_of(&self, slot: &Slot) -> Option<String> {
        let SlotState::Starting { worker, since, .. } = slot.state else { return None };
        let is_running = self.processes.pid(worker).is_some();
        let is_late = self.now() - since >= SILENT_START;
        let is_silent = is_running && is_late && !self.introductions.has_begun(worker);
        is_silent.then(|| self.looks_like(worker).to_owned())
    }

    fn looks_like(&self, worker: WorkerId) -> &'static str {
        match self.processes.first_printed(worker) {
            Some(b'{') => {
                "it printed JSON to standard output and never said hello: with --worker-jsonl, lines are written to descriptor 4"
            }
            Some(_) => "it printed to standard output and never said hello: is it a program for --exec?",
            None => {
                "it has printed nothing: it takes long to start, or it waits for an input, as a program for --exec does; one for \
                 --worker-jsonl has to write its hello to descriptor 4 and to flush that"
            }
        }
    }
}

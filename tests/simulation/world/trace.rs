//! The record of a run: lines for people, and a digest by which two runs are compared.

use super::World;
use crate::choices::mix;
use offload_core::action::Action;
use offload_core::event::Event;
use offload_core::ids::Mono;
use std::fmt::Debug;

impl World {
    pub(super) fn write_down(&mut self, line: impl FnOnce() -> String, told: &dyn Debug, actions: &[Action]) {
        let now = self.out.now;
        if self.plan.with_trace {
            self.verdict.trace.push(format!("{:>15.6} ms  {}", millis(now), line()));
            self.verdict.trace.extend(actions.iter().map(|action| format!("{:>22}{action:?}", "-> ")));
        }
        if self.plan.with_digest {
            let text = format!("{now:?}{told:?}{actions:?}");
            self.verdict.digest = mix(self.verdict.digest ^ text_digest(&text));
        }
    }
}

pub(super) fn describe(event: &Event) -> String {
    match event {
        Event::Hello { worker, tasks, takes_files } => {
            let names: Vec<&str> = tasks.iter().map(|task| &*task.name).collect();
            format!("Hello {{ worker: {worker:?}, tasks: {names:?}, takes_files: {takes_files} }}")
        }
        _ => format!("{event:?}"),
    }
}

fn millis(time: Mono) -> f64 {
    time.as_nanos() as f64 / 1e6
}

fn text_digest(text: &str) -> u64 {
    text.bytes().fold(0, |digest: u64, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

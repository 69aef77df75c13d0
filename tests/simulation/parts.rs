//! Fake workers that answer in parts, as far as they have credit, and the readers of these parts.

use crate::faults::Fault;
use crate::process::{FakeProcess, Stage, ToFake};
use crate::running::Run;
use crate::script::TASKS;
use crate::world::Outside;
use offload_core::event::Event;
use offload_core::ids::JobId;
use offload_protocol::limits::{PART_MAX, PARTS_CREDIT};

const PART: u64 = PART_MAX as u64;

/// The parts that one run sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// How many are left.
    left: u64,
    bytes: u64,
    credit: u64,
}

impl Parts {
    /// No parts.
    pub(crate) const NONE: Parts = Parts { left: 0, bytes: 0, credit: PARTS_CREDIT };
}

impl FakeProcess {
    /// What is done about parts takes its choices from a tape of its own, so that it changes no other choice of a seed.
    fn on_the_tape_of_parts(&mut self, what: impl FnOnce(&mut FakeProcess)) {
        std::mem::swap(&mut self.tape, &mut self.parts_tape);
        what(self);
        std::mem::swap(&mut self.tape, &mut self.parts_tape);
    }

    /// Whether it takes no inputs that are files. That was added after parts, on the same tape.
    pub(crate) fn is_without_files(&mut self, out: &mut Outside) -> bool {
        let mut takes_none = false;
        self.on_the_tape_of_parts(|process| takes_none = process.strikes(Fault::TakesNoFiles, out));
        takes_none
    }

    /// The supervisor has sent a credit; it arrives later.
    pub(crate) fn send_credit(&mut self, job: JobId, bytes: u64, out: &mut Outside) {
        self.on_the_tape_of_parts(|process| process.send(ToFake::Credit(job, bytes), out));
    }

    /// Decides whether a run sends parts. Where outputs would disturb what is watched there are none.
    pub(crate) fn plan_parts(&mut self, task: usize, is_stream: bool, out: &mut Outside) -> Parts {
        let most = out.output_max;
        if TASKS[task].is_stepped || most == 0 || !out.choices.chance(&mut self.parts_tape, 250) {
            return Parts::NONE;
        }
        let (number, sizes) = match is_stream {
            true => (12, [PART, 10, PART / 2, 1, PART]),
            false => (6, [10, 1, (most / 4).clamp(1, PART), (most / 2).clamp(1, PART), PART]),
        };
        let left = out.choices.range(&mut self.parts_tape, 1, number);
        Parts { left, bytes: out.choices.pick(&mut self.parts_tape, &sizes), ..Parts::NONE }
    }

    /// Sends the parts for which the running job has credit.
    pub(crate) fn send_parts(&mut self, out: &mut Outside) {
        while let Stage::Running(run) = &mut self.stage
            && run.parts.left > 0
            && run.parts.credit >= run.parts.bytes
        {
            run.parts.left -= 1;
            run.parts.credit -= run.parts.bytes;
            let (worker, job, attempt, bytes) = (self.id, run.job, run.attempt, run.parts.bytes);
            let part = Event::Part { worker, job, attempt, bytes };
            self.on_the_tape_of_parts(|process| process.say(true, part, out));
        }
    }

    /// Sends a part that no honest worker sends.
    pub(crate) fn send_a_wrong_part(&mut self, run: Run, out: &mut Outside) {
        if !out.plan.strikes(Fault::WrongPart, &mut out.choices, &mut self.parts_tape) {
            return;
        }
        let Run { job, attempt, .. } = run;
        // What is over all credit is over what is left of it.
        let wrong = [
            (job, attempt, 0),
            (job, attempt, PART + 1),
            (JobId(job.0 + 1), attempt, 1),
            (job, attempt + 1, 1),
        ];
        let (job, attempt, bytes) = out.choices.pick(&mut self.parts_tape, &wrong);
        let part = Event::Part { worker: self.id, job, attempt, bytes };
        self.on_the_tape_of_parts(|process| process.say(false, part, out));
    }

    /// The supervisor has given credit to a job.
    pub(crate) fn hear_credit(&mut self, job: JobId, bytes: u64, out: &mut Outside) {
        if let Stage::Running(run) = &mut self.stage
            && run.job == job
        {
            run.parts.credit += bytes;
        }
        self.send_parts(out);
    }
}

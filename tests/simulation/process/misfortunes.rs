//! What befalls a process from outside, or by chance.

use super::{Act, FakeProcess, MS, Misfortune, Stage};
use crate::faults::Fault;
use crate::world::Outside;
use offload_core::event::Event;
use offload_core::exit::Exit;

impl FakeProcess {
    pub(super) fn suffer(&mut self, misfortune: Misfortune, out: &mut Outside) {
        match misfortune {
            Misfortune::Dies(exit) => self.die(exit, out),
            Misfortune::DiesIdle if self.stage == Stage::Waiting => self.crash(out),
            Misfortune::DiesRunning(run) if run == self.runs => self.crash(out),
            Misfortune::DiesIdle | Misfortune::DiesRunning(_) => {}
            Misfortune::Stops => self.stop(out),
            Misfortune::BreaksRules(run) if run.is_none_or(|run| run == self.runs) => self.break_rules(out),
            Misfortune::BreaksRules(_) => {}
            Misfortune::ClosesChannel => {
                self.say(true, Event::Closed { worker: self.id }, out);
                self.has_closed_channel = true;
                self.runs += 1;
                self.stage = Stage::Stuck;
            }
            Misfortune::SendsGarbage => {
                let (worker, message) = (self.id, "garbage".to_owned());
                match out.choices.chance(&mut self.tape, 500) {
                    true => self.say(false, Event::Garbled { worker, message }, out),
                    false => self.say(false, Event::Violation { worker, message }, out),
                }
            }
        }
    }

    fn stop(&mut self, out: &mut Outside) {
        if !matches!(self.stage, Stage::Waiting | Stage::Running(_)) || self.is_stopped {
            return;
        }
        self.runs += 1;
        self.is_stopped = true;
        self.say(true, Event::Stopped { worker: self.id }, out);
        if !self.strikes(Fault::StaysStopped, out) {
            let delay = self.delay(1000 * MS, out);
            self.later(delay, Act::Continue, out);
        }
    }

    pub(super) fn go_on(&mut self, out: &mut Outside) {
        if !std::mem::take(&mut self.is_stopped) {
            return;
        }
        self.say(true, Event::Continued { worker: self.id }, out);
        match self.stage {
            _ if self.has_term_pending => self.die(Exit::Signal(15), out),
            Stage::Running(_) => self.later(MS, Act::RunEnds(self.runs), out),
            Stage::Waiting => self.take_next(out),
            _ => {}
        }
    }

    /// The program behind it does what it must not: with the job that runs, or with another one.
    fn break_rules(&mut self, out: &mut Outside) {
        if !matches!(self.stage, Stage::Waiting | Stage::Running(_)) || self.is_stopped {
            return;
        }
        let of_another = out.choices.chance(&mut self.tape, 500);
        let how = "its program answered twice".to_owned();
        self.say(true, Event::BrokeRules { worker: self.id, of_another, how }, out);
        self.crash(out);
    }
}

//! What the core is told, and when it settles. As within one turn of its loop, the shell may tell it of several requests, starts
//! and ends before it has it settle. Everything else that happens is told after that.

use super::World;
use super::trace::describe;
use crate::choices::{Choices, Tape};
use crate::oracle::Failure;
use crate::process::Said;
use offload_core::action::{Action, Actions};
use offload_core::event::Event;
use std::cmp::Reverse;
use std::time::Duration;

/// How much later the next thing may come that is still settled together with those before.
const TURN: Duration = Duration::from_micros(200);

/// How often the shell leaves the core unsettled.
pub(super) struct Turns {
    per_mille: u16,
    tape: Tape,
}

impl Turns {
    pub(super) fn new(choices: &mut Choices) -> Turns {
        let mut tape = Tape::new(4);
        Turns { per_mille: choices.pick(&mut tape, &[0, 300, 950]), tape }
    }
}

impl World {
    /// Tells the core of an event, and of what follows at once.
    pub(super) fn tell(&mut self, event: Event, is_honest: bool) -> Result<(), Failure> {
        if matches!(event, Event::Tick) {
            self.take_all_back()?;
        }
        self.soon.push_back(Said { event, is_honest });
        self.tell_what_follows()
    }

    pub(super) fn tell_what_follows(&mut self) -> Result<(), Failure> {
        while let Some(said) = self.soon.pop_front() {
            self.tell_one(said)?;
        }
        self.expect_end_of_turn();
        Ok(())
    }

    fn tell_one(&mut self, Said { event, is_honest }: Said) -> Result<(), Failure> {
        self.settle_before(&event)?;
        let now = self.out.now;
        self.count(now)?;
        self.verdict.coverage.see(&self.core, &event);
        let actions = self.handle(event.clone());
        let mark = if is_honest { "" } else { "  (a lie)" };
        self.write_down(|| format!("{}{mark}", describe(&event)), &event, &actions);
        self.out.oracle.see(now, &event, is_honest, &actions, &self.core)?;
        self.handle_parts(&event, &actions);
        self.check_and_apply(&actions)?;
        self.deliver_output(&event, &actions);
        self.out.complaint.take().map_or(Ok(()), Err)
    }

    pub(super) fn check_and_apply(&mut self, actions: &[Action]) -> Result<(), Failure> {
        self.core.check().map_err(|what| Failure { rule: "check", what })?;
        self.verdict.coverage.see_actions(actions);
        actions.iter().for_each(|action| self.apply(action));
        Ok(())
    }

    /// Tells the core of an event; perhaps what follows from it is decided later.
    fn handle(&mut self, event: Event) -> Actions {
        let mut actions = Actions::new();
        match self.is_put_off() {
            true => self.core.handle_unsettled(self.out.now, event, &mut actions),
            false => self.core.handle(self.out.now, event, &mut actions),
        }
        actions
    }

    /// Whether the core is not to settle yet. While it has not, it is not asked to because of one more start or end.
    pub(super) fn is_put_off(&mut self) -> bool {
        !self.core.is_settled() || self.out.choices.chance(&mut self.turns.tape, self.turns.per_mille)
    }

    /// The core settles, unless this event is one that it may be told of before that.
    fn settle_before(&mut self, event: &Event) -> Result<(), Failure> {
        if event.may_be_settled_later() { Ok(()) } else { self.settle() }
    }

    fn settle(&mut self) -> Result<(), Failure> {
        if self.core.is_settled() {
            return Ok(());
        }
        let now = self.out.now;
        let mut actions = Actions::new();
        self.core.settle(now, &mut actions);
        self.write_down(|| "settled".to_owned(), &"settled", &actions);
        self.out.oracle.see_settled(now, &actions, &self.core)?;
        self.handle_parts(&Event::Tick, &actions);
        self.check_and_apply(&actions)?;
        self.out.complaint.take().map_or(Ok(()), Err)
    }

    /// In an unsettled turn, what is next on the agenda happens if that is soon. Otherwise the turn ends: the core settles.
    /// Returns whether something has happened.
    pub(super) fn go_on_with_the_turn(&mut self) -> Result<bool, Failure> {
        if self.core.is_settled() {
            return Ok(false);
        }
        let end = self.out.now + TURN;
        let is_soon = self.out.agenda.peek().is_some_and(|Reverse(entry)| entry.at <= end);
        if is_soon && self.out.choices.chance(&mut self.turns.tape, 800) {
            if let Some(Reverse(entry)) = self.out.agenda.pop() {
                self.out.now = self.out.now.max(entry.at);
                self.happen_or_wait(entry.thing)?;
            }
            return Ok(true);
        }
        self.settle()?;
        self.tell_what_follows()?;
        Ok(true)
    }
}

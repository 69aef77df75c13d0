//! A drain without a time limit while there are jobs that no worker lives to start. It must end nevertheless. What is paused
//! would keep it from ending, and is resumed before.

use super::World;
use crate::oracle::Failure;
use crate::script::Wish;
use offload_core::Phase;
use offload_core::event::{Event, JobRequest};
use std::time::Duration;

/// Each of a hundred jobs may take the longest pause and more.
const PATIENCE_WITH_ALL: Duration = Duration::from_secs(3600);

impl World {
    /// What is paused would wait for ever.
    pub(super) fn end_pauses(&mut self) -> Result<(), Failure> {
        let pauses = self.core.pauses();
        match pauses.holds_everything() || pauses.names().next().is_some() {
            true => self.tell(Event::Resume { task: None }, true),
            false => Ok(()),
        }
    }

    /// Everything is well: a drain within the configured time. Sometimes there are requests in flight, which need jobs yet.
    pub(super) fn drain_at_the_end(&mut self) -> Result<(), Failure> {
        let limit = self.core.config().drain_timeout;
        let has_requests = self.out.choices.chance(&mut self.tape, 400);
        if has_requests {
            self.tell(Event::RequestsInFlight { some: true }, true)?;
        }
        self.tell(Event::Drain { limit: Some(limit) }, true)?;
        if !has_requests {
            return Ok(());
        }
        let end = self.out.now + limit;
        for of_request in [true, false, true] {
            let request = JobRequest { task: "sum".to_owned(), of_request, ..JobRequest::default() };
            self.script.wishes.push((self.out.now, Wish::Submit(request)));
            self.wish(self.script.wishes.len() - 1)?;
            self.go_on_until(end, |world| world.core.jobs().is_empty())?;
        }
        // What is left when the time is up is cut short.
        match self.out.choices.chance(&mut self.tape, 700) {
            true => self.tell(Event::RequestsInFlight { some: false }, true),
            false => Ok(()),
        }
    }

    /// That no worker lives to start some jobs is no reason for a drain without a limit not to end.
    pub(super) fn drain_the_guilty(&mut self) -> Result<(), Failure> {
        let is_chosen = self.script.is_mixed && self.out.choices.chance(&mut self.tape, 300);
        if !is_chosen || !self.out.plan.is_none() || self.core.phase() != Phase::Running {
            return Ok(());
        }
        self.tell(Event::Drain { limit: None }, true)?;
        self.go_on_until(self.out.now + PATIENCE_WITH_ALL, |world| world.core.phase() == Phase::Over)?;
        match self.core.phase() {
            Phase::Over => Ok(()),
            _ => Err(Failure { rule: "O19", what: format!("a drain does not end: {:#?}", self.core) }),
        }
    }
}

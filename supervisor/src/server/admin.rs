//! What those who run the supervisor ask for: why a job waits, what became of the dead ones, other programs.

use super::Front;
use crate::core::config::CoreConfig;
use crate::event_loop::Context;
use crate::pool::PoolConfig;
use crate::workers::Program;
use offload_protocol::messages::DeadDeed;
use offload_protocol::nouns::OutcomeCode;
use std::cell::RefCell;
use std::rc::{Rc, Weak};

/// Who is told what became of a reload.
type Told = Box<dyn FnOnce(&mut Front, Result<(), String>)>;

impl Front {
    pub(super) fn explain(&mut self, id: u64, ticket: u64, name: &str) {
        let explanation = {
            let hub = self.hub.borrow();
            hub.find(name).and_then(|job| hub.explain(job))
        };
        match explanation {
            Some(explanation) => self.answer(id, ticket, &explanation),
            None => self.reject_unknown(id, ticket, name),
        }
    }

    pub(super) fn dead(&mut self, id: u64, ticket: u64, deed: DeadDeed, name: &str) {
        let letter = {
            let hub = self.hub.borrow();
            hub.find(name).and_then(|job| Some((job, hub.dead_letter(job)?)))
        };
        let Some((job, letter)) = letter else {
            let message =
                "there is no dead letter of this job; `offload dead list` shows those that there are";
            return self.reject(id, ticket, OutcomeCode::NoSuchJob, message);
        };
        match deed {
            DeadDeed::Show => self.answer(id, ticket, &letter),
            DeadDeed::Drop => {
                self.hub.borrow_mut().drop_dead_letter(job);
                self.answer(id, ticket, &serde_json::json!({ "job": name, "dropped": true }));
            }
            DeadDeed::Retry => self.retry_dead(id, ticket, job, name),
        }
    }

    fn retry_dead(&mut self, id: u64, ticket: u64, job: crate::core::ids::JobId, name: &str) {
        let retried = self.hub.borrow_mut().retry_dead_letter(job);
        match retried {
            Some(Ok(submitted)) => {
                let again = self.hub.borrow().name(submitted.job);
                self.answer(id, ticket, &serde_json::json!({ "dead": name, "job": again }));
            }
            Some(Err(refused)) => self.refuse(id, ticket, &refused.error),
            None => self.reject_unknown(id, ticket, name),
        }
    }

    /// Reads the configuration again, if there is one, and replaces the workers.
    pub(super) fn reload_for(&mut self, id: u64, ticket: u64) {
        self.reload_workers(Box::new(move |front, result| match result {
            Ok(()) => front.answer(id, ticket, &serde_json::json!({ "reloaded": true })),
            Err(why) => {
                front.reject(id, ticket, OutcomeCode::Unavailable, &format!("the old workers stay: {why}"));
            }
        }));
    }

    fn reload_workers(&mut self, told: Told) {
        let Some(read) = self.reload.clone() else {
            let programs = self.programs.clone();
            return self.replace_workers(programs, told);
        };
        let me = self.me.clone();
        self.io_pool.submit(
            move || read(),
            move |_, read| {
                let config = read.map_err(|error| error.to_string()).and_then(|config| config);
                Front::with(&me, |front| match config.and_then(|config| front.check_programs(config)) {
                    Ok((core, programs)) => {
                        front.hub.borrow_mut().configure(core);
                        front.replace_workers(programs, told);
                    }
                    Err(why) => told(front, Err(why)),
                });
            },
        );
    }

    fn check_programs(&self, config: PoolConfig) -> Result<(CoreConfig, Vec<Program>), String> {
        let core = config.core();
        core.validate()?;
        let (is, was) = (config.programs.len(), self.programs.len());
        if is != was {
            return Err(format!("there were {was} worker programs and would be {is}: that needs a restart"));
        }
        Ok((core, config.programs))
    }

    fn replace_workers(&mut self, programs: Vec<Program>, told: Told) {
        self.programs.clone_from(&programs);
        let me = self.me.clone();
        let hub = Rc::clone(&self.hub);
        hub.borrow_mut()
            .reload(programs, Box::new(move |rolled_back, _: &mut Context| tell(&me, told, rolled_back)));
    }
}

fn tell(front: &Weak<RefCell<Front>>, told: Told, rolled_back: Option<String>) {
    Front::with(front, |front| told(front, rolled_back.map_or(Ok(()), Err)));
}

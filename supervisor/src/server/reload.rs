//! The configuration is read again and applied, and the workers are replaced by new ones: at `offload reload` and at
//! SIGHUP, which are the same.
//!
//! ```text
//!   asked ---> reading, on a thread ---> limits and times apply ---> the workers are replaced, one by one ---> answered
//!     |           ^                                                     ^
//!     '- meanwhile: reads once more,                                    '- meanwhile: replaced once more, by what was
//!        for all who asked                                                 read last, for all who asked
//! ```
//!
//! So however often it is asked for, one reading and one replacing are under way, and at most one of each waits. Whoever
//! asks is answered by a reading that began after they asked.

use super::Front;
use crate::pool::PoolConfig;
use crate::workers::Program;
use offload_core::config::CoreConfig;
use offload_event_loop::Context;
use offload_protocol::nouns::OutcomeCode;
use serde::Serialize;
use std::sync::Arc;

/// Reads the configuration again, on a thread.
pub type Reload = Arc<dyn Fn() -> Result<Configuration, String> + Send + Sync>;

/// What a reload has read.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The workers and their limits.
    pub pool: PoolConfig,
    /// Settings that apply only from a start on, as [`ServerConfig::fixed`](super::ServerConfig::fixed).
    pub fixed: Vec<FixedSetting>,
    /// Settings that are written down, and that somebody with more say has decided otherwise.
    pub overruled: Vec<Ignored>,
}

/// A setting that applies only from a start of the supervisor on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedSetting {
    /// The key as in the configuration file, with its table.
    pub key: &'static str,
    /// The value, as it would be written.
    pub value: String,
}

/// A setting that is written down and not in effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ignored {
    /// The key as in the configuration file, with its table.
    pub setting: String,
    /// The value in effect.
    pub in_effect: String,
    /// The value that was read.
    pub configured: String,
    /// Why it is not in effect.
    pub why: String,
}

/// Who asked for a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// SIGHUP.
    Signal,
    /// A client, with its number for the request.
    Client { id: u64, ticket: u64 },
}

/// What is under way, and who waits for what comes after it.
#[derive(Default)]
pub(super) struct Reloads {
    is_reading: bool,
    read_again: Vec<Asker>,
    is_replacing: bool,
    replace_again: Option<Replacement>,
}

/// What was read, for whom.
struct Replacement {
    programs: Vec<Program>,
    ignored: Vec<Ignored>,
    askers: Vec<Asker>,
}

impl Front {
    pub(super) fn reload(&mut self, asker: Asker) {
        if !self.reloads.is_reading {
            return self.read_configuration(vec![asker]);
        }
        let waiting = &mut self.reloads.read_again;
        if asker != Asker::Signal || !waiting.contains(&asker) {
            waiting.push(asker);
        }
    }

    fn read_configuration(&mut self, askers: Vec<Asker>) {
        let Some(read) = self.reload.clone() else {
            let programs = self.programs.clone();
            return self.replace_workers(Replacement { programs, ignored: Vec::new(), askers });
        };
        self.reloads.is_reading = true;
        let me = self.me.clone();
        self.io_pool.submit(
            move || read(),
            move |_, read| {
                let read = read.map_err(|error| error.to_string()).and_then(|read| read);
                Front::with(&me, |front| front.on_configuration(read, askers));
            },
        );
    }

    fn on_configuration(&mut self, read: Result<Configuration, String>, askers: Vec<Asker>) {
        self.reloads.is_reading = false;
        match read.and_then(|read| self.apply(read)) {
            Ok((programs, ignored)) => {
                self.replace_workers(Replacement { programs, ignored, askers });
            }
            Err(why) => self.answer_reload(&askers, &[], Some(&why)),
        }
        let askers = std::mem::take(&mut self.reloads.read_again);
        if !askers.is_empty() {
            self.read_configuration(askers);
        }
    }

    /// Limits and times apply from now on.
    fn apply(&mut self, read: Configuration) -> Result<(Vec<Program>, Vec<Ignored>), String> {
        let Configuration { pool, fixed, overruled } = read;
        let core = self.check(&pool)?;
        self.hub.borrow_mut().configure(core);
        let ignored = self.needs_restart(&fixed).into_iter().chain(overruled).collect();
        Ok((pool.programs, ignored))
    }

    fn check(&self, config: &PoolConfig) -> Result<CoreConfig, String> {
        let core = config.core();
        core.validate()?;
        self.descriptors.check(core.processes_max())?;
        let (is, was) = (config.programs.len(), self.programs.len());
        if is != was {
            return Err(format!("there were {was} worker programs and would be {is}: that needs a restart"));
        }
        Ok(core)
    }

    fn needs_restart(&self, read: &[FixedSetting]) -> Vec<Ignored> {
        let changed = |new: &FixedSetting| {
            let old = self.fixed.iter().find(|old| old.key == new.key && old.value != new.value)?;
            Some(Ignored {
                setting: new.key.to_owned(),
                in_effect: old.value.clone(),
                configured: new.value.clone(),
                why: "it needs a restart".to_owned(),
            })
        };
        read.iter().filter_map(changed).collect()
    }

    fn replace_workers(&mut self, mut wanted: Replacement) {
        if self.reloads.is_replacing {
            if let Some(waiting) = self.reloads.replace_again.take() {
                // Who is still there is answered; each client waits for a bounded number of answers.
                let clients = &self.clients;
                let is_there =
                    |asker: &Asker| matches!(asker, Asker::Client { id, .. } if clients.contains_key(id));
                wanted.askers.extend(waiting.askers.into_iter().filter(is_there));
            }
            self.reloads.replace_again = Some(wanted);
            return;
        }
        self.reloads.is_replacing = true;
        let Replacement { programs, ignored, askers } = wanted;
        self.programs.clone_from(&programs);
        let me = self.me.clone();
        let told = move |taken_back: Option<String>, _: &mut Context| {
            Front::with(&me, |front| front.on_replaced(&askers, &ignored, taken_back.as_deref()));
        };
        self.hub.borrow_mut().reload(programs, Box::new(told));
    }

    fn on_replaced(&mut self, askers: &[Asker], ignored: &[Ignored], taken_back: Option<&str>) {
        self.reloads.is_replacing = false;
        self.answer_reload(askers, ignored, taken_back);
        if let Some(wanted) = self.reloads.replace_again.take() {
            self.replace_workers(wanted);
        }
    }

    fn answer_reload(&mut self, askers: &[Asker], ignored: &[Ignored], failure: Option<&str>) {
        self.log_reload(ignored, failure);
        for asker in askers {
            match (asker, failure) {
                (Asker::Signal, _) => {}
                (&Asker::Client { id, ticket }, None) => {
                    self.answer(id, ticket, &serde_json::json!({ "reloaded": true, "ignored": ignored }));
                }
                (&Asker::Client { id, ticket }, Some(why)) => {
                    let message = format!("the old workers stay: {why}");
                    self.reject(id, ticket, OutcomeCode::Unavailable, &message);
                }
            }
        }
    }

    fn log_reload(&self, ignored: &[Ignored], failure: Option<&str>) {
        let hub = self.hub.borrow();
        if let Some(why) = failure {
            return hub.log().error(format_args!("reload: the old configuration stays: {why}"));
        }
        hub.log().tell(format_args!("reloaded: the configuration was read again, the workers are replaced"));
        for Ignored { setting, in_effect, configured, why } in ignored {
            hub.log().warn(format_args!(
                "reload: {setting} = {configured} is ignored, {in_effect} stays in effect: {why}"
            ));
        }
    }
}

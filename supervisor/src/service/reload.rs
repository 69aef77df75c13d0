//! Reload: reads the configuration again, applies it, and replaces the workers by new ones. `offload reload` and
//! SIGHUP both do this.
//!
//! ```text
//!   request ---> reading, on a thread ---> limits and times apply ---> workers are replaced, one by one ---> answer
//!     |           ^                |                                    ^
//!     |           |                '- something is wrong: nothing       '- if a reading ends meanwhile: workers are
//!     |           |                   changes                              replaced once more, with the newest one
//!     '- if another request comes meanwhile:
//!        one more reading, for all of these
//! ```
//!
//! Whatever can be wrong is found before anything changes. Only whether the new version of a program works is found afterwards:
//! then its old workers stay, and all else that was read applies.
//!
//! However many requests come, at most one reading and one replacement are under way, and at most one of each waits.
//! Each request is answered by a reading that began after the request.

use super::reply::{Document, Reply};
use super::{Service, Ticket};
use crate::hub::PoolConfig;
use crate::workers::Program;
use offload_core::config::CoreConfig;
use offload_event_loop::Context;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// The function that reads the configuration again. It is called on a thread of the I/O pool.
pub type Reload = Arc<dyn Fn() -> Result<Configuration, String> + Send + Sync>;

/// The configuration that a reload has read.
#[derive(Debug)]
pub struct Configuration {
    /// The workers and their limits.
    pub pool: PoolConfig,
    /// Settings that apply only from the next start on, as in [`ServiceConfig::fixed`](super::ServiceConfig::fixed).
    pub fixed: Vec<FixedSetting>,
    /// Settings in the file that are overruled by a source with precedence over it.
    pub overruled: Vec<Ignored>,
    /// What else the program exchanges, if nothing that was read is wrong.
    pub exchange: Option<Exchange>,
}

/// Something that a program exchanges when the limits that were read apply. What could fail, such as reading a file, was done before.
pub struct Exchange(Box<dyn FnOnce() + Send>);

impl Exchange {
    /// `exchange` is called at most once, on the thread of the event loop.
    pub fn new(exchange: impl FnOnce() + Send + 'static) -> Exchange {
        Exchange(Box::new(exchange))
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Exchange")
    }
}

/// A setting that applies only from the next start of the supervisor on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedSetting {
    /// The key in the configuration file, with its table.
    pub key: &'static str,
    /// The value, as it would be written in the file.
    pub value: String,
}

/// A setting that was read but is not in effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ignored {
    /// The key in the configuration file, with its table.
    pub setting: String,
    /// The value in effect.
    pub in_effect: String,
    /// The value that was read.
    pub configured: String,
    /// Why it is not in effect.
    pub why: String,
}

/// The client that asked for a reload and gets an answer. None for SIGHUP.
type Requester = Option<Ticket>;

/// The state of reloads: what a reload changes, what is under way, and what waits.
pub(super) struct Reloads {
    read: Option<Reload>,
    /// Settings that only a restart can change.
    fixed: Vec<FixedSetting>,
    /// The programs that the workers run.
    programs: Vec<Program>,
    reading: ReloadStep<Vec<Requester>>,
    replacing: ReloadStep<Option<Replacement>>,
}

/// One of the two steps of a reload.
enum ReloadStep<Next> {
    /// Nothing is under way.
    Resting,
    /// The step is under way. The value says what follows it.
    UnderWay(Next),
}

/// A replacement of the workers: the programs and settings that were read, and the clients to answer.
struct Replacement {
    programs: Vec<Program>,
    ignored: Vec<Ignored>,
    requesters: Vec<Requester>,
}

impl Reloads {
    pub(super) fn new(read: Option<Reload>, fixed: Vec<FixedSetting>, programs: Vec<Program>) -> Reloads {
        Reloads { read, fixed, programs, reading: ReloadStep::Resting, replacing: ReloadStep::Resting }
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

    /// Returns the replacement if it can begin now. Otherwise it waits in the place of the one that waited before, and
    /// also answers the clients of that one.
    fn begin_replacing(
        &mut self,
        wanted: Replacement,
        is_connected: impl Fn(Ticket) -> bool,
    ) -> Option<Replacement> {
        match &mut self.replacing {
            ReloadStep::Resting => {
                self.replacing = ReloadStep::UnderWay(None);
                self.programs.clone_from(&wanted.programs);
                Some(wanted)
            }
            ReloadStep::UnderWay(next) => {
                let before = next.take().map_or_else(Vec::new, |waiting| waiting.requesters);
                let next = next.insert(wanted);
                // Only clients that are still connected are answered. Each client waits for a bounded number of
                // answers.
                next.requesters
                    .extend(before.into_iter().filter(|requester| requester.is_some_and(&is_connected)));
                None
            }
        }
    }
}

impl Service {
    /// Starts a reload that nobody gets an answer for, as SIGHUP does.
    pub fn reload(&self) {
        self.reload_for(None);
    }

    pub(super) fn reload_for(&self, requester: Requester) {
        if let ReloadStep::UnderWay(next) = &mut self.0.reloads.borrow_mut().reading {
            if requester.is_some() || !next.contains(&requester) {
                next.push(requester);
            }
            return;
        }
        self.read_configuration(vec![requester]);
    }

    fn read_configuration(&self, requesters: Vec<Requester>) {
        let Some(read) = self.0.reloads.borrow().read.clone() else {
            let programs = self.0.reloads.borrow().programs.clone();
            return self.replace_workers(Replacement { programs, ignored: Vec::new(), requesters });
        };
        self.0.reloads.borrow_mut().reading = ReloadStep::UnderWay(Vec::new());
        let me = self.weak();
        self.0.io_pool.submit(
            move || read(),
            move |_, read| {
                let read = read.map_err(|error| error.to_string()).and_then(|read| read);
                Service::with(&me, |service| service.on_configuration(read, requesters));
            },
        );
    }

    fn on_configuration(&self, read: Result<Configuration, String>, requesters: Vec<Requester>) {
        let reading = std::mem::replace(&mut self.0.reloads.borrow_mut().reading, ReloadStep::Resting);
        match read.and_then(|read| self.apply(read)) {
            Ok((programs, ignored)) => {
                self.replace_workers(Replacement { programs, ignored, requesters });
            }
            Err(why) => {
                let why = format!("nothing changes, the old configuration stays: {why}");
                self.answer_reload(&requesters, &[], Some(&why));
            }
        }
        if let ReloadStep::UnderWay(next) = reading
            && !next.is_empty()
        {
            self.read_configuration(next);
        }
    }

    /// Applies the limits and times that were read, and what else is exchanged. Returns the programs and the settings that are not in effect.
    fn apply(&self, read: Configuration) -> Result<(Vec<Program>, Vec<Ignored>), String> {
        let Configuration { pool, fixed, overruled, exchange } = read;
        let core = self.check(&pool)?;
        if let Some(Exchange(exchange)) = exchange {
            exchange();
        }
        self.hub().borrow_mut().configure(core);
        let ignored = self.0.reloads.borrow().needs_restart(&fixed).into_iter().chain(overruled).collect();
        Ok((pool.programs, ignored))
    }

    fn check(&self, config: &PoolConfig) -> Result<CoreConfig, String> {
        let mut core = config.core();
        core.max_files = core.max_files.min(self.0.descriptors.files_of_jobs());
        core.validate()?;
        self.0.descriptors.check(core.processes_max())?;
        let (is, was) = (config.programs.len(), self.0.reloads.borrow().programs.len());
        if is != was {
            return Err(format!("there were {was} worker programs and would be {is}: that needs a restart"));
        }
        Ok(core)
    }

    fn replace_workers(&self, wanted: Replacement) {
        let is_connected = |ticket: Ticket| self.has_session(ticket.session);
        let begun = self.0.reloads.borrow_mut().begin_replacing(wanted, is_connected);
        let Some(Replacement { programs, ignored, requesters }) = begun else { return };
        let me = self.weak();
        let told = move |end: Result<(), String>, _: &mut Context| {
            let failure = end.err();
            Service::with(&me, |service| service.on_replaced(&requesters, &ignored, failure.as_deref()));
        };
        self.hub().borrow_mut().reload(programs, Box::new(told));
    }

    fn on_replaced(&self, requesters: &[Requester], ignored: &[Ignored], failure: Option<&str>) {
        let replacing = std::mem::replace(&mut self.0.reloads.borrow_mut().replacing, ReloadStep::Resting);
        self.answer_reload(requesters, ignored, failure);
        if let ReloadStep::UnderWay(Some(wanted)) = replacing {
            self.replace_workers(wanted);
        }
    }

    fn answer_reload(&self, requesters: &[Requester], ignored: &[Ignored], failure: Option<&str>) {
        self.log_reload(ignored, failure);
        for &ticket in requesters.iter().flatten() {
            let reply = match failure {
                None => Reply::document(Document::Reloaded { reloaded: true, ignored: ignored.to_vec() }),
                Some(why) => Reply::Refusal(ErrorDetail::new(OutcomeCode::Unavailable, why.to_owned())),
            };
            self.answer_later(ticket, reply);
        }
    }

    fn log_reload(&self, ignored: &[Ignored], failure: Option<&str>) {
        let log = self.log();
        if let Some(why) = failure {
            return log.error(format_args!("reload: {why}"));
        }
        log.tell(format_args!("reloaded: the configuration was read again, the workers are replaced"));
        for Ignored { setting, in_effect, configured, why } in ignored {
            log.warn(format_args!(
                "reload: {setting} = {configured} is ignored, {in_effect} stays in effect: {why}"
            ));
        }
    }
}

//! `offload doctor`: says what is odd about this machine. [`machine`] measures, [`judge`] says what that means.

pub(crate) mod cgroup;
mod finding;
mod judge;
mod machine;

use super::failure::{OK, VerbResult};
use super::flags::Globals;
use super::output::{print, print_line};
use super::startable::check_programs;
use crate::configuration::Settings;
use crate::configuration::arguments::{KeyFlags, NumberOfWorkers};
use clap::Args;
use finding::{Finding, Verdict, document, render, worst};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  offload doctor                             what is odd here, for the workers that `serve` would start
  offload doctor --workers 64                the same for 64 workers
  offload doctor --config /etc/offload.toml  the same for this configuration
  offload doctor --json | jq '.checks[] | select(.verdict != \"ok\")'

It looks and measures for less than a second, and changes nothing. Each line is `ok`, `warn` (it works, but slower or less safe than it
could) or `fail` (it does not work); below it stands what to do. The exit code is 1 if there is a `fail`.";

/// Say what is odd about this machine: limits, cgroup, cores, clock, kernel, the place of the socket
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Doctor {
    #[command(flatten)]
    number: KeyFlags<NumberOfWorkers>,
}

impl Doctor {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        let (settings, configuration) = self.configuration(globals);
        let mut findings = vec![configuration];
        findings.extend(machine::findings(&settings));
        match globals.json {
            true => print_line(document(&findings))?,
            false => print(render(&findings).as_bytes())?,
        }
        Ok(if worst(&findings) == Verdict::Wrong { ExitCode::from(1) } else { OK })
    }

    /// The settings, and what is wrong with them; then the machine is looked at for the defaults.
    fn configuration(&self, globals: &Globals) -> (Settings, Finding) {
        let file = globals.config_file();
        let shown = match &file {
            Ok(Some(file)) => file.path().display().to_string(),
            _ => "no file, only flags, variables and defaults".to_owned(),
        };
        let read = file.and_then(|file| {
            let settings = globals.settings_to_serve(file.as_ref(), self.number.layer())?;
            check_programs(&settings)?;
            Ok(settings)
        });
        match read {
            Ok(settings) => (settings, Finding::fine("config", shown)),
            Err(failure) => {
                let why = failure.message().unwrap_or_default();
                let advice = "`offload config check` says whether it is right, `offload config reference` how it is written";
                (Settings::defaults(), Finding::wrong("config", why, advice))
            }
        }
    }
}

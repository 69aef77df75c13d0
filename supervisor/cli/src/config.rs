//! `offload config`: checks a file, shows the settings in effect, and prints the reference of all settings.

use super::failure::{OK, VerbResult};
use super::flags::{Globals, PoolFlags, ServeFlags};
use super::output::print;
use super::table::Table;
use super::text;
use crate::configuration::{Origin, Settings, Shown, read_file, reference, reference_json};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;

/// Check a configuration file, show the settings in effect, or list all settings
#[derive(Args, Debug)]
pub(crate) struct Config {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check FILE, and report mistakes with their lines. A key that several pools set is counted once
    Check {
        /// The configuration file
        file: PathBuf,
    },
    /// Show the values that `serve` would run with, and where each comes from: a flag, the environment, a file, a
    /// default
    Show {
        #[command(flatten)]
        pool: PoolFlags,
        #[command(flatten)]
        serve: ServeFlags,
    },
    /// Print a configuration file that explains every key: its flag, variable, bounds and default
    Reference,
}

impl Config {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        match self.verb {
            Verb::Check { file } => {
                let settings = Settings::resolve(&[read_file(&file)?], None)?;
                print(checked(&file.display().to_string(), &settings, globals.json).as_bytes())?;
            }
            Verb::Show { pool, serve } => {
                let settings = globals.settings(pool.layer().and(serve.layer()))?;
                let render = if globals.json { show_json } else { show_table };
                print(render(&settings.show()).as_bytes())?;
            }
            Verb::Reference => {
                let text = if globals.json { reference_json() } else { reference() };
                print(text.as_bytes())?;
            }
        }
        Ok(OK)
    }
}

fn checked(file: &str, settings: &Settings, as_json: bool) -> String {
    let set = settings.show().iter().filter(|line| line.origin == Origin::File).count();
    match as_json {
        true => format!("{}\n", json!({ "file": file, "ok": true, "keys_set": set })),
        false => format!("{file}: ok, sets {}\n", text::count(set as u64, "key")),
    }
}

fn show_table(lines: &[Shown]) -> String {
    let mut table = Table::new(&["KEY", "VALUE", "ORIGIN"]);
    for line in lines {
        table.row([line.key.to_owned(), line.value.clone(), line.origin.to_string()]);
    }
    table.render()
}

fn show_json(lines: &[Shown]) -> String {
    let lines: Vec<_> = lines
        .iter()
        .map(|line| json!({ "key": line.key, "value": line.value, "origin": line.origin.to_string() }))
        .collect();
    format!("{}\n", serde_json::Value::from(lines))
}

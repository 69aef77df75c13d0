//! `offload config`: is a file right, and what is in effect?

use super::failure::{Ended, OK};
use super::flags::{Globals, PoolFlags, ServeFlags};
use super::output::print;
use super::table::Table;
use super::text;
use crate::configuration::{Layer, Origin, Settings, Shown, read_file};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;

/// Check a configuration file, or show what is in effect
#[derive(Args, Debug)]
pub(crate) struct Config {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Say whether FILE is right, and if not, what is wrong in which line
    Check {
        /// The configuration file
        file: PathBuf,
    },
    /// Show the values that `serve` would run with, and who decided each: a flag, the environment, a file, a default
    Show {
        #[command(flatten)]
        pool: PoolFlags,
        #[command(flatten)]
        serve: Box<ServeFlags>,
    },
}

impl Config {
    /// Does it.
    pub(crate) fn run(self, globals: &Globals) -> Ended {
        match self.verb {
            Verb::Check { file } => {
                let settings =
                    Settings::resolve(Layer::default(), Layer::default(), read_file(&file)?, None)?;
                print(checked(&file.display().to_string(), &settings, globals.json).as_bytes())?;
            }
            Verb::Show { pool, serve } => {
                let settings = globals.settings(serve.layer(pool.layer()))?;
                let render = if globals.json { show_json } else { show_table };
                print(render(&settings.show()).as_bytes())?;
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

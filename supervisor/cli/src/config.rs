//! `offload config`: writes a file to begin with, checks a file, shows the settings in effect, and prints the reference of
//! all settings.

use super::failure::{Failure, OK, VerbResult};
use super::flags::{Globals, PoolFlags, ServeFlags, places_of_file};
use super::http;
use super::output::{print, print_line, say};
use super::startable::{check_programs, why_no_folder};
use super::table::Table;
use super::text;
use crate::configuration::{
    ConfigFile, Layer, Origin, Settings, Shown, read_file, reference, reference_json, template,
};
use clap::{Args, Subcommand};
use serde_json::json;
use std::fs::{DirBuilder, File, OpenOptions, remove_file};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  offload config init                        write a file in which every key is explained, where offload looks for it
  offload config check                       say what is wrong in it, with the line, and whether its programs and files are there
  offload config show                        the values in effect, and where each is written
  offload config show --config other.toml    the same with another file; --config /dev/null: with none
  offload config reference | less            read about all keys

Without --config and OFFLOAD_CONFIG the first of these files is read that is there:
$XDG_CONFIG_HOME/offload/config.toml (~/.config/offload/config.toml if that variable is not set), /etc/offload/config.toml.
Root reads only the latter. A file that others can write to is refused, unless it is named.";

/// Where `config init` prints in place of writing a file.
const STANDARD_OUTPUT: &str = "-";

/// Write a configuration file, check one, show the settings in effect, or list all settings
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Config {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Write a file in which every key is explained and none is set
    Init {
        /// The file, which must not be there yet, or - for standard output [default: the first place where it is looked for]
        file: Option<PathBuf>,
    },
    /// Check a file, and report mistakes with their lines, also programs that are not there. A key that several pools set is
    /// counted once
    Check {
        /// The configuration file [default: the one that would be read]
        file: Option<PathBuf>,
    },
    /// Show the values that `serve` would run with, and where each comes from: a flag, the environment, a file, a
    /// default
    Show {
        #[command(flatten)]
        pool: Box<PoolFlags>,
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
            Verb::Init { file } => return init(file, globals),
            Verb::Check { file } => {
                globals.tell_of_misspelt_variables(|line| say(&line));
                let named = file.clone().or_else(|| globals.named_file());
                if let Some(none) = named.filter(|path| ConfigFile::stands_for_none(path)) {
                    let settings = Settings::resolve(&[], None)?;
                    print(checked(&none.display().to_string(), &settings, globals.json).as_bytes())?;
                    return Ok(OK);
                }
                let file = match file {
                    Some(path) => ConfigFile::named(&path),
                    None => globals.config_file()?.ok_or_else(nothing_to_check)?,
                };
                let settings = Settings::resolve(&[read_file(&file)?], None)?;
                settings.check_to_serve_at(socket_of(&file, globals).as_deref(), Some(&file))?;
                check_programs(&settings)?;
                check_files(&settings)?;
                let lines = [settings.http_in_vain(), settings.http_unseen()];
                lines.into_iter().flatten().filter(|_| !globals.quiet).for_each(|line| say(&line));
                print(checked(&file.path().display().to_string(), &settings, globals.json).as_bytes())?;
            }
            Verb::Show { pool, serve } => {
                globals.tell_of_misspelt_variables(|line| say(&line));
                let file = globals.config_file()?;
                let settings = globals.settings_to_serve(file.as_ref(), pool.layer().and(serve.layer()))?;
                let shown = match globals.json {
                    true => show_json(&settings.show()),
                    false => read_from(file.as_ref()) + &show_table(&settings.show()),
                };
                print(shown.as_bytes())?;
            }
            Verb::Reference => {
                let text = if globals.json { reference_json() } else { reference() };
                print(text.as_bytes())?;
            }
        }
        Ok(OK)
    }
}

/// Where a supervisor with this file would have its own socket.
fn socket_of(file: &ConfigFile, globals: &Globals) -> Option<PathBuf> {
    let in_effect = globals.settings_from(Some(file), Layer::new(Origin::Flag));
    in_effect.ok().and_then(|settings| settings.values.socket)
}

/// Looks at the files and folders that the settings name.
fn check_files(settings: &Settings) -> Result<(), Failure> {
    let mistake =
        |(key, why): (&'static str, String)| Err(Failure::Usage(format!("{}: {why}", settings.place(key))));
    if let Some(why) = settings.values.pool.io_root.as_deref().and_then(why_no_folder) {
        return mistake(("io.root", why));
    }
    http::check_files(&settings.values.http).or_else(mistake)
}

/// Writes the template.
fn init(file: Option<PathBuf>, globals: &Globals) -> VerbResult {
    if file.as_deref() == Some(Path::new(STANDARD_OUTPUT)) {
        print(template().as_bytes())?;
        return Ok(OK);
    }
    let path = match file.or_else(|| globals.named_file()) {
        Some(path) => path,
        None => places_of_file().into_iter().next().expect("there is one for everybody"),
    };
    let shown = path.display();
    write_new(&path, &template()).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::Usage(format!(
            "{shown} is there already: name another file, or - to see what would be written"
        )),
        _ => Failure::Unwritten(format!(
            "cannot write {shown}: {error}; name another file, or - for standard output"
        )),
    })?;
    match globals.json {
        true => print_line(json!({ "file": path, "written": true }).to_string())?,
        false => {
            print_line(shown.to_string())?;
            say(
                "written: every key is explained in it, and none is set; `offload config check` finds mistakes",
            );
        }
    }
    Ok(OK)
}

/// Writes a file that is not there yet, with the folders that it is in. If that fails half-way there is none.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    let written = write_all(&mut file, text);
    if written.is_err() {
        // The error of the write is the one to report.
        let _ = remove_file(path);
    }
    written
}

fn write_all(file: &mut File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn nothing_to_check() -> Failure {
    let places: Vec<String> = places_of_file().iter().map(|path| path.display().to_string()).collect();
    let places = places.join(" and ");
    Failure::Usage(format!(
        "there is no configuration file at {places}: name one, or write one with `offload config init`"
    ))
}

fn checked(file: &str, settings: &Settings, as_json: bool) -> String {
    let set = settings.show().iter().filter(|line| line.origin == Origin::File).count();
    match as_json {
        true => format!("{}\n", json!({ "file": file, "ok": true, "keys_set": set })),
        false => format!("{file}: ok, sets {}\n", text::count(set as u64, "key")),
    }
}

/// Which file was read, or where there is none.
fn read_from(file: Option<&ConfigFile>) -> String {
    match file {
        Some(file) => format!("configuration file: {}\n\n", file.path().display()),
        None => "configuration file: none\n\n".to_owned(),
    }
}

fn show_table(lines: &[Shown]) -> String {
    let mut table = Table::new(&["KEY", "VALUE", "ORIGIN", "WHERE"]);
    for line in lines {
        let place = line.place.clone().unwrap_or_default();
        table.row([line.key.to_owned(), line.value.clone(), line.origin.to_string(), place]);
    }
    table.render()
}

fn show_json(lines: &[Shown]) -> String {
    let document = |line: &Shown| json!({ "key": line.key, "value": line.value, "origin": line.origin.to_string(), "where": line.place });
    format!("{}\n", serde_json::Value::from(lines.iter().map(document).collect::<Vec<_>>()))
}

//! The configuration file: TOML to a [`Layer`]. A mistake is told with the file, the line and the nearest known key.

use super::units;
use super::words::split_words;
use super::{ConfigError, Layer};
use rustix::fs::{Mode, OFlags, open};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::de::{DeTable, DeValue};

/// Longest configuration file that is read, in bytes.
const FILE_MAX: u64 = 1 << 20;

const TABLES: [&str; 4] = ["supervisor", "pool", "io", "clients"];
const SUPERVISOR_KEYS: [&str; 10] = [
    "socket",
    "drain_timeout",
    "max_jobs",
    "max_jobs_per_client",
    "max_bytes",
    "max_payload",
    "keep_results",
    "keep_keys",
    "keep_dead_letters",
    "max_kept_bytes",
];
const POOL_KEYS: [&str; 14] = [
    "name",
    "command",
    "workers",
    "spares",
    "run_timeout",
    "max_attempts",
    "hello_timeout",
    "hang_timeout",
    "max_jobs_per_worker",
    "max_rss",
    "max_age",
    "affinity",
    "short_slots",
    "restart",
];
const RESTART_KEYS: [&str; 4] = ["backoff_min", "backoff_max", "max_restarts", "window"];
const IO_KEYS: [&str; 1] = ["threads"];

#[derive(Default, Deserialize)]
#[serde(default)]
struct Written {
    supervisor: Supervisor,
    pool: Vec<Pool>,
    io: Io,
    /// Shares of worker time by name.
    clients: BTreeMap<String, u32>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Supervisor {
    socket: Option<PathBuf>,
    #[serde(deserialize_with = "units::duration")]
    drain_timeout: Option<Duration>,
    max_jobs: Option<usize>,
    max_jobs_per_client: Option<usize>,
    #[serde(deserialize_with = "units::size")]
    max_bytes: Option<u64>,
    #[serde(deserialize_with = "units::size")]
    max_payload: Option<u64>,
    #[serde(deserialize_with = "units::duration")]
    keep_results: Option<Duration>,
    #[serde(deserialize_with = "units::duration")]
    keep_keys: Option<Duration>,
    #[serde(deserialize_with = "units::duration")]
    keep_dead_letters: Option<Duration>,
    #[serde(deserialize_with = "units::size")]
    max_kept_bytes: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pool {
    name: Option<String>,
    command: Option<Command>,
    workers: Option<usize>,
    spares: Option<usize>,
    #[serde(deserialize_with = "units::duration")]
    run_timeout: Option<Duration>,
    max_attempts: Option<u32>,
    #[serde(deserialize_with = "units::duration")]
    hello_timeout: Option<Duration>,
    #[serde(deserialize_with = "units::duration")]
    hang_timeout: Option<Duration>,
    max_jobs_per_worker: Option<u64>,
    #[serde(deserialize_with = "units::size")]
    max_rss: Option<u64>,
    #[serde(deserialize_with = "units::duration")]
    max_age: Option<Duration>,
    affinity: Option<bool>,
    short_slots: Option<usize>,
    restart: Restart,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Restart {
    #[serde(deserialize_with = "units::duration")]
    backoff_min: Option<Duration>,
    #[serde(deserialize_with = "units::duration")]
    backoff_max: Option<Duration>,
    max_restarts: Option<u32>,
    #[serde(deserialize_with = "units::duration")]
    window: Option<Duration>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Io {
    threads: Option<usize>,
}

/// `"python3 worker.py"` or `["python3", "worker.py"]`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a command: a text or a list of words")]
enum Command {
    Line(String),
    Words(Vec<String>),
}

impl Command {
    fn words(self) -> Result<Vec<String>, String> {
        match self {
            Command::Line(line) => split_words(&line),
            Command::Words(words) if words.is_empty() => Err("an empty command".to_owned()),
            Command::Words(words) => Ok(words),
        }
    }
}

/// Reads the file at `path`.
///
/// # Errors
/// [`ConfigError`] if it cannot be read or says something that is not understood.
pub(crate) fn read_file(path: &Path) -> Result<Layer, ConfigError> {
    let unreadable = |reason: String| ConfigError(format!("cannot read {}: {reason}", path.display()));
    let text = read_regular(path).map_err(unreadable)?;
    parse_file(&text, path)
}

/// The text of a regular file. Anything else, a pipe above all, could keep whoever reads it waiting for ever, so it is
/// opened without waiting and looked at before it is read.
fn read_regular(path: &Path) -> Result<String, String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let file = File::from(open(path, flags, Mode::empty()).map_err(|error| told(&io::Error::from(error)))?);
    let about = file.metadata().map_err(|error| told(&error))?;
    if !about.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let too_long = |length: u64| Err(format!("{length} bytes, at most {FILE_MAX} are read"));
    if about.len() > FILE_MAX {
        return too_long(about.len());
    }
    // It may grow while it is read.
    let mut text = String::new();
    file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(|error| told(&error))?;
    if text.len() as u64 > FILE_MAX { too_long(text.len() as u64) } else { Ok(text) }
}

/// Reads the text of a configuration file; `path` is only for messages.
///
/// # Errors
/// [`ConfigError`] naming the file, the line, and for an unknown key the nearest known one.
pub(crate) fn parse_file(text: &str, path: &Path) -> Result<Layer, ConfigError> {
    let at = |span: Option<Range<usize>>, message: &str| {
        let line = span.map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        ConfigError(format!("{}:{line}: {message}", path.display()))
    };
    let tables = DeTable::parse(text).map_err(|error| at(error.span(), error.message()))?;
    check_tables(tables.get_ref()).map_err(|(span, message)| at(Some(span), &message))?;
    let file: Written = toml::from_str(text).map_err(|error| at(error.span(), error.message()))?;
    file.into_layer().map_err(|message| ConfigError(format!("{}: {message}", path.display())))
}

/// Where a mistake is, and what it is.
type Misplaced = (Range<usize>, String);

fn check_tables(tables: &DeTable<'_>) -> Result<(), Misplaced> {
    check_keys(tables, &TABLES, "as a table")?;
    for (name, value) in tables {
        check_brackets(name.get_ref(), value.get_ref()).map_err(|message| (name.span(), message))?;
        match name.get_ref().as_ref() {
            "supervisor" => check_inside(value.get_ref(), &SUPERVISOR_KEYS, "in [supervisor]")?,
            // Every name of a client is a key.
            "clients" => {}
            "io" => check_inside(value.get_ref(), &IO_KEYS, "in [io]")?,
            _ => check_pools(value.get_ref())?,
        }
    }
    Ok(())
}

/// Whether a table that there may be several of is written as such, and no other.
fn check_brackets(name: &str, value: &DeValue<'_>) -> Result<(), String> {
    match (name, value) {
        ("pool", DeValue::Table(_)) => {
            Err("[pool] is written [[pool]], with two brackets, because there may be several".to_owned())
        }
        ("pool", _) => Ok(()),
        (_, DeValue::Array(_)) => {
            Err(format!("[[{name}]] is written [{name}], with one bracket, because there is only one"))
        }
        _ => Ok(()),
    }
}

fn check_pools(pools: &DeValue<'_>) -> Result<(), Misplaced> {
    for pool in pools.as_array().into_iter().flatten() {
        check_inside(pool.get_ref(), &POOL_KEYS, "in [[pool]]")?;
        if let Some(restart) = pool.get_ref().get("restart") {
            check_inside(restart.get_ref(), &RESTART_KEYS, "in restart of [[pool]]")?;
        }
    }
    Ok(())
}

/// A value that should be a table and is none has no keys to check: reading the types tells of it, with its line.
fn check_inside(value: &DeValue<'_>, known: &[&str], place: &str) -> Result<(), Misplaced> {
    value.as_table().map_or(Ok(()), |table| check_keys(table, known, place))
}

fn check_keys(table: &DeTable<'_>, known: &[&str], place: &str) -> Result<(), Misplaced> {
    let unknown = table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
    match unknown.min_by_key(|key| key.span().start) {
        Some(key) => Err((key.span(), unknown_key(key.get_ref(), known, place))),
        None => Ok(()),
    }
}

fn unknown_key(key: &str, known: &[&str], place: &str) -> String {
    let nearest = known.iter().map(|name| (strsim::damerau_levenshtein(key, name), name)).min();
    match nearest {
        Some((distance, name)) if distance <= 1 + name.len() / 3 => {
            format!("unknown key {key:?} {place}; did you mean {name:?}?")
        }
        _ => format!("unknown key {key:?} {place}; known are {}", known.join(", ")),
    }
}

impl Written {
    fn into_layer(self) -> Result<Layer, String> {
        let mut layer = Layer {
            socket: self.supervisor.socket,
            drain_timeout: self.supervisor.drain_timeout,
            max_jobs: self.supervisor.max_jobs,
            max_jobs_per_client: self.supervisor.max_jobs_per_client,
            weights: Some(self.clients).filter(|weights| !weights.is_empty()),
            max_bytes: self.supervisor.max_bytes,
            max_payload: self.supervisor.max_payload,
            keep_results: self.supervisor.keep_results,
            keep_keys: self.supervisor.keep_keys,
            keep_dead_letters: self.supervisor.keep_dead_letters,
            max_kept_bytes: self.supervisor.max_kept_bytes,
            io_threads: self.io.threads,
            ..Layer::default()
        };
        for pool in self.pool {
            pool.add_to(&mut layer)?;
        }
        Ok(layer)
    }
}

impl Pool {
    /// Several tables are one pool today: commands and numbers of workers add up, anything else is said once.
    fn add_to(self, layer: &mut Layer) -> Result<(), String> {
        let name = self.name.unwrap_or_else(|| "default".to_owned());
        if let Some(command) = self.command {
            let words = command.words().map_err(|reason| format!("command of pool {name:?}: {reason}"))?;
            layer.commands.get_or_insert_default().push(words);
        }
        if let Some(workers) = self.workers {
            let sum = layer.workers.unwrap_or(0).checked_add(workers);
            layer.workers = Some(sum.ok_or("the numbers of workers are too large")?);
        }
        set_once(&mut layer.spares, self.spares, "spares", &name)?;
        set_once(&mut layer.run_timeout, self.run_timeout, "run_timeout", &name)?;
        set_once(&mut layer.max_attempts, self.max_attempts, "max_attempts", &name)?;
        set_once(&mut layer.hello_timeout, self.hello_timeout, "hello_timeout", &name)?;
        set_once(&mut layer.hang_timeout, self.hang_timeout, "hang_timeout", &name)?;
        set_once(&mut layer.max_jobs_per_worker, self.max_jobs_per_worker, "max_jobs_per_worker", &name)?;
        set_once(&mut layer.max_rss, self.max_rss, "max_rss", &name)?;
        set_once(&mut layer.max_age, self.max_age, "max_age", &name)?;
        set_once(&mut layer.affinity, self.affinity, "affinity", &name)?;
        set_once(&mut layer.short_slots, self.short_slots, "short_slots", &name)?;
        set_once(&mut layer.backoff_min, self.restart.backoff_min, "restart.backoff_min", &name)?;
        set_once(&mut layer.backoff_max, self.restart.backoff_max, "restart.backoff_max", &name)?;
        set_once(&mut layer.max_restarts, self.restart.max_restarts, "restart.max_restarts", &name)?;
        set_once(&mut layer.restart_window, self.restart.window, "restart.window", &name)
    }
}

fn set_once<T: PartialEq>(
    place: &mut Option<T>,
    value: Option<T>,
    key: &str,
    pool: &str,
) -> Result<(), String> {
    if value.is_some() && place.is_some() && *place != value {
        return Err(format!(
            "pool {pool:?} sets {key} differently from a pool before it; it holds for all of them"
        ));
    }
    if value.is_some() {
        *place = value;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Layer, String> {
        parse_file(text, Path::new("offload.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn every_key_is_understood() {
        let layer = parse(
            r#"
            [supervisor]
            socket = "/run/offload.sock"
            drain_timeout = "10s"
            max_jobs = 500
            max_jobs_per_client = 8
            max_bytes = "128MiB"
            max_payload = 1048576
            keep_results = "2h"
            keep_keys = "3h"
            keep_dead_letters = "4h"
            max_kept_bytes = "5MiB"

            [[pool]]
            name = "python"
            command = "python3 'my worker.py'"
            workers = 3
            spares = 0
            run_timeout = "5m"
            hello_timeout = "2s"
            hang_timeout = "3s"
            max_jobs_per_worker = 4
            max_rss = "5MiB"
            max_age = "6h"
            affinity = true
            short_slots = 1
            max_attempts = 2
            restart = { backoff_min = "50ms", backoff_max = "5s", max_restarts = 7, window = "1m" }

            [clients]
            a = 2
            b = 3

            [io]
            threads = 8
            "#,
        )
        .unwrap();
        let expected = Layer {
            socket: Some("/run/offload.sock".into()),
            drain_timeout: Some(Duration::from_secs(10)),
            max_jobs: Some(500),
            max_bytes: Some(128 << 20),
            max_payload: Some(1 << 20),
            commands: Some(vec![vec!["python3".to_owned(), "my worker.py".to_owned()]]),
            workers: Some(3),
            spares: Some(0),
            run_timeout: Some(Duration::from_secs(300)),
            max_attempts: Some(2),
            backoff_min: Some(Duration::from_millis(50)),
            backoff_max: Some(Duration::from_secs(5)),
            max_restarts: Some(7),
            restart_window: Some(Duration::from_secs(60)),
            hello_timeout: Some(Duration::from_secs(2)),
            hang_timeout: Some(Duration::from_secs(3)),
            max_jobs_per_worker: Some(4),
            max_rss: Some(5 << 20),
            max_age: Some(Duration::from_secs(6 * 3600)),
            affinity: Some(true),
            short_slots: Some(1),
            max_jobs_per_client: Some(8),
            keep_results: Some(Duration::from_secs(2 * 3600)),
            keep_keys: Some(Duration::from_secs(3 * 3600)),
            keep_dead_letters: Some(Duration::from_secs(4 * 3600)),
            max_kept_bytes: Some(5 << 20),
            weights: Some([("a".to_owned(), 2), ("b".to_owned(), 3)].into()),
            io_threads: Some(8),
        };
        assert_eq!(layer, expected);
    }

    #[test]
    fn an_empty_file_sets_nothing() {
        assert_eq!(parse(""), Ok(Layer::default()));
    }

    #[test]
    fn an_unknown_key_is_told_with_file_line_and_the_nearest_known_one() {
        for (text, expected) in [
            (
                "\n[supervisor]\nmax_job = 3\n",
                "offload.toml:3: unknown key \"max_job\" in [supervisor]; did you mean \"max_jobs\"?",
            ),
            (
                "[[pool]]\nworkers = 1\n[[pool]]\nwrokers = 2",
                "offload.toml:4: unknown key \"wrokers\" in [[pool]]; did you mean \"workers\"?",
            ),
            (
                "[supervizor]\n",
                "offload.toml:1: unknown key \"supervizor\" as a table; did you mean \"supervisor\"?",
            ),
            ("[io]\nbananas = 2", "offload.toml:2: unknown key \"bananas\" in [io]; known are threads"),
            (
                "\n[pool]\nworkers = 2\n",
                "offload.toml:2: [pool] is written [[pool]], with two brackets, because there may be several",
            ),
            (
                "[[io]]\nthreads = 2\n",
                "offload.toml:1: [[io]] is written [io], with one bracket, because there is only one",
            ),
            (
                "[[pool]]\nrestart = { backof_min = \"1s\" }",
                "offload.toml:2: unknown key \"backof_min\" in restart of [[pool]]; did you mean \"backoff_min\"?",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected);
        }
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_told_with_its_line() {
        for (text, place, part) in [
            ("[supervisor]\n\nmax_jobs = \"many\"", "offload.toml:3:", "expected usize"),
            ("[supervisor]\ndrain_timeout = \"10\"", "offload.toml:2:", "250ms"),
            ("[supervisor]\ndrain_timeout = 10", "offload.toml:2:", "250ms"),
            ("[supervisor]\nmax_bytes = -5", "offload.toml:2:", "64MiB"),
            ("[supervisor\n", "offload.toml:1:", ""),
            ("pool = 3", "offload.toml:1:", "sequence"),
            ("[[pool]]\ncommand = 3", "offload.toml:2:", "a command"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.starts_with(place) && message.contains(part), "{message}");
        }
    }

    #[test]
    fn several_pools_add_their_commands_and_workers() {
        let layer = parse(
            "[[pool]]\ncommand = \"a\"\nworkers = 2\n[[pool]]\ncommand = [\"b\", \"c d\"]\nworkers = 3",
        )
        .unwrap();
        assert_eq!(layer.workers, Some(5));
        assert_eq!(layer.commands.unwrap(), [vec!["a"], vec!["b", "c d"]]);
    }

    #[test]
    fn several_pools_cannot_differ_in_what_they_share() {
        assert!(parse("[[pool]]\nspares = 1\n[[pool]]\nspares = 1").is_ok());
        let message = parse("[[pool]]\nspares = 1\n[[pool]]\nname = \"b\"\nspares = 0").unwrap_err();
        assert!(message.contains("pool \"b\" sets spares differently"), "{message}");
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [pipe.as_path(), folder.path(), Path::new("/dev/zero")] {
            let message = read_file(path).unwrap_err().to_string();
            assert!(message.ends_with("it is no regular file"), "{message}");
        }
    }

    #[test]
    fn a_file_without_end_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        std::fs::write(&path, "#".repeat(FILE_MAX as usize + 1)).unwrap();
        assert!(read_file(&path).unwrap_err().to_string().contains("at most 1048576 are read"));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let message = read_file(Path::new("/nonexistent/offload.toml")).unwrap_err().to_string();
        assert!(message.starts_with("cannot read /nonexistent/offload.toml: "), "{message}");
    }
}

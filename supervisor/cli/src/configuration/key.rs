//! A key describes one setting completely; how each source reads and prints the setting follows from it.

use super::Values;
use super::batches::{self, parse_batches, show_batches};
use super::programs::{self, parse_programs, show_programs};
use super::routes::{parse_routes, show_routes};
use super::value::{Field, Value};
use super::weights::{self, parse_weights, show_weights};
use super::words::{join_words, split_words};
use offload_http::{Address, TrustedProxy};
use offload_supervisor::limits::SOCKET_PATH_MAX;
use offload_supervisor::units::{parse_duration, parse_size, show_duration, show_size};
use offload_worker::http_app::{HttpTask, check_tasks};
use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

/// The upper bound of values that have none.
pub(super) const ANY: u64 = u64::MAX;

/// The defaults, computed once: the help of each flag needs them, and counting the cores reads files.
static DEFAULTS: LazyLock<Values> = LazyLock::new(Values::default);

/// How a value is written, and its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// A whole number.
    Count(RangeInclusive<u64>),
    /// An amount of memory, in bytes.
    Bytes(RangeInclusive<u64>),
    /// A length of time; the bounds are in milliseconds.
    Time(RangeInclusive<u64>),
    /// `true` or `false`.
    Switch,
    /// The path of a local socket.
    Path,
    /// The path of a file.
    File,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Texts of one kind. A source may set the key several times, or name several with commas between them.
    Texts(TextKind),
    /// Commands. A source may set the key several times, which makes several commands.
    Commands,
    /// Names of tasks with what is said of them, with commas between them; one list for each command of another key.
    TaskLists,
    /// Shares of worker time by the name of the client; a table of its own in the file.
    Weights,
    /// Routes over HTTP; each is a table in the file. A source may set the key several times.
    Routes,
    /// Limits of batches by the name of the task; in the file, a table `[task.NAME]` for each.
    Batches,
    /// Tasks that are programs, by their names; in the file, in the same tables. A source may set the key several times.
    Programs,
}

/// What the texts of a key are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextKind {
    /// Where to listen.
    Address,
    /// A name of this machine.
    Host,
    /// An origin, as browsers name it.
    Origin,
    /// A trusted proxy, or a network of them.
    Proxy,
}

impl TextKind {
    /// The placeholder in the help.
    pub(super) fn placeholder(self) -> &'static str {
        match self {
            TextKind::Address => "ADDRESS",
            TextKind::Host => "NAME",
            TextKind::Origin => "ORIGIN",
            TextKind::Proxy => "NETWORK",
        }
    }

    fn check(self, text: &str) -> Result<(), String> {
        match self {
            TextKind::Address => text.parse::<Address>().map(drop).map_err(|error| error.to_string()),
            TextKind::Host if !is_host(text) => Err(format!(
                "{text:?} is no name of a machine: write each one out, without a port, as in jobs.example"
            )),
            TextKind::Proxy => text.parse::<TrustedProxy>().map(drop).map_err(|error| error.to_string()),
            TextKind::Origin if text == "*" => Ok(()),
            TextKind::Origin if !is_origin(text) => {
                Err(format!("{text:?} is no origin: write it as browsers do, as in https://app.example"))
            }
            TextKind::Host | TextKind::Origin => Ok(()),
        }
    }
}

/// Whether a client would send this in `Host`, before the port. There is no pattern for several: with one for all, any page could make
/// itself a name for this machine.
fn is_host(text: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    !text.is_empty() && text.bytes().all(is_of_name)
}

/// Whether a browser would send this in `Origin` (RFC 6454, 6.2): in lower case, without a default port and without a path.
fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return false };
    let default_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let is_default = !default_port.is_empty() && host.ends_with(default_port);
    let is_plain = !text.contains(|letter: char| letter.is_ascii_uppercase() || letter.is_whitespace());
    is_plain
        && !scheme.is_empty()
        && !host.is_empty()
        && !host.contains(['/', '*', '@', '?', '#'])
        && !is_default
}

/// Which verbs have the flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// Every verb.
    Everywhere,
    /// The verbs that start workers. The key is the number of workers.
    NumberOfWorkers,
    /// The verbs that start workers. The key says which programs the workers run.
    Programs,
    /// The verbs that start workers. The key limits the jobs that these are given.
    Queue,
    /// `serve`, and `config show`, which prints the values that `serve` would run with.
    Supervision,
}

/// How to access the field that holds a setting.
#[derive(Clone, Copy)]
pub(super) struct Access {
    /// To read it.
    pub(super) get: fn(&Values) -> &dyn Field,
    /// To write it.
    pub(super) get_mut: fn(&mut Values) -> &mut dyn Field,
}

/// One setting. Built by [`key`] and the methods below. Everything else about settings is generated from the
/// [`TABLE`](super::table::TABLE) of keys.
pub(crate) struct Key {
    /// Name in the configuration file, with its table: `pool.run_timeout`.
    pub(crate) name: &'static str,
    /// Name on the command line, without the dashes: `run-timeout`.
    pub(crate) flag: &'static str,
    /// Which verbs have the flag.
    pub(crate) group: Group,
    /// How a value is written, and its bounds.
    pub(crate) kind: ValueKind,
    /// One sentence for the help, without a full stop.
    pub(crate) about: &'static str,
    /// Whether a change takes effect only after a restart.
    pub(crate) needs_restart: bool,
    /// Whether the values of several `[[pool]]` tables add up; otherwise they must agree.
    pub(super) adds_up: bool,
    /// A description of the default, if it is not one fixed value.
    default: Option<&'static str>,
    /// An example value for the reference, if the default is none.
    example: Option<&'static str>,
    /// What applies without a value, in one or two words.
    nothing: &'static str,
    /// The environment variable, if it is not named after the flag.
    variable: Option<&'static str>,
    field: Access,
    gives_way: fn(&mut Values),
    check: fn(&Values) -> Result<(), String>,
}

/// A key of `serve` on which several pools must agree, and which a reload can change.
pub(super) const fn key(
    name: &'static str,
    flag: &'static str,
    kind: ValueKind,
    field: Access,
    about: &'static str,
) -> Key {
    Key {
        name,
        flag,
        group: Group::Supervision,
        kind,
        about,
        needs_restart: false,
        adds_up: false,
        default: None,
        example: None,
        nothing: "none",
        variable: None,
        field,
        gives_way: |_| (),
        check: |_| Ok(()),
    }
}

impl Key {
    /// The verbs of `group` have the flag.
    pub(super) const fn in_group(self, group: Group) -> Key {
        Key { group, ..self }
    }

    /// Its variable is not named like its flag.
    pub(super) const fn with_variable(self, variable: &'static str) -> Key {
        Key { variable: Some(variable), ..self }
    }

    /// Its default cannot be told by one value: what it is in words, and a value that can be written in the file.
    pub(super) const fn by_default(self, default: &'static str, example: &'static str) -> Key {
        Key { default: Some(default), example: Some(example), ..self }
    }

    /// Its default is no value, so it cannot be written in the file; this is a value that can.
    pub(super) const fn for_example(self, example: &'static str) -> Key {
        Key { example: Some(example), ..self }
    }

    /// Without a value, this is in effect.
    pub(super) const fn without_it(self, nothing: &'static str) -> Key {
        Key { nothing, ..self }
    }

    /// A reload cannot change it.
    pub(super) const fn that_needs_a_restart(self) -> Key {
        Key { needs_restart: true, ..self }
    }

    /// The values of several pools add up.
    pub(super) const fn added_up(self) -> Key {
        Key { adds_up: true, ..self }
    }

    /// If nobody has set this key, `gives_way` adapts its value to the keys that somebody has set.
    pub(super) const fn giving_way(self, gives_way: fn(&mut Values)) -> Key {
        Key { gives_way, ..self }
    }

    /// Adds a check against the other values; it returns a sentence for the person who set the key.
    pub(super) const fn that_goes_with(self, check: fn(&Values) -> Result<(), String>) -> Key {
        Key { check, ..self }
    }

    /// The environment variable.
    pub(crate) fn variable(&self) -> String {
        let of_flag = || format!("OFFLOAD_{}", self.flag.to_uppercase().replace('-', "_"));
        self.variable.map_or_else(of_flag, str::to_owned)
    }

    /// Its table in the file, and its name in that table. A key that is a table of its own has no such name.
    pub(crate) fn table_and_name(&self) -> (&'static str, Option<&'static str>) {
        self.name.rsplit_once('.').map_or((self.name, None), |(table, name)| (table, Some(name)))
    }

    /// The value in effect.
    pub(crate) fn read(&self, values: &Values) -> Option<Value> {
        (self.field.get)(values).read()
    }

    pub(super) fn write(&self, values: &mut Values, value: Value) {
        (self.field.get_mut)(values).write(value);
    }

    pub(super) fn give_way(&self, values: &mut Values) {
        (self.gives_way)(values);
    }

    /// # Errors
    /// A sentence about the conflict with another value.
    pub(super) fn check_with_others(&self, values: &Values) -> Result<(), String> {
        (self.check)(values)
    }

    /// A value in the form in which people write it.
    pub(crate) fn show(&self, value: Option<&Value>) -> String {
        let Some(value) = value.filter(|value| !is_empty(value)) else {
            return format!("({})", self.nothing);
        };
        match value {
            Value::Number(bytes) if matches!(self.kind, ValueKind::Bytes(_)) => show_size(*bytes),
            Value::Number(count) => count.to_string(),
            Value::Time(time) => show_duration(*time),
            Value::Switch(switch) => switch.to_string(),
            Value::Path(path) => path.to_string_lossy().into_owned(),
            Value::Word(word) => word.clone(),
            Value::Texts(texts) => texts.join(","),
            Value::Commands(lists) if self.kind == ValueKind::TaskLists => {
                let lists: Vec<_> = lists.iter().map(|names| names.join(",")).collect();
                lists.join("; ")
            }
            Value::Commands(commands) => {
                let commands: Vec<_> = commands.iter().map(|words| join_words(words)).collect();
                commands.join("; ")
            }
            Value::Weights(weights) => show_weights(weights),
            Value::Routes(routes) => show_routes(routes),
            Value::Batches(batches) => show_batches(batches),
            Value::Programs(programs) => show_programs(programs),
        }
    }

    /// The default in a few words, for help and reference.
    pub(crate) fn default(&self) -> String {
        let shown = || match self.read(&DEFAULTS).filter(|value| !is_empty(value)) {
            Some(value) => self.show(Some(&value)),
            None => self.nothing.to_owned(),
        };
        self.default.map_or_else(shown, str::to_owned)
    }

    /// Whether the default is one fixed value that can be written.
    #[cfg(test)]
    pub(super) fn has_plain_default(&self) -> bool {
        self.default.is_none() && self.example.is_none()
    }

    /// A value in the form of the file: the default, if that is one fixed value.
    pub(crate) fn example(&self) -> String {
        let text = self.example.map_or_else(|| self.default(), str::to_owned);
        match self.kind {
            ValueKind::Count(_)
            | ValueKind::Switch
            | ValueKind::Weights
            | ValueKind::Batches
            | ValueKind::Programs
            | ValueKind::Routes => text,
            ValueKind::Texts(_) => format!("[\"{text}\"]"),
            ValueKind::Bytes(_)
            | ValueKind::Time(_)
            | ValueKind::Path
            | ValueKind::File
            | ValueKind::Word(_)
            | ValueKind::Commands
            | ValueKind::TaskLists => format!("\"{text}\""),
        }
    }

    /// The bounds in a few words, where there are any.
    pub(crate) fn bounds(&self) -> Option<String> {
        let (ValueKind::Count(bounds) | ValueKind::Bytes(bounds) | ValueKind::Time(bounds)) = &self.kind
        else {
            return None;
        };
        let show = |bound| self.show(Some(&self.of_number(bound)));
        match (*bounds.start(), *bounds.end()) {
            (0, ANY) => None,
            (least, ANY) => Some(format!("at least {}", show(least))),
            (least, most) => Some(format!("from {} to {}", show(least), show(most))),
        }
    }

    /// Parses a value from the command line or a variable.
    ///
    /// # Errors
    /// A sentence for the person who wrote it.
    pub(crate) fn parse(&self, text: &OsStr) -> Result<Value, String> {
        let value = match &self.kind {
            ValueKind::Path | ValueKind::File => Value::Path(PathBuf::from(text)),
            _ => self.parse_unchecked(text.to_str().ok_or("it is not UTF-8")?)?,
        };
        self.check(&value)?;
        Ok(value)
    }

    /// Parses a value without checking its bounds.
    ///
    /// # Errors
    /// A sentence for the person who wrote it.
    pub(super) fn parse_unchecked(&self, text: &str) -> Result<Value, String> {
        match &self.kind {
            ValueKind::Count(_) => parse_count(text).map(Value::Number),
            ValueKind::Bytes(_) => parse_size(text).map(Value::Number),
            ValueKind::Time(_) => parse_duration(text).map(Value::Time),
            ValueKind::Switch => parse_switch(text).map(Value::Switch),
            ValueKind::Path | ValueKind::File => Ok(Value::Path(PathBuf::from(text))),
            ValueKind::Word(words) if !words.contains(&text) => {
                Err(format!("{text:?} is none of {}", words.join(", ")))
            }
            ValueKind::Word(_) => Ok(Value::Word(text.to_owned())),
            ValueKind::Texts(_) => Ok(Value::Texts(separated(text))),
            ValueKind::Commands => split_words(text).map(|words| Value::Commands(vec![words])),
            ValueKind::TaskLists => Ok(Value::Commands(vec![separated(text)])),
            ValueKind::Weights => parse_weights(text).map(Value::Weights),
            ValueKind::Routes => parse_routes(text).map(Value::Routes),
            ValueKind::Batches => parse_batches(text).map(Value::Batches),
            ValueKind::Programs => parse_programs(text).map(Value::Programs),
        }
    }

    /// Whether a value is within its bounds.
    ///
    /// # Errors
    /// A sentence with the bounds.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        match (&self.kind, value) {
            (ValueKind::Count(bounds) | ValueKind::Bytes(bounds), Value::Number(number)) => {
                self.within(bounds, *number)
            }
            (ValueKind::Time(bounds), Value::Time(time)) => {
                self.within(bounds, u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
            }
            (ValueKind::Path, Value::Path(path)) => check_socket(path),
            (ValueKind::File, Value::Path(path)) if path.as_os_str().is_empty() => {
                Err("the path is empty: leave it out for the default, or name one".to_owned())
            }
            (ValueKind::Texts(kind), Value::Texts(texts)) => {
                texts.iter().try_for_each(|text| kind.check(text))
            }
            (ValueKind::TaskLists, Value::Commands(lists)) => {
                lists.iter().try_for_each(|list| http_tasks(list).map(drop))
            }
            (ValueKind::Weights, Value::Weights(weights)) => weights::check(weights),
            (ValueKind::Batches, Value::Batches(batches)) => batches::check(batches),
            (ValueKind::Programs, Value::Programs(programs)) => programs::check(programs),
            _ => Ok(()),
        }
    }

    fn within(&self, bounds: &RangeInclusive<u64>, number: u64) -> Result<(), String> {
        match self.bounds().filter(|_| !bounds.contains(&number)) {
            Some(bounds) => {
                let number = self.show(Some(&self.of_number(number)));
                Err(format!("it must be {bounds}, not {number}"))
            }
            None => Ok(()),
        }
    }

    /// The value for a number in the kind's unit.
    pub(super) fn of_number(&self, number: u64) -> Value {
        match self.kind {
            ValueKind::Time(_) => Value::Time(Duration::from_millis(number)),
            _ => Value::Number(number),
        }
    }
}

fn separated(text: &str) -> Vec<String> {
    text.split(',').map(|text| text.trim().to_owned()).collect()
}

/// The tasks of one HTTP application.
///
/// # Errors
/// A sentence for the person who named them.
pub(crate) fn http_tasks(list: &[String]) -> Result<Vec<HttpTask>, String> {
    let tasks = list.iter().map(|text| text.parse()).collect::<Result<Vec<HttpTask>, _>>()?;
    check_tasks(&tasks).map(|()| tasks)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Commands(commands) => commands.is_empty(),
        Value::Weights(weights) => weights.is_empty(),
        Value::Batches(batches) => batches.is_empty(),
        Value::Programs(programs) => programs.is_empty(),
        Value::Texts(texts) => texts.is_empty(),
        Value::Routes(routes) => routes.is_empty(),
        _ => false,
    }
}

fn parse_count(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a whole number, or too large"))
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

/// Checks that the kernel accepts the path for a socket. A path that is empty, or begins with a zero byte, would not be
/// a file but an abstract name, which every user of the machine can take.
///
/// # Errors
/// A sentence for the person who wrote it.
pub(super) fn check_socket(path: &Path) -> Result<(), String> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.contains(&0) {
        return Err("the path of the socket has a zero byte".to_owned());
    }
    match bytes.len() {
        0 => Err("the path of the socket is empty: leave it out for the default, or name one".to_owned()),
        length if length > SOCKET_PATH_MAX => Err(format!(
            "the path of the socket has {length} bytes, at most {SOCKET_PATH_MAX} are possible: {}",
            path.display()
        )),
        _ => Ok(()),
    }
}

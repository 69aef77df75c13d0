//! Parses the configuration file (TOML) into a [`Layer`]. Error messages name the file, the line and the key; for an
//! unknown key also the nearest known one.

use super::key::{Key, ValueKind};
use super::table::{FILE_TABLES, in_table};
use super::value::Value;
use super::words::split_words;
use super::{ConfigError, Layer, Origin};
use crate::limits::CONFIGURATION_FILE_MAX;
use rustix::fs::{Mode, OFlags, open};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The table that may occur several times.
const POOL: &str = "pool";

/// The key for the name of a pool in messages. It configures nothing, so it is not in the table of settings.
const NAME: &str = "name";

/// Reads the file at `path`.
///
/// # Errors
/// [`ConfigError`] if it cannot be read or says something that is not understood.
pub(crate) fn read_file(path: &Path) -> Result<Layer, ConfigError> {
    let unreadable = |reason: String| ConfigError(format!("cannot read {}: {reason}", path.display()));
    let text = read_regular(path).map_err(unreadable)?;
    parse_file(&text, path)
}

/// Reads the text of a regular file. Reading anything else, such as a pipe, could block for ever. So the file is opened
/// without blocking and checked before it is read.
fn read_regular(path: &Path) -> Result<String, String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let file = File::from(open(path, flags, Mode::empty()).map_err(|error| told(&io::Error::from(error)))?);
    let about = file.metadata().map_err(|error| told(&error))?;
    if !about.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let too_long = |length: u64| Err(format!("{length} bytes, at most {CONFIGURATION_FILE_MAX} are read"));
    if about.len() > CONFIGURATION_FILE_MAX {
        return too_long(about.len());
    }
    // It may grow while it is read.
    let mut text = String::new();
    file.take(CONFIGURATION_FILE_MAX + 1).read_to_string(&mut text).map_err(|error| told(&error))?;
    if text.len() as u64 > CONFIGURATION_FILE_MAX { too_long(text.len() as u64) } else { Ok(text) }
}

/// Reads the text of a configuration file; `path` is only for messages.
///
/// # Errors
/// [`ConfigError`] naming the file, the line, and for an unknown key the nearest known one.
pub(crate) fn parse_file(text: &str, path: &Path) -> Result<Layer, ConfigError> {
    let line_of = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    let place = |span: &Range<usize>| format!("{}:{}", path.display(), line_of(span.start));
    let error = |(span, message): Misplaced| ConfigError(format!("{}: {message}", place(&span)));
    let file = DeTable::parse(text)
        .map_err(|mistake| error((mistake.span().unwrap_or_default(), mistake.message().to_owned())))?;
    let values = read_tables(file.get_ref()).map_err(error)?;
    let mut layer = Layer::new(Origin::File);
    for SpannedValue { key, value, span } in values {
        layer.set(key, value, format!("{}: {}", place(&span), key.name));
    }
    Ok(layer)
}

/// The position of a mistake, and its description.
type Misplaced = (Range<usize>, String);

/// A value and its position.
struct SpannedValue {
    key: &'static Key,
    value: Value,
    span: Range<usize>,
}

fn read_tables(file: &DeTable<'_>) -> Result<Vec<SpannedValue>, Misplaced> {
    let tables: Vec<_> = FILE_TABLES.into_iter().filter(|table| !table.contains('.')).collect();
    check_names(file, &tables, "as a table")?;
    let mut values = Vec::new();
    for (name, value) in file {
        check_brackets(name.get_ref(), value).map_err(|message| (name.span(), message))?;
        // Known, as was just checked.
        let Some(table) = tables.iter().find(|table| **table == name.get_ref()) else { continue };
        match *table {
            POOL => values.extend(read_pools(value)?),
            table => read_table(table, value, &mut values)?,
        }
    }
    for one in &values {
        one.key.check(&one.value).map_err(|reason| one.misplaced(&reason))?;
    }
    Ok(values)
}

/// Checks that `[[...]]` is used for the table that may occur several times, and for no other.
fn check_brackets(name: &str, value: &Spanned<DeValue<'_>>) -> Result<(), String> {
    match (name, value.get_ref()) {
        (POOL, DeValue::Array(_)) => Ok(()),
        (POOL, _) => {
            Err("[pool] is written [[pool]], with two brackets, because there may be several".to_owned())
        }
        (_, DeValue::Table(_)) => Ok(()),
        (_, DeValue::Array(_)) => {
            Err(format!("[[{name}]] is written [{name}], with one bracket, because there is only one"))
        }
        (_, other) => Err(format!("{name}: a table is expected, not {}", kind_of(other))),
    }
}

/// Reads a table of the file, with the tables in it.
fn read_table(
    table: &'static str,
    written: &Spanned<DeValue<'_>>,
    values: &mut Vec<SpannedValue>,
) -> Result<(), Misplaced> {
    let Some(entries) = written.get_ref().as_table() else {
        let message = format!("{table}: a table is expected, not {}", kind_of(written.get_ref()));
        return Err((written.span(), message));
    };
    if let Some(key) = in_table(table).find(|key| key.table_and_name().1.is_none()) {
        return read_key(key, written, values);
    }
    let inner = |name: &str| FILE_TABLES.into_iter().find(|inner| *inner == format!("{table}.{name}"));
    check_names(entries, &names_in(table), &place_of(table))?;
    for (name, value) in entries {
        let name = name.get_ref();
        if let Some(inner) = inner(name) {
            read_table(inner, value, values)?;
        } else if let Some(key) = in_table(table).find(|key| key.table_and_name().1 == Some(name)) {
            read_key(key, value, values)?;
        }
    }
    Ok(())
}

fn read_key(
    key: &'static Key,
    value: &Spanned<DeValue<'_>>,
    values: &mut Vec<SpannedValue>,
) -> Result<(), Misplaced> {
    let at = |message: String| (value.span(), format!("{}: {message}", key.name));
    let read = match (&key.kind, value.get_ref()) {
        // A heading alone says nothing.
        (ValueKind::Weights, DeValue::Table(entries)) if entries.is_empty() => return Ok(()),
        (ValueKind::Weights, DeValue::Table(entries)) => read_weights(key, entries)?,
        (_, written) => read_value(key, written).map_err(at)?,
    };
    values.push(SpannedValue { key, value: read, span: value.span() });
    Ok(())
}

/// Reads a table whose keys are client names. Each mistake is reported with its own line.
fn read_weights(key: &Key, entries: &DeTable<'_>) -> Result<Value, Misplaced> {
    let mut weights = BTreeMap::new();
    for (name, written) in entries {
        let at = |message: String| (written.span(), format!("{}: {message}", key.name));
        let of_name = |message: String| at(format!("{}: {message}", name.get_ref()));
        let number = number(written.get_ref()).map_err(of_name)?;
        let weight = u32::try_from(number).map_err(|_| of_name(format!("{number} is too large")))?;
        let one = BTreeMap::from([(name.get_ref().to_string(), weight)]);
        key.check(&Value::Weights(one.clone())).map_err(at)?;
        weights.extend(one);
    }
    Ok(Value::Weights(weights))
}

/// The names that are allowed in this table.
fn names_in(table: &'static str) -> Vec<&'static str> {
    let name = (table == POOL).then_some(NAME);
    let keys = in_table(table).filter_map(|key| key.table_and_name().1);
    let inner = FILE_TABLES.into_iter().filter_map(|inner| inner.strip_prefix(table)?.strip_prefix('.'));
    name.into_iter().chain(keys).chain(inner).collect()
}

fn place_of(table: &str) -> String {
    match table.split_once('.') {
        None if table == POOL => format!("in [[{table}]]"),
        None => format!("in [{table}]"),
        Some((outer, inner)) => format!("in {inner} of [[{outer}]]"),
    }
}

fn check_names(table: &DeTable<'_>, known: &[&str], place: &str) -> Result<(), Misplaced> {
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

/// Merges all `[[pool]]` tables into one pool: commands and numbers of workers add up, all other values must agree.
fn read_pools(pools: &Spanned<DeValue<'_>>) -> Result<Vec<SpannedValue>, Misplaced> {
    let mut all = BTreeMap::<&str, SpannedValue>::new();
    let mut names = BTreeSet::new();
    for pool in pools.get_ref().as_array().into_iter().flatten() {
        let mut values = Vec::new();
        read_table(POOL, pool, &mut values)?;
        if let Some(name) = pool.get_ref().get(NAME) {
            check_pool_name(name.get_ref(), &mut names).map_err(|reason| (name.span(), reason))?;
        }
        for one in values {
            let one = match all.remove(one.key.name) {
                Some(before) => before.and(one)?,
                None => one,
            };
            all.insert(one.key.name, one);
        }
    }
    Ok(all.into_values().collect())
}

/// Checks that no earlier pool has this name.
fn check_pool_name(name: &DeValue<'_>, before: &mut BTreeSet<String>) -> Result<(), String> {
    match name.as_str() {
        None => Err(format!("pool.name: a text is expected, not {}", kind_of(name))),
        Some("") => Err("pool.name: it is empty: leave it out, or name the pool".to_owned()),
        Some(name) if !before.insert(name.to_owned()) => {
            Err(format!("pool.name: {name:?} is the name of a pool before it, too"))
        }
        Some(_) => Ok(()),
    }
}

impl SpannedValue {
    fn misplaced(&self, reason: &str) -> Misplaced {
        (self.span.clone(), format!("{}: {reason}", self.key.name))
    }

    /// Merges this pool with a later one.
    fn and(self, later: SpannedValue) -> Result<SpannedValue, Misplaced> {
        let SpannedValue { key, value, span } = later;
        if !key.adds_up && value != self.value {
            let [value, before] = [&value, &self.value].map(|value| key.show(Some(value)));
            let message = format!(
                "{}: {value} here and {before} in a pool before it; it holds for all pools",
                key.name
            );
            return Err((span, message));
        }
        match key.adds_up {
            true => Ok(SpannedValue { key, value: self.value.and(value), span }),
            false => Ok(self),
        }
    }
}

/// Reads a TOML value. Its bounds are checked after all pools are merged.
fn read_value(key: &Key, written: &DeValue<'_>) -> Result<Value, String> {
    let expected = |what: &str| Err(format!("{what} is expected, not {}", kind_of(written)));
    match (&key.kind, written) {
        (ValueKind::Count(_), DeValue::Integer(_)) => number(written).map(Value::Number),
        (ValueKind::Count(_), _) => expected("a whole number"),
        (ValueKind::Bytes(_), DeValue::Integer(_)) => number(written).map(Value::Number),
        (ValueKind::Switch, DeValue::Boolean(switch)) => Ok(Value::Switch(*switch)),
        (ValueKind::Switch, _) => expected("true or false"),
        (ValueKind::Commands, DeValue::Array(_)) => words(written).map(|words| Value::Commands(vec![words])),
        (ValueKind::Commands, DeValue::String(line)) => {
            split_words(line).map(|words| Value::Commands(vec![words]))
        }
        (ValueKind::Commands, _) => expected("a text or a list of words"),
        (ValueKind::Weights, _) => expected("a table"),
        (_, DeValue::String(text)) => key.parse_unchecked(text),
        (ValueKind::Bytes(_), _) => expected("a size such as \"64MiB\""),
        (ValueKind::Time(_), _) => expected("a duration such as \"10s\""),
        (ValueKind::Path, _) => expected("a path"),
    }
}

fn number(written: &DeValue<'_>) -> Result<u64, String> {
    let integer = written.as_integer();
    let number = integer.and_then(|integer| u64::from_str_radix(integer.as_str(), integer.radix()).ok());
    number.ok_or_else(|| match integer {
        Some(integer) => format!("{integer} is not a whole number from 0 on, or too large"),
        None => format!("a whole number is expected, not {}", kind_of(written)),
    })
}

fn words(written: &DeValue<'_>) -> Result<Vec<String>, String> {
    let words = written.as_array().into_iter().flatten();
    let words: Option<Vec<_>> = words.map(|word| word.get_ref().as_str().map(str::to_owned)).collect();
    match words {
        Some(words) if words.is_empty() => Err("an empty command".to_owned()),
        Some(words) => Ok(words),
        None => Err("each word of a command is a text".to_owned()),
    }
}

fn kind_of(written: &DeValue<'_>) -> String {
    match written {
        DeValue::String(text) => format!("the text {text:?}"),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(switch) => switch.to_string(),
        DeValue::Datetime(time) => format!("the time {time}"),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Layer, String> {
        parse_file(text, Path::new("offload.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn numbers_are_written_as_toml_has_them() {
        let layer = parse("[supervisor]\nmax_payload = 1_048_576\nmax_bytes = 0x4000_0000").unwrap();
        assert_eq!(layer.values["supervisor.max_payload"].value, Value::Number(1 << 20));
        assert_eq!(layer.values["supervisor.max_bytes"].value, Value::Number(1 << 30));
    }

    #[test]
    fn an_empty_file_sets_nothing() {
        assert_eq!(parse(""), Ok(Layer::new(Origin::File)));
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
    fn a_value_of_the_wrong_kind_is_told_with_its_line_and_its_key() {
        for (text, expected) in [
            (
                "[supervisor]\n\nmax_jobs = \"many\"",
                "3: supervisor.max_jobs: a whole number is expected, not the text \"many\"",
            ),
            (
                "[supervisor]\nmax_jobs = -1",
                "2: supervisor.max_jobs: -1 is not a whole number from 0 on, or too large",
            ),
            (
                "[supervisor]\nmax_jobs = 1.5",
                "2: supervisor.max_jobs: a whole number is expected, not the number 1.5",
            ),
            (
                "[supervisor]\ndrain_timeout = 10",
                "2: supervisor.drain_timeout: a duration such as \"10s\" is expected, not the number 10",
            ),
            (
                "[supervisor]\nmax_bytes = true",
                "2: supervisor.max_bytes: a size such as \"64MiB\" is expected, not true",
            ),
            ("[supervisor]\nsocket = []", "2: supervisor.socket: a path is expected, not a list"),
            ("[[pool]]\naffinity = 1", "2: pool.affinity: true or false is expected, not the number 1"),
            ("[[pool]]\ncommand = {}", "2: pool.command: a text or a list of words is expected, not a table"),
            ("[[pool]]\ncommand = [1]", "2: pool.command: each word of a command is a text"),
            ("[[pool]]\ncommand = []", "2: pool.command: an empty command"),
            ("[[pool]]\nname = 1979-05-27", "2: pool.name: a text is expected, not the time 1979-05-27"),
            ("[[pool]]\nrestart = 3", "2: pool.restart: a table is expected, not the number 3"),
            ("pool = [3]", "1: pool: a table is expected, not the number 3"),
            ("supervisor = 3", "1: supervisor: a table is expected, not the number 3"),
            ("[clients]\na = 1\nb = \"x\"", "3: clients: b: a whole number is expected, not the text \"x\""),
            ("[clients]\na = 0", "2: clients: the share of client \"a\" must be from 1 to 1000, not 0"),
        ] {
            assert_eq!(parse(text).unwrap_err(), format!("offload.toml:{expected}"));
        }
        let message = parse("[supervisor]\ndrain_timeout = \"10\"").unwrap_err();
        assert!(
            message.contains("2: supervisor.drain_timeout: \"10\"") && message.contains("250ms"),
            "{message}"
        );
        assert!(parse("\n[supervisor\n").unwrap_err().starts_with("offload.toml:2: "));
    }

    #[test]
    fn several_pools_add_their_commands_and_workers() {
        let layer = parse(
            "[[pool]]\ncommand = \"a\"\nworkers = 2\n[[pool]]\ncommand = [\"b\", \"c d\"]\nworkers = 3",
        )
        .unwrap();
        assert_eq!(layer.values["pool.workers"].value, Value::Number(5));
        let commands = [vec!["a".to_owned()], vec!["b".to_owned(), "c d".to_owned()]].to_vec();
        assert_eq!(layer.values["pool.command"].value, Value::Commands(commands));
        let message = parse("[[pool]]\nworkers = 200\n[[pool]]\nworkers = 100").unwrap_err();
        assert_eq!(message, "offload.toml:4: pool.workers: it must be from 1 to 256, not 300");
    }

    #[test]
    fn several_pools_cannot_differ_in_what_they_share() {
        assert!(parse("[[pool]]\nspares = 1\n[[pool]]\nspares = 1").is_ok());
        let message = parse("[[pool]]\nspares = 1\n[[pool]]\nname = \"b\"\nspares = 0").unwrap_err();
        assert_eq!(
            message,
            "offload.toml:5: pool.spares: 0 here and 1 in a pool before it; it holds for all pools"
        );
    }

    #[test]
    fn two_pools_do_not_have_one_name() {
        assert!(parse("[[pool]]\nname = \"a\"\n[[pool]]\nname = \"b\"\n[[pool]]\n[[pool]]").is_ok());
        let message = parse("[[pool]]\nname = \"a\"\n[[pool]]\n\nname = \"a\"").unwrap_err();
        assert_eq!(message, "offload.toml:5: pool.name: \"a\" is the name of a pool before it, too");
        assert!(
            parse("[[pool]]\nname = \"\"").unwrap_err().starts_with("offload.toml:2: pool.name: it is empty")
        );
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
        std::fs::write(&path, "#".repeat(CONFIGURATION_FILE_MAX as usize + 1)).unwrap();
        assert!(read_file(&path).unwrap_err().to_string().contains("at most 1048576 are read"));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let message = read_file(Path::new("/nonexistent/offload.toml")).unwrap_err().to_string();
        assert!(message.starts_with("cannot read /nonexistent/offload.toml: "), "{message}");
    }
}

//! Parses the configuration file (TOML) into a [`Layer`]. Error messages name the file, the line and the key; for an
//! unknown key also the nearest known one.

use super::key::{Key, ValueKind};
use super::surroundings;
use super::table::{
    BUILTIN, COMMAND, FILE_TABLES, HTTP, JSONL, ROUTE, TABLE, TASK, TASKS, command_key, in_table,
};
use super::value::Value;
use super::words::split_words;
use super::{ConfigError, ConfigFile, Layer, Origin};
use crate::limits::CONFIGURATION_FILE_MAX;
use rustix::fs::{Mode, OFlags, open};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use unknown::unknown_key;

/// The table that may occur several times.
const POOL: &str = "pool";

/// Other names of keys: their table, their name there, and the key.
const ALSO: [(&str, &str, &str); 1] = [("supervisor", "http", "http.listen")];

/// The key for the name of a pool in messages. It configures nothing, so it is not in the table of settings.
const NAME: &str = "name";

/// What is no key, because others may read the configuration file.
const TOKEN: &str = "token";

/// Of a list of media types that is empty. It would read as if nothing were accepted, and everything would be.
const NO_TYPE: &str = "[] names no media type: name at least one, or leave the key out, and any is accepted";

/// Reads a file.
///
/// # Errors
/// [`ConfigError`] if it cannot be read or says something that is not understood.
pub(crate) fn read_file(file: &ConfigFile) -> Result<Layer, ConfigError> {
    parse_file(&read_text(file)?, file.path())
}

/// Reads only this key of a file. Mistakes in other keys are not looked at.
///
/// # Errors
/// [`ConfigError`] if the file cannot be read, is no TOML, or has a value of this key that is not understood.
pub(crate) fn read_key_of_file(key: &'static Key, file: &ConfigFile) -> Result<Layer, ConfigError> {
    parse(&read_text(file)?, file.path(), |tables| read_one(key, tables))
}

fn read_text(file: &ConfigFile) -> Result<String, ConfigError> {
    let path = file.path().display();
    read_regular(file).map_err(|reason| {
        let remedy = if file.path().exists() {
            String::new()
        } else {
            format!("; `offload config init {path}` writes one")
        };
        ConfigError(format!("cannot read {path}: {reason}{remedy}"))
    })
}

/// Reads the text of a regular file. Reading anything else, such as a pipe, could block for ever. So the file is opened
/// without blocking and checked before it is read.
fn read_regular(config: &ConfigFile) -> Result<String, String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let opened = open(config.path(), flags, Mode::empty());
    let file = File::from(opened.map_err(|error| told(&io::Error::from(error)))?);
    let about = file.metadata().map_err(|error| told(&error))?;
    if !about.is_file() {
        return Err("it is no regular file".to_owned());
    }
    config.check_owner(&about)?;
    let too_long = |length: u64| Err(format!("{length} bytes, at most {CONFIGURATION_FILE_MAX} are read"));
    if about.len() > CONFIGURATION_FILE_MAX {
        return too_long(about.len());
    }
    // It may grow while it is read.
    let mut text = String::new();
    file.take(CONFIGURATION_FILE_MAX + 1).read_to_string(&mut text).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => "it is no text in UTF-8".to_owned(),
        _ => told(&error),
    })?;
    if text.len() as u64 > CONFIGURATION_FILE_MAX { too_long(text.len() as u64) } else { Ok(text) }
}

/// Reads the text of a configuration file; `path` is only for messages.
///
/// # Errors
/// [`ConfigError`] naming the file, the line, and for an unknown key the nearest known one.
pub(crate) fn parse_file(text: &str, path: &Path) -> Result<Layer, ConfigError> {
    parse(text, path, read_tables)
}

fn parse(
    text: &str,
    path: &Path,
    read: impl FnOnce(&DeTable<'_>) -> Result<Vec<SpannedValue>, Misplaced>,
) -> Result<Layer, ConfigError> {
    let line_of = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    let place = |span: &Range<usize>| format!("{}:{}", path.display(), line_of(span.start));
    let error = |(span, message): Misplaced| ConfigError(format!("{}: {message}", place(&span)));
    let file = DeTable::parse(text)
        .map_err(|mistake| error((mistake.span().unwrap_or_default(), mistake.message().to_owned())))?;
    let values = read(file.get_ref()).map_err(error)?;
    let mut layer = Layer::new(Origin::File);
    for SpannedValue { key, value, span } in values {
        layer.set(key, value, format!("{}: {}", place(&span), key.name));
    }
    for (name, _) in
        file.get_ref().get(TASK).and_then(|tasks| tasks.get_ref().as_table()).into_iter().flatten()
    {
        let place = format!("{}: {TASK}.{}", place(&name.span()), name.get_ref());
        layer.tasks.insert(name.get_ref().to_string(), place);
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
            ROUTE => values.extend(routes::read(value)?),
            TASK => values.extend(tasks::read(value)?),
            table => read_table(table, value, &mut values)?,
        }
    }
    check_values(&values)?;
    check_twice(&values)?;
    Ok(values)
}

/// A key that has two names is written under one of them.
fn check_twice(values: &[SpannedValue]) -> Result<(), Misplaced> {
    for (table, name, key) in ALSO {
        let mut written = values.iter().filter(|one| one.key.name == key);
        if let (Some(_), Some(again)) = (written.next(), written.next()) {
            return Err(again.misplaced(&format!("{table}.{name} says the same: write one of the two")));
        }
    }
    Ok(())
}

fn check_values(values: &[SpannedValue]) -> Result<(), Misplaced> {
    values.iter().try_for_each(|one| one.key.check(&one.value).map_err(|reason| one.misplaced(&reason)))
}

/// The value of one key that is in a table of its own name, and not in a `[[pool]]`.
fn read_one(key: &'static Key, file: &DeTable<'_>) -> Result<Vec<SpannedValue>, Misplaced> {
    let (table, name) = key.table_and_name();
    let found = || file.get(table)?.get_ref().as_table()?.get(name?);
    let mut values = Vec::new();
    if let Some(written) = found() {
        read_key(key, written, &mut values)?;
    }
    check_values(&values)?;
    Ok(values)
}

/// Checks that `[[...]]` is used for the table that may occur several times, and for no other.
fn check_brackets(name: &str, value: &Spanned<DeValue<'_>>) -> Result<(), String> {
    match (name, value.get_ref()) {
        (POOL | ROUTE, DeValue::Array(_)) => Ok(()),
        (POOL | ROUTE, _) => {
            Err(format!("[{name}] is written [[{name}]], with two brackets, because there may be several"))
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
        } else if let Some(key) = also_called(table, name) {
            read_key(key, value, values)?;
        }
    }
    Ok(())
}

fn also_called(table: &str, name: &str) -> Option<&'static Key> {
    let (.., key) = ALSO.into_iter().find(|(its, called, _)| (*its, *called) == (table, name))?;
    TABLE.iter().find(|known| known.name == key)
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
    let name = if table == POOL { [&[NAME][..], &surroundings::FIELDS].concat() } else { Vec::new() };
    let keys = in_table(table).filter_map(|key| key.table_and_name().1);
    let inner = FILE_TABLES.into_iter().filter_map(|inner| inner.strip_prefix(table)?.strip_prefix('.'));
    let also = ALSO.into_iter().filter(|(its, ..)| *its == table).map(|(_, name, _)| name);
    name.into_iter().chain(keys).chain(also).chain(inner).collect()
}

fn place_of(table: &str) -> String {
    match table.split_once('.') {
        None if table == POOL || table == ROUTE => format!("in [[{table}]]"),
        None => format!("in [{table}]"),
        Some((POOL, inner)) => format!("in {inner} of [[{POOL}]]"),
        Some((outer, inner)) => format!("in {inner} of [{outer}]"),
    }
}

fn check_names(table: &DeTable<'_>, known: &[&str], place: &str) -> Result<(), Misplaced> {
    let unknown = table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
    match unknown.min_by_key(|key| key.span().start) {
        Some(key) => Err((key.span(), unknown_key(key.get_ref(), known, place))),
        None => Ok(()),
    }
}

/// Merges all `[[pool]]` tables into one pool: commands and numbers of workers add up, all other values must agree. A
/// pool without a command adds the built-in one.
fn read_pools(pools: &Spanned<DeValue<'_>>) -> Result<Vec<SpannedValue>, Misplaced> {
    let mut all = BTreeMap::<&str, SpannedValue>::new();
    let mut names = BTreeSet::new();
    let mut without_command = None;
    let pools = pools.get_ref().as_array().into_iter().flatten();
    let count = pools.clone().count();
    for pool in pools {
        let mut values = Vec::new();
        read_table(POOL, pool, &mut values)?;
        if let Some(name) = pool.get_ref().get(NAME) {
            check_pool_name(name.get_ref(), &mut names).map_err(|reason| (name.span(), reason))?;
        }
        let said = read_surroundings(pool)?;
        for one in values.iter_mut().filter(|one| [COMMAND, JSONL, HTTP].contains(&one.key.name)) {
            one.add_surroundings(&said);
        }
        let has = |name: &str| values.iter().any(|one| one.key.name == name);
        if ![COMMAND, JSONL, HTTP].into_iter().any(has) {
            if !said.is_empty() {
                let fields = surroundings::FIELDS.join(", ");
                return Err((pool.span(), format!("this [[pool]] has no program for its {fields}")));
            }
            without_command.get_or_insert(pool.span());
        }
        if count > 1 && has(HTTP) != has(TASKS) {
            let message = "an HTTP application and its tasks are in the same [[pool]]: `http` and `tasks`";
            return Err((pool.span(), message.to_owned()));
        }
        for one in values {
            let one = match all.remove(one.key.name) {
                Some(before) => before.and(one)?,
                None => one,
            };
            all.insert(one.key.name, one);
        }
    }
    if let Some(span) = without_command
        && [COMMAND, JSONL, HTTP].into_iter().any(|name| all.contains_key(name))
    {
        let (key, value) = (command_key(), Value::Commands(Vec::new()));
        let commands = all.entry(COMMAND).or_insert(SpannedValue { key, value, span: span.clone() });
        commands.add_default_command(span);
    }
    Ok(all.into_values().collect())
}

/// What a pool says of its program, as texts of the flag.
fn read_surroundings(pool: &Spanned<DeValue<'_>>) -> Result<Vec<(&'static str, String)>, Misplaced> {
    let mut said = Vec::new();
    for field in surroundings::FIELDS {
        let Some(written) = pool.get_ref().get(field) else { continue };
        let expected = |what: &str| Err((written.span(), format!("pool.{field}: {what} is expected")));
        match (field, written.get_ref()) {
            (surroundings::ENVIRONMENT, DeValue::Table(variables)) => {
                for (name, value) in variables {
                    let Some(text) = value.get_ref().as_str() else { return expected("a table of texts") };
                    said.push((field, format!("{}={text}", name.get_ref())));
                }
            }
            (surroundings::ENVIRONMENT, _) => return expected("a table of texts"),
            (surroundings::FOLDER, DeValue::String(text)) => said.push((field, text.to_string())),
            (surroundings::FOLDER, _) => return expected("a path"),
            (_, DeValue::Integer(number)) => said.push((field, number.to_string())),
            (..) => return expected("a whole number"),
        }
    }
    Ok(said)
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

    /// Puts what a pool says of its program in front of the command.
    fn add_surroundings(&mut self, said: &[(&str, String)]) {
        if let Value::Commands(commands) = &mut self.value {
            commands
                .iter_mut()
                .for_each(|words| *words = surroundings::with_fields(said, std::mem::take(words)));
        }
    }

    /// Beside pools with commands, a pool without one runs the built-in tasks, as it does alone.
    fn add_default_command(&mut self, span: Range<usize>) {
        let Value::Commands(commands) = &mut self.value else { return };
        let builtin = vec![BUILTIN.to_owned()];
        if !commands.contains(&builtin) {
            commands.push(builtin);
            self.span = span;
        }
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
            true => match self.value.and(value) {
                Ok(value) => Ok(SpannedValue { key, value, span }),
                Err(reason) => Err((span, format!("{}: {reason}", key.name))),
            },
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
        (ValueKind::TaskLists, DeValue::Array(_)) => words(written).map(|names| Value::Commands(vec![names])),
        (ValueKind::TaskLists, DeValue::String(text)) => key.parse_unchecked(text),
        (ValueKind::TaskLists, _) => expected("a list of names"),
        (ValueKind::Texts(_), DeValue::Array(_)) => words(written).map(Value::Texts),
        (ValueKind::Texts(_), DeValue::String(text)) => Ok(Value::Texts(vec![text.to_string()])),
        (ValueKind::Texts(_), _) => expected("a text or a list of texts"),
        (ValueKind::Weights | ValueKind::Batches | ValueKind::Programs | ValueKind::Routes, _) => {
            expected("a table")
        }
        (_, DeValue::String(text)) => key.parse_unchecked(text),
        (ValueKind::Bytes(_), _) => expected("a size such as \"64MiB\""),
        (ValueKind::Time(_), _) => expected("a duration such as \"10s\""),
        (ValueKind::Path | ValueKind::File, _) => expected("a path"),
        (ValueKind::Word(words), _) => expected(&format!("one of {}", words.join(", "))),
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

mod routes;
mod tasks;
#[cfg(test)]
mod tests;
mod unknown;

//! Reads the tables `[task.NAME]`. Each mistake is reported with the line of the field that is wrong.

use super::super::batches::parse_wait;
use super::super::key::ValueKind;
use super::super::programs::{EXEC, FIELDS, TaskProgram};
use super::super::table::{TASK, in_table};
use super::{Misplaced, NO_TYPE, SpannedValue, Value, kind_of, number, unknown_key, words};
use offload_core::batches::BatchLimits;
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The field of a task that is no program.
const BATCH: &str = "batch";

type Written<'a> = Spanned<DeValue<'a>>;

/// What all these tables say, as the values of two keys.
pub(super) fn read(tables: &Written<'_>) -> Result<Vec<SpannedValue>, Misplaced> {
    let (mut batches, mut programs) = (BTreeMap::new(), BTreeMap::new());
    for (name, written) in tables.get_ref().as_table().into_iter().flatten() {
        let name = name.get_ref().to_string();
        let DeValue::Table(fields) = written.get_ref() else {
            let message = format!("{TASK}.{name}: a table is expected, not {}", kind_of(written.get_ref()));
            return Err((written.span(), message));
        };
        if let Some(limits) = fields.get(BATCH) {
            batches.insert(name.clone(), read_batch(&name, limits)?);
            check(&ValueKind::Batches, &Value::Batches(only(&batches, &name)), limits)?;
        }
        if let Some(program) = read_program(&name, fields)? {
            programs.insert(name.clone(), program);
            check(&ValueKind::Programs, &Value::Programs(only(&programs, &name)), written)?;
        }
    }
    let mut values = Vec::new();
    let mut say = |kind: ValueKind, value: Value, is_said: bool| {
        let key = in_table(TASK).find(|key| key.kind == kind).filter(|_| is_said);
        values.extend(key.map(|key| SpannedValue { key, value, span: tables.span() }));
    };
    say(ValueKind::Batches, Value::Batches(batches.clone()), !batches.is_empty());
    say(ValueKind::Programs, Value::Programs(programs.clone()), !programs.is_empty());
    Ok(values)
}

fn only<T: Clone>(all: &BTreeMap<String, T>, name: &str) -> BTreeMap<String, T> {
    all.get(name).map(|one| (name.to_owned(), one.clone())).into_iter().collect()
}

fn check(kind: &ValueKind, value: &Value, written: &Written<'_>) -> Result<(), Misplaced> {
    let checked = in_table(TASK).filter(|key| key.kind == *kind).try_for_each(|key| key.check(value));
    checked.map_err(|message| (written.span(), format!("{TASK}: {message}")))
}

/// `{ max = N, wait = TIME }`.
fn read_batch(task: &str, written: &Written<'_>) -> Result<BatchLimits, Misplaced> {
    let at = |written: &Written<'_>, message: String| {
        (written.span(), format!("{TASK}.{task}: {BATCH}: {message}"))
    };
    let DeValue::Table(limits) = written.get_ref() else {
        return Err(at(written, "must be a table such as { max = 8, wait = \"2ms\" }".to_owned()));
    };
    let mut read = BatchLimits::default();
    for (name, written) in limits {
        match (&**name.get_ref(), written.get_ref()) {
            ("max", value @ DeValue::Integer(_)) => {
                let max = number(value).map_err(|message| at(written, message))?;
                read.max = Some(u32::try_from(max).unwrap_or(u32::MAX));
            }
            ("wait", DeValue::String(text)) => {
                read.wait = Some(parse_wait(text).map_err(|message| at(written, message))?);
            }
            ("max", _) => return Err(at(written, "max must be a whole number".to_owned())),
            ("wait", _) => return Err(at(written, "wait must be a duration such as \"2ms\"".to_owned())),
            (other, _) => return Err(at(written, format!("{other:?} is unknown; there are: max, wait"))),
        }
    }
    Ok(read)
}

/// The program of a task, if the table says anything of one.
fn read_program(task: &str, fields: &DeTable<'_>) -> Result<Option<TaskProgram>, Misplaced> {
    let mut program = None;
    for (name, written) in fields {
        let name = name.get_ref();
        if *name == BATCH {
            continue;
        }
        let known: Vec<&str> = FIELDS.into_iter().chain([BATCH]).collect();
        if !known.contains(&&**name) {
            return Err((written.span(), unknown_key(name, &known, &format!("in [{TASK}.{task}]"))));
        }
        let at = |message: String| (written.span(), format!("{TASK}.{task}.{name}: {message}"));
        set(program.get_or_insert_with(TaskProgram::default), name, written.get_ref()).map_err(at)?;
    }
    Ok(program)
}

fn set(program: &mut TaskProgram, field: &str, written: &DeValue<'_>) -> Result<(), String> {
    match (field, written) {
        (EXEC, DeValue::Array(_)) => program.words = words(written)?,
        _ => texts(field, written)?.iter().try_for_each(|text| program.set(field, text))?,
    }
    Ok(())
}

/// The texts by which a field is set: one, unless it may have several.
fn texts(field: &str, written: &DeValue<'_>) -> Result<Vec<String>, String> {
    let text = |written: &DeValue<'_>| match written {
        DeValue::String(text) => Ok(text.to_string()),
        other => Err(format!("a text is expected, not {}", kind_of(other))),
    };
    let integer = |written: &DeValue<'_>| number(written).map(|number| number.to_string());
    match (field, written) {
        ("memory" | "file_size", DeValue::Integer(_)) => Ok(vec![integer(written)?]),
        ("success", DeValue::Array(list)) => list.iter().map(|one| integer(one.get_ref())).collect(),
        ("success", written) => Ok(vec![integer(written)?]),
        ("idempotent", DeValue::Boolean(is)) => Ok(vec![is.to_string()]),
        ("idempotent", other) => Err(format!("true or false is expected, not {}", kind_of(other))),
        ("accepts", DeValue::Array(list)) if list.is_empty() => Err(NO_TYPE.to_owned()),
        ("accepts", DeValue::Array(list)) => list.iter().map(|one| text(one.get_ref())).collect(),
        ("env", DeValue::Table(pairs)) => {
            let pair = |(name, value): (&Spanned<_>, &Written<'_>)| {
                text(value.get_ref()).map(|value| format!("{}={value}", name.get_ref()))
            };
            pairs.iter().map(pair).collect()
        }
        ("env", other) => Err(format!("a table of texts is expected, not {}", kind_of(other))),
        (_, written) => Ok(vec![text(written)?]),
    }
}

//! What is said of a key that there is not: the table that has it, or the nearest known one.

use super::super::table::{FILE_TABLES, ROUTE};
use super::{POOL, TOKEN, names_in};

/// The table of which this is a key, as it is written.
fn table_of(key: &str) -> Option<String> {
    let table = FILE_TABLES.into_iter().find(|table| names_in(table).contains(&key))?;
    Some(if [POOL, ROUTE].contains(&table) { format!("[[{table}]]") } else { format!("[{table}]") })
}

pub(super) fn unknown_key(key: &str, known: &[&str], place: &str) -> String {
    if let Some(table) = table_of(key) {
        return format!("unknown key {key:?} {place}; it is a key of {table}");
    }
    if key == TOKEN {
        return format!(
            "unknown key {key:?} {place}; write it to a file of mode 0600, and name that as token_file"
        );
    }
    let nearest = known.iter().map(|name| (strsim::damerau_levenshtein(key, name), name)).min();
    // A key of another table has to be nearer than any of this one: one letter is wrong, of four or more.
    let is_almost = |name: &&str| name.len() > 3 && strsim::damerau_levenshtein(key, name) == 1;
    let elsewhere = || FILE_TABLES.into_iter().flat_map(names_in).find(is_almost);
    if let Some(name) = nearest.filter(|(distance, _)| *distance > 1).and_then(|_| elsewhere()) {
        let table = table_of(name).unwrap_or_default();
        return format!("unknown key {key:?} {place}; did you mean {name:?} in {table}?");
    }
    match nearest {
        Some((distance, name)) if distance <= 1 + name.len() / 3 => {
            format!("unknown key {key:?} {place}; did you mean {name:?}?")
        }
        _ => format!("unknown key {key:?} {place}; known are {}", known.join(", ")),
    }
}

//! Reads the `[[route]]` tables. Each mistake is reported with the line of the field that is wrong.

use super::super::routes::{Draft, FIELDS};
use super::super::table::{ROUTE, in_table};
use super::{Misplaced, NO_TYPE, SpannedValue, Value, check_names, kind_of, place_of};
use offload_http::{Route, RouteTable};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use toml::de::DeValue;

/// Where the fields of one route are, and where it begins.
struct Places {
    route: Range<usize>,
    fields: BTreeMap<&'static str, Range<usize>>,
}

/// The routes of all these tables. They go together, as far as this file is concerned.
pub(super) fn read(tables: &Spanned<DeValue<'_>>) -> Result<Option<SpannedValue>, Misplaced> {
    let (mut routes, mut all_places) = (Vec::new(), Vec::new());
    for table in tables.get_ref().as_array().into_iter().flatten() {
        let (route, places) = read_route(table)?;
        routes.push(route);
        all_places.push(places);
    }
    if let Err(bad) = RouteTable::new(routes.clone()) {
        let places = &all_places[bad.index];
        let place = places.fields.get(bad.field).unwrap_or(&places.route);
        return Err((place.clone(), format!("{ROUTE}.{}: {}", bad.field, bad.reason)));
    }
    let key = in_table(ROUTE).next().filter(|_| !routes.is_empty());
    Ok(key.map(|key| SpannedValue { key, value: Value::Routes(routes), span: tables.span() }))
}

fn read_route(table: &Spanned<DeValue<'_>>) -> Result<(Route, Places), Misplaced> {
    let Some(entries) = table.get_ref().as_table() else {
        let message = format!("{ROUTE}: a table is expected, not {}", kind_of(table.get_ref()));
        return Err((table.span(), message));
    };
    check_names(entries, &FIELDS, &place_of(ROUTE))?;
    let mut draft = Draft::new();
    let mut fields = BTreeMap::new();
    for field in FIELDS {
        let Some(written) = entries.get(field) else { continue };
        let at = |reason: String| (written.span(), format!("{ROUTE}.{field}: {reason}"));
        let texts = texts(field, written.get_ref()).map_err(at)?;
        texts.iter().try_for_each(|text| draft.set(field, text)).map_err(at)?;
        fields.insert(field, written.span());
    }
    let route = draft.finish().map_err(|reason| (table.span(), format!("{ROUTE}: {reason}")))?;
    Ok((route, Places { route: table.span(), fields }))
}

/// The texts by which a field is set: one, unless it may have several.
fn texts(field: &str, written: &DeValue<'_>) -> Result<Vec<String>, String> {
    let text = |written: &DeValue<'_>| match written {
        DeValue::String(text) => Ok(text.to_string()),
        other => Err(format!("a text is expected, not {}", kind_of(other))),
    };
    match (field, written) {
        ("max_body" | "priority", DeValue::Integer(number)) => {
            i64::from_str_radix(number.as_str(), number.radix())
                .map(|number| vec![number.to_string()])
                .map_err(|_| format!("{number} is too large"))
        }
        ("cancel_on_disconnect", DeValue::Boolean(is)) => Ok(vec![is.to_string()]),
        ("accepts", DeValue::Array(list)) if list.is_empty() => Err(NO_TYPE.to_owned()),
        ("accepts" | "query", DeValue::Array(list)) => list.iter().map(|one| text(one.get_ref())).collect(),
        ("headers", DeValue::Table(pairs)) => {
            let pair = |(name, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
                // What stands behind it would become a part of the value.
                if name.get_ref().contains(':') {
                    return Err(format!("{:?} is no name of a header field", name.get_ref()));
                }
                text(value.get_ref()).map(|value| format!("{}: {value}", name.get_ref()))
            };
            pairs.iter().map(pair).collect()
        }
        ("headers", other) => Err(format!("a table of texts is expected, not {}", kind_of(other))),
        (_, written) => text(written).map(|text| vec![text]),
    }
}

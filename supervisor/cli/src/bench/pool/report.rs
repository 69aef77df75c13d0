//! The result, as a table for people and as JSON Lines. The field names are a contract with scripts: `w`, `size`,
//! `limit`, `ours`, `unit`, and beside them `ratio`, `spread`, `limit_spread`, `rounds`, `foreign`, `stolen`, `met`,
//! and the further figures of the workload.

use super::super::super::table::{Table, cell};
use super::super::machine::Machine;
use super::super::statistics::Spread;
use super::catalogue::{Bound, Goal, OURS, RATIO};
use super::rounds::{Measured, figure_of};
use serde_json::{Map, Value};

const READING_HELP: &str = "\
RATIO is OURS / LIMIT, both medians; SPREAD is how far samples of OURS lie apart; NOISE is the share of the machine that
others had meanwhile. A goal stands in the line of its figure.";

/// One result as a line of JSON.
pub(super) fn json(result: &Measured) -> String {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("w", result.workload.name.text().into());
    set("size", result.size.into());
    set("limit", number(result.limit.map(|limit| limit.median)));
    set("ours", number(result.ours.map(|ours| ours.median)));
    set("unit", result.workload.unit.into());
    set("ratio", number(result.ratio()));
    set("rounds", result.rounds.into());
    set("spread", number(result.ours.map(Spread::width)));
    set("limit_spread", number(result.limit.map(Spread::width)));
    set("foreign", number(Some(result.noise.foreign())));
    set("stolen", number(Some(result.noise.stolen())));
    for (name, value) in &result.further {
        set(name, number(Some(*value)));
    }
    if let Some(met) = all_met(result) {
        set("met", met.into());
    }
    if let Some(reason) = &result.failure {
        set("error", reason.as_str().into());
    }
    Value::Object(fields).to_string()
}

/// Six significant digits: more are noise.
fn number(value: Option<f64>) -> Value {
    let short = value.and_then(|value| format!("{value:.5e}").parse::<f64>().ok());
    short.map_or(Value::Null, Value::from)
}

/// Whether all goals of this size are met; none if there is no goal.
fn all_met(result: &Measured) -> Option<bool> {
    let met: Vec<bool> = goals(result).map(|goal| is_met(result, goal).unwrap_or(false)).collect();
    (!met.is_empty()).then(|| met.into_iter().all(|met| met))
}

fn goals(result: &Measured) -> impl Iterator<Item = &'static Goal> {
    let size = result.size;
    result.workload.goals.iter().filter(move |goal| goal.sizes.is_empty() || goal.sizes.contains(&size))
}

fn is_met(result: &Measured, goal: &Goal) -> Option<bool> {
    figure_of(result, goal.figure).map(|figure| goal.bound.holds(figure))
}

/// All results as a table, under a line about the machine.
pub(super) fn text(machine: &Machine, results: &[Measured]) -> String {
    let headings =
        ["WORKLOAD", "#SIZE", "", "#LIMIT", "#OURS", "UNIT", "#RATIO", "GOAL", "MET", "#SPREAD", "#NOISE"];
    let mut table = Table::new(&headings);
    for result in results {
        table.row(main_row(result));
        further_rows(result).into_iter().for_each(|row| table.row(row));
    }
    let failures: String = results.iter().filter_map(failure_line).collect();
    format!("{}\n\n{}{failures}\n{READING_HELP}\n", machine.line(), table.render())
}

fn failure_line(result: &Measured) -> Option<String> {
    let reason = result.failure.as_ref()?;
    Some(format!(
        "{} with {} {}: {reason}\n",
        result.workload.name.text(),
        result.size,
        result.workload.size_is
    ))
}

/// The row of the figure itself. The goal for it, or for its ratio, stands here.
fn main_row(result: &Measured) -> Vec<String> {
    let goal: Vec<&Goal> = goals(result).filter(|goal| [OURS, RATIO].contains(&goal.figure)).collect();
    let noise = (result.noise.foreign() + result.noise.stolen()) * 100.0;
    vec![
        format!("{} {}", result.workload.name.text(), result.workload.title),
        result.size.to_string(),
        result.workload.size_is.to_owned(),
        cell(result.limit.map(|limit| short(limit.median))),
        cell(result.ours.map(|ours| short(ours.median))),
        result.workload.unit.to_owned(),
        cell(result.ratio().map(short)),
        goal.iter().map(|goal| goal_text(goal)).collect::<Vec<_>>().join(", "),
        goal.iter().map(|goal| met_text(result, goal)).collect::<Vec<_>>().join(", "),
        cell(result.ours.map(|ours| format!("{:.0} %", ours.width() * 100.0))),
        format!("{noise:.0} %"),
    ]
}

/// A row for each further figure that has a goal.
fn further_rows(result: &Measured) -> Vec<Vec<String>> {
    let further = goals(result).filter(|goal| ![OURS, RATIO].contains(&goal.figure));
    let row = |goal: &Goal| {
        let figure = cell(figure_of(result, goal.figure).map(short));
        let empty = String::new;
        let name = format!("   {}", goal.figure);
        vec![
            name,
            empty(),
            empty(),
            empty(),
            figure,
            empty(),
            empty(),
            goal_text(goal),
            met_text(result, goal),
        ]
    };
    further.map(row).collect()
}

fn goal_text(goal: &Goal) -> String {
    let bound = match goal.bound {
        Bound::AtMost(most) => format!("<= {}", short(most)),
        Bound::AtLeast(least) => format!(">= {}", short(least)),
    };
    if goal.figure == RATIO { format!("ratio {bound}") } else { bound }
}

fn met_text(result: &Measured, goal: &Goal) -> String {
    cell(is_met(result, goal).map(|met| if met { "yes" } else { "no" }))
}

/// Three digits that count: `10.7`, `0.86`, `172 k`, `6.61 M`.
fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        magnitude if magnitude >= 1e6 => (value / 1e6, " M"),
        magnitude if magnitude >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match value.abs() {
        0.0 => 0,
        100.0.. => 0,
        10.0.. => 1,
        0.1.. => 2,
        _ => 3,
    };
    format!("{value:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::super::super::machine::Noise;
    use super::super::catalogue::{Workload, WorkloadName};
    use super::*;
    use std::collections::BTreeMap;

    fn result(name: WorkloadName, size: u64, limit: f64, ours: f64) -> Measured {
        let spread = |value| Spread::of(vec![value]);
        Measured {
            workload: Workload::find(name),
            size,
            limit: spread(limit),
            ours: spread(ours),
            further: BTreeMap::from([("max_ms".to_owned(), 3.0)]),
            noise: Noise::default(),
            rounds: 1,
            failure: None,
        }
    }

    #[test]
    fn a_line_has_the_fields_that_scripts_rely_on() {
        let line: Value = serde_json::from_str(&json(&result(WorkloadName::P1, 64, 60.0, 10.7))).unwrap();
        assert_eq!((&line["w"], &line["size"], &line["unit"]), (&"p1".into(), &64.into(), &"us".into()));
        assert_eq!((line["limit"].as_f64(), line["ours"].as_f64()), (Some(60.0), Some(10.7)));
        assert_eq!((&line["met"], &line["max_ms"]), (&true.into(), &3.0.into()));
        assert!(line.get("error").is_none());
    }

    #[test]
    fn a_missed_goal_of_any_figure_is_a_missed_goal() {
        assert_eq!(all_met(&result(WorkloadName::P5, 1000, 0.1, 0.4)), Some(false));
        assert_eq!(all_met(&result(WorkloadName::P2, 1000, 1.0, 1.0)), None);
        assert_eq!(all_met(&result(WorkloadName::P2, 10_000, 1.0, 3e6)), Some(true));
    }

    #[test]
    fn people_get_a_row_for_each_figure_with_a_goal_and_every_failure() {
        let failed = Measured {
            limit: None,
            ours: None,
            failure: Some("no such thing".to_owned()),
            ..result(WorkloadName::P13, 0, 0.0, 0.0)
        };
        let results = [result(WorkloadName::P5, 1000, 0.1, 0.4), failed];
        let text = text(&Machine::describe(), &results);
        let row = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
        assert!(row("p5 lag").contains("<= 0.50") && row("p5 lag").contains("yes"), "{text}");
        assert!(row("max_ms").contains("3.00") && row("max_ms").contains("no"), "{text}");
        assert!(row("p13 with 0").contains("no such thing"), "{text}");
    }

    #[test]
    fn figures_have_three_digits_that_count() {
        let texts = [0.0, 0.012, 0.857, 10.66, 172.4, 9999.0, 172_000.0, 6_610_000.0].map(short);
        assert_eq!(texts, ["0", "0.012", "0.86", "10.7", "172", "9999", "172 k", "6.61 M"]);
    }
}

//! Printing the figures: one row for each shape and size, ready for README.md.

use crate::catalogue::{Peer, Shape};
use crate::options::Plan;
use crate::peers::Peers;
use crate::rounds::{Figures, Samples, median};

/// The peers with a column of their own. All others share the last one.
const COLUMNS: [&str; 3] = ["libuv", "Node", "tokio"];

pub(crate) fn how_to_read(plan: &Plan, peers: Option<&Peers>) -> String {
    let mut lines = vec![format!(
        "median of {} rounds, spread (largest - smallest) / median; x: how many times better ours is",
        plan.repeats
    )];
    match peers {
        Some(peers) => lines.extend(peers.missing()),
        None if plan.is_quick => {}
        None => lines.push("only ours: --peers adds libuv, Node, tokio and others".to_owned()),
    }
    lines.join("\n")
}

pub(crate) fn print_head() {
    println!("| shape | n | unit | ours | spread | {} | others | target | |", COLUMNS.join(" | "));
    println!("|---|--:|---|--:|--:|--:|--:|--:|---|--:|---|");
}

pub(crate) fn print_row(shape: &Shape, n: u64, figures: &Figures, is_quick: bool) {
    let middle = figures.ours.as_ref().map(|values| median(values));
    let (ours, spread) = match &middle {
        Ok((median, low, high)) => (short(*median), format!("{:.0} %", (high - low) / median * 100.0)),
        Err(reason) => (reason.to_string(), String::new()),
    };
    let middle = middle.ok().map(|(median, ..)| median);
    let columns: Vec<String> = COLUMNS
        .iter()
        .map(|column| cell(shape, middle, figures, |peer| peer.name == *column, false))
        .chain([cell(shape, middle, figures, |peer| !COLUMNS.contains(&peer.name), true)])
        .collect();
    let expected = shape.target.filter(|_| n >= shape.target_from && !is_quick);
    let target = expected.map_or(String::new(), |target| shape.figure.bound(target));
    let verdict = match (expected, middle) {
        (Some(target), Some(ours)) => shape.figure.verdict(ours, target),
        _ => String::new(),
    };
    let unit = shape.figure.unit();
    println!(
        "| {} | {} | {unit} | {ours} | {spread} | {} | {target} | {verdict} |",
        shape.name,
        short(n as f64),
        columns.join(" | ")
    );
}

fn cell(
    shape: &Shape,
    ours: Option<f64>,
    figures: &Figures,
    belongs: impl Fn(&Peer) -> bool,
    is_named: bool,
) -> String {
    let here = figures.peers.iter().filter(|(peer, _)| belongs(peer));
    let texts: Vec<String> = here
        .map(|(peer, samples)| match is_named {
            true => format!("{} {}", peer.name, beside(shape, ours, samples)),
            false => beside(shape, ours, samples),
        })
        .collect();
    if texts.is_empty() { "-".to_owned() } else { texts.join("; ") }
}

fn beside(shape: &Shape, ours: Option<f64>, samples: &Samples) -> String {
    match samples {
        Err(reason) => reason.clone(),
        Ok(values) => {
            let (theirs, ..) = median(values);
            let ratio = ours.map_or(f64::NAN, |ours| shape.figure.times_better(ours, theirs));
            format!("{} ({ratio:.2}x)", short(theirs))
        }
    }
}

/// Three digits that matter, and a letter for thousands and millions.
pub(crate) fn short(value: f64) -> String {
    let (value, letter) = match value.abs() {
        size if size >= 999_500.0 => (value / 1e6, " M"),
        size if size >= 999.5 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match value.abs() {
        size if size >= 99.95 || value.fract() == 0.0 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.digits$}{letter}")
}

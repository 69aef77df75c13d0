//! Measuring in rounds: everybody once, then everybody again, so that what else the machine does meets all alike.

use std::process::Command;

use serde_json::Value;

use crate::catalogue::{Peer, Shape};
use crate::peers::Peers;

/// What one engine reached in all rounds, or why it reached nothing.
pub(crate) type Samples = Result<Vec<f64>, String>;

/// The figures of one shape at one size.
pub(crate) struct Figures {
    pub(crate) ours: Samples,
    pub(crate) peers: Vec<(&'static Peer, Samples)>,
}

pub(crate) fn measure(shape: &'static Shape, n: u64, repeats: usize, peers: Option<&Peers>) -> Figures {
    let mut figures = Figures { ours: Ok(Vec::new()), peers: Vec::new() };
    if peers.is_some() {
        figures.peers = shape.peers.iter().map(|peer| (peer, Ok(Vec::new()))).collect();
    }
    for _ in 0..repeats {
        add(&mut figures.ours, || run(ours(shape, n), shape));
        for (peer, samples) in &mut figures.peers {
            add(samples, || run(command_of(peer, n, peers)?, shape));
        }
    }
    figures
}

/// Once it has failed it is not tried again.
fn add(samples: &mut Samples, measure: impl FnOnce() -> Result<f64, String>) {
    if let Ok(values) = samples {
        match measure() {
            Ok(value) => values.push(value),
            Err(reason) => *samples = Err(reason),
        }
    }
}

fn ours(shape: &Shape, n: u64) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--shape", shape.name, &n.to_string()]);
    command
}

fn command_of(peer: &Peer, n: u64, peers: Option<&Peers>) -> Result<Command, String> {
    if n > peer.n_max {
        return Err(format!("above {} it takes minutes", peer.n_max));
    }
    let peers = peers.ok_or("not asked for")?;
    let mut command = peers.command(peer.program).map_err(|_| "not here".to_owned())?;
    command.args([peer.bench, &n.to_string()]);
    Ok(command)
}

/// Runs a program that prints a line of JSON, and reads the shape's figure from it.
fn run(mut command: Command, shape: &Shape) -> Result<f64, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}", output.status, said.lines().next().unwrap_or("no word")));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with('{')).ok_or("it printed no result")?;
    let value: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    shape.figure.of(&value).ok_or(format!("its result lacks the figure: {line}"))
}

/// The one in the middle, with the smallest and the largest.
pub(crate) fn median(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    };
    (median, sorted[0], sorted[sorted.len() - 1])
}

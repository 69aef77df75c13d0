//! `offload bench seeds`: the scenarios of Node.js's guide "Don't block the event loop (or the worker pool)", from which this
//! program took its promises, each as an experiment: what the guide says, and what this machine shows.
//!
//! ```text
//!   Experiment --run--> Found: figures, whether they bear the claim out, one sentence --> a paragraph, or a line of JSON
//! ```
//!
//! | read | for |
//! |---|---|
//! | `seeds/rig.rs` | the loop of an experiment: what others wait meanwhile |
//! | `seeds/inputs.rs` | inputs that block: json-dos, redos |
//! | `seeds/threads.rs` | the pool of threads: one-pool-for-both, long-tasks-in-the-pool, readfile-whole-or-parts, stuck-pool |
//! | `seeds/processes.rs` | the pool of processes: four-cores-five-workers, short-and-long-lanes |

mod inputs;
mod processes;
mod rig;
mod threads;

use super::super::failure::{Failure, OK, VerbResult};
use super::super::flags::Globals;
use super::super::output::{print, print_line, say};
use super::conditions::ConditionsMeter;
use super::machine::NoiseMeter;
use crate::configuration::arguments::{KeyFlags, NumberOfWorkers};
use clap::{Args, ValueEnum};
use offload_supervisor::Level;
use offload_supervisor::{PoolConfig, Program};
use serde::Serialize;
use std::fmt::Write;
use std::io::{IsTerminal, stderr};
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  offload bench seeds                    all of them, in less than two minutes
  offload bench seeds redos stuck-pool   two of them
  offload bench seeds --json | jq -r 'select(.verdict != \"holds\") | .sentence'";

/// Run the scenarios of Node.js's guide "Don't block the event loop", and print what it claims beside what is measured
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Seeds {
    /// Only these [default: all]
    #[arg(value_enum, value_name = "SCENARIO")]
    only: Vec<Experiment>,

    /// Small ones, to see that they run: their figures say nothing
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    workers: KeyFlags<NumberOfWorkers>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Experiment {
    /// A JSON document of 25 MB is parsed on the loop, and in a worker
    JsonDos,
    /// A regular expression that takes for ever
    Redos,
    /// One worker more than there are cores
    FourCoresFiveWorkers,
    /// Computing and reading in one pool of threads
    OnePoolForBoth,
    /// Long tasks in a pool of threads, whole and in parts
    LongTasksInThePool,
    /// Large files, read whole and in parts
    ReadfileWholeOrParts,
    /// Tasks that never end fill a pool of threads
    StuckPool,
    /// Short jobs behind long ones, and in a pool of their own
    ShortAndLongLanes,
}

/// What an experiment has to work with.
struct Extent {
    is_quick: bool,
    /// Worker processes for the cores of this machine.
    pool: PoolConfig,
}

impl Extent {
    /// One of the two.
    fn choose<T>(&self, full: T, quick: T) -> T {
        if self.is_quick { quick } else { full }
    }

    /// The cores, as the number of workers.
    fn cores(&self) -> usize {
        self.pool.core.workers
    }

    /// A pool of so many workers, which takes long inputs.
    fn workers(&self, count: usize) -> PoolConfig {
        let mut config = self.pool.clone();
        config.core.workers = count;
        config.core.spares = 0;
        config
    }
}

/// One figure of an experiment.
#[derive(Debug, Serialize)]
struct Figure {
    name: &'static str,
    value: f64,
    unit: &'static str,
}

/// Whether the figures bear the claim out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Holds,
    DoesNotHold,
    /// The figures do not say.
    Unclear,
}

impl Verdict {
    fn of(holds: bool) -> Verdict {
        if holds { Verdict::Holds } else { Verdict::DoesNotHold }
    }

    fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds here",
            Verdict::DoesNotHold => "does not hold here",
            Verdict::Unclear => "unclear",
        }
    }
}

/// What an experiment has found.
struct Found {
    figures: Vec<Figure>,
    verdict: Verdict,
    sentence: String,
}

/// The line of an experiment in the JSON output.
#[derive(Serialize)]
struct Line<'a> {
    scenario: &'a str,
    claim: &'a str,
    verdict: Verdict,
    sentence: &'a str,
    figures: &'a [Figure],
}

impl Seeds {
    pub(super) fn run(self, globals: &Globals) -> VerbResult {
        let settings = globals.settings(self.workers.layer())?;
        let mut pool = settings.pool_config(vec![Program::builtin(false)]);
        // That workers are ended is part of it.
        pool.log = Level::Quiet;
        let extent = Extent { is_quick: self.quick, pool };
        let all = || Experiment::value_variants().to_vec();
        let (noise, conditions, begun) = (NoiseMeter::start(), ConditionsMeter::start(), Instant::now());
        let chosen = if self.only.is_empty() { all() } else { self.only };
        for experiment in chosen {
            if !globals.quiet && stderr().is_terminal() {
                say(&format!("{} ...", experiment.name()));
            }
            let found = experiment.run(&extent)?;
            match globals.json {
                true => print_line(experiment.line(&found))?,
                false => print(experiment.paragraph(&found).as_bytes())?,
            }
        }
        if !globals.quiet {
            let warnings = conditions.stop(begun.elapsed()).warnings();
            noise.stop().warning().into_iter().chain(warnings).for_each(|warning| say(&warning));
        }
        Ok(OK)
    }
}

impl Experiment {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// What the guide says, in our words.
    fn claim(self) -> &'static str {
        match self {
            Experiment::JsonDos => {
                "JSON that is parsed on the loop stops everybody: 50 MB take 0.7 s to write, 0.03 s to search and 1.3 s to parse"
            }
            Experiment::Redos => {
                "a vulnerable pattern takes exponential time on a hostile text: 100 slashes never end"
            }
            Experiment::FourCoresFiveWorkers => "a worker more than there are cores is pure cost",
            Experiment::OnePoolForBoth => {
                "computing in the pool of I/O holds I/O up; keep a pool for computing"
            }
            Experiment::LongTasksInThePool => {
                "a long task takes a thread out of the pool; parts give it back"
            }
            Experiment::ReadfileWholeOrParts => {
                "reading a large file in one task is a long task; read it in parts"
            }
            Experiment::StuckPool => "as many tasks that never end as there are threads stop the whole pool",
            Experiment::ShortAndLongLanes => {
                "short tasks wait for long ones; pools of their own help, and compete for the cores"
            }
        }
    }

    fn run(self, extent: &Extent) -> Result<Found, Failure> {
        match self {
            Experiment::JsonDos => inputs::json_dos(extent),
            Experiment::Redos => inputs::redos(extent),
            Experiment::FourCoresFiveWorkers => processes::one_worker_more(extent),
            Experiment::OnePoolForBoth => threads::one_pool_for_both(extent),
            Experiment::LongTasksInThePool => threads::long_tasks(extent),
            Experiment::ReadfileWholeOrParts => threads::whole_files(extent),
            Experiment::StuckPool => threads::stuck(extent),
            Experiment::ShortAndLongLanes => processes::short_and_long(extent),
        }
    }

    fn line(self, found: &Found) -> String {
        let Found { figures, verdict, sentence } = found;
        let (name, claim) = (self.name(), self.claim());
        let line = Line { scenario: &name, claim, verdict: *verdict, sentence, figures };
        serde_json::to_string(&line).expect("numbers and names can always be written")
    }

    fn paragraph(self, found: &Found) -> String {
        let mut text = format!("{}\n", self.name());
        for (word, line) in [("claim", self.claim()), (found.verdict.words(), &found.sentence)] {
            let mut word = format!("{word}:");
            for part in wrapped(line) {
                writeln!(text, "  {word:<INDENT$}{part}").expect("a string takes everything");
                word.clear();
            }
        }
        text
    }
}

/// Columns before the text of a paragraph, and of the text.
const INDENT: usize = 20;
const COLUMNS: usize = 78;

/// The text in lines of at most [`COLUMNS`], unless a word is longer.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= COLUMNS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn found() -> Found {
        let figures = vec![Figure { name: "on_the_loop", value: 612.5, unit: "ms" }];
        Found { figures, verdict: Verdict::Holds, sentence: "others waited 612 ms".to_owned() }
    }

    #[test]
    fn a_line_has_the_fields_that_users_rely_on() {
        let line: Value = serde_json::from_str(&Experiment::JsonDos.line(&found())).unwrap();
        let expected = json!({
            "scenario": "json-dos", "claim": Experiment::JsonDos.claim(), "verdict": "holds",
            "sentence": "others waited 612 ms",
            "figures": [{"name": "on_the_loop", "value": 612.5, "unit": "ms"}],
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn people_read_the_claim_above_what_was_found() {
        let text = Experiment::StuckPool.paragraph(&found());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0], "stuck-pool");
        assert!(lines[1].starts_with("  claim:              as many"), "{text}");
        assert_eq!(lines[2], "  holds here:         others waited 612 ms");
    }
}

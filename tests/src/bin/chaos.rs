//! Faults in numbers, against the real supervisor:
//!
//! ```text
//! chaos [--seed N] [--for 60s] [--kill-every 50ms] [--stops 1] [--clients 16] [--workers 2] [--report FILE]
//!       [--guilty 2] [--never-refuse] [--strict]
//! chaos --crowd [--jobs 1000000] [--seed N] [--workers 2] [--report FILE]
//! chaos --storm [--for 60s] [--workers 2] [--report FILE]
//! chaos --soak [--jobs 1000000] [--workers 2] [--report FILE]
//! chaos --flood SOCKET [--connections 150] [--wait JOB]
//! ```
//!
//! `--crowd` kills nobody: it mixes clients of every kind, and looks whose jobs were blamed.
//!
//! `--flood` is one of that crowd, in a process of its own, until its standard input ends.
//!
//! `--stops` says how many of a hundred workers are stopped for good instead of killed; `--never-refuse` keeps the
//! supervisor from taking starts that were killed for a reason to refuse jobs; `--guilty` says how many of a thousand
//! jobs crash, run out of time or are cancelled while they run.
//!
//! Exit code 0 if everything that has to hold does; times are printed with their targets and count only with
//! `--strict`. 1 if something does not hold, 2 if the arguments make no sense.

use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;
use tests::chaos::crowd::Crowd;
use tests::chaos::flood::flood;
use tests::chaos::run::Chaos;
use tests::chaos::soak::Soak;
use tests::chaos::storm::Storm;

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("chaos: {error}");
            return ExitCode::from(2);
        }
    };
    if let Some(socket) = &arguments.flood {
        flood(socket, arguments.connections, arguments.wait.as_deref());
        return ExitCode::SUCCESS;
    }
    let verdict = arguments.run();
    println!("{}", verdict.summary);
    verdict.violations.iter().for_each(|violation| println!("VIOLATED: {violation}"));
    verdict.missed.iter().for_each(|target| println!("target missed: {target}"));
    if let Some(file) = &arguments.report
        && let Err(error) = std::fs::write(file, format!("{:#}\n", verdict.json))
    {
        eprintln!("chaos: {}: {error}", file.display());
        return ExitCode::from(2);
    }
    let is_fine = verdict.violations.is_empty() && (!arguments.is_strict || verdict.missed.is_empty());
    ExitCode::from(u8::from(!is_fine))
}

struct Verdict {
    summary: String,
    violations: Vec<String>,
    missed: Vec<String>,
    json: Value,
}

#[derive(Clone, Copy)]
enum Mode {
    Chaos,
    Crowd,
    Storm,
    Soak,
}

struct Arguments {
    mode: Mode,
    chaos: Chaos,
    jobs: u64,
    /// The socket that is flooded, over so many connections, or held while they wait for a job.
    flood: Option<PathBuf>,
    connections: usize,
    wait: Option<String>,
    report: Option<PathBuf>,
    is_strict: bool,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let chaos = Chaos::lasting(Duration::from_secs(60));
        let mut arguments = Arguments {
            mode: Mode::Chaos,
            chaos,
            jobs: 1_000_000,
            flood: None,
            connections: 150,
            wait: None,
            report: None,
            is_strict: false,
        };
        while let Some(flag) = words.next() {
            match flag.as_str() {
                "--crowd" => arguments.mode = Mode::Crowd,
                "--storm" => arguments.mode = Mode::Storm,
                "--soak" => arguments.mode = Mode::Soak,
                "--never-refuse" => arguments.chaos.never_refuse = true,
                "--strict" => arguments.is_strict = true,
                _ => {
                    let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?;
                    arguments.set(&flag, &value).map_err(|error| format!("{flag} {value}: {error}"))?;
                }
            }
        }
        Ok(arguments)
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<(), String> {
        match flag {
            "--seed" => self.chaos.seed = number(value)?,
            "--for" => self.chaos.length = parse_duration(value)?,
            "--kill-every" => self.chaos.habits.every = parse_duration(value)?,
            "--stops" => self.chaos.habits.stops = number(value)?,
            "--guilty" => self.chaos.guilty_per_mille = number(value)?,
            "--clients" => self.chaos.clients = number(value)?,
            "--workers" => self.chaos.workers = number(value)?,
            "--jobs" => self.jobs = number(value)?,
            "--flood" => self.flood = Some(value.into()),
            "--connections" => self.connections = number(value)?,
            "--wait" => self.wait = Some(value.to_owned()),
            "--report" => self.report = Some(value.into()),
            _ => return Err("there is no such flag".to_owned()),
        }
        Ok(())
    }

    fn run(&self) -> Verdict {
        let Chaos { seed, workers, length, .. } = self.chaos;
        match self.mode {
            Mode::Chaos => {
                let told = self.chaos.run();
                Verdict {
                    summary: told.summary(),
                    violations: told.violations(),
                    missed: told.missed_targets(),
                    json: told.json(),
                }
            }
            Mode::Crowd => {
                let told = Crowd { seed, workers, ..Crowd::of(self.jobs) }.gather();
                let (summary, violations, json) = (told.summary(), told.violations(), told.json());
                Verdict { summary, violations, missed: Vec::new(), json }
            }
            Mode::Storm => {
                let storm = Storm::rage(workers, length);
                let (summary, violations, json) = (storm.summary(), storm.violations(), storm.json());
                Verdict { summary, violations, missed: Vec::new(), json }
            }
            Mode::Soak => {
                let soak = Soak::of(self.jobs, seed, workers);
                let (summary, violations, json) = (soak.summary(), soak.violations(), soak.json());
                Verdict { summary, violations, missed: Vec::new(), json }
            }
        }
    }
}

fn number<N: FromStr>(text: &str) -> Result<N, String>
where
    N::Err: std::fmt::Display,
{
    text.parse().map_err(|error: N::Err| error.to_string())
}

/// `250ms`, `60s`, `5m`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| format!("not a duration: {text}"))?;
    match &text[digits.len()..] {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(60 * number)),
        _ => Err(format!("not a duration, such as 250ms, 60s or 5m: {text}")),
    }
}

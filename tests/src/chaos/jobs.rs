//! Jobs of the built-in tasks of which it is known before they are submitted what becomes of them.

use super::seed::Seed;
use bytes::Bytes;
use offload_protocol::messages::SubmitOptions;
use offload_protocol::nouns::OutcomeCode;
use sha2::{Digest, Sha256};

/// A job and what has to come of it.
#[derive(Clone, Debug)]
pub struct KnownJob {
    /// The task.
    pub task: &'static str,
    /// Its input.
    pub input: Bytes,
    /// Its output, if it has one.
    pub answer: Bytes,
    /// What becomes of it.
    pub fate: Fate,
}

/// What becomes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is answered, whatever happens around it.
    IsAnswered,
    /// It ends its worker.
    Crashes,
    /// It never ends, and its time does.
    TimesOut,
    /// It never ends, and its client does not want it any more.
    IsCancelled,
}

impl Fate {
    const GUILTY: [Fate; 3] = [Fate::Crashes, Fate::TimesOut, Fate::IsCancelled];

    /// Whether it may end so. Whoever runs may be killed from outside.
    pub fn allows(self, outcome: OutcomeCode) -> bool {
        let of_fate = match self {
            Fate::IsAnswered => return outcome == OutcomeCode::Ok,
            Fate::Crashes => OutcomeCode::WorkerCrashed,
            Fate::TimesOut => OutcomeCode::Timeout,
            Fate::IsCancelled => OutcomeCode::Cancelled,
        };
        // One that is stopped for good while it runs has a time limit as well.
        [of_fate, OutcomeCode::WorkerCrashed, OutcomeCode::Timeout].contains(&outcome)
    }

    /// Those that are answered may be tried as often as workers are killed; the others are tried once.
    pub fn options(self) -> SubmitOptions {
        let attempts = Some(if self == Fate::IsAnswered { 100 } else { 1 });
        let timeout_ms = (self == Fate::TimesOut).then_some(TIME_LIMIT_MS);
        SubmitOptions { attempts, timeout_ms, ..SubmitOptions::default() }
    }
}

/// One in a hundred inputs has this many bytes, and goes a different way through every buffer.
const LARGE: usize = 100_000;

/// How long jobs run that are to run into their time limit.
const TIME_LIMIT_MS: u64 = 50;

impl KnownJob {
    /// Some job, of which so many in a thousand do wrong.
    pub fn some_or_guilty(seed: &mut Seed, guilty_per_mille: usize) -> KnownJob {
        match guilty_per_mille {
            0 => KnownJob::some(seed),
            share if seed.below(1000) < share => KnownJob::guilty(Fate::GUILTY[seed.below(3)]),
            // Of the same task, so that good ones and bad ones are given to workers together.
            _ if seed.below(4) == 0 => KnownJob::harmless(),
            _ => KnownJob::some(seed),
        }
    }

    fn guilty(fate: Fate) -> KnownJob {
        let act = if fate == Fate::Crashes { "exit" } else { "hang" };
        let input = format!("{{\"act\":\"{act}\"}}");
        KnownJob { task: "fault", input: input.into(), answer: Bytes::new(), fate }
    }

    /// It would do wrong in an attempt that never comes.
    fn harmless() -> KnownJob {
        let input = Bytes::from("{\"act\":\"kill\",\"on_attempt\":1000}");
        KnownJob { task: "fault", input, answer: Bytes::from("ok"), fate: Fate::IsAnswered }
    }

    /// Some job: echoes, checksums and averages in equal parts. The averages take up to half a millisecond or so each,
    /// so that it is the workers that keep the cores busy and not the loop.
    pub fn some(seed: &mut Seed) -> KnownJob {
        match seed.below(3) {
            0 => KnownJob::echo(bytes(seed)),
            1 => KnownJob::sha256(bytes(seed)),
            _ => KnownJob::average(1000 + seed.below(1_000_000) as u64),
        }
    }

    /// Gives back what it gets.
    pub fn echo(input: Bytes) -> KnownJob {
        KnownJob { task: "echo", answer: input.clone(), input, fate: Fate::IsAnswered }
    }

    fn sha256(input: Bytes) -> KnownJob {
        let digest = Sha256::digest(&input);
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        KnownJob { task: "sha256", input, answer: hex.into(), fate: Fate::IsAnswered }
    }

    /// Of the whole numbers from 1 to n.
    fn average(n: u64) -> KnownJob {
        let answer = match n.is_multiple_of(2) {
            true => format!("{}.5", n / 2),
            false => format!("{}.0", n.div_ceil(2)),
        };
        let input = n.to_string().into();
        KnownJob { task: "average", input, answer: answer.into(), fate: Fate::IsAnswered }
    }

    /// Whether this is the right output. A text may be quoted, as JSON has it.
    pub fn is_answered_by(&self, output: &[u8]) -> bool {
        let quoted = output.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
        output == self.answer || quoted.is_some_and(|text| text == self.answer)
    }
}

fn bytes(seed: &mut Seed) -> Bytes {
    let length = if seed.below(100) == 0 { LARGE } else { 16 + seed.below(500) };
    let words = std::iter::repeat_with(|| seed.number().to_le_bytes());
    words.take(length.div_ceil(8)).flatten().take(length).collect()
}

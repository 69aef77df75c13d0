//! Jobs of the built-in tasks whose answers are known before they are submitted.

use super::seed::Seed;
use bytes::Bytes;
use sha2::{Digest, Sha256};

/// A job and what has to come of it.
#[derive(Clone, Debug)]
pub struct KnownJob {
    /// The task.
    pub task: &'static str,
    /// Its input.
    pub input: Bytes,
    /// Its output.
    pub answer: Bytes,
}

/// One in a hundred inputs has this many bytes, and goes a different way through every buffer.
const LARGE: usize = 100_000;

impl KnownJob {
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
        KnownJob { task: "echo", answer: input.clone(), input }
    }

    fn sha256(input: Bytes) -> KnownJob {
        let digest = Sha256::digest(&input);
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        KnownJob { task: "sha256", input, answer: hex.into() }
    }

    /// Of the whole numbers from 1 to n.
    fn average(n: u64) -> KnownJob {
        let answer = match n.is_multiple_of(2) {
            true => format!("{}.5", n / 2),
            false => format!("{}.0", n.div_ceil(2)),
        };
        KnownJob { task: "average", input: n.to_string().into(), answer: answer.into() }
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

//! The source of all randomness. A choice depends only on the seed, the stream that it belongs to (one worker, one
//! client, ...) and its number in that stream. So one choice can be replaced by the harmless answer without changing
//! the others, which makes it possible to shrink a failing run.

use std::collections::BTreeSet;
use std::time::Duration;

/// The name of one choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Choice {
    stream: u64,
    index: u32,
}

/// How far one stream of choices has been read.
#[derive(Clone, Debug)]
pub(crate) struct Tape {
    stream: u64,
    next: u32,
}

impl Tape {
    /// The beginning of a stream.
    pub(crate) fn new(stream: u64) -> Tape {
        Tape { stream, next: 0 }
    }
}

/// All choices of one run.
#[derive(Debug)]
pub(crate) struct Choices {
    seed: u64,
    harmless: BTreeSet<Choice>,
    /// Those that were made and were not harmless, in the order in which they were made.
    pub(crate) bold: Vec<Choice>,
}

impl Choices {
    /// The choices of a seed, but for those that shall be harmless.
    pub(crate) fn new(seed: u64, harmless: BTreeSet<Choice>) -> Choices {
        Choices { seed, harmless, bold: Vec::new() }
    }

    /// A number, or nothing where the harmless answer is wanted.
    fn draw(&mut self, tape: &mut Tape) -> Option<(Choice, u64)> {
        let choice = Choice { stream: tape.stream, index: tape.next };
        tape.next += 1;
        if self.harmless.contains(&choice) {
            return None;
        }
        let number = mix(mix(self.seed ^ mix(choice.stream)) ^ u64::from(choice.index));
        Some((choice, number))
    }

    /// Yes in so many of a thousand cases; harmless is no.
    pub(crate) fn chance(&mut self, tape: &mut Tape, per_mille: u16) -> bool {
        let Some((choice, number)) = self.draw(tape) else { return false };
        let yes = number % 1000 < u64::from(per_mille);
        self.bold.extend(yes.then_some(choice));
        yes
    }

    /// From `least` to `most`, both included; harmless is `least`.
    pub(crate) fn range(&mut self, tape: &mut Tape, least: u64, most: u64) -> u64 {
        let Some((choice, number)) = self.draw(tape) else { return least };
        let value = least + number % (most - least + 1);
        self.bold.extend((value != least).then_some(choice));
        value
    }

    /// One of these; harmless is the first.
    pub(crate) fn pick<T: Clone>(&mut self, tape: &mut Tape, from: &[T]) -> T {
        from[self.range(tape, 0, from.len() as u64 - 1) as usize].clone()
    }

    /// Zero to `most`, all orders of magnitude alike; harmless is zero.
    pub(crate) fn delay(&mut self, tape: &mut Tape, most: Duration) -> Duration {
        let Some((choice, number)) = self.draw(tape) else { return Duration::ZERO };
        let magnitude = number % 5;
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX) / 10_u64.pow(magnitude as u32);
        let nanos = (number >> 8) % (nanos + 1);
        self.bold.extend((nanos != 0).then_some(choice));
        Duration::from_nanos(nanos)
    }
}

/// The finalizer of SplitMix64: each bit of the result depends on each bit of the number.
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

//! Rate limits of the log. A crash loop logs the same things over and over. The first lines say all there is to know,
//! and the rest is reported as a number.
//!
//! Each kind of line has a token bucket: some lines without a pause, then one a second, for all workers and clients
//! together. Output of workers has buckets of its own, for lines and for bytes. The number of lines left out is
//! written with the next line of that kind, or in a line of its own once the kind has become quiet; at most once a
//! second for each kind.

use crate::limits::{
    LOG_LINES_AT_ONCE, LOG_LINES_PER_SECOND, OUTPUT_BYTES_AT_ONCE, OUTPUT_LINES_AT_ONCE,
    OUTPUT_LINES_PER_SECOND, OUTPUT_LOGGED_PER_SECOND,
};
use std::collections::BTreeMap;
use std::panic::Location;
use std::time::Duration;

/// What a line is about. Lines of one kind share a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LineKind {
    /// All lines that are logged at this place in the source.
    Place(&'static Location<'static>),
    /// All lines with this name.
    Named(&'static str),
    /// What workers print.
    Output,
}

/// A token bucket. All it stores is the time at which it will be full again.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    full_at: Duration,
}

impl Bucket {
    fn full_after(self, now: Duration, cost: Duration) -> Duration {
        self.full_at.max(now).saturating_add(cost)
    }

    fn fits(self, now: Duration, cost: Duration, at_once: Duration) -> bool {
        self.full_after(now, cost) <= now.saturating_add(at_once)
    }

    fn take(&mut self, now: Duration, cost: Duration) {
        self.full_at = self.full_after(now, cost);
    }
}

/// The state of one kind.
#[derive(Debug, Default)]
struct KindState {
    lines: Bucket,
    bytes: Bucket,
    left_out: u64,
    /// When the number of lines left out was last reported.
    told_at: Option<Duration>,
}

impl KindState {
    /// Takes the number of lines left out since the last report, if it may be reported now. Otherwise returns 0.
    fn tell(&mut self, now: Duration) -> u64 {
        let may_be_told = self.told_at.is_none_or(|told_at| now.saturating_sub(told_at) >= SECOND);
        if self.left_out == 0 || !may_be_told {
            return 0;
        }
        self.told_at = Some(now);
        std::mem::take(&mut self.left_out)
    }
}

/// The state of all kinds. See the module's documentation. Times are measured from any fixed moment.
#[derive(Debug, Default)]
pub(super) struct Rates(BTreeMap<LineKind, KindState>);

/// Whether a line is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Write the line, and report this many earlier lines that were left out.
    Write { left_out: u64 },
    /// Leave the line out; it has been counted.
    LeaveOut,
}

/// What one line costs, and how much may be spent without a pause: for lines and for bytes.
struct Price {
    line: Duration,
    lines_at_once: Duration,
    byte: Duration,
    bytes_at_once: Duration,
}

fn price(kind: LineKind) -> Price {
    match kind {
        LineKind::Output => {
            let (line, byte) = (SECOND / OUTPUT_LINES_PER_SECOND, SECOND / OUTPUT_LOGGED_PER_SECOND);
            Price {
                line,
                lines_at_once: line * OUTPUT_LINES_AT_ONCE,
                byte,
                bytes_at_once: byte * OUTPUT_BYTES_AT_ONCE,
            }
        }
        LineKind::Place(_) | LineKind::Named(_) => {
            let line = SECOND / LOG_LINES_PER_SECOND;
            let lines_at_once = line * LOG_LINES_AT_ONCE;
            Price { line, lines_at_once, byte: Duration::ZERO, bytes_at_once: Duration::ZERO }
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);

impl Rates {
    /// Decides whether a line of this many bytes is to be written.
    pub(super) fn judge(&mut self, kind: LineKind, bytes: usize, now: Duration) -> Verdict {
        let price = price(kind);
        let of_bytes = price.byte.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
        let entry = self.0.entry(kind).or_default();
        let fits = entry.lines.fits(now, price.line, price.lines_at_once)
            && entry.bytes.fits(now, of_bytes, price.bytes_at_once);
        if !fits {
            entry.left_out += 1;
            return Verdict::LeaveOut;
        }
        entry.lines.take(now, price.line);
        entry.bytes.take(now, of_bytes);
        Verdict::Write { left_out: entry.tell(now) }
    }

    /// Counts lines that were left out elsewhere.
    pub(super) fn leave_out(&mut self, kind: LineKind, lines: u64) {
        if lines > 0 {
            self.0.entry(kind).or_default().left_out += lines;
        }
    }

    /// Whether lines were left out that have not been reported.
    pub(super) fn owe(&self) -> bool {
        self.0.values().any(|entry| entry.left_out > 0)
    }

    /// Takes the numbers of lines left out: of the kinds of which a line may be written again, or of all kinds at the
    /// end.
    pub(super) fn settle(&mut self, now: Duration, is_end: bool) -> Vec<(LineKind, u64)> {
        let mut owed = Vec::new();
        for (&kind, entry) in &mut self.0 {
            let price = price(kind);
            let left_out = match is_end {
                true => std::mem::take(&mut entry.left_out),
                false if entry.lines.fits(now, price.line, price.lines_at_once) => entry.tell(now),
                false => 0,
            };
            if left_out > 0 {
                entry.lines.take(now, price.line);
                owed.push((kind, left_out));
            }
        }
        owed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRASH: LineKind = LineKind::Named("crash");

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// How many of `lines` lines of 100 bytes are written at that moment.
    fn written(rates: &mut Rates, kind: LineKind, lines: u64, now: Duration) -> u64 {
        (0..lines).filter(|_| rates.judge(kind, 100, now) != Verdict::LeaveOut).count() as u64
    }

    #[test]
    fn the_first_lines_are_written_then_one_a_second() {
        let mut rates = Rates::default();
        assert_eq!(written(&mut rates, CRASH, 1000, seconds(5)), u64::from(LOG_LINES_AT_ONCE));
        assert_eq!(written(&mut rates, CRASH, 1000, seconds(8)), 3);
        assert_eq!(written(&mut rates, CRASH, 1000, seconds(10_000)), u64::from(LOG_LINES_AT_ONCE));
    }

    #[test]
    fn a_kind_that_is_loud_silences_no_other() {
        let mut rates = Rates::default();
        written(&mut rates, CRASH, 1000, seconds(1));
        assert_eq!(written(&mut rates, LineKind::Named("other"), 1, seconds(1)), 1);
        assert_eq!(written(&mut rates, LineKind::Place(Location::caller()), 1, seconds(1)), 1);
        assert_eq!(written(&mut rates, LineKind::Output, 1, seconds(1)), 1);
    }

    #[test]
    fn every_line_is_written_or_counted() {
        let mut rates = Rates::default();
        let (mut lines, mut told) = (0, 0);
        for step in 0..500 {
            let now = Duration::from_millis(step * 37);
            for _ in 0..step % 7 {
                lines += 1;
                if let Verdict::Write { left_out } = rates.judge(CRASH, 10, now) {
                    told += 1 + left_out;
                }
            }
            if step % 50 == 0 {
                told += rates.settle(now, false).iter().map(|(_, left_out)| left_out).sum::<u64>();
            }
        }
        told += rates.settle(seconds(0), true).iter().map(|(_, left_out)| left_out).sum::<u64>();
        assert_eq!(told, lines);
        assert!(!rates.owe());
    }

    /// A worker that prints as fast as it can has its lines dropped thousands at a time.
    #[test]
    fn what_was_left_out_is_told_once_a_second_at_the_most() {
        let mut rates = Rates::default();
        let (mut told, mut notices) = (0, 0);
        for millisecond in 0..3500 {
            let now = Duration::from_millis(millisecond);
            rates.leave_out(LineKind::Output, 8192);
            let with_a_line = match rates.judge(LineKind::Output, 2, now) {
                Verdict::Write { left_out } => left_out,
                Verdict::LeaveOut => {
                    told += 1;
                    0
                }
            };
            let alone = rates.settle(now, false).iter().map(|(_, left_out)| left_out).sum::<u64>();
            notices += u64::from(with_a_line > 0) + u64::from(alone > 0);
            told += with_a_line + alone;
        }
        assert_eq!(notices, 4, "at the start and once in each of three seconds");
        let rest: u64 = rates.settle(seconds(4), true).iter().map(|(_, left_out)| left_out).sum();
        assert!(told + rest >= 3500 * 8192 && !rates.owe());
    }

    #[test]
    fn what_workers_print_in_a_minute_stays_below_a_megabyte_however_they_print_it() {
        for length in [1_usize, 80, 1000, 8000] {
            let mut rates = Rates::default();
            let mut bytes = 0;
            for millisecond in 0..60_000 {
                for _ in 0..10 {
                    let now = Duration::from_millis(millisecond);
                    if rates.judge(LineKind::Output, length, now) != Verdict::LeaveOut {
                        bytes += length;
                    }
                }
            }
            assert!(bytes < 1_000_000, "{bytes} bytes in lines of {length}");
        }
    }
}

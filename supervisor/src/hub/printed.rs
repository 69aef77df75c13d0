//! The last lines that workers have printed, for `offload logs`. Lines of all workers have consecutive numbers, so whoever follows
//! them knows how many are gone.
//!
//! ```text
//!   a worker's pipe ---> capture ---> the log
//!                           |
//!                           '-------> kept: by number, and for each slot which numbers  ---> pages
//!                                     too many bytes of a slot: its oldest lines go
//! ```

use super::Hub;
use crate::limits::{
    PAGE_LOOKS_MAX, PRINTED_BYTES_MAX, PRINTED_LINE_EXTRA, PRINTED_SLOT_BYTES_MAX, WORKER_LINE_MAX,
};
use crate::views::{PrintedLine, PrintedPage};
use crate::workers::{Captured, OutputStream};
use offload_core::ids::{JobId, SlotIndex, WorkerId};
use std::collections::{BTreeMap, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

/// Most lines of a page. A page of the longest lines is then within the limit of pages and a line.
const PAGE_LINES_MAX: usize = 48;
const _: () =
    assert!(PAGE_LINES_MAX * (WORKER_LINE_MAX + PRINTED_LINE_EXTRA) <= crate::limits::PAGE_BYTES_MAX);

/// All lines that are kept.
#[derive(Debug, Default)]
pub(super) struct Printed {
    lines: BTreeMap<u64, Line>,
    slots: BTreeMap<SlotIndex, OfSlot>,
    /// The number of the last line.
    last: u64,
}

#[derive(Debug)]
struct Line {
    time_ms: u64,
    slot: SlotIndex,
    worker_pid: u32,
    stream: OutputStream,
    jobs: Box<[JobId]>,
    text: Box<str>,
}

/// The numbers of the lines of one slot, the oldest first.
#[derive(Debug, Default)]
struct OfSlot {
    numbers: VecDeque<u64>,
    bytes: usize,
}

/// Which lines are asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WhichLines {
    pub(crate) slot: Option<SlotIndex>,
    pub(crate) job: Option<JobId>,
}

impl WhichLines {
    fn has(self, line: &Line) -> bool {
        self.slot.is_none_or(|slot| line.slot == slot) && self.job.is_none_or(|job| line.jobs.contains(&job))
    }
}

impl Printed {
    fn add(&mut self, line: Line) {
        self.last += 1;
        let (slot, slots_before) = (line.slot, self.slots.len());
        let of_slot = self.slots.entry(slot).or_default();
        of_slot.numbers.push_back(self.last);
        of_slot.bytes += bytes_of(&line);
        self.lines.insert(self.last, line);
        if self.slots.len() == slots_before {
            return self.shorten(slot);
        }
        // One more slot has a part, so those of the others are smaller.
        let slots: Vec<SlotIndex> = self.slots.keys().copied().collect();
        slots.into_iter().for_each(|slot| self.shorten(slot));
    }

    /// Lines that came too fast: they have numbers, and nothing else.
    fn leave_out(&mut self, lines: usize) {
        self.last += lines as u64;
    }

    /// Drops the oldest lines of a slot until it takes no more than its part.
    fn shorten(&mut self, slot: SlotIndex) {
        let most = (PRINTED_BYTES_MAX / self.slots.len().max(1)).min(PRINTED_SLOT_BYTES_MAX);
        let Some(of_slot) = self.slots.get_mut(&slot) else { return };
        while of_slot.bytes > most {
            let Some(line) = of_slot.numbers.pop_front().and_then(|oldest| self.lines.remove(&oldest)) else {
                return;
            };
            of_slot.bytes -= bytes_of(&line);
        }
    }

    /// The lines after a number, as many as fit into a page, and the number of the last one that was looked at.
    fn after(&self, after: u64, which: WhichLines) -> (Vec<(u64, &Line)>, u64, u64) {
        let (mut found, mut kept, mut next) = (Vec::new(), 0, self.last.max(after));
        for (&number, line) in self.lines.range(after.saturating_add(1)..).take(PAGE_LOOKS_MAX) {
            if found.len() == PAGE_LINES_MAX {
                break;
            }
            kept += 1;
            next = number;
            if which.has(line) {
                found.push((number, line));
            }
        }
        let is_all = self.lines.range(next.saturating_add(1)..).next().is_none();
        let next = if is_all { self.last.max(after) } else { next };
        (found, next, (next - after).saturating_sub(kept))
    }
}

fn bytes_of(line: &Line) -> usize {
    line.text.len() + PRINTED_LINE_EXTRA
}

impl Hub {
    /// Lines of a worker were read.
    pub(super) fn keep_printed(
        &mut self,
        worker: WorkerId,
        stream: OutputStream,
        printed: &Captured,
        jobs: &[JobId],
    ) {
        let Some(slot) = self.core.home_of(worker) else { return };
        let worker_pid = self.processes.pid(worker).unwrap_or(0);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ms = u64::try_from(since_1970.as_millis()).unwrap_or_default();
        let line = |text: &String| {
            let (jobs, text) = (jobs.into(), text.as_str().into());
            Line { time_ms, slot, worker_pid, stream, jobs, text }
        };
        printed.lines.iter().for_each(|text| self.printed.add(line(text)));
        self.printed.leave_out(printed.dropped - printed.last_dropped.len());
        printed.last_dropped.iter().for_each(|text| self.printed.add(line(text)));
    }

    /// Whether there is such a slot, or was, and lines of it are kept.
    pub(crate) fn has_slot(&self, slot: SlotIndex) -> bool {
        slot < self.core.slots().len() || self.printed.slots.contains_key(&slot)
    }

    /// The kept lines after a number, as many as fit into a page.
    pub(crate) fn printed(&self, after: u64, which: WhichLines) -> PrintedPage {
        let (lines, next, lost) = self.printed.after(after, which);
        PrintedPage {
            lines: lines.into_iter().map(|(number, line)| self.printed_line(number, line)).collect(),
            next,
            lost,
            more: self.printed.lines.range(next.saturating_add(1)..).next().is_some(),
            ended: which.job.is_some_and(|job| !self.is_live(job)),
        }
    }

    /// Whether anything is known of a job: it lives, is remembered, or has printed lines that are kept. Looks at all lines in the
    /// last case.
    pub(crate) fn is_known_or_has_printed(&self, job: JobId) -> bool {
        let which = WhichLines { job: Some(job), slot: None };
        self.is_live(job)
            || self.look_up(job).is_some()
            || self.printed.lines.values().any(|line| which.has(line))
    }

    fn printed_line(&self, number: u64, line: &Line) -> PrintedLine {
        PrintedLine {
            number,
            time_ms: line.time_ms,
            slot: line.slot,
            worker_pid: line.worker_pid,
            stream: match line.stream {
                OutputStream::Stdout => "stdout".to_owned(),
                OutputStream::Stderr => "stderr".to_owned(),
            },
            jobs: line.jobs.iter().map(|job| self.name(*job)).collect(),
            text: line.text.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(slot: SlotIndex, job: u64, length: usize) -> Line {
        Line {
            time_ms: 0,
            slot,
            worker_pid: 1,
            stream: OutputStream::Stderr,
            jobs: [JobId(job)].into(),
            text: "x".repeat(length).into(),
        }
    }

    fn numbers(printed: &Printed, after: u64, which: WhichLines) -> (Vec<u64>, u64, u64) {
        let (lines, next, lost) = printed.after(after, which);
        (lines.into_iter().map(|(number, _)| number).collect(), next, lost)
    }

    #[test]
    fn lines_are_found_by_slot_and_by_job_in_the_order_in_which_they_were_read() {
        let mut printed = Printed::default();
        [(0, 1), (1, 2), (0, 3), (1, 2)].into_iter().for_each(|(slot, job)| printed.add(line(slot, job, 1)));
        let all = WhichLines::default();
        assert_eq!(numbers(&printed, 0, all), (vec![1, 2, 3, 4], 4, 0));
        assert_eq!(numbers(&printed, 2, all), (vec![3, 4], 4, 0));
        assert_eq!(numbers(&printed, 0, WhichLines { slot: Some(0), ..all }), (vec![1, 3], 4, 0));
        assert_eq!(numbers(&printed, 0, WhichLines { job: Some(JobId(2)), ..all }), (vec![2, 4], 4, 0));
        assert_eq!(numbers(&printed, 4, all), (vec![], 4, 0));
        assert_eq!(
            numbers(&printed, u64::MAX, all),
            (vec![], u64::MAX, 0),
            "whoever asks for nonsense gets nothing"
        );
    }

    #[test]
    fn a_slot_that_prints_much_loses_its_own_oldest_lines_and_they_are_counted() {
        let mut printed = Printed::default();
        printed.add(line(1, 1, 1));
        (0..1000).for_each(|_| printed.add(line(0, 2, 1000)));
        let kept = printed.slots[&0].numbers.len();
        assert!(kept < 1000 && printed.slots[&0].bytes <= PRINTED_SLOT_BYTES_MAX, "{kept} lines");
        let (first, next, lost) = numbers(&printed, 0, WhichLines::default());
        assert_eq!((first[0], first.len()), (1, PAGE_LINES_MAX), "the other slot has its line");
        assert_eq!(lost, next - PAGE_LINES_MAX as u64);
        assert_eq!(lost as usize, 1000 - kept);
    }

    #[test]
    fn many_slots_share_what_there_is() {
        let mut printed = Printed::default();
        for slot in 0..100 {
            (0..300).for_each(|_| printed.add(line(slot, 1, 1000)));
        }
        let bytes: usize = printed.slots.values().map(|slot| slot.bytes).sum();
        assert!(bytes <= PRINTED_BYTES_MAX, "{bytes}");
        assert_eq!(printed.lines.len(), printed.slots.values().map(|slot| slot.numbers.len()).sum::<usize>());
    }

    #[test]
    fn lines_that_came_too_fast_are_lost_to_whoever_follows() {
        let mut printed = Printed::default();
        printed.add(line(0, 1, 1));
        printed.leave_out(5);
        assert_eq!(numbers(&printed, 0, WhichLines::default()), (vec![1], 6, 5));
        printed.add(line(0, 1, 1));
        assert_eq!(numbers(&printed, 6, WhichLines::default()), (vec![7], 7, 0));
    }
}

//! Pages of a list. A page has a limited number of rows and names its last row; the next page begins after that row.
//! So no row is left out, however the list changes between two pages.
//!
//! Rows are made one by one. Each is given to the front, which writes it in its own format and says whether it still
//! fits; no further row is made after one that does not. So of a long list no more than a page is ever in memory.
//!
//! ```text
//!   jobs     live jobs, the youngest first ---> ended jobs, the youngest first
//!            live/ID                            ended/ID        (a job that ends meanwhile may appear twice)
//!   dead     the youngest first: ID
//!   workers  by slot: the number of the slot
//!   tasks    by name: the name
//! ```
//!
//! Of the jobs, a page may be asked for those that pass a filter. So that few such jobs among many others do not hold up
//! the loop, a page ends after a number of rows that were looked at, and may have none.

use super::Hub;
use super::filter::{Sieve, Verdict};
use crate::limits::{PAGE_LOOKS_MAX, PAGE_ROWS_MAX};
use crate::views::{Page, Row};
use offload_core::ids::{JobId, SlotIndex};
use offload_protocol::messages::{JobFilter, View};

/// Greater than every job id: all jobs are older than this one.
const YOUNGEST: JobId = JobId(u64::MAX);

const LIVE: &str = "live/";
const ENDED: &str = "ended/";

/// Names a row of a list, by which the next page begins where this one ended.
#[derive(Clone, Copy, Debug)]
enum RowName {
    Live(JobId),
    Ended(JobId),
    Dead(JobId),
    Slot(SlotIndex),
    Task,
}

/// A page that is being made. `write` turns a row into what the front keeps of it, or returns None if the row does not
/// fit.
struct PageBuilder<'a, R> {
    write: &'a mut dyn FnMut(Row) -> Option<R>,
    written: Vec<R>,
    most: usize,
    /// How many rows may still be looked at that are not wanted.
    looks: usize,
    last: Option<RowName>,
    /// There was a row that did not fit.
    is_full: bool,
}

impl<R> PageBuilder<'_, R> {
    fn at_most(most: usize, write: &mut dyn FnMut(Row) -> Option<R>) -> PageBuilder<'_, R> {
        let most = most.clamp(1, PAGE_ROWS_MAX);
        PageBuilder { write, written: Vec::new(), most, looks: PAGE_LOOKS_MAX, last: None, is_full: false }
    }

    /// Makes a row and adds it if it fits.
    ///
    /// # Panics
    /// If the front has no room for the first row. Every page has to make progress.
    fn push(&mut self, name: RowName, row: impl FnOnce() -> Row) {
        if self.written.len() >= self.most {
            self.is_full = true;
            return;
        }
        let Some(written) = (self.write)(row()) else {
            assert!(!self.written.is_empty(), "a front has room for the first row of a page");
            self.is_full = true;
            return;
        };
        self.written.push(written);
        self.last = Some(name);
    }

    /// A row was looked at and is not wanted.
    fn pass(&mut self, name: RowName) {
        self.last = Some(name);
        self.looks -= 1;
        self.is_full = self.looks == 0;
    }
}

impl Hub {
    /// The rows of a list after the row named `after`, at most `most` of them and as many as `write` has room for, each
    /// as `write` returns it. `after` is the `next` of the previous page, or empty for the first page. None if there is
    /// no such list or no such row. Of the jobs, only those that pass the filter.
    ///
    /// # Panics
    /// If `write` returns None for the first row.
    pub(crate) fn page<R>(
        &self,
        (view, filter): (View, &JobFilter),
        after: &str,
        most: usize,
        write: &mut dyn FnMut(Row) -> Option<R>,
    ) -> Option<Page<R>> {
        let mut rows = PageBuilder::at_most(most, write);
        match view {
            View::Jobs => self.add_jobs(self.last_shown_jobs(after)?, filter, &mut rows),
            View::Dead => self.add_dead(self.last_shown_letter(after)?, &mut rows),
            View::Workers => self.add_workers(first_slot_after(after)?, &mut rows),
            View::Tasks => return Some(self.task_page(after, rows)),
            View::Status => return None,
        }
        let next = rows.last.filter(|_| rows.is_full).map(|last| self.row_name(last));
        Some(Page { rows: rows.written, next })
    }

    /// The oldest live job and the oldest ended job that were shown before.
    fn last_shown_jobs(&self, after: &str) -> Option<(JobId, JobId)> {
        match (after.strip_prefix(LIVE), after.strip_prefix(ENDED)) {
            (Some(live), _) => Some((self.find(live)?, YOUNGEST)),
            (_, Some(ended)) => Some((JobId(0), self.find(ended)?)),
            (None, None) => after.is_empty().then_some((YOUNGEST, YOUNGEST)),
        }
    }

    fn last_shown_letter(&self, after: &str) -> Option<JobId> {
        if after.is_empty() { Some(YOUNGEST) } else { self.find(after) }
    }

    fn add_jobs<R>(&self, (live, ended): (JobId, JobId), filter: &JobFilter, rows: &mut PageBuilder<'_, R>) {
        let sieve = Sieve::new(filter, self.now());
        for (id, job) in self.core.jobs().before(live) {
            match self.judge_live(&sieve, id, job) {
                Verdict::Wanted => rows.push(RowName::Live(id), || Row::Job(self.live_job_view(id, job))),
                Verdict::Unwanted => rows.pass(RowName::Live(id)),
                Verdict::TooOld => break,
            }
            if rows.is_full {
                return;
            }
        }
        for (id, record) in self.records.finished().before(ended) {
            match Hub::judge_ended(&sieve, record) {
                Verdict::Wanted => rows.push(RowName::Ended(id), || Row::Job(Hub::ended_job_view(record))),
                Verdict::Unwanted => rows.pass(RowName::Ended(id)),
                Verdict::TooOld => return,
            }
            if rows.is_full {
                return;
            }
        }
    }

    /// Tasks have no numbers: the names of the rows are those of the tasks.
    fn task_page<R>(&self, after: &str, mut rows: PageBuilder<'_, R>) -> Page<R> {
        let mut last = None;
        for task in self.core.registry().on_offer().filter(|task| &*task.name > after) {
            rows.push(RowName::Task, || Row::Task(Box::new(self.task_view(task))));
            if rows.is_full {
                break;
            }
            last = Some(task.name.to_string());
        }
        Page { next: last.filter(|_| rows.is_full), rows: rows.written }
    }

    fn add_dead<R>(&self, younger: JobId, rows: &mut PageBuilder<'_, R>) {
        for (id, letter) in self.dead_before(younger) {
            rows.push(RowName::Dead(id), || Row::Dead(letter));
            if rows.is_full {
                return;
            }
        }
    }

    fn add_workers<R>(&self, first: SlotIndex, rows: &mut PageBuilder<'_, R>) {
        let slots = self.core.slots();
        for slot in (first..slots.len()).filter(|&slot| slots[slot].is_there()) {
            rows.push(RowName::Slot(slot), || Row::Worker(Box::new(self.worker_view(slot))));
            if rows.is_full {
                return;
            }
        }
    }

    fn row_name(&self, name: RowName) -> String {
        match name {
            RowName::Live(job) => format!("{LIVE}{}", self.name(job)),
            RowName::Ended(job) => format!("{ENDED}{}", self.name(job)),
            RowName::Dead(job) => self.name(job),
            RowName::Slot(slot) => slot.to_string(),
            RowName::Task => String::new(),
        }
    }
}

fn first_slot_after(after: &str) -> Option<SlotIndex> {
    if after.is_empty() { Some(0) } else { after.parse::<SlotIndex>().ok()?.checked_add(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::WorkerView;
    use std::cell::Cell;

    /// A list of this length is pushed for a page. Returns the slots in the page, whether there are more, and how many
    /// rows were made.
    fn page_of(length: usize, most: usize, room: usize) -> (Vec<usize>, bool, usize) {
        let made = Cell::new(0);
        let mut room_left = room;
        let mut write = |row| {
            let Row::Worker(worker) = row else { panic!("{row:?}") };
            room_left = room_left.checked_sub(1)?;
            Some(worker.slot)
        };
        let mut rows = PageBuilder::at_most(most, &mut write);
        for slot in 0..length {
            rows.push(RowName::Slot(slot), || {
                made.set(made.get() + 1);
                Row::Worker(Box::new(WorkerView { slot, ..WorkerView::default() }))
            });
            if rows.is_full {
                break;
            }
        }
        (rows.written, rows.is_full, made.get())
    }

    #[test]
    fn a_page_ends_where_the_list_ends_or_its_number_or_the_room_of_its_front() {
        assert_eq!(page_of(3, 3, 10), (vec![0, 1, 2], false, 3));
        assert_eq!(page_of(4, 3, 10), (vec![0, 1, 2], true, 3));
        assert_eq!(page_of(3, 10, 3), (vec![0, 1, 2], false, 3));
    }

    #[test]
    fn a_page_ends_after_many_rows_that_are_not_wanted_and_the_next_begins_there() {
        let mut write = |row: Row| Some(row);
        let mut rows = PageBuilder::at_most(10, &mut write);
        let mut looked = 0;
        while !rows.is_full {
            rows.pass(RowName::Slot(looked));
            looked += 1;
        }
        assert_eq!((looked, rows.written.len()), (PAGE_LOOKS_MAX, 0));
        assert!(matches!(rows.last, Some(RowName::Slot(slot)) if slot == looked - 1));
    }

    #[test]
    fn of_a_long_list_only_the_rows_of_the_page_are_made_and_the_first_that_does_not_fit() {
        assert_eq!(page_of(10_000, usize::MAX, 2), (vec![0, 1], true, 3));
        assert_eq!(page_of(10_000, usize::MAX, usize::MAX).2, PAGE_ROWS_MAX);
    }
}

//! Pages of a list. A page has a limited number of rows and names its last row; the next page begins after that row.
//! So no row is left out, however the list changes between two pages.
//!
//! ```text
//!   jobs     live jobs, the youngest first ---> ended jobs, the youngest first
//!            live/ID                            ended/ID        (a job that ends meanwhile may appear twice)
//!   dead     the youngest first: ID
//!   workers  by slot: the number of the slot
//! ```

use super::Hub;
use crate::limits::{PAGE_BYTES_MAX, PAGE_ROWS_MAX};
use offload_core::ids::{JobId, SlotIndex};
use offload_protocol::messages::View;
use serde::Serialize;

/// Greater than every job id: all jobs are older than this one.
const YOUNGEST: JobId = JobId(u64::MAX);

const LIVE: &str = "live/";
const ENDED: &str = "ended/";

/// Some rows of a list, as JSON.
#[derive(Debug)]
pub struct Page {
    /// A JSON array of the rows.
    pub rows: Vec<u8>,
    /// The name of the last row, after which the next page begins. None if this is the last page.
    pub next: Option<String>,
}

impl Page {
    /// The page as a JSON object with both fields.
    pub fn into_document(self) -> Vec<u8> {
        let next = serde_json::Value::from(self.next).to_string();
        [b"{\"rows\":", self.rows.as_slice(), b",\"next\":", next.as_bytes(), b"}"].concat()
    }
}

/// Names a row of a list, by which the next page begins where this one ended.
#[derive(Clone, Copy, Debug)]
enum RowName {
    Live(JobId),
    Ended(JobId),
    Dead(JobId),
    Slot(SlotIndex),
}

/// A page that is being made.
struct PageBuilder {
    json: Vec<u8>,
    count: usize,
    most: usize,
    last: Option<RowName>,
    /// There was a row that did not fit.
    is_full: bool,
}

impl PageBuilder {
    fn at_most(most: usize) -> PageBuilder {
        let most = most.clamp(1, PAGE_ROWS_MAX);
        PageBuilder { json: b"[".to_vec(), count: 0, most, last: None, is_full: false }
    }

    /// Adds a row if it fits. The first row always does, so that each page makes progress.
    fn push<T: Serialize>(&mut self, name: RowName, row: impl FnOnce() -> T) {
        if self.count >= self.most {
            self.is_full = true;
            return;
        }
        let before = self.json.len();
        if self.count > 0 {
            self.json.push(b',');
        }
        serde_json::to_writer(&mut self.json, &row()).expect("views have string keys");
        if self.count > 0 && self.json.len() >= PAGE_BYTES_MAX {
            self.json.truncate(before);
            self.is_full = true;
            return;
        }
        self.count += 1;
        self.last = Some(name);
    }
}

impl Hub {
    /// The rows of a list after the row named `after`, at most `most` of them. `after` is the `next` of the previous
    /// page, or empty for the first page. None if there is no such list or no such row.
    pub(crate) fn page(&self, view: View, after: &str, most: usize) -> Option<Page> {
        let mut rows = PageBuilder::at_most(most);
        match view {
            View::Jobs => self.add_jobs(self.last_shown_jobs(after)?, &mut rows),
            View::Dead => self.add_dead(self.last_shown_letter(after)?, &mut rows),
            View::Workers => self.add_workers(first_slot_after(after)?, &mut rows),
            View::Status | View::Tasks => return None,
        }
        let next = rows.last.filter(|_| rows.is_full).map(|last| self.row_name(last));
        rows.json.push(b']');
        Some(Page { rows: rows.json, next })
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

    fn add_jobs(&self, (live, ended): (JobId, JobId), rows: &mut PageBuilder) {
        for (id, job) in self.core.jobs().before(live) {
            rows.push(RowName::Live(id), || self.live_job_view(id, job));
            if rows.is_full {
                return;
            }
        }
        for (id, record) in self.records.finished().before(ended) {
            rows.push(RowName::Ended(id), || Hub::ended_job_view(record));
            if rows.is_full {
                return;
            }
        }
    }

    fn add_dead(&self, younger: JobId, rows: &mut PageBuilder) {
        for (id, letter) in self.dead_before(younger) {
            rows.push(RowName::Dead(id), || letter);
            if rows.is_full {
                return;
            }
        }
    }

    fn add_workers(&self, first: SlotIndex, rows: &mut PageBuilder) {
        let slots = self.core.slots();
        for slot in (first..slots.len()).filter(|&slot| slots[slot].is_there()) {
            rows.push(RowName::Slot(slot), || self.worker_view(slot));
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
        }
    }
}

fn first_slot_after(after: &str) -> Option<SlotIndex> {
    if after.is_empty() { Some(0) } else { after.parse::<SlotIndex>().ok()?.checked_add(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(most: usize, lengths: &[usize]) -> PageBuilder {
        let mut rows = PageBuilder::at_most(most);
        for (slot, length) in lengths.iter().enumerate() {
            rows.push(RowName::Slot(slot), || "x".repeat(*length));
            if rows.is_full {
                break;
            }
        }
        rows
    }

    #[test]
    fn a_page_ends_with_its_rows_or_with_its_bytes() {
        assert!(!filled(3, &[1; 3]).is_full);
        let by_number = filled(3, &[1; 4]);
        assert!(by_number.is_full && by_number.count == 3);
        let by_bytes = filled(1000, &[1000; 1000]);
        assert!(by_bytes.is_full && by_bytes.json.len() < PAGE_BYTES_MAX, "{}", by_bytes.json.len());
        assert_eq!(by_bytes.count, PAGE_BYTES_MAX / 1003);
    }

    #[test]
    fn a_row_that_is_longer_than_a_page_is_a_page() {
        let rows = filled(1000, &[2 * PAGE_BYTES_MAX, 1]);
        assert!(rows.is_full && rows.count == 1);
        assert!(matches!(rows.last, Some(RowName::Slot(0))));
    }

    #[test]
    fn a_page_says_where_the_next_one_begins() {
        let page = |next: Option<&str>| Page { rows: b"[1,2]".to_vec(), next: next.map(str::to_owned) };
        assert_eq!(page(Some("a\"b")).into_document(), br#"{"rows":[1,2],"next":"a\"b"}"#);
        assert_eq!(page(None).into_document(), br#"{"rows":[1,2],"next":null}"#);
    }
}

//! The pages of a table of jobs, by number.
//!
//! ```text
//!   old: a tree        recent: in a row, RECENT_MAX at most
//!   3  17  18          900  901   -   903  ...  (- has no living job)
//!                      ^ first
//! ```
//!
//! Nearly all living jobs are young, so a page is found by one subtraction. A tree for all of them took a tenth of the time
//! that the core needs for a tiny job. Only the pages of jobs that outlive a million others are in a tree.

use std::collections::{BTreeMap, VecDeque};

/// Numbers in one page.
pub(super) const PAGE: u64 = 256;
/// In a page: no living job has this number.
pub(super) const NONE: u32 = u32::MAX;
/// Pages in a row, with those that have no living job.
const RECENT_MAX: u64 = 4096;

/// The places of the jobs with consecutive numbers.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) places: Box<[u32; PAGE as usize]>,
    pub(super) living: u32,
}

impl Page {
    fn new() -> Page {
        Page { places: Box::new([NONE; PAGE as usize]), living: 0 }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Pages {
    old: BTreeMap<u64, Page>,
    /// The number of the first recent page.
    first: u64,
    recent: VecDeque<Option<Page>>,
}

impl Pages {
    fn recent_index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok()
    }

    pub(super) fn get(&self, number: u64) -> Option<&Page> {
        match self.recent_index(number) {
            Some(index) => self.recent.get(index)?.as_ref(),
            None => self.old.get(&number),
        }
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Page> {
        match self.recent_index(number) {
            Some(index) => self.recent.get_mut(index)?.as_mut(),
            None => self.old.get_mut(&number),
        }
    }

    /// The page of this number, which is added if it is not there.
    pub(super) fn get_or_add(&mut self, number: u64) -> &mut Page {
        if number < self.first {
            return self.old.entry(number).or_insert_with(Page::new);
        }
        while number - self.first >= RECENT_MAX && !self.recent.is_empty() {
            self.retire_first();
        }
        if self.recent.is_empty() {
            self.first = number;
        }
        let index = (number - self.first) as usize;
        if index >= self.recent.len() {
            self.recent.resize_with(index + 1, || None);
        }
        self.recent[index].get_or_insert_with(Page::new)
    }

    /// The first recent page becomes an old one.
    fn retire_first(&mut self) {
        let page = self.recent.pop_front().flatten();
        self.old.extend(page.map(|page| (self.first, page)));
        self.first += 1;
    }

    /// Removes a page that has no living job.
    pub(super) fn remove(&mut self, number: u64) {
        match self.recent_index(number) {
            None => drop(self.old.remove(&number)),
            Some(index) => {
                if let Some(page) = self.recent.get_mut(index) {
                    *page = None;
                }
                while matches!(self.recent.front(), Some(None)) {
                    self.recent.pop_front();
                    self.first += 1;
                }
            }
        }
    }

    /// All pages with their numbers, the smallest number first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Page)> {
        let old = self.old.iter().map(|(number, page)| (*number, page));
        let recent = self.recent.iter().enumerate();
        old.chain(recent.filter_map(|(index, page)| Some((self.first + index as u64, page.as_ref()?))))
    }

    /// The pages up to this number, the largest number first.
    pub(super) fn up_to(&self, number: u64) -> impl Iterator<Item = (u64, &Page)> {
        let recent =
            self.recent_index(number).map_or(0, |index| index.saturating_add(1).min(self.recent.len()));
        let recent = self.recent.range(..recent).enumerate().rev();
        let recent = recent.filter_map(|(index, page)| Some((self.first + index as u64, page.as_ref()?)));
        recent.chain(self.old.range(..=number).rev().map(|(number, page)| (*number, page)))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.iter().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_a_million_jobs_came_after_is_still_found() {
        let mut pages = Pages::default();
        for number in [7, 8, 7 + RECENT_MAX, 8 + 3 * RECENT_MAX, 3, u64::MAX / PAGE] {
            pages.get_or_add(number).living = number as u32;
            assert!(pages.recent.len() as u64 <= RECENT_MAX);
        }
        let all = [3, 7, 8, 7 + RECENT_MAX, 8 + 3 * RECENT_MAX, u64::MAX / PAGE];
        assert_eq!(pages.iter().map(|(number, _)| number).collect::<Vec<_>>(), all);
        for number in all {
            assert_eq!(pages.get(number).map(|page| page.living), Some(number as u32));
            assert!(
                pages.get_mut(number).is_some() && pages.get(number + 1).is_none_or(|page| page.living == 8)
            );
            pages.remove(number);
            assert!(pages.get(number).is_none());
        }
        assert_eq!((pages.len(), pages.recent.len()), (0, 0));
    }
}

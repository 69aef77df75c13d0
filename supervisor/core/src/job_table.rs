//! A table of what is known of living jobs: found by the job's number in constant time, listed by age, and kept in one
//! piece of memory each, that never moves. The core has one for its decisions, and the hub one for payloads and callbacks.
//! Both ask for the same job many times before they ask for another, so the place of the last one is remembered.
//!
//! ```text
//!   job number = page number x 256 + place
//!
//!   pages, by page number       chunks of 64 jobs
//!     17: [ -  3  -  ... ]        0: [ job  job   -   job ... ]
//!     18: [ 0  1  2  ... ] --.    1: [ job   -   ...         ]
//!                            '------> place in the chunks: chunk x 64 + place
//! ```
//!
//! Numbers go up by one, so the youngest jobs share a page; a page without jobs is removed. A job that lives long keeps one
//! page of 1 KiB. A tree of jobs would move its entries, which are large, and leave its nodes half empty.

mod pages;

use super::ids::JobId;
use crate::recent::Recent;
use pages::{NONE, PAGE, Page, Pages};

/// Jobs in one chunk.
const CHUNK: usize = 64;
/// Chunks that are kept although no job is left: enough that work which comes one by one allocates nothing.
const CHUNKS_KEPT: usize = 4;

/// A table of living jobs. See the module's documentation.
#[derive(Debug)]
pub struct JobTable<T> {
    pages: Pages,
    /// Each has its full capacity from the start, so no job is ever moved.
    chunks: Vec<Vec<Option<T>>>,
    /// How many places the chunks have.
    places: u32,
    /// Places in the chunks that are free again; the last one is used first.
    free: Vec<u32>,
    len: usize,
    /// The place of the living job that was asked for last.
    recent: Recent<(JobId, u32)>,
}

/// The number of a job's page, and its place there.
fn split(id: JobId) -> (u64, usize) {
    (id.0 / PAGE, (id.0 % PAGE) as usize)
}

impl<T> Default for JobTable<T> {
    fn default() -> JobTable<T> {
        JobTable {
            pages: Pages::default(),
            chunks: Vec::new(),
            places: 0,
            free: Vec::new(),
            len: 0,
            recent: Recent::default(),
        }
    }
}

impl<T> JobTable<T> {
    /// Adds a job.
    ///
    /// # Panics
    /// If 2^32 - 1 jobs live at once, or one of this number does.
    pub fn insert(&mut self, id: JobId, job: T) {
        let place = self.free.pop().unwrap_or_else(|| self.add_place());
        if let Some(entry) = self.entry(place) {
            *entry = Some(job);
        }
        let (page, index) = split(id);
        let page = self.pages.get_or_add(page);
        assert_eq!(page.places[index], NONE, "no two jobs have one number");
        page.places[index] = place;
        page.living += 1;
        self.len += 1;
        self.recent.set((id, place));
    }

    fn add_place(&mut self) -> u32 {
        let place = self.places;
        if place as usize == self.chunks.len() * CHUNK {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(None);
        }
        self.places += 1;
        place
    }

    #[inline]
    fn entry(&mut self, place: u32) -> Option<&mut Option<T>> {
        self.chunks.get_mut(place as usize / CHUNK)?.get_mut(place as usize % CHUNK)
    }

    #[inline]
    fn place(&self, id: JobId) -> Option<u32> {
        match self.recent.get() {
            Some((recent, place)) if recent == id => Some(place),
            _ => self.look_up(id),
        }
    }

    fn look_up(&self, id: JobId) -> Option<u32> {
        let (page, index) = split(id);
        let place = self.pages.get(page).map(|page| page.places[index]).filter(|place| *place != NONE)?;
        self.recent.set((id, place));
        Some(place)
    }

    /// Takes a job out.
    pub fn remove(&mut self, id: JobId) -> Option<T> {
        let (number, index) = split(id);
        let page = self.pages.get_mut(number)?;
        let place = std::mem::replace(&mut page.places[index], NONE);
        if place == NONE {
            return None;
        }
        self.recent.forget();
        page.living -= 1;
        if page.living == 0 {
            self.pages.remove(number);
        }
        self.len -= 1;
        self.free.push(place);
        let job = self.entry(place)?.take();
        if self.len == 0 && self.chunks.len() > CHUNKS_KEPT {
            self.shrink();
        }
        job
    }

    /// Gives back the memory that many jobs took, when none is left.
    fn shrink(&mut self) {
        self.chunks.truncate(CHUNKS_KEPT);
        self.chunks.shrink_to_fit();
        self.places = (CHUNKS_KEPT * CHUNK) as u32;
        self.free = (0..self.places).rev().collect();
    }

    /// The job of this number.
    #[inline]
    pub fn get(&self, id: JobId) -> Option<&T> {
        let place = self.place(id)? as usize;
        self.chunks.get(place / CHUNK)?.get(place % CHUNK)?.as_ref()
    }

    /// The job of this number.
    #[inline]
    pub fn get_mut(&mut self, id: JobId) -> Option<&mut T> {
        let place = self.place(id)?;
        self.entry(place)?.as_mut()
    }

    /// All jobs, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (JobId, &T)> {
        self.pages.iter().flat_map(|(number, page)| self.of_page(number, page))
    }

    /// The jobs that are older than this one, the youngest first.
    pub fn before(&self, id: JobId) -> impl Iterator<Item = (JobId, &T)> {
        let pages = self.pages.up_to(split(id).0);
        let jobs = pages.flat_map(|(number, page)| self.of_page(number, page).rev());
        jobs.skip_while(move |(other, _)| *other >= id)
    }

    fn of_page(&self, number: u64, page: &Page) -> impl DoubleEndedIterator<Item = (JobId, &T)> {
        (0..PAGE as usize).filter_map(move |index| {
            let place = page.places[index];
            let id = JobId(number * PAGE + index as u64);
            let entry = self.chunks.get(place as usize / CHUNK)?.get(place as usize % CHUNK)?;
            Some((id, entry.as_ref()?))
        })
    }

    /// Takes all jobs out, the oldest first.
    pub fn into_jobs(mut self) -> impl Iterator<Item = (JobId, T)> {
        let ids: Vec<JobId> = self.iter().map(|(id, _)| id).collect();
        ids.into_iter().filter_map(move |id| Some((id, self.remove(id)?)))
    }

    /// How many jobs there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::ClientId;
    use crate::ids::Mono;
    use crate::jobs::Job;
    use crate::rng::Rng;
    use std::collections::BTreeMap;

    /// Recognized by the length of its input.
    fn some_job(number: u64) -> Job {
        Job { input_bytes: number, ..Job::new(ClientId::default(), Mono::default()) }
    }

    /// Jobs come and go in an order that is made of chance; a tree of the standard library says what there must be.
    #[test]
    fn it_holds_what_a_tree_holds_in_the_same_order() {
        let mut random = Rng::new(7);
        let (mut table, mut tree, mut last) = (JobTable::<Job>::default(), BTreeMap::new(), 0);
        for step in 0..20_000_u64 {
            let grows = (step / 2_000).is_multiple_of(2);
            if tree.is_empty() || random.below(10) < if grows { 8 } else { 2 } {
                last += 1 + random.below(5) * random.below(200);
                table.insert(JobId(last), some_job(last));
                tree.insert(JobId(last), last);
            } else {
                let wanted = JobId(random.below(last + 1));
                let id = tree.range(wanted..).next().map_or(wanted, |(id, _)| *id);
                assert_eq!(table.remove(id).map(|job| job.input_bytes), tree.remove(&id));
                assert!(table.get(id).is_none() && table.remove(id).is_none());
            }
            assert_eq!(table.len(), tree.len());
            if step.is_multiple_of(100) {
                let listed: Vec<_> = table.iter().map(|(id, job)| (id, job.input_bytes)).collect();
                assert_eq!(listed, tree.iter().map(|(id, bytes)| (*id, *bytes)).collect::<Vec<_>>());
                let middle = JobId(last / 2);
                let before: Vec<_> = table.before(middle).map(|(id, _)| id).collect();
                assert_eq!(before, tree.range(..middle).rev().map(|(id, _)| *id).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn what_many_jobs_took_is_given_back_and_one_at_a_time_allocates_nothing_new() {
        let mut table = JobTable::default();
        let many = (2 * CHUNKS_KEPT * CHUNK) as u64;
        (1..=many).for_each(|id| table.insert(JobId(id), some_job(id)));
        (1..=many).for_each(|id| assert!(table.remove(JobId(id)).is_some()));
        assert_eq!((table.chunks.len(), table.pages.len()), (CHUNKS_KEPT, 0));
        for id in many + 1..many + 1_000 {
            table.insert(JobId(id), some_job(id));
            assert_eq!(table.remove(JobId(id)).map(|job| job.input_bytes), Some(id));
        }
        assert_eq!(table.chunks.len(), CHUNKS_KEPT);
    }
}

//! The waiting jobs of one client, ordered by rank.
//!
//! ```text
//!   pieces, each sorted and of at most PIECE jobs; the last job of one is before the first job of the next
//!
//!   [ 3 4 7 9 ... ]  [ 120 121 ... ]  [ 260 261 - - ... ]
//!     ^ taken from here                           ^ nearly always added here
//! ```
//!
//! Jobs nearly always come in the order of their ranks and leave at the front, which takes constant time, and the pieces
//! are full. A job takes 24 bytes here; in a tree, whose nodes are half empty, it took more than 70. A job in the middle is
//! found in logarithmic time; adding or removing one moves at most one piece, and the list of pieces where one is split or
//! has become empty.

use super::Rank;
use crate::ids::{JobId, TaskIndex};
use std::collections::VecDeque;

/// Most jobs in one piece.
const PIECE: usize = 128;

/// See the module's documentation. No piece is empty.
#[derive(Debug, Default)]
pub(super) struct Ranked {
    pieces: VecDeque<VecDeque<Entry>>,
}

/// One waiting job: its rank, its task and the size class of its input. The types are as small as they can be.
#[derive(Clone, Copy, Debug)]
struct Entry {
    aged: i64,
    job: JobId,
    task: TaskIndex,
    priority: i8,
    size: u8,
}

impl Entry {
    fn new(rank: Rank, (task, size): (TaskIndex, u32)) -> Entry {
        let Rank { aged, job, priority } = rank;
        // There are 17 size classes.
        Entry { aged, job, task, priority, size: size as u8 }
    }

    fn rank(&self) -> Rank {
        Rank { aged: self.aged, job: self.job, priority: self.priority }
    }
}

/// Where a job is: the piece, and the position there.
type At = (usize, usize);

impl Ranked {
    /// Adds a job. True if it was not there.
    pub(super) fn insert(&mut self, rank: Rank, of: (TaskIndex, u32)) -> bool {
        let entry = Entry::new(rank, of);
        let is_last = self.pieces.back().and_then(VecDeque::back).is_none_or(|last| last.rank() < rank);
        if is_last {
            self.push_back(entry);
            return true;
        }
        match self.find(rank) {
            Ok((piece, position)) => {
                self.pieces[piece][position] = entry;
                false
            }
            Err((piece, position)) => {
                self.pieces[piece].insert(position, entry);
                if self.pieces[piece].len() > PIECE {
                    let half = self.pieces[piece].split_off(PIECE / 2);
                    self.pieces.insert(piece + 1, half);
                }
                true
            }
        }
    }

    fn push_back(&mut self, entry: Entry) {
        match self.pieces.back_mut().filter(|piece| piece.len() < PIECE) {
            Some(piece) => piece.push_back(entry),
            None => self.pieces.push_back(VecDeque::from([entry])),
        }
    }

    /// Where the job of this rank is, or where it would have to be.
    fn find(&self, rank: Rank) -> Result<At, At> {
        let is_before = |piece: &VecDeque<Entry>| piece.back().is_some_and(|last| last.rank() < rank);
        let piece = self.pieces.partition_point(is_before);
        let Some(entries) = self.pieces.get(piece) else { return Err((piece, 0)) };
        match entries.binary_search_by_key(&rank, Entry::rank) {
            Ok(position) => Ok((piece, position)),
            Err(position) => Err((piece, position)),
        }
    }

    /// Takes a job out. True if it was there.
    pub(super) fn remove(&mut self, rank: Rank) -> bool {
        let is_first = self.first().is_some_and(|(first, _)| first == rank);
        let found = if is_first { Ok((0, 0)) } else { self.find(rank) };
        let Ok((piece, position)) = found else { return false };
        self.pieces[piece].remove(position);
        if self.pieces[piece].is_empty() {
            self.pieces.remove(piece);
        }
        true
    }

    /// The job with the smallest rank, its task and the size class of its input.
    pub(super) fn first(&self) -> Option<(Rank, (TaskIndex, u32))> {
        let first = self.pieces.front()?.front()?;
        Some((first.rank(), (first.task, u32::from(first.size))))
    }

    pub(super) fn contains(&self, rank: Rank) -> bool {
        self.find(rank).is_ok()
    }

    /// How many jobs have a smaller rank. Takes time in proportion to the number of pieces.
    pub(super) fn before(&self, rank: Rank) -> usize {
        let (piece, position) = self.find(rank).unwrap_or_else(|at| at);
        self.pieces.iter().take(piece).map(VecDeque::len).sum::<usize>() + position
    }

    /// All jobs, the smallest rank first.
    pub(super) fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.pieces.iter().flatten().map(|entry| entry.job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Mono;
    use crate::rng::Rng;
    use std::collections::BTreeMap;

    /// Jobs come and go in an order that is made of chance, mostly in that of their ranks; a tree says what there must be.
    #[test]
    fn it_holds_what_a_tree_holds_in_the_same_order() {
        let mut random = Rng::new(7);
        let (mut ranked, mut tree) = (Ranked::default(), BTreeMap::new());
        let mut last = 0;
        for step in 0..40_000_u64 {
            let grows = (step / 5_000).is_multiple_of(2);
            if random.below(10) < if grows { 7 } else { 3 } {
                last += 1;
                let at = if random.below(8) == 0 { random.below(last + 1) } else { last };
                let rank = Rank::new(Mono::from_nanos(at), 0, JobId(last));
                let of = (random.below(100) as TaskIndex, random.below(17) as u32);
                assert_eq!(ranked.insert(rank, of), tree.insert(rank, of).is_none());
            } else {
                let first = tree.first_key_value().map(|(rank, _)| *rank);
                let wanted = Rank::new(Mono::from_nanos(random.below(last + 1)), 0, JobId(0));
                let middle = tree.range(wanted..).next().map(|(rank, _)| *rank);
                let rank = if random.below(2) == 0 { first } else { middle }.unwrap_or(wanted);
                assert_eq!(ranked.contains(rank), tree.contains_key(&rank));
                assert_eq!(ranked.remove(rank), tree.remove(&rank).is_some());
                assert!(!ranked.remove(rank) && !ranked.contains(rank));
            }
            assert_eq!(ranked.first(), tree.first_key_value().map(|(rank, of)| (*rank, *of)));
            assert!(ranked.pieces.iter().all(|piece| !piece.is_empty() && piece.len() <= PIECE));
            if step.is_multiple_of(500) {
                assert!(ranked.jobs().eq(tree.keys().map(|rank| rank.job)));
                let middle = Rank::new(Mono::from_nanos(last / 2), 0, JobId(0));
                assert_eq!(ranked.before(middle), tree.range(..middle).count());
            }
        }
    }

    #[test]
    fn jobs_that_come_in_their_order_fill_the_pieces() {
        let mut ranked = Ranked::default();
        (0..10 * PIECE as u64).for_each(|job| {
            ranked.insert(Rank::new(Mono::from_nanos(job), 0, JobId(job)), (0, 0));
        });
        assert_eq!((ranked.pieces.len(), size_of::<Entry>()), (10, 24));
    }
}

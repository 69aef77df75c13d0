//! A first-in first-out queue in blocks: two such queues can be joined without moving what is in them, and they pass emptied
//! blocks on to each other.
//!
//! ```text
//!   other threads --> [ 1 ][ 2 ][ 3.. ]       the mailbox, under its lock
//!                       |    |    |    ^
//!                       v    v    v    | spare blocks
//!   the loop      <-- [..0 ][ 1 ][ 2 ][ 3.. ]
//! ```
//!
//! In one array, which grows, each value was moved three times, and its memory was new whenever posts came faster than the loop
//! ran them: page faults were a third of the processor time of a flood of posts.

use std::collections::VecDeque;

/// How many values a block has room for. Of the posts of a loop that is 40 KiB, which stays in the processor's cache.
const BLOCK_LEN: usize = 1_024;

pub(super) struct Blocks<T> {
    /// None of them is empty.
    blocks: VecDeque<VecDeque<T>>,
    /// Emptied blocks, for those to come.
    spare: Vec<VecDeque<T>>,
}

impl<T> Blocks<T> {
    pub(super) fn new() -> Blocks<T> {
        Blocks { blocks: VecDeque::new(), spare: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    #[inline]
    pub(super) fn push(&mut self, value: T) {
        match self.blocks.back_mut() {
            Some(last) if last.len() < BLOCK_LEN => last.push_back(value),
            _ => self.push_block(value),
        }
    }

    fn push_block(&mut self, value: T) {
        // Most queues never have more than a few values. Where one block is full, the next one will be.
        let room = if self.blocks.is_empty() { 0 } else { BLOCK_LEN };
        let mut block = self.spare.pop().unwrap_or_else(|| VecDeque::with_capacity(room));
        block.push_back(value);
        self.blocks.push_back(block);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        let first = self.blocks.front_mut()?;
        let value = first.pop_front();
        if first.is_empty() {
            self.spare.extend(self.blocks.pop_front());
        }
        value
    }

    /// Puts all that is in `other` behind what is here. `other` gets the spare blocks, at most `spare_max` and as many as it
    /// has filled this time; the others are returned, to be freed when nobody waits for it.
    #[must_use]
    pub(super) fn append(&mut self, other: &mut Blocks<T>, spare_max: usize) -> Vec<VecDeque<T>> {
        let kept = other.blocks.len().min(spare_max);
        self.blocks.append(&mut other.blocks);
        other.spare.append(&mut self.spare);
        other.spare.split_off(kept.min(other.spare.len()))
    }

    /// Frees all spare blocks but one.
    pub(super) fn free_spare(&mut self) {
        self.spare.truncate(1);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().flatten()
    }

    /// Everything that was left, in order.
    pub(super) fn take_all(&mut self) -> VecDeque<VecDeque<T>> {
        self.spare = Vec::new();
        std::mem::take(&mut self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pop_all(queue: &mut Blocks<usize>) -> Vec<usize> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn what_is_pushed_and_appended_comes_out_in_order() {
        let (mut near, mut far) = (Blocks::new(), Blocks::new());
        (0..10).for_each(|value| near.push(value));
        (10..5_000).for_each(|value| far.push(value));
        drop(near.append(&mut far, 1));
        assert!(far.is_empty());
        (5_000..5_010).for_each(|value| near.push(value));
        assert!(near.iter().copied().eq(0..5_010));
        assert!(pop_all(&mut near).into_iter().eq(0..5_010));
        assert!(near.is_empty());
    }

    #[test]
    fn emptied_blocks_go_back_as_many_as_were_filled_and_no_more_than_the_bound() {
        let (mut near, mut far) = (Blocks::new(), Blocks::new());
        let mut round = |blocks: usize, spare_max: usize| {
            (0..blocks * BLOCK_LEN).for_each(|value| far.push(value));
            let freed = near.append(&mut far, spare_max).len();
            assert_eq!(pop_all(&mut near).len(), blocks * BLOCK_LEN);
            (freed, far.spare.len(), near.spare.len())
        };
        assert_eq!(round(5, 3), (0, 0, 5));
        assert_eq!(round(5, 3), (2, 3, 5), "the bound");
        assert_eq!(round(1, 3), (6, 1, 1), "what was needed");
    }

    #[test]
    fn a_queue_at_rest_keeps_one_block() {
        let mut queue = Blocks::new();
        (0..3 * BLOCK_LEN).for_each(|value| queue.push(value));
        pop_all(&mut queue);
        queue.free_spare();
        assert_eq!(queue.spare.len(), 1);
    }
}

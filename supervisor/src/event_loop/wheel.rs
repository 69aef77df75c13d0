//! A levelled timer wheel: which value is due when. It knows no clock and no callback.
//!
//! Time is counted in ticks. The wheel has 7 levels of 128 lists; a timer lies on the level of the highest digit
//! (in base 128) in which its due tick differs from now, in the list that this digit names:
//!
//! ```text
//!              now = 0 0 0 0 0 5 3      (7 digits in base 128)
//!   due = 0 0 0 0 0 5 9   level 0, list 9      due within this turn of level 0
//!   due = 0 0 0 0 0 8 1   level 1, list 8      moves to level 0 when now reaches ..8 0
//!   due = 0 0 0 2 0 0 0   level 3, list 2
//! ```
//!
//! Three things follow, and the code below leans on them:
//! * the lowest level that is not empty holds the timers due next, in its lowest list that is not empty;
//! * lists only ever lie ahead of now, so "lowest" is a count of trailing zeros, without rotation;
//! * a list is filled and emptied in the order of start, so timers come out in exact (due, start) order.
//!
//! The lists are doubly linked, so starting and stopping a timer cost the same at any number.

use super::slab::{Key, Slab};

const LEVELS: usize = 7;
const DIGIT_BITS: u32 = 7;
const LISTS_PER_LEVEL: usize = 1 << DIGIT_BITS;
/// The list of timers whose time has come and which nobody fetched yet.
const DUE: usize = LEVELS * LISTS_PER_LEVEL;
/// The largest tick that the levels can hold.
pub(super) const TICK_MAX: u64 = (1 << (LEVELS as u32 * DIGIT_BITS)) - 1;

const NOBODY: u32 = u32::MAX;
/// In the place of a neighbour: the timer is in no list.
const NO_LIST: u32 = u32::MAX - 1;

/// The place of one timer in its list. Which list that is follows from `due`.
#[derive(Clone, Copy, Debug)]
struct Link {
    due: u64,
    previous: u32,
    next: u32,
}

const UNLINKED: Link = Link { due: 0, previous: NO_LIST, next: NO_LIST };

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
    /// No timer in this list is due before. It may be too early after a timer was stopped, never too late.
    earliest: u64,
}

const EMPTY: List = List { first: NOBODY, last: NOBODY, earliest: u64::MAX };

pub(super) struct Wheel<T> {
    now: u64,
    values: Slab<T>,
    /// Beside the values, not in them: with a million timers the cost is in the memory that moving them touches.
    links: Vec<Link>,
    lists: Box<[List; DUE + 1]>,
    /// One bit for each list of a level that is not empty.
    occupied: [u128; LEVELS],
}

impl<T> Wheel<T> {
    pub(super) fn new() -> Wheel<T> {
        let lists = Box::new([EMPTY; DUE + 1]);
        Wheel { now: 0, values: Slab::new(), links: Vec::new(), lists, occupied: [0; LEVELS] }
    }

    /// Starts a timer. A tick that is not ahead counts as the next one, one beyond [`TICK_MAX`] as that.
    ///
    /// # Panics
    /// If 2^32 - 2 timers exist at once.
    pub(super) fn start(&mut self, due: u64, value: T) -> Key {
        let key = self.values.insert(value);
        assert!(key.index < NO_LIST, "fewer than 2^32 - 2 timers exist at once");
        if self.links.len() <= key.index as usize {
            self.links.push(UNLINKED);
        }
        self.append_ahead(key.index, due);
        key
    }

    /// Starts a timer again that was fetched. It is the last of those due in the same tick.
    pub(super) fn restart(&mut self, key: Key, due: u64) {
        if self.values.get(key).is_some() && self.links[key.index as usize].next == NO_LIST {
            self.append_ahead(key.index, due);
        }
    }

    /// Stops a timer, also one that was fetched, and forgets it.
    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let value = self.values.remove(key)?;
        if self.links[key.index as usize].next != NO_LIST {
            self.unlink(key.index);
        }
        Some(value)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.values.get_mut(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.values.iter()
    }

    /// Takes every value out.
    pub(super) fn take_all(&mut self) -> Vec<T> {
        self.links.fill(UNLINKED);
        self.lists.fill(EMPTY);
        self.occupied = [0; LEVELS];
        self.values.take_all()
    }

    /// Moves time forward and puts everything that is due by `to` into the due list.
    pub(super) fn advance(&mut self, to: u64) {
        while let Some((level, list)) = self.next_list() {
            let start = self.start_of(level, list);
            if start > to {
                break;
            }
            self.now = start;
            self.empty_into_lower_levels(level, list);
        }
        self.now = self.now.max(to.min(TICK_MAX));
    }

    /// The next of the timers that [`Wheel::advance`] found due, in (due, start) order. It keeps its place until
    /// it is removed or restarted.
    pub(super) fn fetch_due(&mut self) -> Option<Key> {
        let index = self.lists[DUE].first;
        if index == NOBODY {
            return None;
        }
        self.unlink(index);
        self.values.key_at(index)
    }

    pub(super) fn has_due(&self) -> bool {
        self.lists[DUE].first != NOBODY
    }

    /// No timer is due before this tick. It is exact unless the earliest timer of a crowded list was stopped.
    pub(super) fn next_due(&self) -> Option<u64> {
        if self.has_due() {
            return Some(self.now);
        }
        let (level, list) = self.next_list()?;
        Some(self.lists[level * LISTS_PER_LEVEL + list].earliest)
    }

    fn next_list(&self) -> Option<(usize, usize)> {
        let level = self.occupied.iter().position(|&lists| lists != 0)?;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    /// The first tick that belongs to a list: the digits of now above its level, its own digit, then zeros.
    fn start_of(&self, level: usize, list: usize) -> u64 {
        let shift = level as u32 * DIGIT_BITS;
        let above = self.now >> shift >> DIGIT_BITS << DIGIT_BITS;
        (above | list as u64) << shift
    }

    /// The list of a timer that is due at `due`: the same from its start until now reaches the list.
    fn list_for(&self, due: u64) -> usize {
        if due <= self.now {
            return DUE;
        }
        let highest_differing_bit = 63 - (due ^ self.now).leading_zeros();
        let level = highest_differing_bit / DIGIT_BITS;
        let digit = (due >> (level * DIGIT_BITS)) as usize % LISTS_PER_LEVEL;
        level as usize * LISTS_PER_LEVEL + digit
    }

    fn empty_into_lower_levels(&mut self, level: usize, list: usize) {
        let list = level * LISTS_PER_LEVEL + list;
        let mut index = self.lists[list].first;
        self.lists[list] = EMPTY;
        self.mark_empty(list);
        while index != NOBODY {
            let Link { due, next, .. } = self.links[index as usize];
            self.append(index, due);
            index = next;
        }
    }

    fn append_ahead(&mut self, index: u32, due: u64) {
        self.append(index, due.max(self.now + 1).min(TICK_MAX));
    }

    fn append(&mut self, index: u32, due: u64) {
        let list = self.list_for(due);
        let target = &mut self.lists[list];
        let previous = std::mem::replace(&mut target.last, index);
        target.earliest = target.earliest.min(due);
        if previous == NOBODY {
            target.first = index;
            self.mark_occupied(list);
        } else {
            self.links[previous as usize].next = index;
        }
        self.links[index as usize] = Link { due, previous, next: NOBODY };
    }

    fn unlink(&mut self, index: u32) {
        let Link { due, previous, next } = std::mem::replace(&mut self.links[index as usize], UNLINKED);
        let list = self.list_for(due);
        match previous {
            NOBODY => self.lists[list].first = next,
            previous => self.links[previous as usize].next = next,
        }
        match next {
            NOBODY => self.lists[list].last = previous,
            next => self.links[next as usize].previous = previous,
        }
        if self.lists[list].first == NOBODY {
            self.lists[list] = EMPTY;
            self.mark_empty(list);
        }
    }

    fn mark_occupied(&mut self, list: usize) {
        if let Some(level) = self.occupied.get_mut(list / LISTS_PER_LEVEL) {
            *level |= 1 << (list % LISTS_PER_LEVEL);
        }
    }

    fn mark_empty(&mut self, list: usize) {
        if let Some(level) = self.occupied.get_mut(list / LISTS_PER_LEVEL) {
            *level &= !(1 << (list % LISTS_PER_LEVEL));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of what is due by `to`.
    fn due(wheel: &mut Wheel<u32>, to: u64) -> Vec<u32> {
        wheel.advance(to);
        let fetch = |wheel: &mut Wheel<u32>| wheel.fetch_due().and_then(|key| wheel.remove(key));
        std::iter::from_fn(|| fetch(wheel)).collect()
    }

    #[test]
    fn timers_come_out_by_due_tick_and_then_by_start() {
        let mut wheel = Wheel::new();
        for (name, tick) in (0..).zip([70, 5, 5, 4_097, 70, 1]) {
            wheel.start(tick, name);
        }
        assert_eq!(due(&mut wheel, 1), [5]);
        assert_eq!(due(&mut wheel, 69), [1, 2]);
        assert_eq!(due(&mut wheel, 10_000), [0, 4, 3]);
    }

    #[test]
    fn a_removed_timer_never_comes_out_even_when_it_was_found_due() {
        let mut wheel = Wheel::new();
        let (first, _) = (wheel.start(10, 0), wheel.start(10, 1));
        wheel.advance(10);
        assert_eq!(wheel.remove(first), Some(0));
        assert_eq!(wheel.remove(first), None);
        assert_eq!(due(&mut wheel, 10), [1]);
    }

    #[test]
    fn a_key_of_a_removed_timer_does_not_find_its_successor() {
        let mut wheel = Wheel::new();
        let old = wheel.start(10, 0);
        wheel.remove(old);
        let new = wheel.start(10, 1);
        assert_eq!((new.index, wheel.remove(old)), (old.index, None));
        assert_eq!(due(&mut wheel, 10), [1]);
    }

    #[test]
    fn a_fetched_timer_can_be_started_again() {
        let mut wheel = Wheel::new();
        wheel.start(10, 0);
        wheel.advance(10);
        let key = wheel.fetch_due().expect("it is due");
        assert!(!wheel.has_due());
        wheel.restart(key, 20);
        assert_eq!(due(&mut wheel, 19), [0u32; 0]);
        assert_eq!(due(&mut wheel, 20), [0]);
    }

    #[test]
    fn the_farthest_tick_is_held_and_reached() {
        let mut wheel = Wheel::new();
        wheel.start(u64::MAX, 0);
        assert_eq!(wheel.next_due(), Some(TICK_MAX));
        assert_eq!(due(&mut wheel, TICK_MAX - 1), [0u32; 0]);
        assert_eq!(due(&mut wheel, u64::MAX), [0]);
    }

    /// The same operations on a sorted list, over many seeds: order, stopping and the next due tick agree.
    #[test]
    fn the_wheel_agrees_with_a_sorted_list() {
        for seed in 1..=500_u64 {
            agree_with_a_sorted_list(seed);
        }
    }

    fn agree_with_a_sorted_list(seed: u64) {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut next = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let (mut wheel, mut model, mut now) = (Wheel::new(), Vec::new(), 0);
        for name in 0..300_u32 {
            let reach = 1 << next(30);
            let tick = now + 1 + next(reach);
            model.push((tick, name, wheel.start(tick, name)));
            if next(4) == 0 {
                let (_, name, stopped) = model.remove(next(model.len() as u64) as usize);
                assert_eq!(wheel.remove(stopped), Some(name));
            }
            if next(8) == 0 {
                now += next(reach);
                model.sort_unstable_by_key(|&(tick, name, _)| (tick, name));
                let ahead = model.iter().position(|&(tick, ..)| tick > now).unwrap_or(model.len());
                let expected: Vec<u32> = model.drain(..ahead).map(|(_, name, _)| name).collect();
                assert_eq!(due(&mut wheel, now), expected, "seed {seed}");
            }
            let earliest = model.iter().map(|&(tick, ..)| tick).min();
            assert!(wheel.next_due() <= earliest || earliest.is_none(), "seed {seed}: never too late");
        }
    }
}

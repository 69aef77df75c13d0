//! A levelled timer wheel: which value is due when. It knows no clock and no callback.
//!
//! Time is counted in timer steps of 66 us, here for short: ticks. The wheel has 7 levels of 128 lists; a timer lies on the level of the highest digit
//! (in base 128) in which its due tick differs from now, in the list that this digit names:
//!
//! ```text
//!              now = 0 0 0 0 0 5 3      (7 digits in base 128)
//!   due = 0 0 0 0 0 5 9   level 0, list 9      due within this turn of level 0
//!   due = 0 0 0 0 0 8 1   level 1, list 8      moves to level 0 when now reaches ..8 0
//!   due = 0 0 0 2 0 0 0   level 3, list 2
//! ```
//!
//! The code below relies on three things that follow:
//! * the lowest level that is not empty holds the timers due next, in its lowest list that is not empty;
//! * lists only ever lie ahead of now, so "lowest" is a count of trailing zeros, without rotation;
//! * a list is filled and emptied in the order of start, so timers come out in exact (due, start) order.
//!
//! A timer may have some slack: the loop need not wake for it before its due tick and the slack are over. If the loop wakes
//! earlier for something else, the timer runs then, if it is due. So scattered timers of long delays share wake-ups, and
//! still come out in order.
//!
//! A list is an array of (due tick, key), so moving it to a lower level reads and writes memory in order and touches
//! no timer: with a million of them, waiting for memory is the whole cost. A stopped timer leaves its entry behind,
//! whose key names no timer any more. Each list counts the timers that are left in it: the last one to be stopped empties
//! it, and when entries of stopped timers far outnumber the others they are removed. So stopping costs the same at any
//! number, too.

use std::collections::VecDeque;
use std::hint::black_box;

use super::slab::{Slab, SlabKey};

const LEVELS: usize = 7;
const DIGIT_BITS: u32 = 7;
const LISTS_PER_LEVEL: usize = 1 << DIGIT_BITS;
/// The largest tick that the levels can hold, far beyond the last one that a clock of 2^64 ns reaches.
pub(super) const TICK_MAX: u64 = (1 << (LEVELS as u32 * DIGIT_BITS)) - 1;
/// The largest slack, in ticks.
pub(super) const SLACK_MAX: u64 = 15;
const _: () = assert!(TICK_MAX < 1 << SLACK_SHIFT && SLACK_MAX < 1 << (64 - SLACK_SHIFT));
const SLACK_SHIFT: u32 = 56;
/// In the place of a due tick: the timer was fetched and is in no list.
const FETCHED: u64 = u64::MAX;

/// A list is swept when it has more entries than this for each living one, and [`DEAD_MIN`].
const DEAD_PER_LIVING: usize = 8;
const DEAD_MIN: usize = 64;
/// For so many entries memory is kept in any case: 1 MiB.
const SPARE_ENTRIES: usize = 64 * 1_024;
/// How many due timers are brought near at a time.
const FETCHED_AHEAD: usize = 32;

struct WheelTimer<T> {
    due: u64,
    value: T,
}

#[derive(Clone, Copy)]
struct ListEntry {
    /// Both in one word: arrays of millions of entries are read from end to end.
    due_and_slack: u64,
    key: SlabKey,
}

impl ListEntry {
    fn new(due: u64, slack: u64, key: SlabKey) -> ListEntry {
        ListEntry { due_and_slack: due | slack.min(SLACK_MAX) << SLACK_SHIFT, key }
    }

    fn due(self) -> u64 {
        self.due_and_slack & TICK_MAX
    }

    fn wake_by(self) -> u64 {
        self.due() + (self.due_and_slack >> SLACK_SHIFT)
    }
}

struct TimerList {
    /// In the order of start.
    entries: Vec<ListEntry>,
    /// How many of the entries name a timer.
    living: usize,
    /// The latest tick at which the loop must wake for this list. After a timer was stopped it may be too early, never too
    /// late.
    wake_by: u64,
}

impl TimerList {
    const EMPTY: TimerList = TimerList { entries: Vec::new(), living: 0, wake_by: u64::MAX };

    fn push(&mut self, entry: ListEntry) {
        self.entries.push(entry);
        self.living += 1;
        self.wake_by = self.wake_by.min(entry.wake_by());
    }
}

pub(super) struct Wheel<T> {
    now: u64,
    timers: Slab<WheelTimer<T>>,
    lists: Box<[TimerList]>,
    /// The memory of emptied lists, for those that fill up next: at most one array a list. Giving it back to the
    /// allocator and asking for it again costs more than the timers do.
    spare: Vec<Vec<ListEntry>>,
    /// For how many entries there is room in the spare arrays.
    spare_entries: usize,
    /// One bit for each list of a level that is not empty.
    occupied: [u128; LEVELS],
    /// The timers that are due and were not fetched yet, stopped ones among them.
    due: VecDeque<SlabKey>,
    living_due: usize,
    /// How many more timers may be fetched before the next ones are brought near.
    near: usize,
}

impl<T> Wheel<T> {
    pub(super) fn new() -> Wheel<T> {
        Wheel {
            now: 0,
            timers: Slab::new(),
            lists: (0..LEVELS * LISTS_PER_LEVEL).map(|_| TimerList::EMPTY).collect(),
            spare: Vec::new(),
            spare_entries: 0,
            occupied: [0; LEVELS],
            due: VecDeque::new(),
            living_due: 0,
            near: 0,
        }
    }

    /// Starts a timer. A tick that is not ahead counts as the next one, one beyond [`TICK_MAX`] as that, and a slack
    /// beyond [`SLACK_MAX`] as that.
    ///
    /// # Panics
    /// If 2^32 timers exist at once.
    pub(super) fn start(&mut self, due: u64, slack: u64, value: T) -> SlabKey {
        let due = self.ahead(due);
        let key = self.timers.insert(WheelTimer { due, value });
        self.append(ListEntry::new(due, slack, key));
        key
    }

    /// Starts a timer again that was fetched. It is the last of those due in the same tick.
    pub(super) fn restart(&mut self, key: SlabKey, due: u64, slack: u64) {
        let due = self.ahead(due);
        if let Some(timer) = self.timers.get_mut(key).filter(|timer| timer.due == FETCHED) {
            timer.due = due;
            self.append(ListEntry::new(due, slack, key));
        }
    }

    /// Stops a timer, also one that was fetched, and forgets it.
    pub(super) fn remove(&mut self, key: SlabKey) -> Option<T> {
        let WheelTimer { due, value } = self.timers.remove(key)?;
        if due != FETCHED {
            self.count_out(due);
        }
        Some(value)
    }

    pub(super) fn get_mut(&mut self, key: SlabKey) -> Option<&mut T> {
        self.timers.get_mut(key).map(|timer| &mut timer.value)
    }

    /// The value and its due tick, which means nothing while it is fetched.
    pub(super) fn get(&self, key: SlabKey) -> Option<(&T, u64)> {
        self.timers.get(key).map(|timer| (&timer.value, timer.due))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SlabKey, &T)> {
        self.timers.iter_with_keys().map(|(key, timer)| (key, &timer.value))
    }

    /// Takes every value out.
    pub(super) fn take_all(&mut self) -> Vec<T> {
        self.lists.fill_with(|| TimerList::EMPTY);
        self.spare = Vec::new();
        self.spare_entries = 0;
        self.occupied = [0; LEVELS];
        self.due = VecDeque::new();
        self.living_due = 0;
        self.timers.take_all().into_iter().map(|timer| timer.value).collect()
    }

    /// Moves time forward and puts everything that is due by `to` into the due list.
    pub(super) fn advance(&mut self, to: u64) {
        // Timers are only ever started ahead of now, so nothing became due within the tick. A loop that goes around
        // without waiting asks a hundred times in one tick, and would look through all levels each time.
        if to <= self.now {
            return;
        }
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
    /// it is removed or restarted. With it comes the tick in which it was due.
    pub(super) fn fetch_due(&mut self) -> Option<(SlabKey, u64)> {
        loop {
            self.bring_near();
            let key = self.due.pop_front()?;
            if let Some(timer) = self.timers.get_mut(key) {
                self.living_due -= 1;
                return Some((key, std::mem::replace(&mut timer.due, FETCHED)));
            }
        }
    }

    /// Reads a little of the timers that are fetched next. The processor can wait for the memory of all of them at
    /// once; between the callbacks it would have to wait for one after the other.
    fn bring_near(&mut self) {
        if self.near == 0 {
            self.near = FETCHED_AHEAD;
            for &key in self.due.iter().take(FETCHED_AHEAD) {
                black_box(self.timers.get(key).is_some());
            }
        }
        self.near -= 1;
    }

    pub(super) fn has_due(&self) -> bool {
        self.living_due > 0
    }

    /// The latest tick at which the loop must wake for the next timer, its slack included. It is exact unless the earliest
    /// timer of a crowded list was stopped; then it is too early.
    pub(super) fn next_wake(&self) -> Option<u64> {
        if self.timers.len() == 0 {
            return None;
        }
        if self.has_due() {
            return Some(self.now);
        }
        let mut wake_by = None;
        for (level, list) in self.occupied_lists() {
            // Lists come in the order of their ticks: from here on all timers are due later.
            if wake_by.is_some_and(|wake_by| self.start_of(level, list) >= wake_by) {
                break;
            }
            let of_list = self.lists[level * LISTS_PER_LEVEL + list].wake_by;
            wake_by = Some(wake_by.map_or(of_list, |wake_by: u64| wake_by.min(of_list)));
        }
        wake_by
    }

    /// All lists that are not empty, in the order of their ticks.
    fn occupied_lists(&self) -> impl Iterator<Item = (usize, usize)> {
        self.occupied.iter().enumerate().flat_map(|(level, &lists)| {
            let mut rest = lists;
            std::iter::from_fn(move || {
                let list = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some((level, list))
            })
        })
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

    fn ahead(&self, due: u64) -> u64 {
        due.max(self.now + 1).min(TICK_MAX)
    }

    /// The list of a timer that is due ahead: the same from its start until now reaches the list. `None` is the
    /// due list.
    fn list_for(&self, due: u64) -> Option<usize> {
        if due <= self.now {
            return None;
        }
        let highest_differing_bit = 63 - (due ^ self.now).leading_zeros();
        let level = highest_differing_bit / DIGIT_BITS;
        let digit = (due >> (level * DIGIT_BITS)) as usize % LISTS_PER_LEVEL;
        Some(level as usize * LISTS_PER_LEVEL + digit)
    }

    fn append(&mut self, entry: ListEntry) {
        match self.list_for(entry.due()) {
            Some(place) => {
                self.occupied[place / LISTS_PER_LEVEL] |= 1 << (place % LISTS_PER_LEVEL);
                let list = &mut self.lists[place];
                if list.entries.capacity() == 0 {
                    list.entries = self.spare.pop().unwrap_or_default();
                    self.spare_entries -= list.entries.capacity();
                }
                list.push(entry);
            }
            None => {
                self.due.push_back(entry.key);
                self.living_due += 1;
            }
        }
    }

    fn empty_into_lower_levels(&mut self, level: usize, list: usize) {
        let list = level * LISTS_PER_LEVEL + list;
        let TimerList { entries, living, .. } = self.empty(list);
        // Timers that were stopped would be counted as living where they go.
        let all_live = living == entries.len();
        for &entry in &entries {
            if all_live || self.timers.get(entry.key).is_some() {
                self.append(entry);
            }
        }
        self.keep(entries);
    }

    fn empty(&mut self, list: usize) -> TimerList {
        self.occupied[list / LISTS_PER_LEVEL] &= !(1 << (list % LISTS_PER_LEVEL));
        std::mem::replace(&mut self.lists[list], TimerList::EMPTY)
    }

    /// Keeps the memory of an emptied list, as long as that is not much more than what the timers need now.
    fn keep(&mut self, mut entries: Vec<ListEntry>) {
        let kept = self.spare_entries + entries.capacity();
        if kept <= SPARE_ENTRIES + 4 * self.timers.len() {
            entries.clear();
            self.spare.push(entries);
            self.spare_entries = kept;
        }
    }

    /// One timer of this due tick was stopped.
    fn count_out(&mut self, due: u64) {
        let Some(place) = self.list_for(due) else {
            self.living_due -= 1;
            return;
        };
        let list = &mut self.lists[place];
        list.living -= 1;
        if list.living == 0 {
            let TimerList { entries, .. } = self.empty(place);
            self.keep(entries);
        } else if list.entries.len() > DEAD_PER_LIVING * list.living + DEAD_MIN {
            list.entries.retain(|entry| self.timers.get(entry.key).is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of what is due by `to`.
    fn due(wheel: &mut Wheel<u32>, to: u64) -> Vec<u32> {
        wheel.advance(to);
        let fetch = |wheel: &mut Wheel<u32>| wheel.fetch_due().and_then(|(key, _)| wheel.remove(key));
        std::iter::from_fn(|| fetch(wheel)).collect()
    }

    #[test]
    fn timers_come_out_by_due_tick_and_then_by_start() {
        let mut wheel = Wheel::new();
        for (name, tick) in (0..).zip([70, 5, 5, 4_097, 70, 1]) {
            wheel.start(tick, 0, name);
        }
        assert_eq!(due(&mut wheel, 1), [5]);
        assert_eq!(due(&mut wheel, 69), [1, 2]);
        assert_eq!(due(&mut wheel, 10_000), [0, 4, 3]);
    }

    #[test]
    fn a_removed_timer_never_comes_out_even_when_it_was_found_due() {
        let mut wheel = Wheel::new();
        let (first, _) = (wheel.start(10, 0, 0), wheel.start(10, 0, 1));
        wheel.advance(10);
        assert_eq!(wheel.remove(first), Some(0));
        assert_eq!(wheel.remove(first), None);
        assert_eq!(due(&mut wheel, 10), [1]);
    }

    #[test]
    fn a_key_of_a_removed_timer_does_not_find_its_successor() {
        let mut wheel = Wheel::new();
        let old = wheel.start(10, 0, 0);
        wheel.remove(old);
        let new = wheel.start(10, 0, 1);
        assert_eq!((new.index, wheel.remove(old)), (old.index, None));
        assert_eq!(due(&mut wheel, 10), [1]);
    }

    #[test]
    fn a_fetched_timer_can_be_started_again() {
        let mut wheel = Wheel::new();
        wheel.start(10, 0, 0);
        wheel.advance(10);
        let (key, tick) = wheel.fetch_due().expect("it is due");
        assert_eq!(tick, 10);
        assert!(!wheel.has_due());
        wheel.restart(key, 20, 0);
        assert_eq!(due(&mut wheel, 19), [0u32; 0]);
        assert_eq!(due(&mut wheel, 20), [0]);
    }

    #[test]
    fn the_farthest_tick_is_held_and_reached() {
        let mut wheel = Wheel::new();
        wheel.start(u64::MAX, 0, 0);
        assert_eq!(wheel.next_wake(), Some(TICK_MAX));
        assert_eq!(due(&mut wheel, TICK_MAX - 1), [0u32; 0]);
        assert_eq!(due(&mut wheel, u64::MAX), [0]);
    }

    #[test]
    fn timers_that_are_stopped_leave_no_memory_behind() {
        let mut wheel = Wheel::new();
        wheel.start(1_000, 0, 0);
        for name in 1..100_000 {
            let stopped = wheel.start(1_000, 0, name);
            wheel.remove(stopped);
        }
        let entries: usize = wheel.lists.iter().map(|list| list.entries.len()).sum();
        assert!(entries <= DEAD_MIN + 2 * DEAD_PER_LIVING, "{entries} entries for one timer");
        assert_eq!(due(&mut wheel, 1_000), [0]);
    }

    #[test]
    fn of_a_list_with_many_stopped_timers_the_others_come_out_in_order() {
        let mut wheel = Wheel::new();
        let keys: Vec<_> = (0..1_000).map(|name| wheel.start(20_000, 0, name)).collect();
        for key in keys.iter().filter(|key| key.index % 10 != 0) {
            wheel.remove(*key);
        }
        assert!(due(&mut wheel, 19_999).is_empty());
        assert!(due(&mut wheel, 20_000).into_iter().eq((0..1_000).step_by(10)));
        assert_eq!(wheel.next_wake(), None);
    }

    #[test]
    fn timers_with_slack_wait_for_each_other_and_keep_their_order() {
        let mut wheel = Wheel::new();
        wheel.start(100, 8, 0);
        assert_eq!(wheel.next_wake(), Some(108));
        wheel.start(104, 15, 1);
        wheel.start(106, 1, 2);
        wheel.start(107, 1_000, 3);
        assert_eq!(wheel.next_wake(), Some(107));
        assert_eq!(due(&mut wheel, 107), [0, 1, 2, 3]);
        // The first list of the next level begins within the slack.
        wheel.start(127, 10, 4);
        wheel.start(130, 0, 5);
        assert_eq!(wheel.next_wake(), Some(130));
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
            model.push((tick, name, wheel.start(tick, 0, name)));
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
            assert!(wheel.next_wake() <= earliest || earliest.is_none(), "seed {seed}: never too late");
        }
    }
}

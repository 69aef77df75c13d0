//! A table of values whose keys are never valid for a later value.
//!
//! A callback may close any handle and start others while old identifiers are still in use. Each slot therefore counts how
//! often it was reused, and the key of a removed value finds nothing instead of its successor.

/// Names one value in a [`Slab`]. It is never valid again after the value was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SlabKey {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl SlabKey {
    /// The key in one word, as the kernel carries it for us.
    pub(super) fn to_bits(self) -> u64 {
        (u64::from(self.generation) << 32) | u64::from(self.index)
    }

    pub(super) fn from_bits(bits: u64) -> SlabKey {
        let [a, b, c, d, e, f, g, h] = bits.to_le_bytes();
        SlabKey { index: u32::from_le_bytes([a, b, c, d]), generation: u32::from_le_bytes([e, f, g, h]) }
    }
}

#[derive(Debug)]
enum Content<T> {
    Vacant { next_free: Option<u32> },
    Occupied(T),
}

#[derive(Debug)]
struct SlabEntry<T> {
    generation: u32,
    content: Content<T>,
}

#[derive(Debug)]
pub(super) struct Slab<T> {
    entries: Vec<SlabEntry<T>>,
    first_free: Option<u32>,
    len: usize,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Slab<T> {
        Slab { entries: Vec::new(), first_free: None, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// # Panics
    /// If 2^32 values are held at once.
    pub(super) fn insert(&mut self, value: T) -> SlabKey {
        self.insert_with(|_| value)
    }

    /// Inserts a value that knows its own key.
    pub(super) fn insert_with(&mut self, value: impl FnOnce(SlabKey) -> T) -> SlabKey {
        self.len += 1;
        let Some(index) = self.first_free else { return self.grow(value) };
        let entry = &mut self.entries[index as usize];
        let Content::Vacant { next_free } = entry.content else {
            unreachable!("the free list holds only vacant slots")
        };
        self.first_free = next_free;
        let key = SlabKey { index, generation: entry.generation };
        entry.content = Content::Occupied(value(key));
        key
    }

    fn grow(&mut self, value: impl FnOnce(SlabKey) -> T) -> SlabKey {
        let index = u32::try_from(self.entries.len()).expect("fewer than 2^32 values are held at once");
        let key = SlabKey { index, generation: 0 };
        self.entries.push(SlabEntry { generation: 0, content: Content::Occupied(value(key)) });
        key
    }

    pub(super) fn get(&self, key: SlabKey) -> Option<&T> {
        match self.entries.get(key.index as usize) {
            Some(SlabEntry { generation, content: Content::Occupied(value) })
                if *generation == key.generation =>
            {
                Some(value)
            }
            _ => None,
        }
    }

    pub(super) fn get_mut(&mut self, key: SlabKey) -> Option<&mut T> {
        match self.entries.get_mut(key.index as usize) {
            Some(SlabEntry { generation, content: Content::Occupied(value) })
                if *generation == key.generation =>
            {
                Some(value)
            }
            _ => None,
        }
    }

    /// The key under which the slot at `index` is occupied now.
    pub(super) fn key_at(&self, index: u32) -> Option<SlabKey> {
        match self.entries.get(index as usize) {
            Some(SlabEntry { generation, content: Content::Occupied(_) }) => {
                Some(SlabKey { index, generation: *generation })
            }
            _ => None,
        }
    }

    pub(super) fn remove(&mut self, key: SlabKey) -> Option<T> {
        self.get(key)?;
        let entry = &mut self.entries[key.index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        let vacant = Content::Vacant { next_free: self.first_free };
        self.first_free = Some(key.index);
        self.len -= 1;
        match std::mem::replace(&mut entry.content, vacant) {
            Content::Occupied(value) => Some(value),
            Content::Vacant { .. } => None,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|entry| match &entry.content {
            Content::Occupied(value) => Some(value),
            Content::Vacant { .. } => None,
        })
    }

    /// Takes every value out. Keys handed out before stay invalid.
    pub(super) fn take_all(&mut self) -> Vec<T> {
        let keys: Vec<SlabKey> =
            (0..self.entries.len()).filter_map(|index| self.key_at(u32::try_from(index).ok()?)).collect();
        keys.into_iter().filter_map(|key| self.remove(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_a_removed_value_does_not_find_its_successor() {
        let mut slab = Slab::new();
        let old = slab.insert("old");
        assert_eq!(slab.remove(old), Some("old"));
        let new = slab.insert("new");
        assert_eq!(new.index, old.index, "the slot is reused");
        assert_eq!(slab.get(old), None);
        assert_eq!(slab.remove(old), None);
        assert_eq!(slab.get(new), Some(&"new"));
    }

    #[test]
    fn a_key_survives_the_journey_through_one_word() {
        let key = SlabKey { index: 7, generation: 0xFFFF_0001 };
        assert_eq!(SlabKey::from_bits(key.to_bits()), key);
    }

    #[test]
    fn taking_all_leaves_nothing_behind() {
        let mut slab = Slab::new();
        let first = slab.insert(1);
        slab.insert(2);
        assert_eq!(slab.take_all(), [1, 2]);
        assert_eq!((slab.len(), slab.get(first)), (0, None));
    }
}

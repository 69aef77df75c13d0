//! A map and a set of few things, each in one piece of memory: of workers, of slots, of size classes. The core looks
//! something up in them, or changes them, for each job several times. In a sorted vector that takes less than half of the
//! time that it takes in a tree, up to some hundred entries.

use super::ids::WorkerId;

/// A map with few entries, in the order of its keys.
#[derive(Clone, Debug)]
pub(super) struct SmallMap<K, T>(Vec<(K, T)>);

/// A map from workers to something, the oldest worker first.
pub(super) type ByWorker<T> = SmallMap<WorkerId, T>;

impl<K, T> Default for SmallMap<K, T> {
    fn default() -> SmallMap<K, T> {
        SmallMap(Vec::new())
    }
}

/// Of several entries of the same key, any may be found.
impl<K: Copy + Ord, T> FromIterator<(K, T)> for SmallMap<K, T> {
    fn from_iter<I: IntoIterator<Item = (K, T)>>(entries: I) -> SmallMap<K, T> {
        let mut entries: Vec<(K, T)> = entries.into_iter().collect();
        entries.sort_unstable_by_key(|(key, _)| *key);
        SmallMap(entries)
    }
}

impl<K: Copy + Ord, T> SmallMap<K, T> {
    #[inline]
    fn find(&self, key: K) -> Result<usize, usize> {
        self.0.binary_search_by_key(&key, |(key, _)| *key)
    }

    #[inline]
    pub(super) fn get(&self, key: &K) -> Option<&T> {
        self.find(*key).ok().map(|index| &self.0[index].1)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut T> {
        self.find(*key).ok().map(|index| &mut self.0[index].1)
    }

    /// The entry of this key, which is added if it is not there.
    pub(super) fn get_or_add(&mut self, key: K) -> &mut T
    where
        T: Default,
    {
        let index = self.find(key).unwrap_or_else(|index| {
            self.0.insert(index, (key, T::default()));
            index
        });
        &mut self.0[index].1
    }

    /// Adds or replaces an entry.
    pub(super) fn insert(&mut self, key: K, entry: T) {
        match self.find(key) {
            Ok(index) => self.0[index].1 = entry,
            Err(index) => self.0.insert(index, (key, entry)),
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<T> {
        self.find(*key).ok().map(|index| self.0.remove(index).1)
    }

    /// Keeps only the entries for which `is_kept` returns true.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&T) -> bool) {
        self.0.retain(|(_, entry)| is_kept(entry));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        self.0.iter().map(|(key, entry)| (*key, entry))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut T)> {
        self.0.iter_mut().map(|(key, entry)| (*key, entry))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|(_, entry)| entry)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A set with few members, in their order.
#[derive(Debug)]
pub(super) struct SmallSet<T>(Vec<T>);

impl<T> Default for SmallSet<T> {
    fn default() -> SmallSet<T> {
        SmallSet(Vec::new())
    }
}

impl<T: Copy + Ord> SmallSet<T> {
    /// Adds a member, unless it is there.
    pub(super) fn insert(&mut self, member: T) {
        if let Err(index) = self.0.binary_search(&member) {
            self.0.insert(index, member);
        }
    }

    pub(super) fn remove(&mut self, member: &T) {
        if let Ok(index) = self.0.binary_search(member) {
            self.0.remove(index);
        }
    }

    pub(super) fn contains(&self, member: &T) -> bool {
        self.0.binary_search(member).is_ok()
    }

    #[inline]
    pub(super) fn first(&self) -> Option<&T> {
        self.0.first()
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_each_member_once_in_order() {
        let mut set = SmallSet::default();
        [7, 3, 9, 3].into_iter().for_each(|member| set.insert(member));
        assert_eq!((set.iter().copied().collect::<Vec<_>>(), set.first()), (vec![3, 7, 9], Some(&3)));
        set.remove(&3);
        set.remove(&4);
        assert!(set.len() == 2 && set.contains(&9) && !set.contains(&3) && !set.is_empty());
    }

    #[test]
    fn an_entry_is_added_once() {
        let mut map = SmallMap::<u32, u64>::default();
        *map.get_or_add(4) += 1;
        *map.get_or_add(2) += 1;
        *map.get_or_add(4) += 1;
        assert_eq!(map.iter().collect::<Vec<_>>(), [(2, &1), (4, &2)]);
    }

    #[test]
    fn many_entries_are_put_in_order_at_once_and_some_are_kept() {
        let mut map: SmallMap<u32, char> = [(4, 'd'), (1, 'a'), (3, 'c')].into_iter().collect();
        assert_eq!((map.get(&3), map.get(&2)), (Some(&'c'), None));
        map.retain(|letter| *letter != 'a');
        assert_eq!(map.iter().collect::<Vec<_>>(), [(3, &'c'), (4, &'d')]);
    }

    #[test]
    fn it_holds_what_was_inserted_last_in_the_order_of_the_workers() {
        let mut map = ByWorker::default();
        for (worker, entry) in [(2, 'b'), (9, 'c'), (1, 'a'), (2, 'B')] {
            map.insert(WorkerId(worker), entry);
        }
        map.values_mut().for_each(|entry| *entry = entry.to_ascii_uppercase());
        assert_eq!(
            map.iter().map(|(worker, entry)| (worker.0, *entry)).collect::<Vec<_>>(),
            [(1, 'A'), (2, 'B'), (9, 'C')]
        );
        assert_eq!((map.get(&WorkerId(2)), map.get(&WorkerId(3))), (Some(&'B'), None));
        assert_eq!((map.remove(&WorkerId(2)), map.remove(&WorkerId(2)), map.len()), (Some('B'), None, 2));
        assert!(!map.is_empty());
    }
}

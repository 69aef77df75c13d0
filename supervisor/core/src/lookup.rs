//! A map that is asked for the same key many times in a row: for the client of a job while that job is handled, and for
//! the same client again with its next job.
//!
//! ```text
//!   keys, in order         entries
//!   "ann" -> 1               0: "team", ...
//!   "team" -> 0              1: "ann", ...   <- the recent one: found by one comparison
//! ```
//!
//! Looking up names in a tree took an eighth of the time that the core needs for a tiny job.

use crate::clients::ClientId;
use crate::recent::Recent;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;

/// Places for so many entries are kept although none is left: enough that a client which comes again and again allocates
/// nothing here.
const KEPT: usize = 64;

/// See the module's documentation.
pub struct Lookup<K, T> {
    index: BTreeMap<K, usize>,
    entries: Vec<Option<(K, T)>>,
    /// Entries that are free.
    free: Vec<usize>,
    /// The entry that was asked for last.
    recent: Recent<usize>,
}

/// A key, which is cheap to compare with one that is most often the same.
pub trait Key: Ord {
    /// Whether both are the same key.
    fn is(&self, other: &Self) -> bool;
}

impl Key for str {
    /// Names that are the same are most often the same text in memory, or empty. To compare an empty text with the general
    /// function takes some processors longer than to compare long ones.
    #[inline]
    fn is(&self, other: &str) -> bool {
        self.len() == other.len()
            && (self.is_empty() || std::ptr::eq(self.as_ptr(), other.as_ptr()) || self == other)
    }
}

impl Key for ClientId {
    #[inline]
    fn is(&self, other: &ClientId) -> bool {
        self == other
    }
}

impl<K: Ord + Clone, T> Lookup<K, T> {
    #[inline]
    fn find<Q: Key + ?Sized>(&self, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
    {
        if let Some(recent) = self.recent.get()
            && let Some((is, _)) = &self.entries[recent]
            && is.borrow().is(key)
        {
            return Some(recent);
        }
        let found = *self.index.get(key)?;
        self.recent.set(found);
        Some(found)
    }

    /// The entry of this key.
    #[inline]
    pub fn get<Q: Key + ?Sized>(&self, key: &Q) -> Option<&T>
    where
        K: Borrow<Q>,
    {
        self.entries[self.find(key)?].as_ref().map(|(_, entry)| entry)
    }

    /// The entry of this key.
    #[inline]
    pub fn get_mut<Q: Key + ?Sized>(&mut self, key: &Q) -> Option<&mut T>
    where
        K: Borrow<Q>,
    {
        let found = self.find(key)?;
        self.entries[found].as_mut().map(|(_, entry)| entry)
    }

    /// The entry of this key, which is added if it is not there.
    pub fn get_or_add<Q: Key + ?Sized>(&mut self, key: &K) -> &mut T
    where
        K: Borrow<Q>,
        T: Default,
    {
        let place = match self.find(key.borrow()) {
            Some(place) => place,
            None => self.put(key.clone(), T::default()),
        };
        &mut self.entries[place].get_or_insert_with(|| (key.clone(), T::default())).1
    }

    /// Adds or replaces an entry.
    pub fn insert(&mut self, key: K, entry: T) {
        self.put(key, entry);
    }

    /// Adds or replaces an entry, and returns where it is.
    fn put(&mut self, key: K, entry: T) -> usize {
        let known = self.index.get(&key).copied();
        let place = known.or_else(|| self.free.pop()).unwrap_or(self.entries.len());
        if place == self.entries.len() {
            self.entries.push(None);
        }
        self.index.insert(key.clone(), place);
        self.entries[place] = Some((key, entry));
        self.recent.set(place);
        place
    }

    /// Takes an entry out.
    pub fn remove<Q: Key + ?Sized>(&mut self, key: &Q) -> Option<T>
    where
        K: Borrow<Q>,
    {
        let found = self.index.remove(key)?;
        self.recent.forget();
        self.free.push(found);
        let removed = self.entries[found].take().map(|(_, entry)| entry);
        if self.index.is_empty() && self.entries.len() > KEPT {
            (self.entries, self.free) = (Vec::new(), Vec::new());
        }
        removed
    }

    /// All entries, in the order of their keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &T)> {
        self.index.iter().filter_map(|(key, place)| Some((key, &self.entries[*place].as_ref()?.1)))
    }

    /// All entries, in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.iter().map(|(_, entry)| entry)
    }

    /// All entries, in the order of their keys.
    pub fn into_values(mut self) -> impl Iterator<Item = T> {
        let places: Vec<usize> = self.index.into_values().collect();
        places.into_iter().filter_map(move |place| Some(self.entries[place].take()?.1))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }
}

impl<K, T> Default for Lookup<K, T> {
    fn default() -> Lookup<K, T> {
        Lookup { index: BTreeMap::new(), entries: Vec::new(), free: Vec::new(), recent: Recent::default() }
    }
}

/// Where an entry is does not matter.
impl<K: Ord + Clone + fmt::Debug, T: fmt::Debug> fmt::Debug for Lookup<K, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::sync::Arc;

    /// Entries come and go in an order that is made of chance; a tree says what there must be.
    #[test]
    fn it_holds_what_a_tree_holds() {
        let mut random = Rng::new(7);
        let (mut lookup, mut tree) = (Lookup::<Arc<str>, u64>::default(), BTreeMap::new());
        for step in 0..20_000 {
            let name: Arc<str> = match random.below(12) {
                0 => Arc::from(""),
                number => Arc::from(format!("client {number}")),
            };
            match random.below(5) {
                0 => {
                    lookup.insert(name.clone(), step);
                    tree.insert(name.clone(), step);
                }
                1 => assert_eq!(lookup.remove(&*name), tree.remove(&*name)),
                2 => {
                    *lookup.get_or_add::<str>(&name) += 1;
                    *tree.entry(name.clone()).or_default() += 1;
                }
                _ => assert_eq!(lookup.get_mut(&*name), tree.get_mut(&*name)),
            }
            assert_eq!(lookup.get(&*name), tree.get(&*name));
            assert_eq!((lookup.len(), lookup.is_empty()), (tree.len(), tree.is_empty()));
            assert!(lookup.iter().eq(tree.iter()) && lookup.values().eq(tree.values()));
        }
    }
}

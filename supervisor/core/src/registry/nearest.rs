//! Which tasks there are, for somebody who asked for one that is not there: the most similar names first.
//!
//! Whoever sends requests may ask for another name each time, and workers may offer thousands of names. So a comparison must cost next
//! to nothing. No name has more letters than a word of the processor has bits. So one letter of a name is compared with all letters of
//! the other one at once (H. Hyyrö, "A bit-vector algorithm for computing Levenshtein and Damerau edit distances", 2003).

use super::Registry;
use crate::limits::{NAMES_COMPARED_MAX, NAMES_TOLD};
use offload_protocol::limits::TASK_NAME_MAX;
use offload_protocol::nouns::cut;

const _: () = assert!(TASK_NAME_MAX <= u64::BITS as usize, "there is a bit for each letter of a name");

impl Registry {
    /// The known tasks for somebody who asked for one that is not there, [`NAMES_TOLD`] at most: similar names first, the most similar
    /// at the front, and then others in the order of the alphabet.
    pub fn nearest(&self, wanted: &str) -> Vec<&str> {
        let mut distance = distances(wanted);
        let (mut similar, mut others) = (Vec::new(), Vec::new());
        for (name, _) in self.by_name.iter() {
            match distance(name) {
                Some(distance) => similar.push((distance, &**name)),
                None if others.len() < NAMES_TOLD => others.push(&**name),
                None => {}
            }
        }
        similar.sort_unstable();
        similar.into_iter().map(|(_, name)| name).chain(others).take(NAMES_TOLD).collect()
    }
}

/// How many slips there are in a name, if it is similar. There may be thousands of names, so few are compared.
fn distances(wanted: &str) -> impl FnMut(&str) -> Option<usize> {
    let wanted = Wanted::new(wanted);
    let letters = wanted.letters;
    // Only a third of the letters are other ones: that may be a slip.
    let is_similar = move |distance: &usize| distance * 3 <= letters;
    let mut left = NAMES_COMPARED_MAX;
    move |name| {
        // So many letters are other ones at least. Names of tasks are ASCII.
        Some(name.len().abs_diff(letters)).filter(is_similar)?;
        left = left.checked_sub(1)?;
        Some(wanted.distance(name)).filter(is_similar)
    }
}

/// A name that others are compared with.
struct Wanted {
    letters: usize,
    /// At which places of the name each letter is: a bit for each place.
    places: [u64; 128],
}

impl Wanted {
    fn new(name: &str) -> Wanted {
        let mut wanted = Wanted { letters: 0, places: [0; 128] };
        for letter in cut(name, TASK_NAME_MAX).chars() {
            if let Some(places) = wanted.places.get_mut(letter as usize) {
                *places |= 1 << wanted.letters;
            }
            wanted.letters += 1;
        }
        wanted
    }

    /// By how many slips one name becomes the other: a letter is missing, is too many, or is another one, or two neighbours have changed
    /// places. The names of the variables are those of the paper: of the matrix of distances, `vp` and `vn` say in which rows of
    /// a column the distance grows and shrinks by one, `hp` and `hn` the same from this column to the next.
    fn distance(&self, name: &str) -> usize {
        let Some(last) = self.letters.checked_sub(1) else { return name.len() };
        let (mut vp, mut vn, mut d0, mut before) = (u64::MAX, 0, 0_u64, 0);
        let mut distance = self.letters;
        for letter in name.bytes() {
            let matches = self.places.get(usize::from(letter)).copied().unwrap_or(0);
            let exchanged = ((!d0 & matches) << 1) & before;
            d0 = ((matches & vp).wrapping_add(vp) ^ vp) | matches | vn | exchanged;
            let (hp, hn) = (vn | !(d0 | vp), d0 & vp);
            distance = distance + (hp >> last & 1) as usize - (hn >> last & 1) as usize;
            let hp = hp << 1 | 1;
            (vp, vn) = (hn << 1 | !(d0 | hp), hp & d0);
            before = matches;
        }
        distance
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Offered, Offers};
    use super::*;
    use crate::rng::Rng;
    use offload_protocol::nouns::TaskOffer;
    use std::sync::Arc;

    fn registry(names: impl IntoIterator<Item = String>) -> Registry {
        let offered =
            |name: String| (Arc::from(&*name), Offered { offer: TaskOffer::new(name), takes_files: false });
        let mut registry = Registry::default();
        registry.offer(0, names.into_iter().map(offered).collect::<Offers>());
        registry
    }

    #[test]
    fn the_nearest_name_comes_first() {
        let registry = registry(["average", "primes", "echo"].map(str::to_owned));
        assert_eq!(registry.nearest("prime"), ["primes", "average", "echo"]);
        assert_eq!(registry.nearest("pr\u{ef}mes"), ["primes", "average", "echo"]);
        for strange in ["nosuch", "", "\u{1f600}"] {
            assert_eq!(registry.nearest(strange), ["average", "echo", "primes"], "they are in order");
        }
    }

    #[test]
    fn of_thousands_as_many_are_told_as_there_is_room_for() {
        let registry = registry((0..4000).map(|number| format!("resize-{number:04}")));
        let told = registry.nearest("resize-0042x");
        assert_eq!((told.len(), told[0], told[1]), (NAMES_TOLD, "resize-0042", "resize-0002"));
        let others = registry.nearest("x");
        assert_eq!((others.len(), others[0], others[15]), (NAMES_TOLD, "resize-0000", "resize-0015"));
    }

    #[test]
    fn few_names_are_compared_and_none_of_another_length() {
        let mut distance = distances("resize-image");
        assert_eq!(distance("resize-images"), Some(1));
        let others = ["resize", "echo", "resize-image-of-another-length"];
        assert!(others.iter().cycle().take(10_000).all(|other| distance(other).is_none()));
        let similar = (0..10_000).filter(|number| distance(&format!("resize-{number:05}")).is_some());
        assert_eq!(similar.count(), 0, "their letters are other ones");
        assert_eq!(distance("resize-images"), None, "so many were compared that the rest is not");
    }

    /// A comparison letter by letter says what there must be. Names of few different letters are alike by chance.
    #[test]
    fn a_distance_is_what_a_comparison_of_each_letter_with_each_other_one_says() {
        let mut random = Rng::new(7);
        let mut name = |longest: u64| -> String {
            let letters = 1 + random.below(longest);
            (0..letters).map(|_| char::from(b'a' + random.below(4) as u8)).collect()
        };
        for round in 0..20_000 {
            let longest = if round % 2 == 0 { 6 } else { TASK_NAME_MAX as u64 };
            let (wanted, name) = (name(longest), name(longest));
            let expected = strsim::osa_distance(&wanted, &name);
            assert_eq!(Wanted::new(&wanted).distance(&name), expected, "{wanted} {name}");
        }
    }
}

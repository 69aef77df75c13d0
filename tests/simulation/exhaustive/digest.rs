//! Which states of the exhaustive search are the same: those of which the core prints the same, apart from what only counts
//! (the tally, numbers of processes) and apart from time: a moment in the future is its distance from now, a moment in the
//! past is the past. So the search is complete except for decisions that depend on how long ago something was.

use crate::choices::mix;
use offload_core::ids::Mono;
use std::fmt::{Display, Write};

/// The same number for whatever is printed of states between which no difference can be seen from now on.
pub(super) fn digest_of(now: Mono, printed: &dyn Display) -> u64 {
    let mut normal = Normal { now: now.as_nanos(), hash: 0, word: "", names: Vec::new() };
    write!(normal, "{printed}").expect("a hash has no end");
    mix(normal.hash)
}

/// Takes in what is printed of a state, without what only counts, with times that are relative and with processes that
/// are named in the order in which they appear.
struct Normal {
    now: u64,
    hash: u64,
    /// The word before the number that comes, if there is one.
    word: &'static str,
    names: Vec<u64>,
}

impl Write for Normal {
    fn write_str(&mut self, piece: &str) -> std::fmt::Result {
        match piece.as_bytes().first() {
            Some(b'0'..=b'9') => {
                self.number(piece.bytes().fold(0, |number: u64, digit| {
                    number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'))
                }));
            }
            Some(b'(' | b'[' | b',' | b' ' | b':') | None => {}
            Some(_) => self.text(piece),
        }
        Ok(())
    }
}

impl Normal {
    fn number(&mut self, number: u64) {
        match self.word {
            "Mono" => self.take(number.saturating_sub(self.now)),
            "WorkerId" => {
                let known = self.names.iter().position(|name| *name == number);
                self.take(known.unwrap_or(self.names.len()) as u64);
                self.names.extend(known.is_none().then_some(number));
            }
            "" => self.take(number),
            _ => {}
        }
    }

    fn text(&mut self, piece: &str) {
        self.word = match piece {
            "Mono" => "Mono",
            "WorkerId" => "WorkerId",
            "last_worker" | "incarnation" | "jobs_done" | "ended" | "accepted" | "starts" | "restarts" => {
                "count"
            }
            _ => "",
        };
        for chunk in piece.as_bytes().chunks(8) {
            self.take(chunk.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
        }
    }

    fn take(&mut self, number: u64) {
        self.hash = (self.hash.rotate_left(7) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

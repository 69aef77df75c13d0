//! What keys mean.

/// See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    Top,
    Bottom,
    Sort,
    Inspect,
    Cancel,
    Kill,
    Yes,
    Help,
    /// Leaves what is open; where nothing is, it does nothing.
    Back,
    Quit,
}

/// The keys with what they do, as the help shows them.
pub(super) const HELP: [(&str, &str); 8] = [
    ("up, down, j, k", "choose a slot (Home, End: the first, the last)"),
    ("s", "sort by slot, run time, memory or jobs done"),
    ("Enter, i", "tell the story of the job that the slot runs"),
    ("c", "cancel the job that the slot runs"),
    ("x", "kill the worker of the slot (asks first)"),
    ("h, ?", "show or leave this help"),
    ("Esc", "go back"),
    ("q, Ctrl-C", "quit"),
];

const ESCAPE: u8 = 0x1b;
const CONTROL_C: u8 = 3;

/// What was typed means, key by key; keys without a meaning are left out.
pub(super) fn meanings(mut typed: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((key, rest)) = first(typed) {
        keys.extend(key);
        typed = rest;
    }
    keys
}

/// The first key, if it has a meaning, and what was typed after it.
fn first(typed: &[u8]) -> Option<(Option<Key>, &[u8])> {
    match typed {
        [ESCAPE, b'[' | b'O', sequence @ ..] => {
            let is_last = |byte: &u8| (0x40..=0x7e).contains(byte);
            let length = sequence.iter().position(is_last).map_or(sequence.len(), |last| last + 1);
            let (sequence, rest) = sequence.split_at(length);
            Some((of_sequence(sequence), rest))
        }
        [byte, rest @ ..] => Some((of_byte(*byte), rest)),
        [] => None,
    }
}

/// The keys for which a terminal sends a sequence.
fn of_sequence(sequence: &[u8]) -> Option<Key> {
    match sequence {
        b"A" => Some(Key::Up),
        b"B" => Some(Key::Down),
        b"H" | b"1~" | b"7~" => Some(Key::Top),
        b"F" | b"4~" | b"8~" => Some(Key::Bottom),
        _ => None,
    }
}

fn of_byte(byte: u8) -> Option<Key> {
    Some(match byte {
        b'k' => Key::Up,
        b'j' => Key::Down,
        b's' => Key::Sort,
        b'\r' | b'\n' | b'i' => Key::Inspect,
        b'c' => Key::Cancel,
        b'x' => Key::Kill,
        b'y' => Key::Yes,
        b'h' | b'?' => Key::Help,
        ESCAPE => Key::Back,
        b'q' | CONTROL_C => Key::Quit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_c_quits_and_c_alone_does_not() {
        assert_eq!(meanings(&[CONTROL_C]), [Key::Quit]);
        assert_eq!(meanings(b"c"), [Key::Cancel]);
    }

    #[test]
    fn keys_that_come_together_are_told_apart() {
        let typed = b"j\x1b[A\x1bOB\x1b[H\x1b[4~c\r?\x1b";
        let (up, down) = (Key::Up, Key::Down);
        let meant = [down, up, down, Key::Top, Key::Bottom, Key::Cancel, Key::Inspect, Key::Help, Key::Back];
        assert_eq!(meanings(typed), meant);
    }

    #[test]
    fn letters_within_a_sequence_mean_nothing() {
        for typed in [
            &b"\x1b[15~"[..],
            b"\x1b[1;5C",
            b"\x1b[",
            b"\x1bO",
            b"\x1b[3",
            b"\x1b[<0;1;2m",
            "\u{e7}".as_bytes(),
            b"",
        ] {
            assert_eq!(meanings(typed), [], "{typed:?}");
        }
        assert_eq!(meanings(b"\x1b[15~q"), [Key::Quit]);
    }
}

//! `sort`: an array of numbers by their value, or of strings by code point. Integers stay integers, and they are
//! compared with floats exactly, never by being turned into one.

use crate::task::{Input, Output, Task, TaskError};
use serde_json::Number;
use std::cmp::Ordering;

pub(super) fn task() -> Task {
    Task::raw(
        "sort",
        |input, _| if holds_strings(&input.bytes) { sort_strings(&input) } else { sort_numbers(&input) },
    )
}

/// What the first element is decides what all of them must be.
fn holds_strings(array: &[u8]) -> bool {
    let mut tokens = array.iter().filter(|byte| !byte.is_ascii_whitespace());
    tokens.next() == Some(&b'[') && tokens.next() == Some(&b'"')
}

/// The order of UTF-8 bytes, by which strings compare, is the order of code points.
fn sort_strings(input: &Input) -> Result<Output, TaskError> {
    let mut strings: Vec<String> = input.json()?;
    strings.sort_unstable();
    Output::json(&strings)
}

/// Stable, so that equal numbers in different spelling (0 and -0.0) keep their order.
fn sort_numbers(input: &Input) -> Result<Output, TaskError> {
    let mut numbers: Vec<Number> = input.json()?;
    numbers.sort_by(compare);
    Output::json(&numbers)
}

fn compare(a: &Number, b: &Number) -> Ordering {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(a), None) => compare_with_float(a, float(b)),
        (None, Some(b)) => compare_with_float(b, float(a)).reverse(),
        // JSON knows no NaN.
        (None, None) => float(a).partial_cmp(&float(b)).unwrap_or(Ordering::Equal),
    }
}

fn float(number: &Number) -> f64 {
    number.as_f64().expect("every JSON number is an integer or a float")
}

/// The whole part decides, and if it is equal the rest does. An integer of JSON has 65 bits at most, so that a float
/// beyond the range of `i128`, which `as` takes for its end, is beyond it on the right side.
fn compare_with_float(integer: i128, float: f64) -> Ordering {
    let whole = float.floor();
    integer.cmp(&(whole as i128)).then(if whole < float { Ordering::Less } else { Ordering::Equal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_supervisor::{answer, answer_text};
    use proptest::prelude::*;

    #[track_caller]
    fn sorts(array: &str, sorted: &str) {
        assert_eq!(answer_text("sort", array.to_owned()).as_deref(), Ok(sorted));
    }

    #[test]
    fn numbers_are_sorted_by_value_and_keep_their_kind() {
        sorts("[10, 9, -1, 2.5, 1e3, 2]", "[-1,2,2.5,9,10,1000.0]");
        sorts(
            "[18446744073709551615, -9223372036854775808, 0]",
            "[-9223372036854775808,0,18446744073709551615]",
        );
        sorts(" [ ] ", "[]");
    }

    #[test]
    fn integers_that_no_float_can_hold_are_still_in_order() {
        sorts(
            "[9007199254740993, 9007199254740992.0, 9007199254740991, 1e300, -1e300]",
            "[-1e+300,9007199254740991,9007199254740992.0,9007199254740993,1e+300]",
        );
        sorts("[-1, -1.5, -2, -1.0]", "[-2,-1.5,-1,-1.0]");
    }

    #[test]
    fn strings_are_sorted_by_code_point() {
        sorts(r#"["b", "ä", "a", "B", "", "z", "😀", "ﬀ"]"#, r#"["","B","a","b","z","ä","ﬀ","😀"]"#);
    }

    #[test]
    fn mixed_arrays_and_what_is_no_array_are_refused_with_the_place() {
        for (input, place) in [
            (r#"[1, "a"]"#, "line 1 column 7"),
            (r#"["a", 1]"#, "line 1 column 7"),
            ("[null]", "line 1 column 5"),
        ] {
            let error = answer("sort", input).unwrap_err();
            assert!(error.contains(place), "{error}");
        }
        assert!(answer("sort", "7").unwrap_err().contains("expected a sequence"));
        assert!(answer("sort", r#"{"a": 1}"#).unwrap_err().contains("expected a sequence"));
    }

    fn numbers() -> impl Strategy<Value = Number> {
        let near = prop_oneof![Just(0_i64), Just(1 << 53), Just(i64::MAX - 3), Just(i64::MIN + 3)];
        (near, -3_i64..=3, any::<bool>()).prop_map(|(near, offset, as_float)| match as_float {
            true => Number::from_f64((near + offset) as f64).unwrap(),
            false => Number::from(near + offset),
        })
    }

    proptest! {
        #[test]
        fn the_order_is_a_total_one(a in numbers(), b in numbers(), c in numbers()) {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            if compare(&a, &b) != Ordering::Greater && compare(&b, &c) != Ordering::Greater {
                prop_assert_ne!(compare(&a, &c), Ordering::Greater);
            }
        }
    }
}

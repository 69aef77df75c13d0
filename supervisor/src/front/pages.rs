//! Lists as JSON: a page holds as many rows as fit into [`PAGE_BYTES_MAX`] bytes, and at least one.

use crate::limits::PAGE_BYTES_MAX;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

/// Writes the rows of one page as JSON, and counts the bytes.
#[derive(Debug, Default)]
pub struct RowWriter {
    /// Length of the rows as an array, without the bracket at its end, in bytes. Zero before the first row.
    length: usize,
}

impl RowWriter {
    /// The row as JSON. None if the page would be too long with it. The first row always fits.
    ///
    /// # Panics
    /// If the row cannot be written as JSON, such as a map whose keys are no strings. Rows of lists always can.
    pub fn write(&mut self, row: &impl Serialize) -> Option<Box<RawValue>> {
        let json = to_raw_value(row).expect("views have string keys");
        // A bracket or a comma precedes each row.
        let length = self.length + 1 + json.get().len();
        if self.length > 0 && length >= PAGE_BYTES_MAX {
            return None;
        }
        self.length = length;
        Some(json)
    }
}

/// A page, or its rows alone, as one JSON document.
///
/// # Panics
/// Never: rows that were written are JSON.
pub fn to_json(page: &impl Serialize) -> Vec<u8> {
    let mut document = serde_json::to_vec(page).expect("written rows are JSON");
    // The document waits until its client takes it.
    document.shrink_to_fit();
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::JsonPage;

    /// How many rows of these lengths fit into one page.
    fn fitting(lengths: impl IntoIterator<Item = usize>) -> Vec<Box<RawValue>> {
        let mut writer = RowWriter::default();
        lengths.into_iter().map_while(|length| writer.write(&"x".repeat(length))).collect()
    }

    #[test]
    fn a_page_ends_with_its_bytes() {
        assert_eq!(fitting([1; 3]).len(), 3);
        let rows = fitting([1000; 1000]);
        assert_eq!(rows.len(), PAGE_BYTES_MAX / 1003);
        assert!(to_json(&rows).len() <= PAGE_BYTES_MAX);
    }

    #[test]
    fn a_row_that_is_longer_than_a_page_is_a_page() {
        assert_eq!(fitting([2 * PAGE_BYTES_MAX, 1]).len(), 1);
    }

    #[test]
    fn a_page_says_where_the_next_one_begins() {
        let mut writer = RowWriter::default();
        let rows = [1, 2].iter().map_while(|row| writer.write(row)).collect();
        let page = JsonPage { rows, next: Some("a\"b".to_owned()) };
        assert_eq!(to_json(&page), br#"{"rows":[1,2],"next":"a\"b"}"#);
        assert_eq!(to_json(&JsonPage { next: None, ..page }), br#"{"rows":[1,2],"next":null}"#);
    }
}

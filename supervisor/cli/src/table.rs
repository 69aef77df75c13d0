//! Tables of aligned columns, without colours and rules, so that they can also be read through a pipe.

use super::text::printable;

/// See the module's documentation.
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

struct Column {
    is_number: bool,
    width: usize,
}

/// The text of a cell without a value.
const NOTHING: &str = "-";

impl Table {
    /// A table with these headings. A column whose heading begins with `#` holds numbers: they are aligned right,
    /// and the `#` is not shown.
    pub(crate) fn new(headings: &[&str]) -> Table {
        let columns = headings.iter().map(|heading| Column { is_number: heading.starts_with('#'), width: 0 });
        let mut table = Table { columns: columns.collect(), rows: Vec::new() };
        table.row(headings.iter().map(|heading| heading.trim_start_matches('#').to_owned()));
        table
    }

    /// Adds a row; missing cells at its end stay empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().map(|cell| printable(&cell).into_owned()).collect();
        for (column, cell) in self.columns.iter_mut().zip(&cells) {
            column.width = column.width.max(cell.chars().count());
        }
        self.rows.push(cells);
    }

    /// The table as text, a line each row.
    pub(crate) fn render(&self) -> String {
        self.rows.iter().map(|cells| self.render_row(cells)).collect()
    }

    fn render_row(&self, cells: &[String]) -> String {
        let padded = self.columns.iter().zip(cells).map(|(column, cell)| match column.is_number {
            true => format!("{cell:>width$}", width = column.width),
            false => format!("{cell:<width$}", width = column.width),
        });
        let line = padded.collect::<Vec<_>>().join("  ");
        format!("{}\n", line.trim_end())
    }
}

/// The cell for a value that may be absent.
pub(crate) fn cell<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_aligned_left_and_numbers_right() {
        let mut table = Table::new(&["TASK", "#JOBS", "LAST EXIT"]);
        table.row(["primes".to_owned(), "7".to_owned(), cell(Some("exit code 1"))]);
        table.row(["häuser-ä".to_owned(), "12345".to_owned(), cell::<String>(None)]);
        assert_eq!(
            table.render(),
            "TASK       JOBS  LAST EXIT\nprimes        7  exit code 1\nhäuser-ä  12345  -\n"
        );
    }

    #[test]
    fn a_cell_cannot_break_the_table() {
        let mut table = Table::new(&["CLIENT"]);
        table.row(["a\nb\x1b[2J".to_owned()]);
        assert_eq!(table.render(), "CLIENT\na\\nb\\u{1b}[2J\n");
    }
}

//! Tables for people: aligned columns, two spaces between them.

use std::fmt;

use crate::units::printable;

/// Where the text of a column lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows under a heading.
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub fn new(columns: &[(&'static str, Align)]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, which has as many cells as there are columns.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.columns.len());
        self.rows.push(cells.iter().map(|cell| printable(cell)).collect());
    }

    /// Takes a column away.
    pub fn leave_out(&mut self, name: &str) {
        let Some(place) = self.columns.iter().position(|(column, _)| *column == name) else { return };
        self.columns.remove(place);
        self.rows.iter_mut().for_each(|row| drop(row.remove(place)));
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells.chain([self.columns[column].0.chars().count()]).max().unwrap_or(0)
    }

    fn line<'a>(&self, widths: &[usize], cells: impl Iterator<Item = &'a str>) -> String {
        let mut line = String::new();
        for ((cell, &width), &(_, align)) in cells.zip(widths).zip(&self.columns) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            line.push_str(&match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            });
        }
        line.truncate(line.trim_end().len());
        line
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.columns.len()).map(|column| self.width(column)).collect();
        writeln!(formatter, "{}", self.line(&widths, self.columns.iter().map(|(name, _)| *name)))?;
        for row in &self.rows {
            writeln!(formatter, "{}", self.line(&widths, row.iter().map(String::as_str)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_spaces() {
        let mut table = Table::new(&[("id", Align::Right), ("name", Align::Left), ("why", Align::Left)]);
        table.row(["7".to_owned(), "heat".to_owned(), String::new()]);
        table.row(["12".to_owned(), "é".to_owned(), "no\nspace".to_owned()]);
        assert_eq!(table.to_string(), "id  name  why\n 7  heat\n12  é     no\u{fffd}space\n");
    }
}

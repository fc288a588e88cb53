//! Tables of results: typed cells, and columns with units.

use serde_json::{Map, Value, json};

/// A value in a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A measured number.
    Number(f64),
    /// A count or a size.
    Whole(u64),
    /// Not measured.
    Empty,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::Text(text)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Cell::Number(number)
    }
}

impl From<u64> for Cell {
    fn from(whole: u64) -> Self {
        Cell::Whole(whole)
    }
}

impl From<usize> for Cell {
    fn from(whole: usize) -> Self {
        Cell::Whole(whole as u64)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Empty, Into::into)
    }
}

impl Cell {
    /// Display form: numbers with three significant digits.
    pub(super) fn shown(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Number(number) => significant(*number),
            Cell::Whole(whole) => whole.to_string(),
            Cell::Empty => String::new(),
        }
    }

    /// Exact form for programs, with every digit.
    fn exact(&self) -> String {
        match self {
            Cell::Number(number) => number.to_string(),
            other => other.shown(),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Cell::Text(text) => json!(text),
            Cell::Number(number) => json!(number),
            Cell::Whole(whole) => json!(whole),
            Cell::Empty => Value::Null,
        }
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Cell::Number(_) | Cell::Whole(_))
    }
}

/// A number with three significant digits, but never fewer than its integer part has.
pub fn significant(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return number.to_string();
    }
    let magnitude = number.abs().log10().floor();
    let places = (2.0 - magnitude).clamp(0.0, 9.0) as usize;
    format!("{number:.places$}")
}

/// The name and unit of a column.
#[derive(Debug, Clone)]
pub struct Column {
    name: String,
    unit: String,
}

impl Column {
    /// A column of text.
    pub fn text(name: &str) -> Self {
        Column { name: name.to_owned(), unit: String::new() }
    }

    /// A column of numbers with a unit; an empty unit for plain counts.
    pub fn number(name: &str, unit: &str) -> Self {
        Column { name: name.to_owned(), unit: unit.to_owned() }
    }

    /// `name [unit]`: the heading in all formats, and the key in JSON.
    pub(super) fn head(&self) -> String {
        if self.unit.is_empty() { self.name.clone() } else { format!("{} [{}]", self.name, self.unit) }
    }
}

/// Rows of cells under named columns.
#[derive(Debug, Clone)]
pub struct Table {
    name: String,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    only_in_files: bool,
}

impl Table {
    /// An empty table. `name` becomes part of its CSV file's name.
    pub fn new(name: &str, columns: impl IntoIterator<Item = Column>) -> Self {
        Table {
            name: name.to_owned(),
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
            only_in_files: false,
        }
    }

    /// Omits the table from terminal output.
    #[must_use]
    pub fn only_in_files(mut self) -> Self {
        self.only_in_files = true;
        self
    }

    /// Whether the table is omitted from terminal output.
    pub(super) fn is_for_files(&self) -> bool {
        self.only_in_files
    }

    /// Adds a row. Missing cells at its end stay empty, and surplus cells are dropped.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let mut row: Vec<Cell> = cells.into_iter().collect();
        row.resize(self.columns.len(), Cell::Empty);
        self.rows.push(row);
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn heads(&self) -> impl Iterator<Item = String> + '_ {
        self.columns.iter().map(Column::head)
    }

    pub(super) fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    /// Columns aligned with blanks; numbers are right-aligned.
    pub(super) fn to_text(&self) -> String {
        let mut lines: Vec<Vec<String>> = vec![self.heads().collect()];
        lines.extend(self.rows.iter().map(|row| row.iter().map(Cell::shown).collect()));
        let right: Vec<bool> =
            (0..self.columns.len()).map(|at| self.rows.iter().any(|row| row[at].is_number())).collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|at| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        for line in lines {
            let cells = line.iter().zip(&widths).zip(&right).map(|((cell, &width), &right)| {
                if right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        text
    }

    /// CSV according to RFC 4180, but with plain line feeds.
    pub(super) fn to_csv(&self) -> String {
        let line = |cells: Vec<String>| -> String {
            let quoted: Vec<String> = cells.into_iter().map(quote).collect();
            quoted.join(",") + "\n"
        };
        let rows = self.rows.iter().map(|row| line(row.iter().map(Cell::exact).collect()));
        line(self.heads().collect()) + &rows.collect::<String>()
    }

    pub(super) fn to_json(&self) -> Value {
        let object = |row: &Vec<Cell>| -> Value {
            let pairs = self.heads().zip(row).map(|(head, cell)| (head, cell.to_json()));
            Value::Object(pairs.collect::<Map<_, _>>())
        };
        json!({ "name": self.name, "rows": self.rows.iter().map(object).collect::<Value>() })
    }
}

fn quote(field: String) -> String {
    if field.contains([',', '"', '\n', '\r']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_no_less_than_the_whole_part() {
        let shown = [0.0, 1234.5, 12.345, 0.012345, 1e-12, -2.5].map(significant);
        assert_eq!(shown, ["0", "1234", "12.3", "0.0123", "0.000000000", "-2.50"]);
    }

    #[test]
    fn short_rows_are_filled_and_long_ones_cut() {
        let mut table = Table::new("t", [Column::text("a"), Column::number("b", "s")]);
        table.row(["x".into()]);
        table.row(["y".into(), 1_u64.into(), 2_u64.into()]);
        assert_eq!(table.to_text(), "a  b [s]\nx\ny      1\n");
        assert_eq!(table.to_csv(), "a,b [s]\nx,\ny,1\n");
    }
}

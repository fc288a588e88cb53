//! Results of a measurement: tables and plots, as text, CSV, JSON and one self-contained HTML page. It
//! measures nothing itself.

mod html;
mod machine;
mod plot;
mod scale;
mod stats;
mod svg;
mod table;

pub use plot::{Axis, Plot};
pub use scale::binary;
pub use stats::Spread;
pub use table::{Cell, Column, Table, significant};

use serde_json::{Value, json};
use std::{fs, io, path::Path};

/// A report: a description of the measurement, and sections of results.
#[derive(Debug, Clone)]
pub struct Report {
    name: String,
    title: String,
    about: Vec<(String, String)>,
    names: Vec<String>,
    sections: Vec<Section>,
}

/// A part of a report: a heading, sentences, plots, and tables with the same numbers.
#[derive(Debug, Clone, Default)]
pub struct Section {
    heading: String,
    text: Vec<String>,
    plots: Vec<Plot>,
    tables: Vec<Table>,
}

impl Report {
    /// An empty report. The names of its files begin with `name`. Machine, date, version and command line
    /// are determined automatically.
    pub fn new(name: &str, title: &str) -> Self {
        Report {
            name: name.to_owned(),
            title: title.to_owned(),
            about: machine::about(),
            names: Vec::new(),
            sections: Vec::new(),
        }
    }

    /// Adds a line to the description of the run.
    pub fn about(&mut self, what: &str, value: impl Into<String>) {
        self.about.push((what.to_owned(), value.into()));
    }

    /// Gives these names the first colours, whether they are plotted or not, so that they have the same
    /// colours in all reports that do so. Other names follow in order of appearance.
    pub fn colours(&mut self, names: impl IntoIterator<Item = impl Into<String>>) {
        self.names.extend(names.into_iter().map(Into::into));
    }

    /// Adds a section.
    pub fn section(&mut self, section: Section) {
        self.sections.push(section);
    }

    /// Text for a terminal: the tables, without plots.
    pub fn to_text(&self) -> String {
        let about = self.about.iter().map(|(what, value)| format!("{what:<10}{value}\n"));
        let sections = self.sections.iter().map(Section::to_text);
        format!("{}\n{}{}", self.title, about.collect::<String>(), sections.collect::<String>())
    }

    /// JSON: `about`, and the rows of every table as objects keyed by the columns' names and units.
    pub fn to_json(&self) -> Value {
        let about: serde_json::Map<String, Value> =
            self.about.iter().map(|(what, value)| (what.clone(), json!(value))).collect();
        json!({
            "report": self.name,
            "title": self.title,
            "about": about,
            "sections": self.sections.iter().map(Section::to_json).collect::<Value>(),
        })
    }

    /// A self-contained HTML page, with plots as inline SVG. Each name has one colour throughout.
    pub fn to_html(&self) -> String {
        html::page(self)
    }

    /// Writes `NAME.json`, `NAME.html`, and a CSV file `NAME-TABLE.csv` for each table, into `folder`,
    /// which is created if it is missing.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let put = |name: String, text: String| fs::write(folder.join(name), text);
        put(format!("{}.json", self.name), format!("{:#}\n", self.to_json()))?;
        put(format!("{}.html", self.name), self.to_html())?;
        for table in self.sections.iter().flat_map(|section| &section.tables) {
            put(format!("{}-{}.csv", self.name, table.name()), table.to_csv())?;
        }
        Ok(())
    }
}

impl Section {
    /// An empty section.
    pub fn new(heading: &str) -> Self {
        Section { heading: heading.to_owned(), ..Section::default() }
    }

    /// Adds a paragraph.
    #[must_use]
    pub fn text(mut self, paragraph: impl Into<String>) -> Self {
        self.text.push(paragraph.into());
        self
    }

    /// Adds a plot. Plots are shown above the tables.
    #[must_use]
    pub fn plot(mut self, plot: Plot) -> Self {
        self.plots.push(plot);
        self
    }

    /// Adds a table.
    #[must_use]
    pub fn table(mut self, table: Table) -> Self {
        self.tables.push(table);
        self
    }

    fn to_text(&self) -> String {
        let paragraphs: String = self.text.iter().map(|paragraph| format!("{paragraph}\n")).collect();
        let shown = self.tables.iter().filter(|table| !table.is_for_files());
        let tables: String = shown.map(|table| format!("\n{}", table.to_text())).collect();
        if tables.is_empty() && !self.tables.is_empty() {
            return String::new();
        }
        format!("\n{}\n{paragraphs}{tables}", self.heading)
    }

    fn to_json(&self) -> Value {
        json!({
            "heading": self.heading,
            "text": self.text,
            "tables": self.tables.iter().map(Table::to_json).collect::<Value>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Report {
        let mut table = Table::new(
            "rates",
            [Column::text("what"), Column::number("size", "B"), Column::number("rate", "GB/s")],
        );
        table.row(["a <b>".into(), Cell::from(4096_u64), 1.5.into()]);
        table.row(["c, \"d\"".into(), Cell::Empty, 0.001234.into()]);
        let lines = Plot::lines("Rate by size", Axis::bytes("size"), Axis::log("rate", "GB/s"))
            .line("a <b>", vec![(1024.0, 0.5), (4096.0, 1.5)])
            .line("empty", vec![]);
        let bars =
            Plot::bars("Rates", Axis::linear("rate", "GB/s")).bar("a <b>", Spread::of(&[1.0, 2.0, 4.0]));
        let mut report = Report::new("sample", "A sample & more");
        report.about("runs", "3");
        report.section(Section::new("First").text("Words.").plot(lines).plot(bars).table(table));
        report
    }

    #[test]
    fn every_form_has_every_number() {
        let report = sample();
        let json = report.to_json();
        let rows = &json["sections"][0]["tables"][0]["rows"];
        assert_eq!(rows[0]["size [B]"], 4096);
        assert_eq!(rows[1]["rate [GB/s]"], 0.001234);
        assert_eq!(rows[1]["size [B]"], Value::Null);
        assert_eq!(json["about"]["runs"], "3");
        let text = report.to_text();
        assert!(text.contains("size [B]") && text.contains("4096") && text.contains("0.00123"), "{text}");
        let html = report.to_html();
        assert!(
            html.contains("A sample &amp; more") && html.contains("a &lt;b&gt;") && !html.contains("a <b>")
        );
        assert_eq!(html.matches("<svg").count(), 2, "one for each plot");
        assert!(!html.contains("http://") || html.contains("http://www.w3.org/2000/svg"));
    }

    #[test]
    fn files_have_the_reports_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let into = folder.path().join("new");
        sample().write(&into).expect("written");
        let csv = fs::read_to_string(into.join("sample-rates.csv")).expect("a table");
        assert_eq!(csv, "what,size [B],rate [GB/s]\na <b>,4096,1.5\n\"c, \"\"d\"\"\",,0.001234\n");
        assert!(into.join("sample.json").exists() && into.join("sample.html").exists());
    }
}

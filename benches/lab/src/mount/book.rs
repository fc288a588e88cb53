//! Collects measured values and produces the report.

use crate::report::{Axis, Cell, Column, Plot, Report, Section, Spread, Table, binary};
use std::collections::HashMap;

/// A quantity that is measured for every contender.
#[derive(Debug, Clone, PartialEq)]
struct Measure {
    group: &'static str,
    name: String,
    unit: String,
    /// Abscissa, if it is a point of a line.
    at: Option<f64>,
}

/// The values of all runs.
#[derive(Default)]
pub struct Book {
    contenders: Vec<String>,
    measures: Vec<Measure>,
    values: HashMap<(usize, usize), Vec<f64>>,
}

impl Book {
    /// An empty book for these contenders.
    pub fn new(contenders: Vec<String>) -> Self {
        Book { contenders, ..Book::default() }
    }

    /// Records a value of a contender, given by its index.
    pub fn put(
        &mut self,
        contender: usize,
        group: &'static str,
        name: &str,
        unit: &str,
        at: Option<f64>,
        value: f64,
    ) {
        let measure = Measure { group, name: name.to_owned(), unit: unit.to_owned(), at };
        let known = self.measures.iter().position(|known| *known == measure);
        let place = known.unwrap_or_else(|| {
            self.measures.push(measure);
            self.measures.len() - 1
        });
        self.values.entry((place, contender)).or_default().push(value);
    }

    fn spread(&self, measure: usize, contender: usize) -> Option<Spread> {
        Spread::of(self.values.get(&(measure, contender))?)
    }

    fn of_group(&self, group: &str) -> Vec<usize> {
        (0..self.measures.len()).filter(|&at| self.measures[at].group == group).collect()
    }

    /// Adds a section for each group that has values, and one with all values.
    pub fn report(&self, report: &mut Report) {
        let mut groups: Vec<&'static str> = self.measures.iter().map(|measure| measure.group).collect();
        groups.dedup();
        let mut seen: Vec<&str> = Vec::new();
        for group in groups {
            if !seen.contains(&group) {
                seen.push(group);
                report.section(self.section(group));
            }
        }
        let all = Section::new("Every value").text("Median, lowest and highest of all runs.");
        report.section(all.table(self.long()));
    }

    fn section(&self, group: &'static str) -> Section {
        let members = self.of_group(group);
        let mut section = Section::new(group);
        let mut drawn: Vec<&str> = Vec::new();
        for &place in &members {
            let measure = &self.measures[place];
            if measure.at.is_none() {
                section = section.plot(self.bars(place));
            } else if !drawn.contains(&measure.name.as_str()) {
                drawn.push(&measure.name);
                section = section.plot(self.lines(&members, &measure.name));
            }
        }
        section.table(self.wide(group, &members))
    }

    fn bars(&self, place: usize) -> Plot {
        let Measure { name, unit, .. } = &self.measures[place];
        let better = if is_rate(unit) { "more is better" } else { "less is better" };
        let mut plot = Plot::bars(name, Axis::linear(better, unit));
        for (contender, called) in self.contenders.iter().enumerate() {
            if let Some(spread) = self.spread(place, contender) {
                plot = plot.bar(called, Some(spread));
            }
        }
        plot
    }

    fn lines(&self, members: &[usize], name: &str) -> Plot {
        let of: Vec<usize> = members.iter().copied().filter(|&at| self.measures[at].name == name).collect();
        let unit = of.first().map_or("", |&at| self.measures[at].unit.as_str());
        let (x, y) = if is_rate(unit) {
            (Axis::bytes("size of the file"), Axis::log("more is better", unit))
        } else {
            (Axis::log("files in the directory", ""), Axis::log("less is better", unit))
        };
        let mut plot = Plot::lines(name, x, y);
        for (contender, called) in self.contenders.iter().enumerate() {
            let points =
                of.iter().filter_map(|&at| Some((self.measures[at].at?, self.spread(at, contender)?.median)));
            let points: Vec<_> = points.collect();
            if !points.is_empty() {
                plot = plot.line(called, points);
            }
        }
        plot
    }

    /// A row for each measure with every contender's median, and how many times better ours is than two
    /// others.
    fn wide(&self, group: &str, members: &[usize]) -> Table {
        const OTHERS: [&str; 2] = ["gocryptfs", "pass-through"];
        let place = |name: &str| self.contenders.iter().position(|called| called == name);
        let others: Vec<usize> = OTHERS.into_iter().filter_map(place).collect();
        let ours = place("warpcrypt");
        let mut columns = vec![Column::text("what"), Column::text("unit")];
        columns.extend(self.contenders.iter().map(|called| Column::number(called, "")));
        let ratio = |other: &usize| Column::number(&format!("times {}", self.contenders[*other]), "");
        columns.extend(others.iter().filter(|_| ours.is_some()).map(ratio));
        let file = group.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let mut table = Table::new(&file, columns);
        for &at in members {
            let measure = &self.measures[at];
            let shown = |x: f64| if is_rate(&measure.unit) { binary(x) } else { x.to_string() };
            let name =
                measure.at.map_or(measure.name.clone(), |x| format!("{} ({})", measure.name, shown(x)));
            let median = |contender: usize| self.spread(at, contender).map(|spread| spread.median);
            let mut row: Vec<Cell> = vec![name.into(), measure.unit.clone().into()];
            row.extend((0..self.contenders.len()).map(|contender| median(contender).into()));
            if let Some(ours) = ours {
                let better = |other: &usize| {
                    let (a, b) = (median(ours)?, median(*other)?);
                    Some(if is_rate(&measure.unit) { a / b } else { b / a })
                };
                row.extend(others.iter().map(|other| better(other).into()));
            }
            table.row(row);
        }
        table
    }

    fn long(&self) -> Table {
        let number = |name| Column::number(name, "");
        let words = ["group", "what", "unit", "filesystem"].map(Column::text);
        let numbers = ["at", "median", "lowest", "highest", "runs"].map(number);
        let mut table = Table::new("values", words.into_iter().chain(numbers)).only_in_files();
        for (place, measure) in self.measures.iter().enumerate() {
            for (contender, called) in self.contenders.iter().enumerate() {
                let Some(spread) = self.spread(place, contender) else { continue };
                let runs = self.values.get(&(place, contender)).map_or(0, Vec::len);
                table.row([
                    measure.group.into(),
                    measure.name.clone().into(),
                    measure.unit.clone().into(),
                    called.clone().into(),
                    measure.at.into(),
                    spread.median.into(),
                    spread.low.into(),
                    spread.high.into(),
                    runs.into(),
                ]);
            }
        }
        table
    }
}

/// Whether higher values of this unit are better.
fn is_rate(unit: &str) -> bool {
    matches!(unit, "GB/s" | "kIOPS")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios() {
        let mut book = Book::new(vec!["warpcrypt".into(), "gocryptfs".into()]);
        for value in [1.0, 3.0, 2.0] {
            book.put(0, "Streams", "read", "GB/s", None, value);
            book.put(0, "Small files", "unpack", "s", None, value);
        }
        book.put(1, "Streams", "read", "GB/s", None, 0.5);
        book.put(1, "Small files", "unpack", "s", None, 8.0);
        book.put(1, "Growth", "write", "GB/s", Some(1024.0), 8.0);
        let mut report = Report::new("b", "B");
        book.report(&mut report);
        let json = report.to_json();
        let row = |section: usize| &json["sections"][section]["tables"][0]["rows"][0];
        assert_eq!(
            (row(0)["warpcrypt"].as_f64(), row(0)["times gocryptfs"].as_f64()),
            (Some(2.0), Some(4.0))
        );
        assert_eq!(row(1)["times gocryptfs"], 4.0);
        assert_eq!(json["sections"][3]["tables"][0]["rows"].as_array().map(Vec::len), Some(5));
        assert!(!report.to_text().contains("lowest"));
        assert_eq!(report.to_html().matches("<svg").count(), 3);
    }
}

//! What a plot shows, without how it is drawn.

use super::Spread;

/// How an axis counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// From zero, in even steps.
    Linear,
    /// By powers of ten.
    Log,
    /// By powers of two.
    Doubling,
    /// By powers of two, with binary units.
    Bytes,
}

/// An axis: what it counts, in which unit, on which scale.
#[derive(Debug, Clone)]
pub struct Axis {
    pub(super) label: String,
    pub(super) unit: String,
    pub(super) kind: Kind,
}

impl Axis {
    /// From zero in even steps.
    pub fn linear(label: &str, unit: &str) -> Self {
        Axis { label: label.to_owned(), unit: unit.to_owned(), kind: Kind::Linear }
    }

    /// A logarithmic scale by powers of ten.
    pub fn log(label: &str, unit: &str) -> Self {
        Axis { label: label.to_owned(), unit: unit.to_owned(), kind: Kind::Log }
    }

    /// A logarithmic scale by powers of two.
    pub fn doubling(label: &str, unit: &str) -> Self {
        Axis { label: label.to_owned(), unit: unit.to_owned(), kind: Kind::Doubling }
    }

    /// Sizes on a logarithmic scale, marked in KiB, MiB and so on.
    pub fn bytes(label: &str) -> Self {
        Axis { label: label.to_owned(), unit: String::new(), kind: Kind::Bytes }
    }

    /// What stands beside the axis.
    pub(super) fn title(&self) -> String {
        let scale = if matches!(self.kind, Kind::Log | Kind::Doubling) { ", log scale" } else { "" };
        if self.unit.is_empty() {
            format!("{}{scale}", self.label)
        } else {
            format!("{} [{}]{scale}", self.label, self.unit)
        }
    }
}

/// Points of one thing, in the order in which they are joined.
#[derive(Debug, Clone)]
pub struct Line {
    /// Whose points these are: the same name has the same colour in the whole report.
    pub name: String,
    /// Abscissa and ordinate. On a logarithmic axis those not above zero are left out.
    pub points: Vec<(f64, f64)>,
}

/// A bar with a mark from the lowest to the highest run.
#[derive(Debug, Clone)]
pub struct Bar {
    /// Whose bar this is: the same name has the same colour in the whole report.
    pub name: String,
    /// How long it is; `None` if that was not measured.
    pub value: Option<Spread>,
}

/// A plot.
#[derive(Debug, Clone)]
pub struct Plot {
    pub(super) title: String,
    pub(super) shape: Shape,
}

#[derive(Debug, Clone)]
pub(super) enum Shape {
    Lines { x: Axis, y: Axis, lines: Vec<Line> },
    Bars { axis: Axis, bars: Vec<Bar> },
}

impl Plot {
    /// Lines through points.
    pub fn lines(title: &str, x: Axis, y: Axis) -> Self {
        Plot { title: title.to_owned(), shape: Shape::Lines { x, y, lines: Vec::new() } }
    }

    /// Horizontal bars, one below the other, each with its name and value.
    pub fn bars(title: &str, axis: Axis) -> Self {
        Plot { title: title.to_owned(), shape: Shape::Bars { axis, bars: Vec::new() } }
    }

    /// Adds a line; a plot of bars has none.
    #[must_use]
    pub fn line(mut self, name: &str, points: Vec<(f64, f64)>) -> Self {
        if let Shape::Lines { lines, .. } = &mut self.shape {
            lines.push(Line { name: name.to_owned(), points });
        }
        self
    }

    /// Adds a bar; a plot of lines has none.
    #[must_use]
    pub fn bar(mut self, name: &str, value: Option<Spread>) -> Self {
        if let Shape::Bars { bars, .. } = &mut self.shape {
            bars.push(Bar { name: name.to_owned(), value });
        }
        self
    }

    /// The names of what it shows.
    pub(super) fn names(&self) -> Vec<&str> {
        match &self.shape {
            Shape::Lines { lines, .. } => lines.iter().map(|line| line.name.as_str()).collect(),
            Shape::Bars { bars, .. } => bars.iter().map(|bar| bar.name.as_str()).collect(),
        }
    }
}

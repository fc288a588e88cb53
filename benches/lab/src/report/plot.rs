//! The content of a plot, independent of how it is drawn.

use super::Spread;

/// Scale of an axis.
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

/// An axis: its label, unit and scale.
#[derive(Debug, Clone)]
pub struct Axis {
    pub(super) label: String,
    pub(super) unit: String,
    pub(super) kind: Kind,
}

impl Axis {
    /// A linear axis that starts at zero.
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

    /// Text next to the axis.
    pub(super) fn title(&self) -> String {
        let scale = if matches!(self.kind, Kind::Log | Kind::Doubling) { ", log scale" } else { "" };
        if self.unit.is_empty() {
            format!("{}{scale}", self.label)
        } else {
            format!("{} [{}]{scale}", self.label, self.unit)
        }
    }
}

/// A line through points, in the order in which they are joined.
#[derive(Debug, Clone)]
pub struct Line {
    /// A name has the same colour in the whole report.
    pub name: String,
    /// Abscissa and ordinate. On a logarithmic axis, values that are not positive are omitted.
    pub points: Vec<(f64, f64)>,
}

/// A bar, with a mark from the lowest to the highest run.
#[derive(Debug, Clone)]
pub struct Bar {
    /// A name has the same colour in the whole report.
    pub name: String,
    /// Length of the bar; `None` if it was not measured.
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
    /// A plot of lines.
    pub fn lines(title: &str, x: Axis, y: Axis) -> Self {
        Plot { title: title.to_owned(), shape: Shape::Lines { x, y, lines: Vec::new() } }
    }

    /// A plot of horizontal bars, one below the other, each with its name and value.
    pub fn bars(title: &str, axis: Axis) -> Self {
        Plot { title: title.to_owned(), shape: Shape::Bars { axis, bars: Vec::new() } }
    }

    /// Adds a line. Has no effect on a plot of bars.
    #[must_use]
    pub fn line(mut self, name: &str, points: Vec<(f64, f64)>) -> Self {
        if let Shape::Lines { lines, .. } = &mut self.shape {
            lines.push(Line { name: name.to_owned(), points });
        }
        self
    }

    /// Adds a bar. Has no effect on a plot of lines.
    #[must_use]
    pub fn bar(mut self, name: &str, value: Option<Spread>) -> Self {
        if let Shape::Bars { bars, .. } = &mut self.shape {
            bars.push(Bar { name: name.to_owned(), value });
        }
        self
    }

    /// The names of its lines or bars.
    pub(super) fn names(&self) -> Vec<&str> {
        match &self.shape {
            Shape::Lines { lines, .. } => lines.iter().map(|line| line.name.as_str()).collect(),
            Shape::Bars { bars, .. } => bars.iter().map(|bar| bar.name.as_str()).collect(),
        }
    }
}

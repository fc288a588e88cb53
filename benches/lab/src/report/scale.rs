//! Maps values to positions on an axis, linear or logarithmic, with marks at round values.

use super::{plot::Kind, table::significant};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

/// Maximum number of marks on an axis.
const MOST_MARKS: usize = 10;

/// One axis of a plot.
#[derive(Debug, Clone)]
pub(super) struct Scale {
    kind: Kind,
    from: f64,
    to: f64,
    marks: Vec<f64>,
}

impl Scale {
    /// An axis that covers all of `values`.
    pub(super) fn over(kind: Kind, values: impl Iterator<Item = f64>) -> Self {
        let fit: Vec<f64> = values.filter(|v| v.is_finite() && (kind == Kind::Linear || *v > 0.0)).collect();
        let low = fit.iter().copied().fold(f64::INFINITY, f64::min);
        let high = fit.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        match kind {
            Kind::Linear => Scale::linear(if high > 0.0 { high } else { 1.0 }),
            _ if fit.is_empty() => Scale::log(kind, 1.0, 10.0),
            _ => Scale::log(kind, low, high),
        }
    }

    fn linear(high: f64) -> Self {
        let step = round_step(high / 5.0);
        let steps = (high / step).ceil().max(1.0) as usize;
        let marks: Vec<f64> = (0..=steps).map(|n| n as f64 * step).collect();
        Scale { kind: Kind::Linear, from: 0.0, to: steps as f64 * step, marks }
    }

    fn log(kind: Kind, low: f64, high: f64) -> Self {
        let candidates = match kind {
            Kind::Bytes | Kind::Doubling => binary_marks(low, high),
            _ => decimal_marks(low, high),
        };
        let (from, to) = (candidates[0], candidates[candidates.len() - 1]);
        Scale { kind, from, to, marks: thinned(candidates) }
    }

    fn share(&self, value: f64) -> f64 {
        match self.kind {
            Kind::Linear => (value - self.from) / (self.to - self.from),
            _ => (value.max(f64::MIN_POSITIVE).ln() - self.from.ln()) / (self.to.ln() - self.from.ln()),
        }
    }

    /// The axis's first value, where bars begin.
    pub(super) fn start(&self) -> f64 {
        self.from
    }

    /// Whether `value` has a position on the axis.
    pub(super) fn has(&self, value: f64) -> bool {
        value.is_finite() && (self.kind == Kind::Linear || value > 0.0)
    }
}

/// The smallest number of the form 1, 2 or 5 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|s| *s >= least * 0.999)
        .unwrap_or(power)
}

/// Powers of two that enclose the values.
fn binary_marks(low: f64, high: f64) -> Vec<f64> {
    let first = low.log2().floor() as i32;
    let last = (high.log2().ceil() as i32).max(first + 1);
    (first..=last).map(|power| 2_f64.powi(power)).collect()
}

/// 1, 2 and 5 times powers of ten that enclose the values; only powers of ten if there are many.
fn decimal_marks(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    if last - first > 3 {
        return (first..=last).map(|power| 10_f64.powi(power)).collect();
    }
    let all: Vec<f64> = (first..=last.max(first + 1))
        .flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * 10_f64.powi(power)))
        .collect();
    let start = all.iter().rposition(|mark| *mark <= low * 1.001).unwrap_or(0);
    let end = all.iter().position(|mark| *mark >= high * 0.999).unwrap_or(all.len() - 1).max(start + 1);
    all[start..=end].to_vec()
}

/// Every second, third, … mark, so that there are not too many.
fn thinned(marks: Vec<f64>) -> Vec<f64> {
    let step = marks.len().div_ceil(MOST_MARKS).max(1);
    marks.into_iter().step_by(step).collect()
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = self.share(*value).clamp(-0.01, 1.01);
        limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Scale {
    fn format_ext(&self, value: &f64) -> String {
        match self.kind {
            Kind::Bytes => binary(*value),
            _ => decimal(*value),
        }
    }
}

/// A number of bytes in the largest unit that gives at least one: `1 KiB`, `1.5 MiB`.
pub fn binary(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = ((bytes.log2() / 10.0).floor().max(0.0) as usize).min(units.len() - 1);
    format!("{} {}", bytes / 1024_f64.powi(power as i32), units[power])
}

fn decimal(value: f64) -> String {
    match value.abs() {
        v if v >= 1e9 => format!("{} G", trimmed(value / 1e9)),
        v if v >= 1e6 => format!("{} M", trimmed(value / 1e6)),
        v if v >= 1e4 => format!("{} k", trimmed(value / 1e3)),
        v if v > 0.0 && v < 1e-4 => format!("{value:e}"),
        _ => trimmed(value),
    }
}

/// Three significant digits, without trailing zeros.
fn trimmed(value: f64) -> String {
    let text = significant(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(kind: Kind, values: &[f64]) -> Vec<String> {
        let scale = Scale::over(kind, values.iter().copied());
        scale.marks.iter().map(|mark| scale.format_ext(mark)).collect()
    }

    #[test]
    fn marks_are_round() {
        assert_eq!(shown(Kind::Linear, &[0.0, 7.3]), ["0", "2", "4", "6", "8"]);
        assert_eq!(shown(Kind::Linear, &[]), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(shown(Kind::Bytes, &[1024.0, 6000.0]), ["1 KiB", "2 KiB", "4 KiB", "8 KiB"]);
        assert_eq!(shown(Kind::Log, &[1.0, 4e6]).last().map(String::as_str), Some("10 M"));
        assert_eq!(shown(Kind::Log, &[0.3, 4.0]), ["0.2", "0.5", "1", "2", "5"]);
        assert_eq!(shown(Kind::Log, &[5.0]), ["5", "10"]);
        assert_eq!(shown(Kind::Doubling, &[96.0, 500.0]), ["64", "128", "256", "512"]);
    }

    #[test]
    fn values_lie_where_they_should() {
        let scale = Scale::over(Kind::Log, [1.0, 10_000.0, 0.0, f64::NAN].into_iter());
        assert_eq!([1.0, 100.0, 10_000.0].map(|v| scale.map(&v, (0, 400))), [0, 200, 400]);
        assert!(!scale.has(0.0) && scale.has(1.0));
        let all: Vec<f64> = (10..34).map(|power| 2_f64.powi(power)).collect();
        let scale = Scale::over(Kind::Bytes, all.iter().copied());
        assert!(scale.marks.len() <= MOST_MARKS && scale.range() == (1024.0..2_f64.powi(33)));
    }
}

//! Summary of several runs of one measurement.

/// Median, lowest and highest value of several runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The middle value, or the mean of the two middle ones.
    pub median: f64,
    /// The lowest value.
    pub low: f64,
    /// The highest value.
    pub high: f64,
}

impl Spread {
    /// Summarises the finite values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Spread { median, low, high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_even_and_none() {
        let of = |values: &[f64]| Spread::of(values).map(|s| (s.low, s.median, s.high));
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some((1.0, 2.0, 3.0)));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), Some((1.0, 2.5, 4.0)));
        assert_eq!(of(&[5.0, f64::NAN]), Some((5.0, 5.0, 5.0)));
        assert_eq!(of(&[]), None);
    }
}

//! Option values: keywords and times.

use clap::{
    ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use content::Durability;
use engine::EngineChoice;
use fuse::{CacheMode, RingMode};
use std::time::Duration;

/// A parser for the format's names of a parameter's values.
pub(super) fn named<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let values = PossibleValuesParser::new(all.map(name));
    values.try_map(move |given| all.into_iter().find(|value| name(*value) == given).ok_or("unknown value"))
}

/// Parses a time such as `30s`, `10m` or `2h`: a number followed by `s`, `m` or `h`.
///
/// # Errors
/// If the text is not in that form, or is shorter than a second.
pub fn duration(text: &str) -> Result<Duration, &'static str> {
    let unit = |letter| match letter {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3600),
        _ => None,
    };
    let seconds = text.char_indices().last().and_then(|(at, letter)| {
        let number: u64 = text[..at].parse().ok()?;
        number.checked_mul(unit(letter)?).filter(|seconds| *seconds > 0)
    });
    seconds.map(Duration::from_secs).ok_or("a number with `s`, `m` or `h` is needed, as in 10m")
}

/// `--engine`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum EngineArg {
    #[default]
    Auto,
    Cpu,
    Gpu,
}

impl From<EngineArg> for EngineChoice {
    fn from(arg: EngineArg) -> Self {
        match arg {
            EngineArg::Auto => EngineChoice::Auto,
            EngineArg::Cpu => EngineChoice::Cpu,
            EngineArg::Gpu => EngineChoice::Gpu,
        }
    }
}

/// `--durability`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum DurabilityArg {
    #[default]
    Strict,
    Relaxed,
}

impl From<DurabilityArg> for Durability {
    fn from(arg: DurabilityArg) -> Self {
        match arg {
            DurabilityArg::Strict => Durability::Strict,
            DurabilityArg::Relaxed => Durability::Relaxed,
        }
    }
}

/// `--io-uring`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum IoUringArg {
    Auto,
    On,
    #[default]
    Off,
}

impl From<IoUringArg> for RingMode {
    fn from(arg: IoUringArg) -> Self {
        match arg {
            IoUringArg::Auto => RingMode::Auto,
            IoUringArg::On => RingMode::On,
            IoUringArg::Off => RingMode::Off,
        }
    }
}

/// `--cache`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum CacheArg {
    #[default]
    Auto,
    Kernel,
    Direct,
    WriteBack,
}

impl From<CacheArg> for CacheMode {
    fn from(arg: CacheArg) -> Self {
        match arg {
            CacheArg::Auto => CacheMode::Auto,
            CacheArg::Kernel => CacheMode::Kernel,
            CacheArg::Direct => CacheMode::Direct,
            CacheArg::WriteBack => CacheMode::WriteBack,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        for bad in ["", "10", "m", "0s", "-1s", "1.5h", "10 m", "1d", "1\u{b5}", "18446744073709551615h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}

//! The values of options that take one of several words.

use crate::{engine::EngineChoice, fuse::CacheMode, vault::Durability};
use clap::{
    ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};

/// A parser for the names that the format gives to the values of a parameter.
pub(super) fn named<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let values = PossibleValuesParser::new(all.map(name));
    values.try_map(move |given| all.into_iter().find(|value| name(*value) == given).ok_or("unknown value"))
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

/// `--cache`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum CacheArg {
    #[default]
    Auto,
    Kernel,
    Direct,
}

impl From<CacheArg> for CacheMode {
    fn from(arg: CacheArg) -> Self {
        match arg {
            CacheArg::Auto => CacheMode::Auto,
            CacheArg::Kernel => CacheMode::Kernel,
            CacheArg::Direct => CacheMode::Direct,
        }
    }
}

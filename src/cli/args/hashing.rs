//! The command lines of `hash` and `match`.

use super::{secrets::UnlockArgs, values::EngineArg};
use crate::{crypto::hash::Function, hash::pieces::PIECE_SIZES};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Shown after the options of `hash`.
pub const HASH_HELP: &str = "\
Examples:
  warpcrypt hash -l photos > list              hash a folder
  warpcrypt hash -l -a -vv -k list photos      is everything what and where it was?
  warpcrypt hash -l -k list --append photos    add what is new to the list
  warpcrypt hash --vault ~/vault               hash what is in a vault, without mounting it";

/// Where the files are.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Files and folders; folders with all that is below them. Links in them are not followed
    #[arg(required_unless_present = "vault")]
    pub paths: Vec<PathBuf>,
    /// The paths are in this vault, which needs no mount; without paths: all of it
    #[arg(long, value_name = "VAULT")]
    pub vault: Option<PathBuf>,
    /// Threads that read and hash; as many as there are processors unless given
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// What opens the vault.
    #[command(flatten)]
    pub unlock: UnlockArgs,
}

/// Arguments of `hash`.
#[derive(Debug, Args)]
pub struct HashArgs {
    /// Functions, separated by commas: md6-1 to md6-512, sha3-224, sha3-256, sha3-384, sha3-512, shake128 (256
    /// bits), shake256 (512 bits), k12. Without it: those of the list of known hashes, else sha3-256
    #[arg(long, short = 'c', value_name = "FUNCTION", value_delimiter = ',', value_parser = function)]
    pub compute: Vec<Function>,
    /// What hashes md6-N: the processors, and beside them a GPU if there is one and enough to hash (512 MiB a thread); the
    /// processors alone; or a GPU alone, an error without one. Other functions are for the processors
    #[arg(long, value_enum, default_value_t = EngineArg::Auto)]
    pub engine: EngineArg,
    /// A list of known hashes, as this command, hashdeep or sha3sum write it; may be given several times
    #[arg(long, short = 'k', value_name = "LIST")]
    pub known: Vec<PathBuf>,
    /// What to do with the known hashes.
    #[command(flatten)]
    pub mode: ModeArgs,
    /// In -m, -M: show which known file it is
    #[arg(long, short = 'w', requires = "known")]
    pub which: bool,
    /// Append the hashes of files that the list does not know, or knows by another name, to it
    #[arg(long, requires = "known")]
    pub append: bool,
    /// Print lines as sha3sum does: digest and name
    #[arg(long, conflicts_with = "json")]
    pub sum: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show names without folders
    #[arg(long, short = 'b', conflicts_with = "relative")]
    pub bare: bool,
    /// Show names as they were given, not from the root on
    #[arg(long, short = 'l')]
    pub relative: bool,
    /// Say nothing of files that cannot be read; the exit code does
    #[arg(long, short = 's')]
    pub silent: bool,
    /// In -a: print the numbers; twice: what is wrong; three times: every file
    #[arg(long, short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Folders are always gone through; taken because hashdeep has it
    #[arg(short = 'r', hide = true)]
    pub recursive: bool,
    /// Where the files are.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// What to do with the known hashes, or the new ones.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct ModeArgs {
    /// Audit: are the files the ones of the list, no more, no fewer, under the same names?
    #[arg(long, short = 'a', requires = "known")]
    pub audit: bool,
    /// Print the names of known files
    #[arg(long = "match", short = 'm', requires = "known")]
    pub matching: bool,
    /// Print the names of unknown files
    #[arg(long, short = 'x', requires = "known")]
    pub negative: bool,
    /// As -m, with the hashes
    #[arg(short = 'M', requires = "known")]
    pub matching_hashes: bool,
    /// As -x, with the hashes
    #[arg(short = 'X', requires = "known")]
    pub negative_hashes: bool,
    /// Print groups of files with the same content
    #[arg(long, short = 'd')]
    pub duplicates: bool,
}

/// Shown after the options of `match`.
pub const MATCH_HELP: &str = "\
A line has five fields, separated by tabs: the bytes of the pieces that two files share, their share of the first \
file and of the second, the first file, the second. Files that are the same altogether are listed first, in \
groups; only the first of a group is compared with others. Pieces of nothing but the same byte do not count.

Examples:
  warpcrypt match papers                        which files have parts in common?
  warpcrypt match --pieces fixed --size 512 a.img b.img   which share equal blocks?";

/// Arguments of `match`.
#[derive(Debug, Args)]
pub struct MatchArgs {
    /// Where files are cut: where their content says so, which finds what was moved within a file, or every so
    /// many bytes
    #[arg(long, value_enum, default_value_t = PiecesArg::Content)]
    pub pieces: PiecesArg,
    /// Bytes of a piece (on average): a power of two from 512 to 65536
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = piece_size)]
    pub size: usize,
    /// Show only files that share at least so many bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1)]
    pub least: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show names without folders
    #[arg(long, short = 'b', conflicts_with = "relative")]
    pub bare: bool,
    /// Show names as they were given, not from the root on
    #[arg(long, short = 'l')]
    pub relative: bool,
    /// Say nothing of files that cannot be read; the exit code does
    #[arg(long, short = 's')]
    pub silent: bool,
    /// Where the files are.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// `--pieces`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum PiecesArg {
    Content,
    Fixed,
}

fn piece_size(text: &str) -> Result<usize, String> {
    let size = text.parse().ok().filter(|size: &usize| size.is_power_of_two() && PIECE_SIZES.contains(size));
    size.ok_or_else(|| format!("a power of two from {} to {}", PIECE_SIZES.start(), PIECE_SIZES.end()))
}

fn function(name: &str) -> Result<Function, String> {
    Function::from_name(name).ok_or_else(|| {
        "one of md6-1 to md6-512, sha3-224, sha3-256, sha3-384, sha3-512, shake128, shake256, k12".into()
    })
}

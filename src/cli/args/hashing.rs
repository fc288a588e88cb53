//! The arguments of `hash` and `match`.

use super::{secrets::UnlockArgs, values::EngineArg};
use clap::{Args, ValueEnum};
use crypto::hash::Function;
use hashing::pieces::PIECE_SIZES;
use std::path::PathBuf;

/// Shown after the options of `hash`.
pub const HASH_HELP: &str = "\
Examples:
  warpcrypt hash -l photos > list              hash a folder
  warpcrypt hash -l -a -vv -k list photos      has anything changed or moved?
  warpcrypt hash -l -k list --append photos    add new files to the list
  warpcrypt hash --vault ~/vault               hash the files in a vault without mounting it";

/// Location of the files.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Files, and folders with everything below them. Links in folders are not followed
    #[arg(required_unless_present = "vault")]
    pub paths: Vec<PathBuf>,
    /// Take the paths from this vault, which need not be mounted; without paths: the whole vault
    #[arg(long, value_name = "VAULT")]
    pub vault: Option<PathBuf>,
    /// Number of threads [default: one for each processor]
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Secret that opens the vault.
    #[command(flatten)]
    pub unlock: UnlockArgs,
}

/// Arguments of `hash`.
#[derive(Debug, Args)]
pub struct HashArgs {
    /// Functions, separated by commas: md6-1 to md6-512, sha3-224, sha3-256, sha3-384, sha3-512,
    /// shake128 (256 bits), shake256 (512 bits), k12. Default: those of the list of known hashes, else
    /// sha3-256
    #[arg(long, short = 'c', value_name = "FUNCTION", value_delimiter = ',', value_parser = function)]
    pub compute: Vec<Function>,
    /// Engine for md6-N. auto: the CPU, and also a GPU if there is one and enough to hash (512 MiB per
    /// thread); cpu: only the CPU; gpu: only a GPU. Other functions always run on the CPU
    #[arg(long, value_enum, default_value_t = EngineArg::Auto)]
    pub engine: EngineArg,
    /// A list of known hashes, written by this command, hashdeep or sha3sum; may be given several times
    #[arg(long, short = 'k', value_name = "LIST")]
    pub known: Vec<PathBuf>,
    /// How to use the known hashes.
    #[command(flatten)]
    pub mode: ModeArgs,
    /// With -m or -M: show which known file matches
    #[arg(long, short = 'w', requires = "known")]
    pub which: bool,
    /// Append to the list the hashes of files that are new or have another name there
    #[arg(long, requires = "known")]
    pub append: bool,
    /// Print lines in the format of sha3sum: digest and name
    #[arg(long, conflicts_with = "json")]
    pub sum: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show names without folders
    #[arg(long, short = 'b', conflicts_with = "relative")]
    pub bare: bool,
    /// Show names as given, not as absolute paths
    #[arg(long, short = 'l')]
    pub relative: bool,
    /// Print no messages for files that cannot be read; only the exit code tells
    #[arg(long, short = 's')]
    pub silent: bool,
    /// With -a: print the counts; twice: also the differences; three times: every file
    #[arg(long, short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// No effect: folders are always recursive. Accepted because hashdeep has it
    #[arg(short = 'r', hide = true)]
    pub recursive: bool,
    /// Location of the files.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// How to use the known and new hashes.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct ModeArgs {
    /// Audit: check that exactly the listed files are there, unchanged and under the same names
    #[arg(long, short = 'a', requires = "known")]
    pub audit: bool,
    /// Print the names of known files
    #[arg(long = "match", short = 'm', requires = "known")]
    pub matching: bool,
    /// Print the names of unknown files
    #[arg(long, short = 'x', requires = "known")]
    pub negative: bool,
    /// Like -m, with the hashes
    #[arg(short = 'M', requires = "known")]
    pub matching_hashes: bool,
    /// Like -x, with the hashes
    #[arg(short = 'X', requires = "known")]
    pub negative_hashes: bool,
    /// Print groups of files with the same content
    #[arg(long, short = 'd')]
    pub duplicates: bool,
}

/// Shown after the options of `match`.
pub const MATCH_HELP: &str = "\
A line has five fields, separated by tabs: the bytes that two files share, their percentage of the first file and \
of the second, and the names of both files. Identical files are listed first, in groups; only the first file of a \
group is compared with others. Pieces that repeat a single byte do not count.

Examples:
  warpcrypt match papers                        which files share content?
  warpcrypt match --pieces fixed --size 512 a.img b.img   which share equal blocks?";

/// Arguments of `match`.
#[derive(Debug, Args)]
pub struct MatchArgs {
    /// How to cut files into pieces. content: depending on the content, which finds equal parts at any
    /// offset; fixed: into pieces of equal length
    #[arg(long, value_enum, default_value_t = PiecesArg::Content)]
    pub pieces: PiecesArg,
    /// (Average) length of a piece: a power of two from 512 to 65536
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = piece_size)]
    pub size: usize,
    /// Show only files that share at least this many bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1)]
    pub least: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show names without folders
    #[arg(long, short = 'b', conflicts_with = "relative")]
    pub bare: bool,
    /// Show names as given, not as absolute paths
    #[arg(long, short = 'l')]
    pub relative: bool,
    /// Print no messages for files that cannot be read; only the exit code tells
    #[arg(long, short = 's')]
    pub silent: bool,
    /// Location of the files.
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

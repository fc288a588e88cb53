//! The laboratory: repeatable measurements, each of which produces a [`report::Report`]. It measures the
//! program it is linked with, through the library's public interface.

mod aes;
mod batches;
mod contest;
mod crypto;
mod device;
mod engines;
mod experiment;
mod keccak;
mod kuznyechik;
mod md6;
mod mount;
mod papers;
mod plain;
mod progress;
mod report;
mod transfers;

use clap::{Args, CommandFactory, Parser, Subcommand};
use report::Report;
use std::{env, path::PathBuf, process::ExitCode};
use warpcrypt::cli::lab::{Failure, Outcome, begin, completions, main_with, man, print};

/// If this is its first argument, the laboratory acts as the program that it measures.
const PROGRAM: &str = "warpcrypt";

/// Measures what this machine can do with warpcrypt.
#[derive(Debug, Parser)]
#[command(name = "warpcrypt-bench", version, propagate_version = true)]
struct Cli {
    /// What to measure.
    #[command(subcommand)]
    command: Command,
}

/// What can be measured.
#[derive(Debug, Subcommand)]
enum Command {
    /// AES on CPU and GPU: where tables and keys lie, threads that share a block, bit slices
    Aes(experiment::ExperimentArgs),
    /// Ciphers, tags and engines, on one core and on all, beside the crates that others use
    Crypto(crypto::CryptoArgs),
    /// AES by its kernels alone over whole files on a RAM disk: read, upload, kernel, download, write
    Files(aes::files::FilesArgs),
    /// Keccak on CPU and GPU, in CUDA and OpenCL: threads that share a state
    Keccak(experiment::ExperimentArgs),
    /// Kuznyechik on CPU and GPU: where its tables lie, blocks a thread, threads a block
    Kuznyechik(experiment::ExperimentArgs),
    /// MD6 on CPU and GPU: threads that share a node, file and node sizes, rounds, folders
    Md6(experiment::ExperimentArgs),
    /// The CPU, the GPU and the choice between them, for batches of every size
    Engines(engines::EnginesArgs),
    /// The mounted filesystem beside others: streams, random access, small files
    Mount(mount::MountBenchArgs),
    /// Whole files of several sizes through the mount on a RAM disk, every cipher and key size
    Ramdisk(mount::ramdisk::RamdiskArgs),
    /// Copies to a GPU, back, and within it
    Transfers(experiment::ExperimentArgs),
    /// A filesystem without encryption, to compare with
    #[command(hide = true)]
    Plain(plain::PlainArgs),
    /// Print a shell's completion script
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a directory
    Man {
        /// Existing directory for the pages
        dir: PathBuf,
    },
}

/// Where a report goes. Without any of them: its tables to standard output.
#[derive(Debug, Default, Args)]
pub struct ReportArgs {
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Also write JSON, CSV and an HTML page with plots into this directory
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1).peekable();
    match arguments.peek().and_then(|first| first.to_str()) {
        Some(PROGRAM) => return main_with(arguments),
        // Processes that a mount or a GPU needs; they run this executable again.
        Some(engine::GPU_COMMAND | fuse::MOUNTER_COMMAND) => {
            return main_with([PROGRAM.into()].into_iter().chain(arguments));
        }
        _ => {}
    }
    let command = Cli::parse().command;
    begin(c"warpcrypt-bench");
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Crypto(args) => crypto::run(&args),
        Command::Aes(args) => aes::run(&args),
        Command::Files(args) => aes::files::run(&args),
        Command::Keccak(args) => keccak::run(&args),
        Command::Kuznyechik(args) => kuznyechik::run(&args),
        Command::Md6(args) => md6::run(&args),
        Command::Engines(args) => engines::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Ramdisk(args) => mount::ramdisk::run(&args),
        Command::Transfers(args) => transfers::run(&args),
        Command::Plain(args) => plain::run(&args),
        Command::Completions { shell } => completions(Cli::command(), shell),
        Command::Man { dir } => man(Cli::command(), &dir),
    }
}

/// Prints a report and writes its files, as requested by the arguments.
///
/// # Errors
/// If a file cannot be written.
pub fn deliver(report: &Report, args: &ReportArgs) -> Outcome {
    print(&if args.json { format!("{:#}\n", report.to_json()) } else { report.to_text() })?;
    let Some(folder) = &args.output else { return Ok(()) };
    report.write(folder).map_err(|e| Failure::io(folder.display(), &e))
}

//! `bench`: measurements that a person can repeat. Each makes a [`Report`].

mod aes;
mod crypto;
mod engines;
mod experiment;
mod keccak;
mod kuznyechik;
mod md6;
mod mount;
mod plain;

use super::{
    exit::{Failure, Outcome},
    print,
};
use crate::report::Report;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What `bench` measures.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// AES on CPU and GPU: where tables and keys lie, threads that share a block, bit slices
    Aes(experiment::ExperimentArgs),
    /// Ciphers, tags and engines, on one core and on all, beside the crates that others use
    Crypto(crypto::CryptoArgs),
    /// Keccak on CPU and GPU: threads that share a state
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
    /// A filesystem without encryption, to compare with
    #[command(hide = true)]
    Plain(plain::PlainArgs),
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

/// Runs `bench`.
pub fn run(command: BenchCommand) -> Outcome {
    match command {
        BenchCommand::Crypto(args) => crypto::run(&args),
        BenchCommand::Aes(args) => aes::run(&args),
        BenchCommand::Keccak(args) => keccak::run(&args),
        BenchCommand::Kuznyechik(args) => kuznyechik::run(&args),
        BenchCommand::Md6(args) => md6::run(&args),
        BenchCommand::Engines(args) => engines::run(&args),
        BenchCommand::Mount(args) => mount::run(&args),
        BenchCommand::Ramdisk(args) => mount::ramdisk::run(&args),
        BenchCommand::Plain(args) => plain::run(&args),
    }
}

/// Prints a report and writes its files, as the arguments say.
///
/// # Errors
/// If a file cannot be written.
pub fn deliver(report: &Report, args: &ReportArgs) -> Outcome {
    print(&if args.json { format!("{:#}\n", report.to_json()) } else { report.to_text() })?;
    let Some(folder) = &args.output else { return Ok(()) };
    report.write(folder).map_err(|e| Failure::io(folder.display(), &e))
}

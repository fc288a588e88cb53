//! `bench ramdisk`: whole files of random bytes, encrypted and decrypted through the mount on a RAM disk,
//! with every cipher and key size, on the CPU and on the GPU. After a project of 2010 on a GeForce 8800
//! that set out to measure this; its chapter for the results is empty.

use super::{Bench, Context, Group, contender::Contender, growth::sizes_up_to};
use crate::{ReportArgs, deliver, report::Report};
use clap::Args;
use crypto::integrity::Integrity;
use indicatif::HumanBytes;
use std::path::PathBuf;
use warpcrypt::cli::lab::{Failure, Interrupt, Outcome, fuse_available};

/// Arguments of `bench ramdisk`.
#[derive(Debug, Args)]
pub struct RamdiskArgs {
    /// Directory on a RAM disk to work in
    #[arg(default_value = "/dev/shm")]
    pub dir: PathBuf,
    /// How often everything is measured; the medians count
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Small files alone: to see that it works, not how fast
    #[arg(long)]
    pub quick: bool,
    /// The largest file, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub largest: u64,
    /// Where the report goes.
    #[command(flatten)]
    pub report: ReportArgs,
}

/// Runs `bench ramdisk`.
///
/// # Errors
/// If there is no FUSE, the directory is not writable, or a file of the report cannot be written.
pub fn run(args: &RamdiskArgs) -> Outcome {
    fuse_available()?;
    let interrupt = Interrupt::watch()?;
    let dir = args.dir.canonicalize().map_err(|e| Failure::io(args.dir.display(), &e))?;
    let context = Context::usual(args.quick, args.largest, interrupt);
    let contenders = Contender::ciphers(&dir);
    let bytes: u64 = sizes_up_to(context.largest).map(|(size, files)| size * files).sum();
    let (mounts, runs) = (contenders.len(), u64::from(args.runs));
    let all = HumanBytes(bytes * mounts as u64 * runs);
    eprintln!("{mounts} filesystems, {runs} times {} each: {all} to write and to read", HumanBytes(bytes));
    let mut bench = Bench::new(contenders, &dir, context)?;
    bench.measure(args.runs as usize, &[Group::Sizes])?;
    let mut report = Report::new("ramdisk", "Whole files on a RAM disk, by cipher and key size");
    report.about(
        "paper",
        "S. Waloschek and others, AES on a GeForce 8800 (2010): random files on a RAM disk; no figures",
    );
    report.about("runs", format!("{}, medians", args.runs));
    report.about("files", "1 KiB to the largest, of small ones 64 MiB together, 256 at most; 1 MiB at once; read after all are written and the filesystem was mounted anew");
    report.about("tags", Integrity::DEFAULT.name());
    bench.finish(&mut report);
    deliver(&report, &args.report)
}

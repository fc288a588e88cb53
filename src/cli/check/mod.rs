//! `check`: looks for damage in a vault that nobody writes to, and changes nothing.

mod report;
mod walk;

use super::{
    args::CheckArgs,
    exit::{Code, Failure, Outcome},
    hashing::place,
    print,
    progress::{Spinner, totals_bar},
    signals::Interrupt,
    umount,
};
use crate::hash::{self, Vaulted};
use indicatif::ProgressBar;
use report::Report;
use std::path::{Path, PathBuf};

/// Runs `check`.
///
/// # Errors
/// If the vault does not open or is in use, or something in it is damaged.
pub fn run(args: &CheckArgs) -> Outcome {
    refuse_writer(&args.vault)?;
    let vault = place::open(&args.vault, &args.unlock)?;
    let interrupt = Interrupt::watch()?;
    let bar = if args.full {
        let _spinner = Spinner::start("counting files");
        totals_bar(hash::count(&Vaulted(vault.clone()), &[PathBuf::new()], interrupt.flag()).1)
    } else {
        ProgressBar::new_spinner()
    };
    let mut report = walk::check(&vault, args.full, &bar, &interrupt);
    bar.finish_and_clear();
    report.sort();
    print(&if args.json { report.json(args.full) } else { report.text(args.full) })?;
    interrupt.check()?;
    judge(&report)
}

/// What is being written would look damaged.
fn refuse_writer(vault: &Path) -> Outcome {
    match umount::held(vault) {
        Ok(Some(_)) => Err(Failure::new(
            Code::AlreadyMounted,
            format!("{} is mounted for writing", vault.display()),
            "Unmount it, or mount it with --read-only, and check again.",
        )),
        Ok(None) | Err(_) => Ok(()), // Opening it says what is wrong.
    }
}

fn judge(report: &Report) -> Outcome {
    match report.damaged() {
        0 => Ok(()),
        number => Err(Failure::new(
            Code::Unreadable,
            format!("{number} damaged"),
            "Everything else can be read. Mount the vault with --read-only to copy it, or restore what is named above.",
        )),
    }
}

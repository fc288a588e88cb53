//! Commands that use a vault without a mount: `ls`, `cat`, `export` and `import`.

mod apart;
mod cat;
mod copy;
mod leaf;
mod list;
mod names;
mod plain;
mod report;
mod side;
#[cfg(test)]
mod tests;
mod vaulted;

pub use cat::run as cat;
pub use list::run as list;

use super::{
    anchor,
    args::{ExportArgs, ImportArgs, UnlockArgs},
    exit::{Code, Failure, Outcome},
    log, mounts, print, rights,
    signals::Interrupt,
    unlocking,
};
use copy::{Metadata, copy, failed};
use fuse::Reach;
use hashing::Vaulted;
use plain::PlainSide;
use report::TransferReport;
use side::CopyTarget;
use std::path::Path;
use vault::OpenOptions;

/// Runs `export`.
///
/// # Errors
/// If the vault does not open, the target cannot be written, or something in the vault is damaged.
pub fn export(args: &ExportArgs) -> Outcome {
    let mut reach = Reach { sets_capabilities: args.trust_metadata, ..Reach::default() };
    let written = if args.target.is_dir() { &args.target } else { mounts::parent(&args.target) };
    reach.directories.extend(rights::opened(written));
    let vault = open(&args.vault, &args.unlock, &mut reach)?;
    let plain = beside(&args.vault, &args.target)?;
    let interrupt = Interrupt::watch()?;
    let metadata = if args.trust_metadata { Metadata::Trusted } else { Metadata::Untrusted };
    let (mut report, copied) = copy((&vault, &args.path), (&plain, &args.target), metadata, &interrupt)?;
    report.names_left_out = vault.0.left_out();
    let stored = plain.finish().map_err(|e| failed(args.target.display(), &e));
    conclude(&report, args.json.then_some("export"), copied.and(stored))
}

/// Runs `import`.
///
/// # Errors
/// If the vault does not open or is in use, is full, or something cannot be read.
pub fn import(args: &ImportArgs) -> Outcome {
    log::to_standard_error();
    let options = OpenOptions { anchor: anchor::wanted(args.anchor.as_deref()), ..OpenOptions::default() };
    let mut reach = Reach { seen: rights::opened(&args.source).into_iter().collect(), ..Reach::default() };
    let vault = Vaulted(unlocking::open_with(&args.vault, &args.unlock, options, Some(&mut reach))?);
    let interrupt = Interrupt::watch()?;
    let copied = beside(&args.vault, &args.source)
        .and_then(|plain| copy((&plain, &args.source), (&vault, &args.path), Metadata::Trusted, &interrupt));
    let stored = vault.finish().map_err(|e| failed(args.vault.display(), &e));
    let (report, copied) = copied?;
    conclude(&report, args.json.then_some("import"), copied.and(stored))
}

/// Opens a vault for reading. It may be mounted at the same time. Damaged names are logged.
fn open(vault: &Path, unlock: &UnlockArgs, reach: &mut Reach) -> Outcome<Vaulted> {
    log::to_standard_error();
    unlocking::open(vault, unlock, Some(reach)).map(Vaulted)
}

/// Prints the report and returns the outcome. Prints JSON if `command` is given.
fn conclude(report: &TransferReport, command: Option<&str>, done: Outcome) -> Outcome {
    let printed = print(&command.map_or_else(|| report.text(), |command| report.json(command)));
    done?;
    printed?;
    report.judge()
}

/// The filesystem outside the vault; fails for a path inside it. A path that does not exist yet is
/// inside if its parent is.
fn beside(vault: &Path, path: &Path) -> Outcome<PlainSide> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let real = path.canonicalize().or_else(|_| above.canonicalize());
    if let (Ok(store), Ok(real)) = (vault.canonicalize(), real)
        && real.starts_with(&store)
    {
        let advice = "Name a path beside the vault.";
        return Err(Failure::new(Code::Usage, format!("{} is inside the vault", path.display()), advice));
    }
    PlainSide::beside(vault).map_err(|e| Failure::io(vault.display(), &e))
}

//! `check`: looks for damage in a vault that has no writer, and repairs it if asked to.

mod job;
mod order;
mod repair;
mod report;
mod resume;
mod walk;

use super::{
    anchor,
    args::CheckArgs,
    exit::{Code, Failure, Outcome},
    locks,
    log::utc,
    mounts, print,
    progress::{Spinner, Totals},
    quoting::shell_word,
    rights,
    signals::Interrupt,
    unlocking, vaults,
};
use data_encoding::HEXLOWER;
use format::name::{DIR_ID_NAME, LOCK_FILE};
use fuse::Reach;
use hashing::Vaulted;
use job::{Check, Nodes};
use report::{CheckReport, Finding, FlawKind};
use resume::Saved;
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};
use vault::{AnchorUse, Flaw, NewNode, OpenError, OpenOptions, Vault, WalkPath};

/// Advice for a vault whose root directory was written under another key.
const OTHER_CONFIGURATION: &str = "After `key rotate` an older configuration does not fit: put the newest one back, with `warpcrypt key \
     restore`. If it is the right one, move warpcrypt.dir out of the vault and repair it again: all names in its root are lost then.";

/// The scope requested by the options.
#[derive(Clone, Copy)]
struct Scope {
    full: bool,
    repair: bool,
    move_strays: bool,
}

impl Scope {
    fn changes(self) -> bool {
        self.repair || self.move_strays
    }
}

/// Runs `check`.
///
/// # Errors
/// If the vault does not open or is in use, or something in it is damaged.
pub fn run(args: &CheckArgs) -> Outcome {
    let scope = Scope { full: args.full, repair: args.repair, move_strays: args.move_strays };
    let unwritten = (!scope.changes()).then(|| Writers::of(&args.vault));
    refuse_writer(&args.vault)?;
    let id = HEXLOWER.encode(vaults::read(&args.vault)?.id());
    let saved = match &args.resume {
        Some(file) => Saved::read(file, &id, args.full)?,
        None => None,
    };
    let (vault, root) = open(args, scope)?;
    let interrupt = Interrupt::watch()?;
    let mut saved = saved.map_or_else(Default::default, |saved| (saved.report, saved.last));
    saved.0.findings.extend(root);
    let progress = progress(&vault, scope, &interrupt);
    progress.add(saved.0.files, saved.0.bytes);
    let aside = scope.changes().then(|| vault.aside()).transpose().map_err(failed)?;
    let (aside, nodes) = (aside.as_ref(), Nodes::new());
    let check = Check { vault: &vault, scope, aside, nodes, progress: &progress, interrupt: &interrupt };
    let (mut report, last) = walk::run(&check, saved);
    progress.clear();
    if interrupt.check().is_err()
        && let Some(file) = &args.resume
    {
        Saved::new(&id, scope.full, last, report).write(file)?;
        return Err(Failure::new(
            Code::Interrupted,
            "interrupted",
            format!("Run the same command again to continue; {} records the position.", file.display()),
        ));
    }
    let left = repair::left_behind(&check, &report);
    report.findings.extend(left);
    report.sort();
    let finished = finish(&vault, scope, &report);
    // Print first: nothing else reports the repairs.
    print(&if args.json { report.json(args.full) } else { report.text(args.full) })?;
    finished?;
    interrupt.check()?;
    if let Some(before) = unwritten {
        refuse_changing(&args.vault, before, &report)?;
    }
    forget(args.resume.as_deref())?;
    match &args.anchor {
        Some(file) if args.accept => anchor::take(&vault, file)?,
        Some(file) => refuse(&report, &args.vault, file)?,
        None => {}
    }
    judge(&report, scope)
}

/// Opens the vault. With `--repair`, a root directory whose id is damaged first gets its id back; that
/// is reported as a finding.
fn open(args: &CheckArgs, scope: Scope) -> Outcome<(Arc<Vault>, Option<Finding>)> {
    let unlock = unlocking::present(&args.vault, &args.unlock)?;
    let anchor = args.anchor.clone().map(|file| AnchorUse { file, accept: args.accept });
    let options = OpenOptions { read_only: !scope.changes(), anchor, ..OpenOptions::default() };
    let mut reach = Reach::default();
    reach.replaced.extend(args.resume.as_deref().and_then(|file| rights::opened(mounts::parent(file))));
    rights::give_up(&mut reach, &args.vault, &options);
    let _spinner = Spinner::start("unlocking");
    let opened = || Vault::open(&args.vault, &unlock, options.clone());
    let (vault, mended) = match opened() {
        Err(OpenError::DamagedRoot(_)) if scope.repair => {
            let mended = Vault::repair_root_id(&args.vault, &unlock).map_err(|e| match e {
                OpenError::OtherVault(_) => Failure::new(Code::Failed, e, OTHER_CONFIGURATION),
                e => vaults::explain(e),
            })?;
            (opened(), mended)
        }
        opened => (opened, false),
    };
    let vault = vault.map_err(vaults::explain)?;
    let flaw = || Flaw::whole("the root's id did not authenticate; it has one again".to_owned());
    let finding = || {
        job::finding(FlawKind::Repaired, &WalkPath::default(), (&vault.root(), DIR_ID_NAME.as_ref()), flaw())
    };
    let root = mended.then(finding);
    Ok((vault, root))
}

/// Fails if the vault is mounted for writing: data being written would look damaged.
fn refuse_writer(vault: &Path) -> Outcome {
    match locks::held(vault) {
        Ok(Some(_)) => Err(Failure::new(
            Code::AlreadyMounted,
            format!("{} is mounted for writing", vault.display()),
            "Unmount it, or mount it with --read-only, and check again.",
        )),
        Ok(None) if locks::is_shared(vault) => Err(Failure::plain(
            Code::AlreadyMounted,
            "the vault is mounted with --shared: unmount it everywhere, and check again",
        )),
        Ok(None) | Err(_) => Ok(()), // Opening the vault reports the error.
    }
}

/// Inode and times of the vault's lock file. Every writer changes them.
#[derive(PartialEq)]
struct Writers(Option<(u64, [(i64, i64); 2])>);

impl Writers {
    fn of(vault: &Path) -> Self {
        let lock = fs::symlink_metadata(vault.join(LOCK_FILE)).ok();
        let times = |m: fs::Metadata| [(m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec())];
        Writers(lock.map(|lock| (lock.ino(), times(lock))))
    }
}

/// Fails if the vault was mounted for writing during the check: damage found may be writes in progress.
fn refuse_changing(vault: &Path, before: Writers, report: &CheckReport) -> Outcome {
    if report.number_of(FlawKind::Damaged) > 0 && Writers::of(vault) != before {
        return Err(Failure::new(
            Code::AlreadyMounted,
            format!("{} was mounted for writing while it was checked", vault.display()),
            "What was being written looks damaged. Unmount it, and check again.",
        ));
    }
    Ok(())
}

fn progress(vault: &Arc<Vault>, scope: Scope, interrupt: &Interrupt) -> Totals {
    if !scope.full {
        return Totals::unknown();
    }
    let _spinner = Spinner::start("counting files");
    Totals::start(hashing::count(&Vaulted(vault.clone()), &[PathBuf::new()], interrupt.flag()))
}

/// Makes repairs durable and leaves the report in the vault.
fn finish(vault: &Vault, scope: Scope, report: &CheckReport) -> Outcome {
    if !scope.changes() {
        return Ok(());
    }
    if report.number_of(FlawKind::Repaired) + report.number_of(FlawKind::SetAside) > 0 {
        leave(vault, &report.json(scope.full)).map_err(failed)?;
    }
    vault.shut_down().map_err(failed)
}

/// Writes the report to a file in the root of the vault.
fn leave(vault: &Vault, report: &str) -> content::Result<()> {
    let name = format!("warpcrypt-repair-{}.json", utc(SystemTime::now()).replace(':', "-"));
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let (_, _, file) = vault.create(&vault.root(), name.as_ref(), NewNode::plain(0o600, uid, gid))?;
    file.file.write(0, report.as_bytes())?;
    vault.sync_file(&file)?;
    vault.files().release(file);
    Ok(())
}

/// Removes the file of `--resume` after a complete check.
fn forget(file: Option<&Path>) -> Outcome {
    match file.map(fs::remove_file) {
        Some(Err(e)) if e.kind() != io::ErrorKind::NotFound => Err(Failure::io("the file of --resume", &e)),
        _ => Ok(()),
    }
}

fn failed(error: content::Error) -> Failure {
    match error {
        content::Error::Store(e) => Failure::io("the vault", &e),
        other => Failure::plain(Code::Failed, other),
    }
}

/// Fails if the vault differs from the anchor, and names the command that accepts the current state.
fn refuse(report: &CheckReport, vault: &Path, anchor: &Path) -> Outcome {
    match (report.refused(), report.number_of(FlawKind::Damaged)) {
        (0, _) => Ok(()),
        (number, damaged) => Err(Failure::new(
            Code::Unreadable,
            format!("{number} differ from the anchor, {damaged} damaged"),
            format!(
                "Somebody changed the store, put a backup back, or mounted the vault without the anchor. If that was you, `warpcrypt check {} \
                 --anchor {} --accept` has the anchor take the vault as it is.",
                shell_word(vault),
                shell_word(anchor)
            ),
        )),
    }
}

fn judge(report: &CheckReport, scope: Scope) -> Outcome {
    let advice = if scope.repair {
        "Reading what is still damaged fails. Restore it from a backup, overwrite it or delete it."
    } else {
        "Everything else can be read. `warpcrypt check --repair` mends what can be mended; restore the rest from a backup."
    };
    match (report.number_of(FlawKind::Damaged), report.number_of(FlawKind::SetAside)) {
        (0, 0) => Ok(()),
        (0, _) if !scope.repair => Ok(()),
        (0, number) => Err(Failure::new(
            Code::Unreadable,
            format!("{number} set aside: could not be repaired"),
            "The report in the root of the vault says where it is in the store.",
        )),
        (number, _) => Err(Failure::new(Code::Unreadable, format!("{number} damaged"), advice)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn damage_is_none_to_rely_on_if_somebody_wrote_meanwhile() {
        let vault = tempfile::tempdir().unwrap();
        let damaged = Finding {
            path: "file".into(),
            bytes: None,
            kind: FlawKind::Damaged,
            stored: "file".into(),
            reason: "tag does not verify".to_owned(),
            aside: None,
        };
        let report = CheckReport { findings: vec![damaged], ..CheckReport::default() };
        let refused = |before, report: &CheckReport| refuse_changing(vault.path(), before, report).is_err();
        let before = || Writers::of(vault.path());
        for content in ["", "open"] {
            assert!(!refused(before(), &report));
            let earlier = before();
            std::thread::sleep(Duration::from_millis(20)); // The store's clock may be coarse.
            fs::write(vault.path().join(LOCK_FILE), content).unwrap();
            assert!(refused(earlier, &report));
            assert!(!refused(Writers(None), &CheckReport::default()));
        }
    }
}

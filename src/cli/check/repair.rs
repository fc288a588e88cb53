//! Acts on findings for `--repair` and `--move-strays`. Without these options, findings are only
//! reported.

use super::{
    job::{Check, CheckJob, finding},
    report::{CheckReport, Finding, FlawKind},
};
use content::{Rebuilt, Result};
use std::{ffi::OsStr, path::PathBuf, sync::Arc};
use vault::{Aside, Dir, DirEntry, Flaw, Origin, Part, WalkPath};

/// The outcome of a repair, its description, and the place in the store of anything set aside.
type Done = (FlawKind, &'static str, Option<PathBuf>);

/// Rebuilds the content of a damaged file and checks it again. Content that merely could not be read is
/// left alone: it may be intact.
pub(super) fn content(check: &Check, job: &CheckJob, flaws: Vec<Flaw>) -> Vec<Finding> {
    let damaged = |flaw| finding(FlawKind::Damaged, &job.path, job.place(), flaw);
    let is_damaged = flaws.iter().any(|flaw| !matches!(flaw.part, Part::Unread));
    let Some(aside) = check.aside.filter(|_| check.scope.repair && is_damaged) else {
        return flaws.into_iter().map(damaged).collect();
    };
    let found = Flaw { part: Part::Whole, reason: summary(&flaws) };
    let rebuilt = check.vault.repair_content(&job.dir, &job.entry, aside);
    let mut go_on = |_| check.interrupt.check().is_ok();
    let left = check.vault.check_content(&job.dir, &job.entry, check.scope.full, &mut go_on);
    let done_to_it = match rebuilt {
        // Only chunks are damaged, and they remain so.
        Ok((Rebuilt::Exact, None)) if !left.is_empty() => return left.into_iter().map(damaged).collect(),
        Ok((Rebuilt::Exact, copy)) => {
            Ok((FlawKind::Repaired, "rebuilt; everything is what was stored last", copy))
        }
        Ok((Rebuilt::Salvaged, copy)) => Ok((FlawKind::Repaired, "rebuilt; what verifies can be read", copy)),
        Ok((Rebuilt::Emptied, copy)) => Ok((FlawKind::Repaired, "it is empty now", copy)),
        Ok((Rebuilt::Foreign, _)) => aside
            .take(&job.dir, &job.entry.stored.0)
            .map(|place| (FlawKind::SetAside, "nothing of it opens", Some(place))),
        Err(e) => Err(e),
    };
    let first = done(job, found, done_to_it);
    let left = if first.kind == FlawKind::Repaired { left } else { Vec::new() };
    std::iter::once(first).chain(left.into_iter().map(damaged)).collect()
}

/// Moves away a damaged attribute, a damaged attribute list, or a symbolic link with a damaged target.
/// Everything else is only reported.
pub(super) fn node(check: &Check, job: &CheckJob, flaw: Flaw) -> Finding {
    let Some(aside) = check.aside.filter(|_| check.scope.repair) else {
        return finding(FlawKind::Damaged, &job.path, job.place(), flaw);
    };
    let taken = match (&flaw.part, job.entry.kind) {
        (Part::Attribute(name), _) => check.vault.remove_damaged_attribute(&job.dir, &job.entry, name, aside),
        (Part::AttributeList, _) => check.vault.remove_damaged_list(&job.dir, &job.entry, aside),
        (Part::Whole | Part::Bytes(..), vault::Kind::Symlink) => aside.take(&job.dir, &job.entry.stored.0),
        (Part::Whole | Part::Bytes(..) | Part::Anchored(_) | Part::Unread, _) => {
            return finding(FlawKind::Damaged, &job.path, job.place(), flaw);
        }
    };
    done(job, flaw, taken.map(|place| (FlawKind::SetAside, "moved away", Some(place))))
}

/// Gives a directory whose id is damaged a valid id again. A directory that the store cannot read is left
/// alone: it may be intact.
pub(super) fn dir(
    check: &Check,
    job: &CheckJob,
    error: &content::Error,
) -> (Option<Arc<Dir>>, Option<Finding>) {
    let flaw = Flaw::of(error);
    let is_damaged = matches!(error, content::Error::Damaged(_));
    let Some(aside) = check.aside.filter(|_| check.scope.repair && is_damaged) else {
        return (None, Some(finding(FlawKind::Damaged, &job.path, job.place(), flaw)));
    };
    match check.vault.repair_dir_id(&job.dir, &job.entry.stored, aside) {
        Ok(dir) => {
            let what = (FlawKind::Repaired, "it has an id again", None);
            (Some(dir), Some(done(job, flaw, Ok(what))))
        }
        Err(e) => (None, Some(done(job, flaw, Err(e)))),
    }
}

/// Gives an entry whose name is lost a new name.
pub(super) fn name(
    check: &Check,
    path: &WalkPath,
    place: (&Arc<Dir>, &OsStr),
    flaw: Flaw,
) -> (Option<DirEntry>, Finding) {
    let (dir, stored) = place;
    let mut found = finding(FlawKind::Damaged, path, (dir, stored), flaw);
    let Some(aside) = check.aside.filter(|_| check.scope.repair) else { return (None, found) };
    match check.vault.rename_nameless(dir, stored, aside) {
        Ok(entry) => {
            found.kind = FlawKind::Repaired;
            found.reason += &format!("; it is named {:?} now", entry.name);
            (Some(entry), found)
        }
        Err(e) => {
            found.reason += &format!("; it cannot be repaired: {e}");
            (None, found)
        }
    }
}

/// Orphaned link targets and attribute lists. Moving them away loses nothing, so it does not count as a
/// failure. While anything is damaged they stay, because they may belong to it.
pub(super) fn left_behind(check: &Check, report: &CheckReport) -> Vec<Finding> {
    let aside = check.aside.filter(|_| check.scope.repair && report.number_of(FlawKind::Damaged) == 0);
    let (targets, lists) = (check.vault.unlinked_targets(), check.vault.ownerless_lists());
    let kinds = [
        (targets, "the target of a symbolic link that is not there"),
        (lists, "attributes of what is not there, or that an unfinished change left"),
    ];
    // An error means that part of the vault cannot be seen, which has been reported already.
    let found = kinds.into_iter().filter_map(|(found, what)| Some((found.ok()??, what)));
    found
        .flat_map(|((dir, names), what)| {
            names.iter().map(|name| left_over(aside, &dir, name, what)).collect::<Vec<_>>()
        })
        .collect()
}

fn left_over(aside: Option<&Aside>, dir: &Dir, name: &OsStr, what: &str) -> Finding {
    let found = finding(FlawKind::LeftOver, &WalkPath::default(), (dir, name), Flaw::whole(what.to_owned()));
    match aside.map(|aside| aside.take(dir, name)) {
        None => found,
        Some(Ok(place)) => Finding { aside: Some(place.into_os_string()), ..found },
        Some(Err(e)) => Finding { reason: format!("{}; it cannot be moved: {e}", found.reason), ..found },
    }
}

/// Reports a file that does not belong to the vault, and its original if it is a copy. Moves it away
/// with `--move-strays`.
pub(super) fn stray(
    check: &Check,
    path: &WalkPath,
    (dir, name): (&Arc<Dir>, &OsStr),
    origin: Origin,
) -> Finding {
    const COPY: &str = "such as those that sync make of what changed in two places";
    let (path, what) = match origin {
        Origin::CopyOf(original) => (path.join(&original), format!("another program's copy of this, {COPY}")),
        Origin::CopyOfOwn(own) => (path.clone(), format!("another program's copy of {own}, {COPY}")),
        Origin::RemovedOverNfs => (
            path.clone(),
            "removed while a program had it open; an NFS client keeps it until that closes it".to_owned(),
        ),
        Origin::Unknown => (path.clone(), "not a file of this vault".to_owned()),
    };
    let found = finding(FlawKind::Stray, &path, (dir, name), Flaw::whole(what));
    let Some(aside) = check.aside.filter(|_| check.scope.move_strays) else { return found };
    match aside.take(dir, name) {
        Ok(place) => Finding { kind: FlawKind::SetAside, aside: Some(place.into_os_string()), ..found },
        Err(e) => Finding { reason: format!("{}; it cannot be moved: {e}", found.reason), ..found },
    }
}

fn done(job: &CheckJob, flaw: Flaw, result: Result<Done>) -> Finding {
    let found = finding(FlawKind::Damaged, &job.path, job.place(), flaw);
    match result {
        Ok((kind, what, aside)) => {
            let reason = format!("{}; {what}", found.reason);
            Finding { kind, reason, aside: aside.map(PathBuf::into_os_string), bytes: None, ..found }
        }
        Err(e) => Finding { reason: format!("{}; it cannot be repaired: {e}", found.reason), ..found },
    }
}

/// Summarizes the flaws in one line.
fn summary(flaws: &[Flaw]) -> String {
    match flaws {
        [] => String::new(),
        [one] => one.reason.clone(),
        [first, more @ ..] => format!("{}, and {} more", first.reason, more.len()),
    }
}

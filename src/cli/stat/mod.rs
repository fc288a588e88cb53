//! `stat`: shows the activity of a mount. Asks the mount's process, or reads an extended attribute of
//! its root.

mod prometheus;
mod show;

use super::{
    args::StatArgs,
    exit::{Code, Failure, Outcome},
    json, locking, mount_point,
    mounts::Mount,
    named_file,
    patience::patiently,
    print,
    quoting::shell_word,
    signals::Interrupt,
    unheard::unheard,
};
use format::printable::printable;
use fuse::{ControlCommand, ControlStatus, Patience};
use metrics::ATTRIBUTE;
use rustix::{
    fs::{Mode, statvfs},
    io::Errno,
};
use serde_json::Value;
use std::{
    io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Maximum length of an extended attribute's value.
const ROOM: usize = 64 << 10;
/// Time limit for reading the attribute. A later answer is not expected.
const MOST: Duration = Duration::from_secs(10);
/// Time limit for the disk usage: a store that hangs must not withhold the other numbers.
const SOON: Duration = Duration::from_secs(2);
/// Polling interval for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// Runs `stat`.
pub fn run(args: &StatArgs) -> Outcome {
    let mount = locking::find(&args.place)?;
    let mut last = ask(&mount, &Patience::default())?;
    let Some(seconds) = args.watch else {
        return deliver(args, &mount, &last, None).map(drop);
    };
    if args.prometheus.is_some() {
        deliver(args, &mount, &last, None)?;
    }
    let interrupt = Interrupt::watch()?;
    loop {
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            interrupt.check()?;
            thread::sleep(LOOK);
        }
        let now = ask(&mount, &interrupt.patience())?;
        if !deliver(args, &mount, &now, Some(&last))? {
            return Ok(());
        }
        last = now;
    }
}

/// Prints the numbers, or writes them to a file. Returns false if the reader has gone away.
fn deliver(args: &StatArgs, mount: &Mount, now: &Value, before: Option<&Value>) -> Outcome<bool> {
    match &args.prometheus {
        Some(file) if file.as_os_str() == "-" => print(&prometheus::text(now, &mount.target)),
        Some(file) => put(file, &prometheus::text(now, &mount.target)).map(|()| true),
        None if args.json && before.is_some() => print(&json::line("stat", now.clone())),
        None if args.json => print(&json::document("stat", now.clone())),
        None if args.all => print(&show::text(now, before)),
        None => print(&show::brief(now, before, disk(&mount.source))),
    }
}

/// Total and free bytes of the disk that holds the vault; `None` if the store does not answer quickly.
fn disk(vault: &Path) -> Option<(u64, u64)> {
    let vault = vault.to_owned();
    let asked = patiently(&Patience { most: Some(SOON), stop: None }, move || Ok(statvfs(&vault)?));
    asked.ok().map(|disk| (disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize))
}

/// Replaces a file atomically. Other users may read it, because a metrics collector may run as another
/// user.
fn put(file: &Path, text: &str) -> Outcome {
    named_file::replace(file, text.as_bytes(), Mode::from_raw_mode(0o644))
        .map_err(|e| Failure::io(file.display(), &e))
}

fn ask(mount: &Mount, patience: &Patience) -> Outcome<Value> {
    let target = &mount.target;
    // Ask the process directly first: while the vault is locked, waiting programs can block all
    // filesystem requests.
    let said =
        match fuse::tell(mount.device_number(), mount.owner.unwrap_or(0), &ControlCommand::Metrics, patience)
        {
            Ok((ControlStatus::Done, text)) => text.into_bytes(),
            Err(e) if [io::ErrorKind::TimedOut, io::ErrorKind::Interrupted].contains(&e.kind()) => {
                return Err(unheard(mount, &ControlCommand::Metrics, &e));
            }
            Ok(_) | Err(_) => attribute(mount, patience)?,
        };
    serde_json::from_slice(&said)
        .map(harmless)
        .map_err(|e| Failure::plain(Code::Failed, format!("{}: its answer: {e}", target.display())))
}

/// Reads the attribute of the mount's root. If that fails, the error tells what is wrong with a mount
/// whose process does not listen.
fn attribute(mount: &Mount, patience: &Patience) -> Outcome<Vec<u8>> {
    let (target, asked) = (&mount.target, mount.target.clone());
    let read = move || {
        let mut room = vec![0; ROOM];
        let len = rustix::fs::getxattr(asked, ATTRIBUTE, &mut room[..])?;
        room.truncate(len);
        Ok(room)
    };
    let answer = patiently(&Patience { most: Some(MOST), ..*patience }, read);
    answer.map_err(|e| match Errno::from_io_error(&e) {
        None => unheard(mount, &ControlCommand::Metrics, &e),
        Some(Errno::ACCESS | Errno::PERM | Errno::NODATA | Errno::OPNOTSUPP) => Failure::new(
            Code::Failed,
            format!("{}: the mount does not say what it does: {e}", target.display()),
            "Only root and the user who mounted it may ask. An older version of the program does not answer either.",
        ),
        _ if mount_point::is_dead(target) => Failure::new(
            Code::Failed,
            format!("{}: the mount is dead: {}", target.display(), Errno::NOTCONN),
            format!("Remove the dead mount with `warpcrypt umount {}`.", shell_word(target)),
        ),
        _ => Failure::io(target.display(), &e),
    })
}

/// Removes control characters from the answer. Any user's filesystem can pretend to be a vault, and must
/// not control the terminal or forge lines.
fn harmless(answer: Value) -> Value {
    match answer {
        Value::String(text) => printable(&text).into(),
        Value::Array(items) => items.into_iter().map(harmless).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (printable(&name), harmless(value))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_answer_steers_a_terminal_or_a_collector() {
        let bad = "\u{1b}[2J\nup 1";
        let group = json!({ bad: { "count": 1, "hits": 1 }, "a\"} 1\\": { "count": 1, "hits": 1 } });
        let answer = harmless(json!({
            "program": bad, "requests": group, "caches": group, "memory": group,
            "engines": [{ "name": bad, "description": bad }],
        }));
        let shown = show::text(&answer, None);
        assert!(shown.contains("[2J") && !shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
        assert!(shown.lines().all(|line| !line.starts_with("up 1")), "{shown}");
        let collected = prometheus::text(&answer, Path::new("/m"));
        for line in collected.lines().filter(|line| !line.starts_with('#')) {
            let (labels, value) = line.rsplit_once("} ").expect("a sample");
            assert!(labels.starts_with("warpcrypt_") && value.parse::<f64>().is_ok(), "{line}");
            let quotes = labels.replace("\\\\", "").replace("\\\"", "").matches('"').count();
            assert!(quotes.is_multiple_of(2), "{line}");
        }
    }
}

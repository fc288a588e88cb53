//! `try`: copies real files to a temporary vault, shows what the disk stores, and compares every byte.

mod copy;
mod stored;
mod temp;
mod tree;

use super::{
    args::{MountArgs, TryArgs, UmountArgs},
    daemon,
    exit::{Code, Failure, Outcome},
    json, mount, print,
    progress::{Spinner, bytes_bar, counted},
    signals::Interrupt,
    tell, umount, vaults,
};
use crypto::{cipher::Cipher, integrity::Integrity, random};
use format::{config::Settings, key_slot::DEFAULT_COST, name::NameMode};
use indicatif::{HumanBytes, ProgressBar};
use serde_json::{Map, Value, json};
use std::{
    fs, io,
    path::Path,
    time::{Duration, Instant},
};
use stored::{Pieces, Sight};
use temp::TempDir;
use tree::TrialTree;
use vault::{NewPlace, Unlock};
use zeroize::Zeroizing;

/// The settings of the trial vault: the defaults of `init`.
const SETTINGS: Settings =
    Settings { cipher: Cipher::Aes256, integrity: Integrity::DEFAULT, names: NameMode::Encrypted };

/// Measurements of a run.
struct RunTimes<'a> {
    tree: &'a TrialTree,
    copied_in: Duration,
    compared_in: Duration,
    pieces: usize,
    sight: Sight,
}

/// Runs `try`.
pub fn run(args: &TryArgs) -> Outcome {
    mount::fuse_available()?;
    let interrupt = Interrupt::watch()?;
    let tree = TrialTree::find(args.from.as_deref(), &interrupt)?;
    let temp = TempDir::new().map_err(|e| Failure::io("a temporary directory", &e))?;
    let [cipher, tags] = [SETTINGS.cipher.name(), SETTINGS.integrity.name()];
    say(args, &format!("A vault in {}: {cipher}, {tags}, names encrypted.", temp.path().display()));
    let result = story(args, &tree, &temp, &interrupt);
    let removed = {
        let _spinner = Spinner::start("cleaning up");
        temp.remove()
    };
    removed.map_err(|e| Failure::io("removing the temporary directory", &e))?;
    let run = result?;
    if args.json {
        print(&json::document("try", as_json(&run)))?;
    } else {
        tell("Unmounted and removed everything. All is well.\n");
    }
    Ok(())
}

/// The steps between creating the temporary directory and removing it.
fn story<'a>(
    args: &TryArgs,
    tree: &'a TrialTree,
    temp: &TempDir,
    interrupt: &Interrupt,
) -> Outcome<RunTimes<'a>> {
    let (vault, mount) = (temp.path().join("vault"), temp.path().join("mount"));
    fs::create_dir(&mount).map_err(|e| Failure::io("the mount point", &e))?;
    let key = random_key()?;
    let place = NewPlace::at(&vault).map_err(vaults::explain)?;
    vaults::make(&place, SETTINGS, &key, DEFAULT_COST)?;
    drop(place);

    let copied_in = mounted(&vault, &mount, &key, |to| {
        let bar = bytes_bar("copying", tree.bytes());
        let result = timed(&bar, || copy::copy(tree, to, &bar, interrupt));
        bar.finish_and_clear();
        result
    })?;
    say(args, &format!("Mounted it and copied {}{}.", amount(tree), speed(tree, copied_in)));

    let pieces = Pieces::of(tree);
    let sight = stored::look(&vault, tree, &pieces, interrupt)?;
    refuse_readable(&sight)?;
    say(args, &what_the_disk_sees(&sight, pieces.len()));

    let compared_in = mounted(&vault, &mount, &key, |copy| {
        let bar = bytes_bar("comparing", tree.bytes());
        let result = timed(&bar, || copy::compare(tree, copy, &bar, interrupt));
        bar.finish_and_clear();
        result
    })?;
    say(
        args,
        &format!(
            "Mounted again and compared every byte, mode and time{}: no difference.",
            speed(tree, compared_in)
        ),
    );
    Ok(RunTimes { tree, copied_in, compared_in, pieces: pieces.len(), sight })
}

/// Does `work` in the mounted vault. The time includes the unmount, because only then is everything
/// stored. The mount is served by another process: a process that waits for answers from itself could
/// not end if killed meanwhile.
fn mounted(
    vault: &Path,
    mount: &Path,
    key: &Unlock,
    work: impl FnOnce(&Path) -> Outcome<Duration>,
) -> Outcome<Duration> {
    let log = vault.with_extension("log");
    daemon::start(&MountArgs { log_file: Some(log.clone()), ..MountArgs::plain(vault, mount) }, key)?;
    let worked = work(mount);
    let start = Instant::now();
    let ended = umount::run(&UmountArgs { place: mount.to_owned() });
    let worked = worked?;
    ended.inspect_err(|_| tell(&fs::read_to_string(&log).unwrap_or_default()))?;
    Ok(worked + start.elapsed())
}

fn timed(bar: &ProgressBar, work: impl FnOnce() -> Outcome) -> Outcome<Duration> {
    bar.tick();
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

fn random_key() -> Outcome<Unlock> {
    let mut key = Zeroizing::new(vec![0; 32]);
    random::fill(&mut key).map_err(|e: io::Error| Failure::io("random bytes", &e))?;
    Ok(Unlock::KeyFile(key))
}

fn say(args: &TryArgs, text: &str) {
    if !args.json {
        tell(&format!("{text}\n"));
    }
}

fn amount(tree: &TrialTree) -> String {
    let links = tree.nodes.iter().filter(|n| matches!(n.kind, tree::NodeKind::Symlink(_))).count();
    let dirs = tree.nodes.len() - tree.files() - links;
    format!(
        "{} ({}), {} and {} of {}",
        counted(tree.files() as u64, "file"),
        HumanBytes(tree.bytes()),
        counted(dirs as u64, "directory"),
        counted(links as u64, "link"),
        tree.root.display()
    )
}

fn speed(tree: &TrialTree, time: Duration) -> String {
    format!(" in {:.1} s ({:.0} MB/s)", time.as_secs_f64(), megabytes_per_second(tree, time))
}

fn megabytes_per_second(tree: &TrialTree, time: Duration) -> f64 {
    tree.bytes() as f64 / 1e6 / time.as_secs_f64().max(1e-9)
}

fn what_the_disk_sees(sight: &Sight, pieces: usize) -> String {
    let mut text = String::from("Unmounted it. This is what the disk sees, for example:\n");
    for (name, size) in &sight.samples {
        text += &format!("    {:>9}  {}\n", HumanBytes(*size).to_string(), name.display());
    }
    text + &format!(
        "None of {pieces} pieces of plaintext is found in the {} stored, and none of the names.",
        HumanBytes(sight.bytes)
    )
}

fn refuse_readable(sight: &Sight) -> Outcome {
    let what = match (&sight.readable_name, &sight.readable_file) {
        (Some(name), _) => format!("the name {} is stored unencrypted", name.display()),
        (_, Some(file)) => format!("the stored file {} contains plaintext", file.display()),
        _ => return Ok(()),
    };
    Err(Failure::new(Code::Failed, what, "This must not happen: please report it."))
}

fn as_json(run: &RunTimes) -> Value {
    let mut members = Map::new();
    json::put_name(&mut members, "source", &run.tree.root);
    let figures = [
        ("files", json!(run.tree.files())),
        ("bytes", json!(run.tree.bytes())),
        ("stored_bytes", json!(run.sight.bytes)),
        ("plaintext_pieces_searched", json!(run.pieces)),
        ("copy_seconds", json!(run.copied_in.as_secs_f64())),
        ("copy_megabytes_per_second", json!(megabytes_per_second(run.tree, run.copied_in))),
        ("compare_seconds", json!(run.compared_in.as_secs_f64())),
        ("compare_megabytes_per_second", json!(megabytes_per_second(run.tree, run.compared_in))),
        ("differences", json!(0)),
    ];
    members.extend(figures.map(|(name, value)| (name.to_owned(), value)));
    members.into()
}

//! Many small files, processed with common programs.

use super::{Context, live::Live};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};
use warpcrypt::cli::lab::{Code, Failure, Outcome};

/// Files per directory of the tree.
const IN_FOLDER: usize = 15;

/// The tree as an archive, created once.
pub struct Archive {
    path: PathBuf,
}

impl Archive {
    /// Creates an archive of `files` files in folders. Most of them are small, as in a source tree.
    ///
    /// # Errors
    /// If `dir` has no room, or there is no `tar`.
    pub fn make(dir: &Path, files: usize) -> Outcome<Self> {
        let (tree, path) = (dir.join("tree"), dir.join("tree.tar"));
        let failed = |e: &io::Error| Failure::io("the tree of small files", e);
        fill(&tree, files).map_err(|e| failed(&e))?;
        let made = run_in(dir, "tar", &["-cf", "tree.tar", "tree"]);
        fs::remove_dir_all(&tree).map_err(|e| failed(&e))?;
        made?;
        Ok(Archive { path })
    }
}

/// Sizes follow a fixed sequence: two fifths below 1 KiB, two fifths up to 8 KiB, the rest up to 64 KiB.
fn fill(tree: &Path, files: usize) -> io::Result<()> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    for number in 0..files {
        let folder = tree.join(format!("part-{}/folder-{}", number / 1500, number / IN_FOLDER));
        if number % IN_FOLDER == 0 {
            fs::create_dir_all(&folder)?;
        }
        let most = [1 << 10, 1 << 10, 8 << 10, 8 << 10, 64 << 10][next() as usize % 5];
        let text: Vec<u8> = (0..next() % most).map(|_| b' ' + (next() % 95) as u8).collect();
        fs::write(folder.join(format!("file-{number}.txt")), text)?;
    }
    Ok(())
}

/// Unpacks, reads, lists and removes the tree, with a remount in between so that nothing is cached.
///
/// # Errors
/// If a program fails or is missing.
pub fn run(
    context: &Context,
    live: &mut Live,
    archive: &Archive,
    put: &mut dyn FnMut(&str, &str, f64),
) -> Outcome {
    let tar = archive.path.to_string_lossy().into_owned();
    let steps: [(&str, &str, &[&str]); 4] = [
        ("unpack", "tar", &["-xf", &tar]),
        ("checksum all", "find", &["tree", "-type", "f", "-exec", "cksum", "{}", "+"]),
        ("ls -lR", "ls", &["-lR", "tree"]),
        ("rm -r", "rm", &["-r", "tree"]),
    ];
    for (name, program, arguments) in steps {
        let start = Instant::now();
        let done = run_in(live.dir(), program, arguments);
        context.interrupt.check()?;
        done?;
        put(name, "s", start.elapsed().as_secs_f64());
        live.remount()?;
        if name == "unpack" {
            put("unpack, unmount and mount", "s", start.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

fn run_in(dir: &Path, program: &str, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(program);
    let done = command.args(arguments).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).output();
    let done = done.map_err(|e| Failure::io(program, &e))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let first = said.lines().next().unwrap_or("failed").to_owned();
    Err(Failure::plain(Code::Failed, format!("{program}: {first}")))
}

//! Encrypted directories of the compared programs, mounted by a child process that can be killed.

use crate::support::{
    command::{ended, ok, run},
    mounted::program_path,
};
use rustix::mount::{UnmountFlags, unmount};
use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// A program under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Warpcrypt,
    Gocryptfs,
    /// No encryption: shows the effect of power cuts on the store's own filesystem.
    Store,
}

impl Program {
    pub const ALL: [Program; 3] = [Program::Warpcrypt, Program::Gocryptfs, Program::Store];

    pub fn name(self) -> &'static str {
        match self {
            Program::Warpcrypt => "warpcrypt",
            Program::Gocryptfs => "gocryptfs",
            Program::Store => "store",
        }
    }
}

/// A command that is killed when the thread that starts it ends.
pub fn bound(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program.as_ref());
    command
}

/// An encrypted directory and its mount point.
pub struct Vault {
    program: Program,
    store: PathBuf,
    at: PathBuf,
    key: PathBuf,
    pub log: PathBuf,
}

impl Vault {
    /// Creates one in `store`; `place` holds everything else.
    pub fn make(program: Program, store: &Path, place: &Path) -> Vault {
        let vault = Vault::at(program, store, place);
        fs::create_dir(&vault.store).expect("the store");
        let mut command = Command::new(match program {
            Program::Warpcrypt => program_path(),
            Program::Gocryptfs => "gocryptfs".into(),
            Program::Store => return vault,
        });
        match program {
            Program::Warpcrypt => command.arg("init").arg("--key-file"),
            _ => command.args(["-init", "-q", "-scryptn", "10", "-passfile"]),
        };
        ok(command.arg(&vault.key).arg(&vault.store), 60);
        vault
    }

    /// Opens one that exists in `store`.
    pub fn at(program: Program, store: &Path, place: &Path) -> Vault {
        let [at, key, log] =
            ["mnt", "key", "log"].map(|name| place.join(format!("{}-{name}", program.name())));
        fs::create_dir_all(&at).expect("mount point");
        fs::write(&key, [b'k'; 64]).expect("key");
        Vault { program, store: store.join("vault"), at, key, log }
    }

    /// The directory inside the mount where the programs work.
    pub fn work(&self) -> PathBuf {
        self.at.join("work")
    }

    /// Mounts it, or returns the reason for the failure.
    pub fn mount(&self, options: &[&str]) -> Result<Mount, String> {
        let mut command = bound(match self.program {
            Program::Warpcrypt => program_path(),
            Program::Gocryptfs => "gocryptfs".into(),
            Program::Store => "sh".into(),
        });
        match self.program {
            Program::Warpcrypt => {
                command.args(["mount", "--foreground", "--engine", "cpu"]).args(options);
                command.arg("--log-file").arg(&self.log).arg("--key-file").arg(&self.key)
            }
            Program::Gocryptfs => command.args(["-fg", "-q", "-nosyslog", "-passfile"]).arg(&self.key),
            Program::Store => command.args(["-c", "mount --bind \"$0\" \"$1\" && exec sleep infinity"]),
        };
        let said = File::create(self.log.with_extension("said")).expect("output");
        let outputs = [said.try_clone().expect("output"), said].map(Stdio::from);
        let [out, err] = outputs;
        let child =
            command.arg(&self.store).arg(&self.at).stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        let mut mount = Mount { child: child.expect("setpriv"), program: self.program, at: self.at.clone() };
        let below = fs::metadata(self.at.parent().expect("a place")).expect("the place").dev();
        let end = Instant::now() + Duration::from_secs(60);
        while !fs::metadata(&self.at).is_ok_and(|m| m.dev() != below) {
            if mount.child.try_wait().expect("wait").is_some() || Instant::now() > end {
                drop(mount);
                return Err(fs::read_to_string(self.log.with_extension("said")).unwrap_or_default());
            }
            sleep(Duration::from_millis(1));
        }
        Ok(mount)
    }
}

/// Maximum time for a killed process to exit: its data in the store's cache may still be being written.
const LIMIT: Duration = Duration::from_secs(120);

/// A mounted vault. Dropping it kills the process and unmounts.
pub struct Mount {
    child: Child,
    program: Program,
    at: PathBuf,
}

impl Mount {
    /// Kills the process; the dead mount remains.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        if ended(&mut self.child, LIMIT).is_none() {
            // The process may be waiting for an answer from its own mount. Aborting the connection ends
            // that wait.
            let _ = unmount(&self.at, UnmountFlags::FORCE);
            let _ = self.child.wait();
            panic!("{}: a killed process stays", self.program.name());
        }
    }

    /// The command that unmounts.
    pub fn unmounting(&self) -> Command {
        let mut command = Command::new("umount");
        if self.program == Program::Warpcrypt {
            command = Command::new(program_path());
            command.arg("umount");
        }
        command.arg(&self.at);
        command
    }

    /// Unmounts the way a user does.
    pub fn unmount(mut self) -> Result<(), String> {
        let done = run(&mut self.unmounting(), 60);
        if !done.status.success() {
            return Err(done.stderr);
        }
        if self.program == Program::Store {
            self.kill();
        }
        let _ = self.child.wait();
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.kill();
        while unmount(&self.at, UnmountFlags::DETACH).is_ok() {}
    }
}

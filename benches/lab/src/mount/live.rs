//! A mounted contender, and the resources that its process has used.

use super::{
    contender::{Contender, Place},
    usage::{self, Usage},
};
use std::{
    fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};
use warpcrypt::cli::lab::{Code, Failure, Outcome, mount_at};

/// Time limit for a mount to appear, and for its process to end.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

/// A mounted contender. Dropping it unmounts it and removes everything that it stored.
pub struct Live<'a> {
    contender: &'a Contender,
    folder: PathBuf,
    place: Place,
    server: Option<Child>,
}

impl<'a> Live<'a> {
    /// Prepares and mounts `contender` in a new folder below `dir`.
    ///
    /// # Errors
    /// If its program fails, or the mount does not appear.
    pub fn start(contender: &'a Contender, dir: &Path) -> Outcome<Self> {
        let folder = dir.join(contender.name.replace(' ', "-"));
        let place =
            Place { store: folder.join("store"), mount: folder.join("mount"), key: folder.join("key") };
        let mut live = Live { contender, folder, place, server: None };
        contender.prepare(&live.place)?;
        live.mount()?;
        Ok(live)
    }

    /// The directory to work in.
    pub fn dir(&self) -> &Path {
        if self.server.is_some() { &self.place.mount } else { &self.place.store }
    }

    /// Unmounts and remounts, so that nothing is left in the kernel's caches.
    ///
    /// # Errors
    /// As [`Live::start`].
    pub fn remount(&mut self) -> Outcome {
        self.unmount()?;
        self.mount()
    }

    fn mount(&mut self) -> Outcome {
        let Some(mut command) = self.contender.serve(&self.place) else { return Ok(()) };
        let failed = |e: &io::Error| Failure::io(&self.contender.name, e);
        let log = fs::File::create(self.folder.join("log")).map_err(|e| failed(&e))?;
        let errors = log.try_clone().map_err(|e| failed(&e))?;
        // A separate process group: Ctrl-C is for the benchmark, which then unmounts.
        let spawned = command.process_group(0).stdin(Stdio::piped()).stdout(log).stderr(errors).spawn();
        let mut server = spawned.map_err(|e| failed(&e))?;
        let greeted = server.stdin.take().map_or(Ok(()), |mut to| self.contender.greet(&mut to));
        self.server = Some(server);
        greeted.map_err(|e| failed(&e))?;
        let start = Instant::now();
        while !self.is_mounted() {
            let ended = self.server.as_mut().is_some_and(|s| !matches!(s.try_wait(), Ok(None)));
            if ended || start.elapsed() > PATIENCE {
                let said = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                let what = format!("{} does not mount: {}", self.contender.name, said.trim());
                return Err(Failure::plain(Code::Failed, what));
            }
            thread::sleep(PAUSE);
        }
        // Wait for the first answer.
        fs::metadata(&self.place.mount).map_err(|e| failed(&e)).map(drop)
    }

    fn is_mounted(&self) -> bool {
        matches!(mount_at(&self.place.mount), Ok(Some(mount)) if mount.fs_type.starts_with("fuse"))
    }

    /// Unmounts and waits until the process has stored everything and ended.
    ///
    /// # Errors
    /// If the mount stays in use, or the process does not end.
    pub fn unmount(&mut self) -> Outcome {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let start = Instant::now();
        while self.is_mounted() {
            let done = fuse::unmount(&self.place.mount, start.elapsed() > PATIENCE);
            if start.elapsed() > PATIENCE * 2 {
                done.map_err(|e| Failure::io(format!("unmounting {}", self.contender.name), &e))?;
            }
            thread::sleep(PAUSE);
        }
        while matches!(server.try_wait(), Ok(None)) {
            if start.elapsed() > PATIENCE * 2 {
                // Kills only our own process, through its handle.
                let _ = server.kill();
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Resources used so far by the serving process and its descendants. `None` if there is none, or if it
    /// may not be inspected.
    pub fn usage(&self) -> Option<Usage> {
        usage::of(self.server.as_ref()?.id())
    }

    /// Restarts the measurement of peak memory, where that is permitted.
    pub fn reset_peak(&self) {
        if let Some(server) = &self.server {
            let _ = fs::write(format!("/proc/{}/clear_refs", server.id()), "5");
        }
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        // Do not empty a folder that could not be unmounted.
        if self.unmount().is_ok() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

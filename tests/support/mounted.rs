//! A vault in a temporary directory, and its mount.

use super::{
    command::{Done, ok, run},
    failure,
};
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};
use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::{JoinHandle, sleep},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Exit code of `umount`: the mount is in use.
const IN_USE: i32 = 23;
/// Maximum life of one mount. After that its process is killed, so that calls stuck in it return.
const LIFE: Duration = Duration::from_secs(400);

/// Path of the program under test: the build output, or the value of `WARPCRYPT_TEST_PROGRAM` on a machine
/// that the tests were copied to.
pub fn program_path() -> PathBuf {
    let built = || PathBuf::from(env!("CARGO_BIN_EXE_warpcrypt"));
    std::env::var_os("WARPCRYPT_TEST_PROGRAM").map_or_else(built, PathBuf::from)
}

/// A vault, opened with a key file: Argon2 would be too slow for a test that mounts hundreds of times.
pub struct Vault {
    /// The stored directory.
    pub store: PathBuf,
    /// The mount point.
    pub mount_point: PathBuf,
    /// The key file.
    pub key: PathBuf,
    /// Log file of the mounts.
    pub log: PathBuf,
    places: Vec<TempDir>,
}

impl Vault {
    /// A new vault on disk, in the temporary directory.
    pub fn new(cipher: &str) -> Vault {
        Vault::with(cipher, &[])
    }

    /// A new vault, with additional options for `init`.
    pub fn with(cipher: &str, options: &[&str]) -> Vault {
        let vault = Vault::place(None);
        vault.init(cipher, options);
        vault
    }

    /// A new vault whose stored directory is `store`.
    pub fn at(store: &Path, cipher: &str) -> Vault {
        let vault = Vault::place(Some(store));
        vault.init(cipher, &[]);
        vault
    }

    /// A new vault in memory, for tests with very many operations in which a sync need not reach a disk.
    pub fn in_memory(cipher: &str) -> Vault {
        Vault::in_memory_of(cipher, 1 << 30)
    }

    /// As `in_memory`, if there is room for `bytes` bytes; otherwise on disk.
    pub fn in_memory_of(cipher: &str, bytes: u64) -> Vault {
        let place = memory(bytes);
        let store = place.as_ref().map(|p| p.path().join("vault"));
        let mut vault = Vault::place(store.as_deref());
        vault.places.extend(place);
        vault.init(cipher, &[]);
        vault
    }

    /// The same vault with a separate mount point and log, as on another machine.
    pub fn elsewhere(&self) -> Vault {
        self.with_store(&self.store)
    }

    /// A copy of the vault whose stored directory is `store`, with a separate mount point and log.
    pub fn with_store(&self, store: &Path) -> Vault {
        Vault::place(Some(store))
    }

    fn place(store: Option<&Path>) -> Vault {
        let place = TempDir::with_prefix("warpcrypt-test-").expect("temporary directory");
        open_to_all(place.path());
        let store = store.map_or_else(|| place.path().join("vault"), Path::to_path_buf);
        let [mount_point, key, log] = ["mnt", "key", "log"].map(|n| place.path().join(n));
        fs::create_dir(&mount_point).expect("mount point");
        fs::write(&key, [0x5a; 64]).expect("key file");
        Vault { store, mount_point, key, log, places: vec![place] }
    }

    fn init(&self, cipher: &str, options: &[&str]) {
        let mut command = Vault::program();
        command.arg("init").arg(&self.store).args(["--cipher", cipher]).args(options);
        ok(command.arg("--key-file").arg(&self.key), 60);
    }

    /// A command that adds the content of the file `new` as another key.
    pub fn add_key(&self, new: &Path) -> Command {
        let mut add = Vault::program();
        add.args(["key", "add"]).arg(&self.store).arg("--key-file").arg(&self.key);
        add.arg("--new-key-file").arg(new);
        add
    }

    /// Runs `key rotate` with another key file. If that starts a rotation, `key` contains the new key
    /// afterwards.
    pub fn rotate(&self, options: &[&str]) -> Done {
        let generation = || {
            let text = fs::read_to_string(self.store.join("warpcrypt.json")).expect("configuration");
            text.lines()
                .find(|line| line.contains("\"key_generation\""))
                .expect("a key generation")
                .to_owned()
        };
        let new = self.key.with_file_name("new-key");
        let content: Vec<u8> =
            fs::read(&self.key).expect("key").iter().map(|byte| byte.wrapping_add(1)).collect();
        fs::write(&new, content).expect("key file");
        let before = generation();
        let done = run(self.rotate_to(&new).args(options), 120);
        if generation() != before {
            fs::rename(&new, &self.key).expect("rename");
        }
        done
    }

    /// A command that gives the vault another master key, with the content of the file `new` as its key.
    pub fn rotate_to(&self, new: &Path) -> Command {
        let mut rotate = Vault::program();
        rotate.args(["key", "rotate"]).arg(&self.store).arg("--key-file").arg(&self.key);
        rotate.arg("--new-key-file").arg(new);
        rotate
    }

    /// The program under test.
    pub fn program() -> Command {
        Command::new(program_path())
    }

    /// The directory that holds the vault, its key, its mount point and its log.
    pub fn place_path(&self) -> &Path {
        self.places[0].path()
    }

    /// Runs `mount` and returns the result. Unless the options name them, `WARPCRYPT_TEST_ENGINE` selects
    /// the engine, `WARPCRYPT_TEST_CACHE` the caching, and `WARPCRYPT_TEST_IO_URING` whether rings are
    /// used.
    pub fn try_mount(&self, options: &[&str]) -> Done {
        let mut command = Vault::program();
        command.arg("mount").arg(&self.store).arg(&self.mount_point).args(options);
        for (option, variable) in [
            ("--engine", "WARPCRYPT_TEST_ENGINE"),
            ("--cache", "WARPCRYPT_TEST_CACHE"),
            ("--io-uring", "WARPCRYPT_TEST_IO_URING"),
        ] {
            // A reverse view accepts none of them.
            let named = options.contains(&option) || options.contains(&"--reverse");
            if let Some(value) = std::env::var_os(variable).filter(|_| !named) {
                command.arg(option).arg(value);
            }
        }
        run(command.arg("--key-file").arg(&self.key).arg("--log-file").arg(&self.log), 60)
    }

    /// Mounts the vault. Panics if that fails.
    pub fn mount(&self) -> Mount<'_> {
        self.mount_with(&[])
    }

    /// As `mount`, with additional options.
    pub fn mount_with(&self, options: &[&str]) -> Mount<'_> {
        let done = self.try_mount(options);
        assert!(
            done.status.success(),
            "mount {options:?}: {}: {}{}",
            done.status,
            done.stderr,
            self.log_text()
        );
        self.mounted(options)
    }

    /// The mount just created by a command with these options.
    pub fn mounted(&self, options: &[&str]) -> Mount<'_> {
        let mount = Mount::new(self, options);
        assert!(is_mounted(&self.mount_point), "mount returned before the mount answers");
        mount
    }

    /// Log of all mounts so far.
    pub fn log_text(&self) -> String {
        fs::read(&self.log).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
    }
}

impl Drop for Vault {
    fn drop(&mut self) {
        release(&self.mount_point);
        if std::thread::panicking() {
            return failure::report(self);
        }
        let log = self.log_text();
        assert!(!log.contains("panicked"), "a mount panicked:\n{log}");
    }
}

/// A mounted vault. Dropping it forces an unmount.
pub struct Mount<'v> {
    /// The vault.
    pub vault: &'v Vault,
    /// The process that serves it.
    pub pid: Pid,
    options: Vec<String>,
    watchdog: Option<(Sender<()>, JoinHandle<()>)>,
}

impl<'v> Mount<'v> {
    fn new(vault: &'v Vault, options: &[&str]) -> Mount<'v> {
        let pid = server_of(&vault.mount_point).expect("no process serves the mount");
        let (stop, stopped) = channel();
        let guard = std::thread::spawn(move || {
            if stopped.recv_timeout(LIFE) == Err(RecvTimeoutError::Timeout) {
                super::say(format_args!("a mount lived longer than {LIFE:?}: killed"));
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        let options = options.iter().map(|o| o.to_string()).collect();
        Mount { vault, pid, options, watchdog: Some((stop, guard)) }
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.vault.mount_point
    }

    /// A path in the mount.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Unmounts as a user would. When this returns, everything is stored.
    ///
    /// A command started by another thread holds copies of this process's open files until it has closed
    /// them all, and closing a file on a busy mount waits for that mount. This mount may be in use for that
    /// long, so the command is retried.
    pub fn unmount(mut self) {
        let until = Instant::now() + Duration::from_secs(60);
        let done = loop {
            let done = run(Vault::program().arg("umount").arg(self.path()), 120);
            if done.code() != IN_USE || Instant::now() > until {
                break done;
            }
        };
        assert!(done.status.success(), "umount: {}: {}", done.status, done.stderr);
        assert!(!is_mounted(self.path()), "umount returned while the mount stands");
        // Everything is stored and the vault is free. Only the process still has to end, which takes a
        // while with a GPU's driver.
        assert!(wait_gone(self.pid, Duration::from_secs(30)), "umount returned while its process works");
        self.end_watch();
    }

    /// Unmounts and mounts again with the same options.
    pub fn remount(self) -> Mount<'v> {
        let vault = self.vault;
        let options = self.options.clone();
        self.unmount();
        vault.mount_with(&options.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Kills the process with SIGKILL and removes the dead mount.
    pub fn kill(mut self) {
        self.kill_server();
        self.end_watch();
        release(self.path());
    }

    /// Kills the process with SIGKILL; the dead mount stays. The process may already have been killed.
    pub fn kill_server(&self) {
        match kill_process(self.pid, Signal::KILL) {
            // Already reaped by init, as is usual.
            Err(Errno::SRCH) => {}
            killed => killed.expect("kill"),
        }
        assert!(wait_gone(self.pid, Duration::from_secs(20)), "a killed process stays");
    }

    /// Whether the process is still alive.
    pub fn alive(&self) -> bool {
        !gone(self.pid)
    }

    fn end_watch(&mut self) {
        if let Some((stop, guard)) = self.watchdog.take() {
            drop(stop);
            let _ = guard.join();
        }
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        if self.watchdog.is_some() {
            release(self.path());
            if !wait_gone(self.pid, Duration::from_secs(3)) {
                let _ = kill_process(self.pid, Signal::KILL);
            }
            self.end_watch();
        }
    }
}

/// Whether something is mounted on `path`.
pub fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    table.lines().any(|line| line.split(' ').nth(1) == path.to_str())
}

/// Removes a mount, dead or alive.
pub fn release(path: &Path) {
    for _ in 0..10 {
        if !is_mounted(path) {
            return;
        }
        let mut command = match rustix::process::geteuid().is_root() {
            true => Command::new("umount"),
            false => Command::new("fusermount3"),
        };
        let flags: &[&str] = if rustix::process::geteuid().is_root() { &["-l"] } else { &["-u", "-z"] };
        run(command.args(flags).arg(path), 30);
    }
}

/// The process of the program under test that serves `mount_point`.
fn server_of(mount_point: &Path) -> Option<Pid> {
    let processes = fs::read_dir("/proc").ok()?;
    let serving = processes.flatten().filter_map(|entry| {
        let number: i32 = entry.file_name().to_str()?.parse().ok()?;
        // Only root can read the path of its executable, so use the command line.
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let program = Path::new(OsStr::from_bytes(line.split(|&b| b == 0).next()?));
        program.file_name()?.to_str()?.starts_with("warpcrypt").then_some(())?;
        line.split(|&b| b == 0).any(|a| a == mount_point.as_os_str().as_encoded_bytes()).then_some(())?;
        let status = fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut fields = status.rsplit(')').next()?.split_whitespace();
        let parent: i32 = fields.nth(1)?.parse().ok()?;
        let started: u64 = fields.nth(17)?.parse().ok()?;
        Some((started, number, parent))
    });
    let serving: Vec<_> = serving.collect();
    // A child started by the server has the server's command line until it executes its own program.
    let child = |parent| serving.iter().any(|&(_, number, _)| number == parent);
    // The server of the previous mount may still be ending.
    Pid::from_raw(serving.iter().filter(|&&(_, _, parent)| !child(parent)).max()?.1)
}

fn gone(pid: Pid) -> bool {
    let process = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let status = fs::read_to_string(process.join("stat")).unwrap_or_default();
    let zombie =
        status.rsplit(')').next().is_none_or(|rest| !rest.trim_start().starts_with(['R', 'S', 'D', 'T']));
    // A zombie's threads may outlive it briefly and hold its files.
    let threads = fs::read_dir(process.join("task")).map_or(0, Iterator::count);
    zombie && threads <= 1
}

fn wait_gone(pid: Pid, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    while !gone(pid) {
        if Instant::now() > end {
            return false;
        }
        sleep(Duration::from_millis(5));
    }
    true
}

/// A temporary directory in memory, if one with room for `bytes` is available. Containers often have
/// little.
pub fn memory(bytes: u64) -> Option<TempDir> {
    let space = rustix::fs::statvfs("/dev/shm").ok()?;
    if space.f_bavail.saturating_mul(space.f_frsize) < bytes {
        return None;
    }
    let place = TempDir::with_prefix_in("warpcrypt-test-", "/dev/shm").ok()?;
    open_to_all(place.path());
    Some(place)
}

/// As `memory`, or in the directory for temporary files if there is no room.
pub fn memory_or_disk(bytes: u64) -> TempDir {
    memory(bytes).unwrap_or_else(|| {
        let place = TempDir::with_prefix("warpcrypt-test-").expect("temporary directory");
        open_to_all(place.path());
        place
    })
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions");
}

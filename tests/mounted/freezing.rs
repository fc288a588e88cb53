//! `freeze` and `thaw`: a copy of the store taken in between is a clean and complete vault.

use crate::support::{
    command::{Done, Running, ok, run},
    disk::Disk,
    fake::Fake,
    mounted::{Mount, Vault, program_path},
    random::Random,
    ready, ready_as_root,
    waiting::{NEVER, wait_for},
};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::{
    fs::{self, File},
    io::{self, Write},
    net::Shutdown,
    os::unix::{
        fs::{FileExt, MetadataExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        mpsc::channel,
    },
    thread,
    time::Duration,
};
use tempfile::TempDir;

const MIB: usize = 1 << 20;

fn freeze(mount: &Mount, options: &[&str], command: &[&str]) -> Done {
    let mut freeze = Vault::program();
    freeze.arg("freeze").args(options).arg(mount.path());
    if !command.is_empty() {
        freeze.arg("--").args(command);
    }
    run(&mut freeze, 60)
}

fn frozen<'v>(vault: &'v Vault, content: &str) -> Mount<'v> {
    let mount = vault.mount();
    fs::write(mount.join("file"), content).expect("write");
    let done = freeze(&mount, &[], &[]);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    mount
}

/// Thaws the mount. If it still serves nothing, kills it, so that waiting programs fail instead of
/// hanging.
fn thaw(mount: &Mount) -> Done {
    let done = run(Vault::program().arg("thaw").arg(mount.path()), 60);
    let mut list = Running::start(Command::new("ls").arg(mount.path()));
    if !list.ends(NEVER) {
        mount.kill_server();
        panic!("nothing is served after a thaw");
    }
    done
}

fn is_frozen(mount: &Mount) -> bool {
    let status = run(Vault::program().arg("stat").arg("--json").arg(mount.path()), 20);
    let text = status.text();
    assert!(text.contains("\"locked\": false"), "{text}");
    text.contains("\"frozen\": true")
}

/// Copies the store into `to`, as a vault with the same key.
fn copied(vault: &Vault, to: &Path) -> PathBuf {
    let copy = to.join("copy");
    let _ = fs::remove_dir_all(&copy);
    ok(Command::new("cp").arg("-a").arg(&vault.store).arg(&copy), 60);
    copy
}

/// Checks every byte of a copy, exports it, and returns the path of the export.
fn checked(vault: &Vault, copy: &Path) -> PathBuf {
    let lock = fs::read(copy.join("warpcrypt.lock")).expect("the lock file");
    let is_done = lock.is_empty() || lock.starts_with(b"rest ");
    assert!(is_done, "the copy's lock file says that a process was killed");
    let found = ok(
        Vault::program().args(["check", "--full", "--json"]).arg(copy).arg("--key-file").arg(&vault.key),
        60,
    );
    assert!(found.contains("\"findings\": []"), "{found}");
    let out = copy.with_file_name("exported");
    let _ = fs::remove_dir_all(&out);
    ok(Vault::program().arg("export").arg(copy).arg(&out).arg("--key-file").arg(&vault.key), 60);
    out
}

/// Contents of every stored file, to detect writes.
fn stored(vault: &Vault) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> =
        crate::support::store::walk(&vault.store).into_iter().filter(|path| path.is_file()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::read(path).expect("read"))).collect()
}

#[test]
fn a_copy_under_load_is_clean_and_has_everything() {
    const ROUNDS: u64 = 3;
    if !ready(&["cp"]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    let place = TempDir::with_prefix("warpcrypt-test-copy-").expect("temporary directory");
    let (stop, logged, big) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        // A log that is never synced, and files that are overwritten, renamed and removed.
        scope.spawn(|| {
            let mut log = File::create(mount.join("log")).expect("create");
            for line in 0.. {
                if stop.load(SeqCst) {
                    return;
                }
                log.write_all(format!("{line:09}\n").as_bytes()).expect("write");
                logged.store(line + 1, SeqCst);
            }
        });
        scope.spawn(|| {
            let mut random = Random::new("places");
            let file = File::create(mount.join("big")).expect("create");
            for round in 0.. {
                if stop.load(SeqCst) {
                    return;
                }
                let bytes = [round as u8; 10_000];
                file.write_all_at(&bytes, random.below(4 * MIB as u64)).expect("write");
                let (new, name) = (mount.join("new"), mount.join(format!("name-{}", round % 7)));
                fs::write(&new, bytes).expect("write");
                fs::rename(&new, &name).expect("rename");
                if round % 3 == 0 {
                    fs::remove_file(&name).expect("remove");
                }
                if round % 16 == 0 {
                    file.sync_all().expect("sync");
                }
                big.store(round + 1, SeqCst);
            }
        });
        for _ in 0..ROUNDS {
            let before = (logged.load(SeqCst), big.load(SeqCst));
            wait_for("load", || logged.load(SeqCst) > before.0 + 50 && big.load(SeqCst) > before.1 + 20);
            let confirmed = logged.load(SeqCst);
            let done = freeze(&mount, &[], &[]);
            assert_eq!(done.code(), 0, "{}", done.stderr);
            let at_freeze = (logged.load(SeqCst), big.load(SeqCst));
            let was = stored(&vault);
            let copy = copied(&vault, place.path());
            assert!(stored(&vault) == was, "something wrote to the store of a frozen vault");
            assert!(at_freeze.0 >= confirmed);
            assert_eq!((logged.load(SeqCst), big.load(SeqCst)), at_freeze, "a program went on");
            assert_eq!(thaw(&mount).code(), 0);
            let out = checked(&vault, &copy);
            let log = fs::read_to_string(out.join("log")).expect("the log");
            // The writer counts a line only once it is written, so the log may have one line more.
            assert!(log.lines().count() as u64 >= at_freeze.0, "what was written before is lost");
            assert!(log.lines().enumerate().all(|(at, line)| line.parse() == Ok(at)));
        }
        stop.store(true, SeqCst);
    });
    mount.unmount();
    assert!(!vault.log_text().contains("ERROR"), "{}", vault.log_text());
}

#[test]
fn what_a_program_changed_in_a_mapping_is_in_the_copy() {
    if !ready(&["cp", "python3"]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    let place = TempDir::with_prefix("warpcrypt-test-copy-").expect("temporary directory");
    fs::write(mount.join("mapped"), vec![b'a'; 100_000]).expect("write");
    let script = "import mmap,sys,time\nf=open(sys.argv[1],'r+b')\nm=mmap.mmap(f.fileno(),0)\n\
                  m[50000:50007]=b'changed'\nopen(sys.argv[2],'w').close()\ntime.sleep(100)\n";
    let done = place.path().join("done");
    let mut program = Command::new("python3");
    program.args(["-c", script]).arg(mount.join("mapped")).arg(&done);
    let mut program = Running::start(&mut program);
    wait_for("the change", || done.exists());
    // Killing the program would block until the thaw if the kernel still had dirty pages to write.
    assert_eq!(freeze(&mount, &["--timeout", "30s"], &[]).code(), 0);
    let copy = copied(&vault, place.path());
    // The program can be killed although it has the file open for writing.
    program.kill();
    assert_eq!(thaw(&mount).code(), 0);
    let bytes = fs::read(checked(&vault, &copy).join("mapped")).expect("read");
    assert_eq!(&bytes[49_999..50_008], b"achangeda");
    mount.unmount();
}

#[test]
fn a_rotation_rests_while_the_vault_is_frozen_and_goes_on() {
    if !ready(&["cp"]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let place = TempDir::with_prefix("warpcrypt-test-copy-").expect("temporary directory");
    let mount = vault.mount();
    let content = Random::new("rotated").bytes(20_000);
    for dir in 0..20 {
        let dir = mount.join(format!("directory {dir}"));
        fs::create_dir(&dir).expect("directory");
        (0..100).for_each(|n| fs::write(dir.join(n.to_string()), &content).expect("write"));
    }
    let is_rotating = || {
        let info = ok(Vault::program().args(["info", "--json"]).arg(&vault.store), 60);
        info.contains("\"key_rotation\": true")
    };
    assert_eq!(vault.rotate(&[]).code(), 0);
    assert_eq!(freeze(&mount, &[], &[]).code(), 0);
    assert!(is_rotating(), "nothing is tried");
    let was = stored(&vault);
    let copy = copied(&vault, place.path());
    thread::sleep(Duration::from_millis(500));
    assert!(stored(&vault) == was, "the rotation went on in a frozen vault");
    assert_eq!(thaw(&mount).code(), 0);
    wait_for("the rotation's end", || !is_rotating());
    let out = checked(&vault, &copy);
    assert!(fs::read(out.join("directory 19/99")).expect("read") == content);
    mount.unmount();
    let out = checked(&vault, &vault.store.clone());
    assert!(fs::read(out.join("directory 0/0")).expect("read") == content);
}

/// A change of names that the kernel has cached, so that it sends no lookup first, waits for the thaw.
fn waits(change: impl Fn(&Path) -> io::Result<()> + Sync) {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    for name in ["file", "other"] {
        fs::write(mount.join(name), name).expect("write");
    }
    let before = names(mount.path());
    assert_eq!(freeze(&mount, &[], &[]).code(), 0);
    let (was, done) = (stored(&vault), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            change(mount.path()).expect("the change");
            done.store(true, SeqCst);
        });
        thread::sleep(Duration::from_millis(300));
        let waited = !done.load(SeqCst) && stored(&vault) == was;
        // `thaw` fails if the vault has already thawed by itself.
        assert_eq!(thaw(&mount).code(), 0);
        assert!(waited, "a name changed in a frozen vault");
    });
    assert_ne!(names(mount.path()), before);
    mount.unmount();
}

/// The names in a directory, with the attributes of each file. Requests all attributes from the kernel.
fn names(dir: &Path) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(dir).expect("list").map(|entry| entry.expect("entry").path());
    let mut names: Vec<_> =
        entries.map(|path| (path.clone(), fs::read_to_string(path).expect("read"))).collect();
    names.sort();
    fs::metadata(dir).expect("attributes");
    names
}

#[test]
fn a_removal_of_a_known_name_waits() {
    waits(|dir| fs::remove_file(dir.join("file")));
}

/// The only kind of rename for which the kernel does not look up the new name first.
#[test]
fn an_exchange_of_known_names_waits() {
    waits(|dir| {
        let [file, other] = ["file", "other"].map(|name| dir.join(name));
        Ok(renameat_with(CWD, &file, CWD, &other, RenameFlags::EXCHANGE)?)
    });
}

#[test]
fn commands_tell_what_is_frozen_and_what_is_not() {
    if !ready(&["cat"]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = frozen(&vault, "content");
    assert!(is_frozen(&mount));
    let info = || ok(Vault::program().arg("info").arg(&vault.store), 60);
    assert!(info().contains(", frozen\n"));
    let again = freeze(&mount, &[], &["true"]);
    assert!(again.code() == 1 && again.stderr.contains("frozen already"), "{}", again.stderr);
    assert!(is_frozen(&mount), "a freeze that failed thawed the vault");
    // A waiting program can be killed; a program that keeps waiting continues after the thaw.
    let mut killed = Running::start(Command::new("cat").arg(mount.join("file")));
    let reader = Running::start(Command::new("cat").arg(mount.join("file")));
    killed.kill();
    assert_eq!(thaw(&mount).code(), 0);
    assert_eq!(reader.finish(NEVER).text(), "content");
    assert!(!is_frozen(&mount) && !info().contains("frozen"));
    let done = thaw(&mount);
    assert!(done.code() == 1 && done.stderr.contains("not frozen"), "{}", done.stderr);
    // `lock` thaws the vault first.
    assert_eq!(freeze(&mount, &[], &[]).code(), 0);
    ok(Vault::program().arg("lock").arg(mount.path()), 60);
    let done = freeze(&mount, &[], &[]);
    assert!(done.code() == 1 && done.stderr.contains("locked"), "{}", done.stderr);
    ok(Vault::program().arg("unlock").arg(mount.path()).arg("--key-file").arg(&vault.key), 60);
    assert_eq!(fs::read_to_string(mount.join("file")).expect("read"), "content");
    mount.unmount();
}

#[test]
fn a_frozen_mount_ends_by_unmount_and_by_kill() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    frozen(&vault, "first").unmount();
    let mount = vault.mount();
    assert_eq!(fs::read_to_string(mount.join("file")).expect("read"), "first");
    mount.unmount();
    frozen(&vault, "second").kill();
    let mount = vault.mount();
    assert_eq!(fs::read_to_string(mount.join("file")).expect("read"), "second");
    // After a thaw, the lock file says again that a process has the vault open.
    assert_eq!(freeze(&mount, &[], &["true"]).code(), 0);
    assert!(fs::read(vault.store.join("warpcrypt.lock")).expect("the lock file").starts_with(b"open "));
    mount.unmount();
}

#[test]
fn a_frozen_vault_thaws_by_itself() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    assert_eq!(freeze(&mount, &["--timeout", "1s"], &[]).code(), 0);
    fs::write(mount.join("file"), "content").expect("write");
    assert_eq!(thaw(&mount).code(), 1);
    // A command that writes to the mount itself resumes after the timeout, and is told that its copy is
    // unusable.
    let path = mount.join("by command");
    let done = freeze(&mount, &["--timeout", "1s"], &["touch", path.to_str().expect("a path")]);
    assert!(done.code() == 1 && done.stderr.contains("may have changed"), "{}", done.stderr);
    assert!(path.exists());
    mount.unmount();
}

/// The mount's process is not notified of the detach. A frozen vault thaws by itself.
#[test]
fn a_frozen_vault_that_others_detached_goes_on_and_ends() {
    if !ready_as_root(&["cat", "umount"]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    fs::write(mount.join("file"), "content").expect("write");
    let file = File::open(mount.join("file")).expect("open");
    assert_eq!(freeze(&mount, &["--timeout", "3s"], &[]).code(), 0);
    ok(Command::new("umount").arg("-l").arg(mount.path()), 60);
    let mut read = [0; 7];
    file.read_exact_at(&mut read, 0).expect("read");
    assert_eq!(&read, b"content");
    drop(file);
    wait_for("the end of the process", || !mount.alive());
    drop(mount);
    let mount = vault.mount();
    // The detached mount ends while frozen.
    assert_eq!(freeze(&mount, &["--timeout", "10m"], &[]).code(), 0);
    ok(Command::new("umount").arg("-l").arg(mount.path()), 60);
    wait_for("the end of the process", || !mount.alive());
    drop(mount);
    assert_eq!(fs::read(vault.store.join("warpcrypt.lock")).expect("the lock file"), b"");
}

/// As if `freeze` was killed while data was being flushed.
#[test]
fn a_freeze_whose_answer_nobody_takes_thaws() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    let minor = rustix::fs::minor(fs::metadata(mount.path()).expect("stat").dev());
    let mut stream = UnixStream::connect(format!("/run/warpcrypt/mount-0:{minor}")).expect("connect");
    // The answer can no longer be delivered; the request itself is sent completely.
    stream.shutdown(Shutdown::Read).expect("shut down");
    stream.write_all(&[&[1, 6][..], &600_u64.to_le_bytes()].concat()).expect("write");
    drop(stream);
    assert!(!is_frozen(&mount));
    fs::write(mount.join("file"), "content").expect("write");
    assert!(vault.log_text().contains("frozen"), "it was not frozen at all");
    mount.unmount();
}

#[test]
fn a_command_hears_that_another_freeze_stands_at_its_end() {
    if !ready(&["sh"]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    let [started, end] = ["started", "end"].map(|name| vault.place_path().join(name));
    let mut first = Vault::program();
    first.args(["freeze", "--timeout", "1s"]).arg(mount.path()).args(["--", "sh", "-c"]);
    first.args(["touch $0; until [ -e $1 ]; do sleep 0.1; done"]).args([&started, &end]);
    let first = Running::start(&mut first);
    wait_for("the command", || started.exists());
    wait_for("the thaw", || !is_frozen(&mount));
    assert_eq!(freeze(&mount, &[], &[]).code(), 0);
    fs::write(end, "").expect("write");
    let done = first.finish(NEVER);
    assert!(done.code() == 1 && done.stderr.contains("may have changed"), "{}", done.stderr);
    assert!(is_frozen(&mount), "the thaw of another freeze");
    assert_eq!(thaw(&mount).code(), 0);
    mount.unmount();
}

#[test]
fn a_command_runs_while_it_is_frozen() {
    if !ready(&["sh"]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    let program = program_path();
    let script = format!("{} info {} | grep frozen; exit 7", program.display(), vault.store.display());
    let done = freeze(&mount, &[], &["sh", "-c", &script]);
    assert!(done.code() == 7 && done.text().contains("frozen"), "{}", done.stderr);
    assert_eq!(freeze(&mount, &[], &["sh", "-c", "kill -9 $$"]).code(), 128 + 9);
    assert_eq!(freeze(&mount, &[], &["/no/such/program"]).code(), 1);
    assert!(!is_frozen(&mount));
    // A signal thaws the vault although the command is blocked on the mount.
    let started = vault.place_path().join("started");
    let script = format!("touch {}; touch {}", started.display(), mount.join("file").display());
    let mut command = Vault::program();
    command.arg("freeze").arg(mount.path()).args(["--", "sh", "-c", &script]);
    let running = Running::start(&mut command);
    wait_for("the command", || started.exists());
    ok(Command::new("kill").args(["-INT", &running.pid().to_string()]), 20);
    assert_eq!(running.finish(NEVER).code(), 130);
    assert!(!is_frozen(&mount));
    mount.unmount();
}

/// The answer arrives after the signal, as from a mount with a lot of data to flush.
#[test]
fn an_interrupt_while_everything_is_stored_starts_no_command() {
    if !ready_as_root(&["touch"]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let (to, from) = channel::<u32>();
    let from = Mutex::new(from);
    let fake = Fake::new(&vault.store, 0, move |command| match command[1] {
        // The request to sync mapped files: nothing to do.
        4 => "locked".into(),
        6 => {
            let process = from.lock().unwrap().recv().expect("a process");
            ok(Command::new("kill").args(["-INT", &process.to_string()]), 20);
            "7".into()
        }
        // Allow enough time for a command to have run, if one was started.
        7 => {
            thread::sleep(Duration::from_millis(500));
            String::new()
        }
        _ => String::new(),
    });
    let started = vault.place_path().join("started");
    let mut freeze = Vault::program();
    freeze.arg("freeze").arg(fake.path()).args(["--", "touch"]).arg(&started);
    let running = Running::start(&mut freeze);
    to.send(running.pid()).expect("the fake listens");
    let done = running.finish(NEVER);
    assert_eq!(done.code(), 130, "{}", done.stderr);
    assert!(!started.exists(), "the command ran");
    assert_eq!(fake.heard().last(), Some(&[&[1, 7][..], &7_u64.to_le_bytes()].concat()), "no thaw");
}

#[test]
fn what_cannot_be_stored_keeps_a_vault_from_being_frozen() {
    // Large enough that a write reserves no space in advance.
    const SIZE: &str = "128m";
    if !ready_as_root(&["mount"]) {
        return;
    }
    let store = Disk::new(SIZE);
    let vault = Vault::at(&store.0.path().join("vault"), "aes-256-ctr");
    let mount = vault.mount();
    let path = mount.join("file");
    let bytes = Random::new("full").bytes(3 * MIB);
    let file = store.write_unstored(SIZE, &vault, &path, &bytes);
    let done = freeze(&mount, &[], &["true"]);
    assert!(done.code() == 1 && done.stderr.contains("space"), "{}", done.stderr);
    assert!(!is_frozen(&mount));
    assert!(fs::read(&path).expect("read") == bytes);
    store.resize(SIZE).expect("resize");
    assert_eq!(freeze(&mount, &[], &["true"]).code(), 0);
    file.write_all_at(b"after", 0).expect("write");
    file.sync_all().expect("sync");
    drop(file);
    let mount = mount.remount();
    assert!(fs::read(&path).expect("read") == [b"after", &bytes[5..]].concat());
    mount.unmount();
}

/// A program could neither close the file nor be killed until the thaw, because of data in the kernel's
/// write-back cache.
#[test]
fn with_write_back_a_freeze_waits_for_no_writer() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount_with(&["--cache", "write-back"]);
    let mut file = File::create(mount.join("file")).expect("create");
    file.write_all(b"written").expect("write");
    let done = freeze(&mount, &[], &["true"]);
    assert!(done.code() == 1 && done.stderr.contains("open for writing"), "{}", done.stderr);
    drop(file);
    // The kernel sends the release after close has returned.
    wait_for("the file to be closed", || freeze(&mount, &[], &["true"]).code() == 0);
    mount.unmount();
}

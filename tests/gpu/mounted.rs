//! A mounted vault with `--engine gpu`, over the fake driver.

use crate::{
    fake::{self, order, processes_of},
    real,
    support::{
        command::{ok, run, sh},
        is_proof,
        mounted::{Vault, memory_or_disk},
        random::Random,
        ready, say, setting,
        waiting::wait_for,
    },
};
use rustix::process::{Signal, kill_process, test_kill_process};
use std::{
    fs,
    io::Read,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::sleep,
    time::{Duration, Instant},
};

#[test]
fn a_mount_over_the_gpu() {
    if ready(&["cp", "cmp"]) {
        fake::run_here("mounted::over_fake_copies", &[], 400);
    }
}

#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_copies() {
    for cipher in ["aes-256-ctr", "kuznyechik-ctr"] {
        let vault = Vault::in_memory(cipher);
        let place = tempfile::tempdir().expect("directory");
        let file = place.path().join("file");
        fs::write(&file, Random::new(cipher).bytes((700 << 10) + 777)).expect("file");
        let mount = vault.mount_with(&["--engine", "gpu"]);
        let copy = "cp \"$1\" \"$2/a\"; sync \"$2/a\"; cmp \"$1\" \"$2/a\"";
        sh("/", copy, &[&file, mount.path()], 120);
        let mount = mount.remount();
        sh("/", "cmp \"$1\" \"$2/a\"", &[&file, mount.path()], 120);
        let gpu = gpu_of(mount.path());
        assert!(gpu["name"] == "gpu 0" && gpu["chunks"].as_u64() >= Some(16), "{gpu}");
        mount.unmount();
        let log = vault.log_text();
        assert!(log.contains("engine: Fake GPU"), "{log}");
        // Written through the first mount, read through the second.
        let done: Vec<u64> = log.split("gpu 0: processed ").skip(1).map(number).collect();
        assert!(done.len() == 2 && done.iter().all(|batches| *batches > 0), "{log}");
        // The CPU reads what the GPU wrote.
        let mount = vault.mount_with(&["--engine", "cpu"]);
        sh("/", "cmp \"$1\" \"$2/a\"", &[&file, mount.path()], 120);
        mount.unmount();
    }
}

#[test]
fn a_command_without_a_mount_has_its_gpu_started() {
    if ready(&[]) {
        fake::run_here("mounted::over_fake_reads_without_a_mount", &[], 120);
    }
}

#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_reads_without_a_mount() {
    let vault = Vault::in_memory("aes-256-ctr");
    let content = Random::new("content").bytes(1 << 20);
    let mount = vault.mount_with(&["--engine", "cpu"]);
    fs::write(mount.join("file"), &content).expect("a file");
    mount.unmount();
    let mut command = Vault::program();
    command.arg("cat").arg(&vault.store).arg("file").arg("--key-file").arg(&vault.key);
    // It blocks until its output is read, and spawns nothing else itself.
    let mut cat = command.stdout(Stdio::piped()).spawn().expect("cat");
    wait_for("the process of its GPU", || !processes_of(cat.id()).is_empty());
    let gpus = processes_of(cat.id());
    let mut read = Vec::new();
    cat.stdout.take().expect("a pipe").read_to_end(&mut read).expect("its output");
    assert!(cat.wait().expect("cat").success() && read == content);
    for gpu in gpus {
        wait_for("it ends", || test_kill_process(gpu).is_err());
    }
}

fn number(text: &str) -> u64 {
    text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number")
}

#[test]
fn a_mount_measures_what_it_needs() {
    if ready(&["cp", "cmp"]) {
        fake::run_here("mounted::over_fake_measures", &[], 400);
    }
}

/// The fake device is slower than any CPU, so it is measured, only with the functions that the mount
/// uses, and then not used.
#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_measures() {
    let vault = Vault::in_memory("kuznyechik-ctr");
    let place = tempfile::tempdir().expect("directory");
    let file = place.path().join("file");
    fs::write(&file, Random::new("measured").bytes(700 << 10)).expect("file");
    let mount = vault.mount_with(&["--engine", "auto"]);
    let end = Instant::now() + Duration::from_secs(100);
    while vault.log_text().matches("is faster than the idle CPU").count() < 2 {
        assert!(Instant::now() < end, "not measured:\n{}", vault.log_text());
        let copy =
            "cp \"$1\" \"$2/a\"; sync \"$2/a\"; dd if=\"$2/a\" of=/dev/null bs=1M iflag=direct 2>/dev/null
            cmp \"$1\" \"$2/a\"; rm \"$2/a\"";
        sh("/", copy, &[&file, mount.path()], 120);
    }
    mount.unmount();
    let log = vault.log_text();
    for operation in ["seal", "open"] {
        let line = format!(
            "engine: {operation} kuznyechik-ctr turboshake128x4: gpu 0 is faster than the idle CPU never"
        );
        assert_eq!(log.matches(&line).count(), 1, "{log}");
    }
    assert!(!log.contains("aes"), "{log}");
}

#[test]
fn a_mount_uses_what_another_measured() {
    if ready(&["cp", "sync"]) {
        fake::run_here("mounted::over_fake_measures_once", &[], 400);
    }
}

/// The second mount gets a record in which the device is faster than it is. Only a mount that uses the
/// record gives the device a batch, since measuring again would show that the CPU is faster.
#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_measures_once() {
    let vault = Vault::in_memory("aes-256-ctr");
    // A mount makes no such directory for a GPU that PCI does not list.
    let cache = PathBuf::from(std::env::var_os("XDG_CACHE_HOME").expect("a cache"));
    let records = cache.join("warpcrypt/engines.json");
    fs::DirBuilder::new().mode(0o700).create(cache.join("warpcrypt")).expect("directory");
    let file = vault.place_path().join("content");
    fs::write(&file, Random::new("record").bytes(700 << 10)).expect("file");
    let write =
        |mount: &Path| sh("/", "cp \"$1\" \"$2/a\"; sync \"$2/a\"; rm \"$2/a\"", &[&file, mount], 120);
    let measured = || vault.log_text().matches("is faster than the idle CPU").count();
    let mount = vault.mount_with(&["--engine", "auto"]);
    wait_for("both directions are measured", || {
        write(mount.path());
        measured() == 2
    });
    mount.unmount();
    let mut kept: serde_json::Value =
        serde_json::from_slice(&fs::read(&records).expect("records")).expect("JSON");
    let gpu =
        kept.as_array_mut().expect("a list").iter_mut().find(|kept| kept["key"]["engine"] == "Fake GPU");
    let curves = gpu.expect("a record of the GPU")["profile"]["curves"].as_array_mut().expect("a list");
    for point in curves.iter_mut().filter_map(|curve| curve.get_mut("points")?.as_array_mut()).flatten() {
        point[1] = 1.into();
    }
    fs::write(&records, kept.to_string()).expect("records");
    let mount = vault.mount_with(&["--engine", "auto"]);
    wait_for("the GPU gets a batch", || {
        write(mount.path());
        gpu_of(mount.path())["batches"].as_u64() > Some(0)
    });
    mount.unmount();
    assert_eq!(measured(), 2, "{}", vault.log_text());
}

#[test]
fn a_mount_survives_its_gpu() {
    if ready(&["cp", "cmp"]) {
        fake::run_here("mounted::over_fake_fails_under_a_mount", &[], 400);
    }
}

#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_fails_under_a_mount() {
    let vault = Vault::in_memory("aes-256-ctr");
    let place = tempfile::tempdir().expect("directory");
    let file = place.path().join("file");
    fs::write(&file, Random::new("mount").bytes(200 << 10)).expect("file");
    let mount = vault.mount_with(&["--engine", "gpu"]);
    let copies = "for n in 1 2 3 4; do cp \"$1\" \"$2/$n\" && sync \"$2/$n\" & done; wait
        for n in 1 2 3 4; do cmp \"$1\" \"$2/$n\"; done";
    for (number, fault) in ["error", "lost", "wrong", "hang"].into_iter().enumerate() {
        order("cuLaunchKernel:3", fault);
        sh("/", copies, &[&file, mount.path()], 150);
        await_line(&vault, "the CPU works in its place", number + 1);
        await_line(&vault, "in service again", number + 1);
    }
    order("none", "none");
    let mount = mount.remount();
    sh("/", "for n in 1 2 3 4; do cmp \"$1\" \"$2/$n\"; done", &[&file, mount.path()], 120);
    mount.unmount();
}

fn await_line(vault: &Vault, line: &str, times: usize) {
    let end = Instant::now() + Duration::from_secs(60);
    while vault.log_text().matches(line).count() < times {
        assert!(Instant::now() < end, "{times} times {line:?}:\n{}", vault.log_text());
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_mount_survives_injected_faults() {
    if let Some(driver) = fake::driver()
        && ready(&["cp", "cmp"])
    {
        let faulty = fake::faulty(&driver.join("libcuda.so.1"));
        for fault in FAULTS.into_iter().take(if is_proof() { FAULTS.len() } else { 1 }) {
            let variables = [("FAULT", fault), ("FILE_BYTES", "300000")];
            fake::run_over(faulty.path(), "mounted::over_fake_faults_are_injected", &variables, 400);
        }
    }
}

/// As above on a real device, with files of 256 MiB on a tmpfs.
#[test]
fn a_mount_survives_faults_injected_into_a_real_gpu() {
    if real::ready() && ready(&["cp", "cmp", "g++"]) {
        let faulty = fake::faulty(&real::driver());
        for fault in FAULTS {
            let variables = [("FAULT", fault), ("FILE_BYTES", "268435456"), FIRST_DEVICE];
            say(fake::run_over(faulty.path(), "mounted::over_fake_faults_are_injected", &variables, 400));
        }
    }
}

/// Makes the driver expose only this device; another one would take over the work of one that fails.
const FIRST_DEVICE: (&str, &str) = ("CUDA_VISIBLE_DEVICES", "0");

/// The faults that can be injected into a launch.
const FAULTS: [&str; 2] = ["fault", "refuse"];

/// Sixteen streams are written and then read back while the device fails repeatedly.
#[test]
#[ignore = "runs over the fake driver, or where it is told to on a real one"]
fn over_fake_faults_are_injected() {
    let bytes = setting("FILE_BYTES").unwrap_or(300_000);
    let fault = std::env::var("FAULT").expect("a fault");
    let vault = Vault::in_memory_of("aes-256-ctr", 17 * bytes + (1 << 30));
    let place = memory_or_disk(bytes);
    let file = place.path().join("file");
    fs::write(&file, Random::new("faults").bytes(bytes as usize)).expect("file");
    let streams = |each: &str, mount: &Path| {
        let all = format!(
            "pids=; for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do ({each}) & pids=\"$pids $!\"; done
            for p in $pids; do wait $p || exit 1; done"
        );
        sh("/", &all, &[&file, mount], 150);
    };
    let (write, compare) = ("cp \"$1\" \"$2/$n\" && sync \"$2/$n\"", "cmp \"$1\" \"$2/$n\"");
    let faults = Faults { vault: &vault, fault: &fault };
    let mount = vault.mount_with(&["--engine", "gpu"]);
    faults.during(2, || streams(write, mount.path()));
    // The last fault may only just have occurred.
    let end = Instant::now() + Duration::from_secs(60);
    while gpu_of(mount.path())["in_service"] != true && Instant::now() < end {
        sleep(Duration::from_millis(100));
    }
    let gpu = gpu_of(mount.path());
    assert!(gpu["in_service"] == true && gpu["failed"].as_u64() > Some(1), "{gpu}");
    let mount = mount.remount();
    // With the kernel's cache, only the first read reaches the mount.
    let read = "cp \"$1\" \"$2/$n\" && sync \"$2/$n\" && dd if=\"$2/$n\" bs=1M iflag=direct 2>/dev/null | cmp \"$1\"";
    streams(compare, mount.path());
    faults.during(1, || streams(read, mount.path()));
    let mount = mount.remount();
    streams(compare, mount.path());
    mount.unmount();
    let injected = vault.log_text().matches(BACK).count();
    say(format_args!("{injected} faults ({fault}), and no byte was wrong:\n{}", gpu_lines(&vault)));
}

/// Logged when a device is back in service.
const BACK: &str = "in service again";

/// Injects faults into a vault's mount.
struct Faults<'a> {
    vault: &'a Vault,
    fault: &'a str,
}

impl Faults<'_> {
    /// Repeats `work`, injecting a fault whenever the device is in service, until the device has come
    /// back `times` times.
    fn during(&self, times: usize, work: impl Fn()) {
        let back = || self.vault.log_text().matches(BACK).count();
        let (before, stop) = (back(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for injected in 0..times {
                    while back() < before + injected && !stop.load(Relaxed) {
                        sleep(Duration::from_millis(10));
                    }
                    // Let some batches succeed in between.
                    sleep(Duration::from_millis(50));
                    fake::inject(self.fault);
                }
            });
            let end = Instant::now() + Duration::from_secs(120);
            while back() < before + times && Instant::now() < end {
                work();
            }
            stop.store(true, Relaxed);
        });
        assert!(back() >= before + times, "{times} faults:\n{}", self.vault.log_text());
    }
}

/// The numbers that `stat` reports for the first GPU.
fn gpu_of(mount: &Path) -> serde_json::Value {
    engines_of(mount)[1].clone()
}

/// The numbers that `stat` reports for the CPU and the GPUs.
fn engines_of(mount: &Path) -> serde_json::Value {
    let numbers = ok(Vault::program().arg("stat").arg(mount).arg("--json"), 60);
    let numbers: serde_json::Value = serde_json::from_str(&numbers).expect("JSON");
    numbers["engines"].clone()
}

#[test]
fn a_mount_survives_the_process_of_its_gpu() {
    if ready(&["cp", "cmp"]) {
        fake::run_here("mounted::over_fake_process_is_hit", &[("FILE_BYTES", "300000")], 400);
    }
}

/// As below, on a real device.
#[test]
fn a_mount_survives_the_process_of_a_real_gpu() {
    if real::ready() && ready(&["cp", "cmp"]) {
        let variables = [("FILE_BYTES", "268435456"), FIRST_DEVICE];
        say(fake::run_real("mounted::over_fake_process_is_hit", &variables, 400));
    }
}

/// The process is killed, stopped, and killed again while four streams are written and read.
#[test]
#[ignore = "runs over the fake driver, or where it is told to on a real one"]
fn over_fake_process_is_hit() {
    let bytes = setting("FILE_BYTES").unwrap_or(300_000);
    let vault = Vault::in_memory_of("aes-256-ctr", 5 * bytes + (1 << 30));
    let place = memory_or_disk(bytes);
    let file = place.path().join("file");
    fs::write(&file, Random::new("process").bytes(bytes as usize)).expect("file");
    let mount = vault.mount_with(&["--engine", "gpu"]);
    let server = mount.pid.as_raw_nonzero().get() as u32;
    let copies = "for n in 1 2 3 4; do cp \"$1\" \"$2/$n\" && sync \"$2/$n\" & done; wait
        for n in 1 2 3 4; do cmp \"$1\" \"$2/$n\" || exit 1; done";
    for (number, signal) in [Signal::KILL, Signal::STOP, Signal::KILL].into_iter().enumerate() {
        let [process] = processes_of(server)[..] else { panic!("one process") };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(Duration::from_millis(50 * number as u64));
                kill_process(process, signal).expect("it is there");
            });
            sh("/", copies, &[&file, mount.path()], 150);
        });
        // If the signal came after the last batch, the next batch detects it.
        sh("/", copies, &[&file, mount.path()], 150);
        await_line(&vault, "the CPU works in its place", number + 1);
        await_line(&vault, "in service again", number + 1);
        assert_eq!(gpu_of(mount.path())["in_service"], true);
    }
    let before = gpu_of(mount.path())["batches"].as_u64();
    sh("/", copies, &[&file, mount.path()], 150);
    assert!(gpu_of(mount.path())["batches"].as_u64() > before, "it is back and does nothing");
    let process = processes_of(server)[0];
    let mount = mount.remount();
    assert!(!Path::new(&format!("/proc/{}", process.as_raw_nonzero())).exists(), "a process is left");
    sh("/", "for n in 1 2 3 4; do cmp \"$1\" \"$2/$n\" || exit 1; done", &[&file, mount.path()], 120);
    mount.unmount();
    say(gpu_lines(&vault));
}

#[test]
fn a_mount_goes_on_with_its_other_gpu() {
    if ready(&["cp", "cmp"]) {
        let variables = [("FAKE_CUDA_DEVICES", "2"), ("FILE_BYTES", "300000"), ("STREAMS", "4")];
        fake::run_here("mounted::over_fake_one_of_two_is_hit", &variables, 400);
    }
}

/// As below, on real devices, if there are two.
#[test]
fn a_mount_goes_on_with_its_other_real_gpu() {
    if real::several() && ready(&["cp", "cmp"]) {
        say(fake::run_real(
            "mounted::over_fake_one_of_two_is_hit",
            &[("FILE_BYTES", "268435456"), ("STREAMS", "16")],
            400,
        ));
    }
}

/// Both devices work on batches of `STREAMS` streams. One's process is killed: the other continues, and
/// later both work again.
#[test]
#[ignore = "runs over the fake driver, or where it is told to on real ones"]
fn over_fake_one_of_two_is_hit() {
    let bytes = setting("FILE_BYTES").unwrap_or(300_000);
    let vault = Vault::in_memory_of("aes-256-ctr", 17 * bytes + (1 << 30));
    let place = memory_or_disk(bytes);
    let file = place.path().join("file");
    fs::write(&file, Random::new("two").bytes(bytes as usize)).expect("file");
    let mount = vault.mount_with(&["--engine", "gpu"]);
    let streams = std::env::var("STREAMS").expect("a number");
    let each = "n=0; pids=; while [ $n -lt $3 ]; do n=$((n+1))
            (cp \"$1\" \"$2/$n\" && sync \"$2/$n\" && cmp \"$1\" \"$2/$n\") & pids=\"$pids $!\"; done
        for p in $pids; do wait $p || exit 1; done";
    let copies = || sh("/", each, &[&file, mount.path(), Path::new(&streams)], 150);
    let batches =
        || [1, 2].map(|gpu: usize| engines_of(mount.path())[gpu]["batches"].as_u64().expect("a count"));
    let both_work = || {
        let before = batches();
        let grown = || batches().iter().zip(before).all(|(now, before)| *now > before);
        assert!((0..20).any(|_| {
            copies();
            grown()
        }));
    };
    both_work();
    let processes = processes_of(mount.pid.as_raw_nonzero().get() as u32);
    assert_eq!(processes.len(), 2);
    std::thread::scope(|scope| {
        scope.spawn(copies);
        sleep(Duration::from_millis(50));
        kill_process(processes[0], Signal::KILL).expect("it is there");
    });
    // If the kill came after its last batch, a later batch detects it.
    for _ in 0..20 {
        if vault.log_text().contains("the CPU works in its place") {
            break;
        }
        copies();
    }
    await_line(&vault, "in service again", 1);
    let in_service = |gpu: usize| engines_of(mount.path())[gpu]["in_service"] == true;
    assert!(in_service(1) && in_service(2));
    // On a busy machine, the fake device may exceed its deadline.
    if std::env::var_os("FAKE_CUDA_DEVICES").is_none() {
        let failed = vault.log_text().matches("the CPU works in its place").count();
        assert_eq!(failed, 1, "the other one was not hit");
    }
    both_work();
    say(engines_of(mount.path()));
    let mount = mount.remount();
    sh("/", "for n in 1 2 3 4; do cmp \"$1\" \"$2/$n\" || exit 1; done", &[&file, mount.path()], 120);
    mount.unmount();
    say(gpu_lines(&vault));
}

fn gpu_lines(vault: &Vault) -> String {
    vault
        .log_text()
        .lines()
        .filter(|line| line.contains("gpu"))
        .fold(String::new(), |all, line| all + line + "\n")
}

#[test]
fn the_devices_are_shown_and_measured_once() {
    fake::run_here("mounted::over_fake_shows_devices", &[], 900);
}

#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_shows_devices() {
    let devices = |json: bool| {
        let mut command = Vault::program();
        command.arg("devices").args(json.then_some("--json"));
        ok(&mut command, 400)
    };
    let text = devices(false);
    assert!(text.contains("Fake GPU, driver for CUDA 13.0") && text.contains("kuznyechik-ctr"), "{text}");
    // The second run reads the stored measurements, so the numbers are identical.
    let (first, second) = (devices(true), devices(true));
    assert_eq!(first, second);
    let value: serde_json::Value = serde_json::from_str(&first).expect("JSON");
    assert_eq!(value["engines"][1]["measured"].as_array().map(Vec::len), Some(24));
    assert!(value["engines"][1]["measured"][0]["gpu"][0]["nanoseconds"].as_u64() > Some(0));
    let mut command = Vault::program();
    let done = run(command.args(["devices", "--json"]).env("FAKE_CUDA_DEVICES", "0"), 60);
    let value: serde_json::Value = serde_json::from_str(&done.text()).expect("JSON");
    assert_eq!(value["engines"][1]["reason"], "the NVIDIA driver knows no device");
}

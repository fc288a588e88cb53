//! Real crashes: the process that serves a mount is killed while programs work in it, and power fails at
//! any moment in the sequence of writes to the store's disk. The store is on ext4, XFS and btrfs in
//! turn. Everything that fsync confirmed must be present, and nothing that no program wrote.
//!
//! By default this runs only a few crashes. `KILLS` and `CUTS` set the total numbers, `KILLS_ON`
//! restricts the run to one filesystem, and `KILLS_OUT` names a directory for the results table.
//! `KILLS_BESIDE=gocryptfs,store` also runs gocryptfs, and shows the effect of power cuts on the store's
//! own filesystem.

mod blocks;
mod disk;
mod history;
mod load;
mod table;
mod vault;

use crate::support::{
    command::{Running, ok, run},
    random::Random,
    ready_as_root, say, setting, skip,
    store::walk,
    waiting::wait_for,
};
use blocks::{Log, Unit};
use disk::{Disk, FILESYSTEMS};
use history::{Clock, Crash};
use load::Work;
use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::Ordering,
    thread::{self, sleep},
    time::{Duration, Instant},
};
use table::{Kind, Tally, markdown};
use vault::{Program, Vault, bound};

const TEST: &str = "kills::what_was_confirmed_survives_kills_and_power_cuts";

/// Set for the process that does the work: its directory.
const PLACE: &str = "KILLS_PLACE";

/// Set for the process that serves a disk: the disk's directory.
const SERVE: &str = "KILLS_SERVE";

/// Power cuts generated from one block log.
const CUTS_OF_A_LOG: usize = 12;

/// Maximum length of a block log in bytes.
const LONGEST_LOG: u64 = 300 << 20;

#[test]
fn what_was_confirmed_survives_kills_and_power_cuts() {
    if let Some(place) = env::var_os(SERVE).map(PathBuf::from) {
        let [image, log, at] = ["image", "blocks", "disk"].map(|name| place.join(name));
        blocks::serve(&image, &log, &at).expect("serve the disk");
    } else if let Some(place) = env::var_os(PLACE).map(PathBuf::from) {
        work(&place);
    } else if ready() {
        let _alone = crate::alone();
        // A private mount namespace removes the mounts and loop devices however the process ends.
        let place = tempfile::TempDir::with_prefix("warpcrypt-kills-").expect("directory");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "setpriv", "--pdeathsig", "KILL"]);
        let status = again(&mut command).env(PLACE, place.path()).status().expect("unshare");
        assert!(status.success(), "see above");
    }
}

fn ready() -> bool {
    let programs = ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "mount", "losetup", "unshare", "setpriv"];
    if !ready_as_root(&programs) {
        return false;
    }
    let known = |name: &str| {
        let list = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        list.split_whitespace().any(|word| word == name)
            || run(Command::new("sh").args(["-c", "modprobe \"$0\"", name]), 30).status.success()
    };
    let missing = FILESYSTEMS.iter().map(|(name, _)| *name).find(|name| !known(name));
    if let Some(name) = missing {
        return skip(format!("the kernel has no {name}"));
    }
    run(Command::new("losetup").arg("-f"), 30).status.success() || skip("needs loop devices".into())
}

/// Makes a command run this test again.
fn again(command: &mut Command) -> &mut Command {
    command.arg(env::current_exe().expect("this program")).args(["--exact", TEST, "--nocapture"])
}

fn work(place: &Path) {
    ok(Command::new("mount").args(["-t", "tmpfs", "-o", "size=50%", "tmpfs"]).arg(place), 30);
    let mut random = Random::new("kills");
    let [kills, cuts] = [("KILLS", 18), ("CUTS", 18)].map(|(name, few)| setting(name).unwrap_or(few));
    let beside: String = setting("KILLS_BESIDE").unwrap_or_default();
    let wanted = |p: &Program| *p == Program::Warpcrypt || beside.split(',').any(|name| name == p.name());
    let programs: Vec<Program> = Program::ALL.into_iter().filter(wanted).collect();
    let only: Option<String> = setting("KILLS_ON");
    let filesystems: Vec<&str> = FILESYSTEMS.iter().map(|(name, _)| *name).collect();
    let filesystems: Vec<&str> =
        filesystems.into_iter().filter(|name| only.as_ref().is_none_or(|only| only == name)).collect();
    let [kills, cuts] = [kills, cuts].map(|count: usize| count.div_ceil(filesystems.len()));
    give_up_after(Duration::from_secs(120 + 20 * ((kills + cuts) * programs.len()) as u64));
    let rows: Vec<Tally> = thread::scope(|scope| {
        let threads: Vec<_> = filesystems
            .into_iter()
            .map(|filesystem| {
                let mut random = Random::from_seed(random.next());
                let place = place.join(filesystem);
                let programs = &programs;
                scope.spawn(move || {
                    let of = |program: &Program| {
                        let mut ground = Ground::new(*program, filesystem, &place, &mut random);
                        // The bare store has no server process to kill.
                        let kills = (*program != Program::Store).then(|| ground.kills(kills));
                        kills.into_iter().chain([ground.cuts(cuts)])
                    };
                    programs.iter().flat_map(of).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|t| t.join().expect("a filesystem")).collect()
    });
    report(rows);
}

/// Ends the process after `limit`, in case something hangs.
fn give_up_after(limit: Duration) {
    thread::spawn(move || {
        sleep(limit);
        say(format_args!("not done after {limit:?}"));
        std::process::abort();
    });
}

fn report(mut rows: Vec<Tally>) {
    let order = |row: &Tally| Program::ALL.iter().position(|p| p.name() == row.program);
    rows.sort_by_key(|row| (order(row), row.crashes == "cuts"));
    for row in &rows {
        row.details.iter().for_each(|what| say(format_args!("{}, {}: {what}", row.program, row.filesystem)));
    }
    let table = markdown(&rows);
    say(&table);
    if let Some(out) = env::var_os("KILLS_OUT").map(PathBuf::from) {
        fs::create_dir_all(&out).expect("KILLS_OUT");
        fs::write(out.join("kills.md"), table).expect("the table");
        fs::write(out.join("kills.json"), serde_json::to_vec_pretty(&rows).expect("JSON"))
            .expect("the table");
    }
    let ours = rows.iter().filter(|row| row.program == Program::Warpcrypt.name());
    let faults: u64 = ours.map(Tally::fault_count).sum();
    assert!(faults == 0, "{faults} faults");
}

/// The setup that one program is tested on.
struct Ground<'a> {
    program: Program,
    filesystem: &'a str,
    place: PathBuf,
    image: PathBuf,
    store: PathBuf,
    random: &'a mut Random,
}

impl<'a> Ground<'a> {
    fn new(program: Program, filesystem: &'a str, place: &Path, random: &'a mut Random) -> Ground<'a> {
        let place = place.join(program.name());
        let [image, store] = ["image", "store"].map(|name| place.join(name));
        fs::create_dir_all(&store).expect("directory");
        Ground { program, filesystem, place, image, store, random }
    }

    fn settle(works: &mut [Box<dyn Work>], crash: &Crash, goes_on: bool, tally: &mut Tally) {
        works.iter_mut().for_each(|work| work.settle(crash, goes_on, tally));
    }

    /// Mounts the vault; an error counts as a fault.
    fn mount(&self, vault: &Vault, options: &[&str], tally: &mut Tally) -> Option<vault::Mount> {
        let mount = vault.mount(options);
        mount.map_err(|said| tally.fault(Kind::Refused, 0, format!("it does not mount: {said}"))).ok()
    }

    /// Random mount options. Excludes the relaxed durability mode for power cuts, where it promises
    /// less.
    fn options(&mut self, power: bool) -> &'static [&'static str] {
        const ALL: [&[&str]; 6] = [
            &[],
            &[],
            &["--cache", "direct"],
            &["--cache", "kernel"],
            &["--cache", "write-back"],
            &["--durability", "relaxed"],
        ];
        let all = if power { &ALL[..5] } else { &ALL };
        if self.program == Program::Warpcrypt { self.random.one_of::<&[&str]>(all) } else { &[] }
    }

    fn kills(&mut self, count: usize) -> Tally {
        let mut tally = Tally::new(self.program.name(), self.filesystem, "kills");
        let start = Instant::now();
        disk::make(self.filesystem, &self.image);
        let _disk = Disk::mount(self.filesystem, &self.image, &self.store).expect("mount the store");
        let vault = Vault::make(self.program, &self.store, &self.place);
        let mut works = {
            let mount = vault.mount(&[]).expect("mount");
            fs::create_dir(vault.work()).expect("directory");
            let works = load::all(&vault.work(), self.random, &Clock(None)).expect("directories");
            mount.unmount().expect("unmount");
            works
        };
        let mut faults = 0;
        for _ in 0..count {
            let options = self.options(false);
            let Some(mount) = self.mount(&vault, options, &mut tally) else { break };
            if self.random.once_in(8) {
                self.kill_while_reading(mount, &vault);
            } else {
                Ground::settle(&mut works, &Crash::KILL, true, &mut tally);
                self.kill_at_work(mount, &mut works, &mut tally);
            }
            tally.bad += u64::from(tally.fault_count() > faults);
            faults = tally.fault_count();
            tally.count += 1;
        }
        for _ in 0..2 {
            if let Some(mount) = self.mount(&vault, &[], &mut tally) {
                Ground::settle(&mut works, &Crash::KILL, true, &mut tally);
                let unmounted = mount.unmount();
                unmounted.unwrap_or_else(|said| tally.fault(Kind::Refused, 0, format!("umount: {said}")));
            }
        }
        tally.bad += u64::from(tally.fault_count() > faults);
        tally.seconds = start.elapsed().as_secs_f64();
        tally
    }

    /// Kills the process while it recovers from an earlier kill.
    fn kill_while_reading(&mut self, mut mount: vault::Mount, vault: &Vault) {
        let pause = Duration::from_micros(self.random.below(40_000));
        thread::scope(|scope| {
            scope.spawn(|| {
                // Errors are expected: the mount dies during this loop.
                for dir in fs::read_dir(vault.work()).into_iter().flatten().flatten() {
                    for file in fs::read_dir(dir.path()).into_iter().flatten().flatten() {
                        let _ = fs::read(file.path());
                    }
                }
            });
            sleep(pause);
            mount.kill();
        });
    }

    /// Kills the process while the programs work, or while it is being unmounted under them.
    fn kill_at_work(&mut self, mut mount: vault::Mount, works: &mut [Box<dyn Work>], tally: &mut Tally) {
        // Files become clean after three seconds.
        let longest = *self.random.one_of(&[60, 60, 600, 600, 600, 600, 600, 600, 600, 600, 5_000]);
        let pause = Duration::from_millis(5 + self.random.below(longest));
        let unmounting = self.random.once_in(8).then(|| self.random.below(40_000));
        let refused = load::drive(works, |over| {
            sleep(pause);
            over.store(true, Ordering::Release);
            if unmounting.is_none() {
                mount.kill();
            }
        });
        refused.into_iter().for_each(|said| tally.fault(Kind::Refused, 0, said));
        if let Some(micros) = unmounting {
            let unmounting = Running::start(&mut mount.unmounting());
            sleep(Duration::from_micros(micros));
            mount.kill();
            drop(unmounting);
        }
    }

    fn cuts(&mut self, count: usize) -> Tally {
        let mut tally = Tally::new(self.program.name(), self.filesystem, "cuts");
        let start = Instant::now();
        while (tally.count as usize) < count {
            let few = CUTS_OF_A_LOG.min(count - tally.count as usize);
            self.cuts_of_a_log(few, &mut tally);
        }
        tally.seconds = start.elapsed().as_secs_f64();
        tally
    }

    fn cuts_of_a_log(&mut self, count: usize, tally: &mut Tally) {
        let [base, log, served] = ["base", "blocks", "disk"].map(|name| self.place.join(name));
        disk::make(self.filesystem, &self.image);
        disk::copy(&self.image, &base);
        for path in [&log, &served] {
            File::create(path).expect("file");
        }
        let clock = Clock(Some(log.clone()));
        let program = env::current_exe().expect("this program");
        let mut server = bound(program);
        server.args(["--exact", TEST, "--nocapture"]).env(SERVE, &self.place);
        let server = Running::start(&mut server);
        while fs::metadata(&served).expect("the disk").len() == 0 {
            sleep(Duration::from_millis(2));
        }
        let disk = Disk::mount(self.filesystem, &served, &self.store).expect("mount the store");
        let vault = Vault::make(self.program, &self.store, &self.place);
        let mount = vault.mount(self.options(true)).expect("mount");
        fs::create_dir(vault.work()).expect("directory");
        let mut works = load::all(&vault.work(), self.random, &clock).expect("directories");
        ok(Command::new("sync").arg("-f").arg(&self.store), 60);
        let from = clock.now();
        let end = Instant::now() + Duration::from_millis(300 + self.random.below(1_500));
        let refused = load::drive(&mut works, |over| {
            while Instant::now() < end && clock.now() < LONGEST_LOG {
                // Start writing some of the data to the disk before anything requests it.
                let mut files = walk(&self.store);
                files.retain(|_| self.random.once_in(6));
                disk.hurry(&files);
                sleep(Duration::from_millis(self.random.below(30)));
            }
            over.store(true, Ordering::Release);
        });
        refused.into_iter().for_each(|said| tally.fault(Kind::Refused, 0, said));
        if self.random.once_in(4) {
            // Files become clean during this time.
            sleep(Duration::from_secs(5));
        }
        if self.random.once_in(2) {
            mount.unmount().unwrap_or_else(|said| tally.fault(Kind::Refused, 0, said));
        } else {
            drop(mount);
        }
        drop(disk);
        // A program that looks through all block devices, such as udev, may have the loop device open.
        wait_for("the served disk is free", || run(Command::new("umount").arg(&served), 60).status.success());
        server.finish(Duration::from_secs(60));
        let mut log = Log::read(&log, &base);
        for moment in log.moments(from, count, self.random) {
            let faults = tally.fault_count();
            tally.count += 1;
            self.cut(&mut log, moment, &mut works, tally);
            tally.bad += u64::from(tally.fault_count() > faults);
        }
    }

    /// Cuts power at one moment and compares what remains.
    fn cut(&mut self, log: &mut Log, moment: usize, works: &mut [Box<dyn Work>], tally: &mut Tally) {
        let unit = *self.random.one_of(&[Unit::Write, Unit::Write, Unit::Page, Unit::Sector]);
        let crash = Crash { at: log.time(moment), torn: unit == Unit::Sector };
        log.image(moment, unit, self.random, &self.image).expect("an image");
        let disk = Disk::mount(self.filesystem, &self.image, &self.store).or_else(|_| {
            tally.no_store += 1;
            log.image(moment, Unit::Write, self.random, &self.image).expect("an image");
            Disk::mount(self.filesystem, &self.image, &self.store)
        });
        let Ok(_disk) = disk else { return };
        let vault = Vault::at(self.program, &self.store, &self.place);
        let Some(mount) = self.mount(&vault, &[], tally) else { return };
        let faults = tally.fault_count();
        Ground::settle(works, &crash, false, tally);
        // Recovered data must stay intact.
        if tally.fault_count() == faults && self.random.once_in(3) {
            mount.unmount().unwrap_or_else(|said| tally.fault(Kind::Refused, 0, said));
            let Some(_mount) = self.mount(&vault, &[], tally) else { return };
            Ground::settle(works, &crash, false, tally);
        }
    }
}

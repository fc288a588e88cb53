//! `bench mount`: compares the mounted filesystem with the underlying one, with a filesystem without
//! encryption, and with every installed peer. They take turns, repeatedly, within one run.

mod book;
mod contender;
mod growth;
mod live;
mod load;
pub mod ramdisk;
mod random;
mod small;
mod streams;
mod usage;

use super::{ReportArgs, deliver};
use crate::{progress::steps_bar, report::Report};
use book::Book;
use clap::{Args, ValueEnum};
use contender::Contender;
use indicatif::ProgressBar;
use live::Live;
use small::Archive;
use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};
use warpcrypt::cli::lab::{Code, Failure, Interrupt, Outcome, fuse_available};

/// Arguments of `bench mount`.
#[derive(Debug, Args)]
pub struct MountBenchArgs {
    /// Directory to work in, best on a RAM disk: the disk should not be what is measured
    pub dir: PathBuf,
    /// How often everything is measured; the medians count
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Little data and few files: to see that it works, not how fast
    #[arg(long)]
    pub quick: bool,
    /// What to measure
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Group::USUAL)]
    pub groups: Vec<Group>,
    /// Compare only these filesystems; without it all usual ones that are installed
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub only: Vec<String>,
    /// Another build of warpcrypt, which takes part as "warpcrypt before"
    #[arg(long, value_name = "PROGRAM")]
    pub before: Option<PathBuf>,
    /// Bytes that a single stream writes, in MiB; each of 4 writes half of it, each of 16 a quarter
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub size: u64,
    /// Seconds that one phase may last, at most [default: 10 for streams, 2 for random access]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: Option<u64>,
    /// Small files to unpack
    #[arg(long, default_value_t = 21_000)]
    pub files: usize,
    /// sizes: the largest file, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub largest: u64,
    /// counts: the most files in a directory
    #[arg(long, default_value_t = 100_000)]
    pub most: u64,
    /// Where the report goes.
    #[command(flatten)]
    pub report: ReportArgs,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum Group {
    /// 1, 4 and 16 sequential streams of 1 MiB requests
    Streams,
    /// Random 4 KiB
    Random,
    /// A tree of small files: unpack, checksum, list, remove
    Small,
    /// Files of 1 KiB and more
    Sizes,
    /// Directories of 1 to many files
    Counts,
}

impl Group {
    const USUAL: [Group; 3] = [Group::Streams, Group::Random, Group::Small];

    fn title(self) -> &'static str {
        match self {
            Group::Streams => "Streams",
            Group::Random => "Random access",
            Group::Small => "Small files",
            Group::Sizes => "Cost by size of the file",
            Group::Counts => "Cost by number of files",
        }
    }

    /// Its parts, each of which gets a separate mount.
    fn parts(self) -> Vec<Part> {
        match self {
            Group::Streams => [1, 4, 16].map(Part::Streams).to_vec(),
            Group::Random => vec![Part::Random],
            Group::Small => vec![Part::Small],
            Group::Sizes => vec![Part::Sizes],
            Group::Counts => vec![Part::Counts],
        }
    }
}

/// Title of the separate section for resource usage.
const COST: &str = "Processor time and memory of the mount's processes";

#[derive(Debug, Clone, Copy)]
enum Part {
    Streams(usize),
    Random,
    Small,
    Sizes,
    Counts,
}

/// Amounts and limits of the load.
pub struct Context {
    /// Pause after the first mount of every filesystem. Deriving the key from a password would take as
    /// long, but key files avoid that. GPUs are opened during the pause.
    settle: Duration,
    /// Bytes per stream when there is only one.
    size: u64,
    /// Maximum duration of a phase of streams.
    limit: Duration,
    /// Bytes of the file for random access; a power of two.
    random_size: u64,
    /// Maximum duration of a phase of random access.
    random_limit: Duration,
    /// Bytes of the largest file.
    largest: u64,
    /// Maximum number of files in a directory.
    most: u64,
    /// Check that the data read is the data written.
    verify: bool,
    interrupt: Interrupt,
}

impl Context {
    fn new(args: &MountBenchArgs, interrupt: Interrupt) -> Self {
        let quick = |usual, quick| if args.quick { quick } else { usual };
        let usual = Context::usual(args.quick, args.largest, interrupt);
        let seconds = |usual| args.seconds.map_or(usual, Duration::from_secs);
        Context {
            size: quick(args.size.saturating_mul(1 << 20), 64 << 20),
            most: quick(args.most, 1000),
            limit: seconds(usual.limit),
            random_limit: seconds(usual.random_limit),
            ..usual
        }
    }

    /// `largest`: MiB of the largest file, unless `is_quick`.
    fn usual(is_quick: bool, largest: u64, interrupt: Interrupt) -> Self {
        let quick = |usual, quick| if is_quick { quick } else { usual };
        Context {
            settle: Duration::from_millis(quick(500, 0)),
            size: 64 << 20,
            limit: Duration::from_secs(quick(10, 2)),
            random_size: quick(512 << 20, 32 << 20),
            random_limit: Duration::from_millis(quick(2000, 200)),
            largest: quick(largest.saturating_mul(1 << 20), 4 << 20),
            most: 1000,
            verify: true,
            interrupt,
        }
    }
}

/// A folder that is removed on drop.
pub struct Folder(pub PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs `bench mount`.
pub fn run(args: &MountBenchArgs) -> Outcome {
    fuse_available()?;
    let interrupt = Interrupt::watch()?;
    let dir = args.dir.canonicalize().map_err(|e| Failure::io(args.dir.display(), &e))?;
    let mut contenders = Contender::all(&dir, args.before.as_deref());
    if let Some(unknown) = args.only.iter().find(|name| !contenders.iter().any(|c| c.name == **name)) {
        let known: Vec<&str> = contenders.iter().map(|c| c.name.as_str()).collect();
        let known = format!("Here there are: {}.", known.join(", "));
        return Err(Failure::new(Code::Usage, format!("no filesystem is called `{unknown}`"), known));
    }
    contenders.retain(|c| if args.only.is_empty() { c.is_usual } else { args.only.contains(&c.name) });
    let mut bench = Bench::new(contenders, &dir, Context::new(args, interrupt))?;
    if args.groups.contains(&Group::Small) {
        bench.archive = Some(Archive::make(&bench.folder.0, if args.quick { 300 } else { args.files })?);
    }
    bench.measure(args.runs as usize, &args.groups)?;
    let mut report = Report::new("mount", "warpcrypt beside other filesystems");
    report.colours(contender::NAMES);
    let several = "medians; the mark on a bar goes from the lowest to the highest";
    report.about("runs", if args.runs == 1 { "1".to_owned() } else { format!("{}, {several}", args.runs) });
    if args.groups.contains(&Group::Streams) {
        report.about(
        "streams",
        format!("{} MiB of one, half as much of each of 4, a quarter of each of 16; 1 MiB at once, fsync included", bench.context.size >> 20),
    );
    }
    bench.finish(&mut report);
    deliver(&report, &args.report)
}

struct Bench {
    contenders: Vec<Contender>,
    book: Book,
    context: Context,
    archive: Option<Archive>,
    failures: Vec<(String, String)>,
    folder: Folder,
}

impl Bench {
    /// Works in a new folder below `dir`.
    ///
    /// # Errors
    /// If the folder cannot be created.
    fn new(contenders: Vec<Contender>, dir: &Path, context: Context) -> Outcome<Self> {
        let folder = Folder(dir.join(format!("warpcrypt-bench-{}", std::process::id())));
        fs::create_dir(&folder.0).map_err(|e| Failure::io(folder.0.display(), &e))?;
        let book = Book::new(contenders.iter().map(|c| c.name.clone()).collect());
        Ok(Bench { contenders, book, context, archive: None, failures: Vec::new(), folder })
    }

    /// Adds the measurements and the failures to the report.
    fn finish(&self, report: &mut Report) {
        self.failures.iter().for_each(|(who, why)| report.about(who, format!("failed: {why}")));
        self.book.report(report);
    }

    /// Runs each part with every contender before the next part, and repeats this `runs` times, each time
    /// beginning with another contender.
    fn measure(&mut self, runs: usize, groups: &[Group]) -> Outcome {
        let parts: Vec<(Group, Part)> =
            groups.iter().flat_map(|group| group.parts().into_iter().map(|part| (*group, part))).collect();
        let count = self.contenders.len();
        let bar = steps_bar(runs * parts.len() * count);
        for run in 0..runs {
            for &(group, part) in &parts {
                for turn in 0..count {
                    self.turn((run + turn) % count, group, part, &bar)?;
                    bar.inc(1);
                }
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Runs one part with one contender. A contender that fails is recorded and skipped from then on.
    fn turn(&mut self, place: usize, group: Group, part: Part, bar: &ProgressBar) -> Outcome {
        let contender = self.contenders[place].clone();
        if self.failures.iter().any(|(who, _)| *who == contender.name) {
            return Ok(());
        }
        bar.set_message(format!("{}: {}", group.title(), contender.name));
        let done = self.part(place, group, part);
        self.context.interrupt.check()?;
        if let Err(failure) = done {
            bar.suspend(|| eprintln!("warpcrypt: {}: {}", contender.name, failure.message));
            self.failures.push((contender.name.clone(), failure.message));
        }
        Ok(())
    }

    fn part(&mut self, place: usize, group: Group, part: Part) -> Outcome {
        let contender = self.contenders[place].clone();
        self.context.verify = contender.keeps_data();
        let mut live = Live::start(&contender, &self.folder.0)?;
        let Bench { book, context, archive, .. } = self;
        thread::sleep(context.settle);
        let title = group.title();
        let mut bar = |name: &str, unit: &str, value: f64| {
            let title = if matches!(unit, "s/GB" | "µs each" | "MiB") { COST } else { title };
            book.put(place, title, name, unit, None, value);
        };
        match part {
            Part::Streams(streams) => streams::run(context, &mut live, streams, &mut bar)?,
            Part::Random => random::run(context, &mut live, &mut bar)?,
            // A filesystem without data would not differ from the pass-through here.
            Part::Small | Part::Sizes | Part::Counts if !context.verify => {}
            Part::Small => {
                if let Some(archive) = archive {
                    small::run(context, &mut live, archive, &mut bar)?;
                }
            }
            Part::Sizes | Part::Counts => {
                let mut point = |name: &str, unit: &str, at: f64, value: f64| {
                    book.put(place, title, name, unit, Some(at), value);
                };
                let measure = if matches!(part, Part::Sizes) { growth::sizes } else { growth::counts };
                measure(context, &mut live, &mut point)?;
            }
        }
        live.unmount()
    }
}

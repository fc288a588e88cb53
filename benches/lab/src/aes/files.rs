//! `bench files`: whole random files on a RAM disk, encrypted and decrypted in ECB and CTR mode with every
//! key size. Only the kernels are used, without a filesystem. This is what the project of 2010 set out to
//! measure.

use super::{BLOCK, CIPHERS, COUNTER, KEY, KIB, MIB, MODES, THREADS, device::Device};
use crate::{
    deliver,
    experiment::{Bench, ExperimentArgs, Journeys, compare, failed, noise},
    mount::Folder,
    report::{Axis, Column, Plot, Report, Section, Spread, Table},
};
use clap::Args;
use crypto::cipher::{Cipher, CipherKey};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    thread,
    time::Instant,
};
use warpcrypt::cli::lab::{Failure, Outcome};

/// Arguments of `bench files`.
#[derive(Debug, Args)]
pub struct FilesArgs {
    /// Directory on a RAM disk to work in, with room for two files of the largest size
    #[arg(default_value = "/dev/shm")]
    dir: PathBuf,
    /// The largest file, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 8192)]
    largest: usize,
    #[command(flatten)]
    experiment: ExperimentArgs,
}

/// Files are read, encrypted and written in pieces of this many bytes.
const PIECE: usize = 256 * MIB;
/// The fastest kernel.
const KERNEL: &str = "spread";
/// Files up to this many bytes are measured three times, larger ones once.
const OFTEN: usize = 1024 * MIB;
/// Number of bytes at the start and at the end that are compared with the portable implementation.
const CHECKED: usize = 64 * KIB;

/// The timed steps. On the CPU there is no upload or download.
const STEPS: [&str; 5] = ["read", "upload", "cipher", "download", "write"];
type Steps = [f64; STEPS.len()];

/// Runs `bench files`.
///
/// # Errors
/// If a file cannot be read or written, the driver fails, or the output is wrong.
pub fn run(args: &FilesArgs) -> Outcome {
    let mut report = Report::new("files", "AES: whole files on a RAM disk");
    report.about(
        "paper",
        "S. Waloschek and others, AES on a GeForce 8800 (2010): random files on a RAM disk; no figures",
    );
    let bench = Bench::start(&args.experiment, &mut report)?;
    let most = if bench.quick { 8 * MIB } else { args.largest * MIB };
    let dir = args.dir.canonicalize().map_err(|e| Failure::io(args.dir.display(), &e))?;
    let folder = Folder(dir.join(format!("warpcrypt-files-{}", std::process::id())));
    fs::create_dir(&folder.0).map_err(|e| Failure::io(folder.0.display(), &e))?;
    let piece = PIECE.min(most);
    let device = bench.gpu().map(|lab| Device::open(&bench, lab, piece)).transpose()?;
    let sizes: Vec<usize> =
        [1, 8, 64, 512, 8192].map(|size| size * MIB).into_iter().filter(|s| *s <= most).collect();
    report.section(by_size(&bench, device.as_ref(), &folder.0, &sizes, piece)?);
    drop(bench);
    deliver(&report, &args.experiment.report)
}

fn by_size(
    bench: &Bench,
    device: Option<&Device>,
    folder: &Path,
    sizes: &[usize],
    piece: usize,
) -> Outcome<Section> {
    let title = "Files by size";
    let mut columns = vec![Column::text("engine"), Column::text("mode"), Column::number("key", "bit")];
    columns.push(Column::number("file", "B"));
    columns.extend(STEPS.map(|step| Column::number(step, "ms")));
    columns.push(Column::number("rate", "GB/s"));
    let mut table = Table::new("size", columns);
    let mut plot = Plot::lines("AES-128 by size", Axis::bytes("file"), Axis::log("rate", "GB/s"));
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    let mut hands: Vec<Hand> = vec![Hand::Cpu(bench.cores, vec![0; piece])];
    if let Some(device) = device {
        hands.insert(0, Hand::Gpu(device, Journeys::new(device.lab, piece)?));
    }
    for bytes in sizes {
        let files = Files::make(folder, *bytes).map_err(|e| Failure::io(folder.display(), &e))?;
        for hand in &mut hands {
            // The CPU's largest files are measured with one key size only: the others are in between.
            let most = if *bytes > OFTEN && matches!(hand, Hand::Cpu(..)) { 1 } else { CIPHERS.len() };
            for cipher in &CIPHERS[..most] {
                let cipher = *cipher;
                for (mode, shown) in MODES {
                    let name = hand.name();
                    bench.next(&format!("{name}, {mode}, {cipher:?}, {} MiB", bytes / MIB))?;
                    let runs = if *bytes <= OFTEN { 3 } else { 1 };
                    let mut times: [Vec<f64>; STEPS.len()] = Default::default();
                    for _ in 0..runs {
                        let steps = hand.file(&files, mode, cipher, piece)?;
                        times.iter_mut().zip(steps).for_each(|(all, step)| all.push(step));
                    }
                    files.check(mode, cipher)?;
                    let medians = times.map(|all| Spread::of(&all).map_or(f64::NAN, |spread| spread.median));
                    let rate = *bytes as f64 / 1e9 / medians.iter().sum::<f64>();
                    let head = [name.into(), shown.into(), (8 * cipher.key_len()).into(), (*bytes).into()];
                    let cells = medians.map(|seconds| (seconds * 1e3).into());
                    table.row(head.into_iter().chain(cells).chain([rate.into()]));
                    if cipher == CIPHERS[0] {
                        let line = format!("{name}, {shown}");
                        match lines.iter_mut().find(|(known, _)| *known == line) {
                            Some((_, points)) => points.push((*bytes as f64, rate)),
                            None => lines.push((line, vec![(*bytes as f64, rate)])),
                        }
                    }
                }
            }
        }
    }
    for (name, line) in lines {
        plot = plot.line(&name, line);
    }
    let text = "A file is read, goes up, is encrypted or decrypted, comes down and is written over another file of its size: one step \
                after the other, in pieces of 256 MiB at most, through page-locked memory. The CPU's cipher runs on all \
                cores. Medians of three; of files above 1 GiB a single run. Both ends of every result were equal to the \
                portable implementation's.";
    Ok(Section::new(title).text(text).plot(plot).table(table))
}

/// An input file and an output file.
struct Files {
    from: File,
    to: File,
    bytes: usize,
}

impl Files {
    /// Creates new files in the folder, replacing the previous ones.
    fn make(folder: &Path, bytes: usize) -> io::Result<Self> {
        let content = noise(bytes.min(16 * MIB));
        let open = |name: &str| {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create(true).truncate(true).open(folder.join(name))?;
            (0..bytes).step_by(content.len()).try_for_each(|at| file.write_all_at(&content, at as u64))?;
            Ok::<_, io::Error>(file)
        };
        Ok(Files { from: open("from")?, to: open("to")?, bytes })
    }

    /// Fails if the start or the end differs from the portable implementation's output.
    fn check(&self, mode: &str, cipher: Cipher) -> Outcome {
        let key = CipherKey::new(cipher, &KEY[..cipher.key_len()]);
        for at in [0, self.bytes - CHECKED] {
            let (mut expected, mut found) = (vec![0; CHECKED], vec![0; CHECKED]);
            let read = |file: &File, to: &mut [u8]| file.read_exact_at(to, at as u64);
            read(&self.from, &mut expected).and_then(|()| read(&self.to, &mut found)).map_err(lost)?;
            apply(&key, mode, at / BLOCK, &mut expected);
            compare("bench files", &found, &expected)?;
        }
        Ok(())
    }
}

fn lost(error: io::Error) -> Failure {
    Failure::io("a file of bench files", &error)
}

/// The counter for this block of the file.
fn counter(block: usize) -> [u8; 16] {
    (u128::from_be_bytes(COUNTER) + block as u128).to_be_bytes()
}

/// Applies a mode on the CPU, to data that begins at this block of the file.
fn apply(key: &CipherKey, mode: &str, block: usize, data: &mut [u8]) {
    match mode {
        "ctr" => key.ctr_in_place(&counter(block), data),
        "encrypt" => key.ecb_encrypt(data),
        _ => key.ecb_decrypt(data),
    }
}

/// The engine that encrypts.
enum Hand<'a> {
    Gpu(&'a Device<'a>, Journeys),
    Cpu(usize, Vec<u8>),
}

impl Hand<'_> {
    fn name(&self) -> &'static str {
        match self {
            Hand::Gpu(..) => "GPU",
            Hand::Cpu(..) => "CPU, all cores",
        }
    }

    /// Seconds for each step over the whole file.
    fn file(&mut self, files: &Files, mode: &str, cipher: Cipher, piece: usize) -> Outcome<Steps> {
        let mut sums = Steps::default();
        for at in (0..files.bytes).step_by(piece) {
            let len = piece.min(files.bytes - at);
            let steps = match self {
                Hand::Gpu(device, journeys) => {
                    gpu_piece(device, journeys.memory(true, len), files, (mode, cipher), at)?
                }
                Hand::Cpu(cores, memory) => cpu_piece(*cores, &mut memory[..len], files, (mode, cipher), at)?,
            };
            sums.iter_mut().zip(steps).for_each(|(sum, step)| *sum += step);
        }
        Ok(sums)
    }
}

/// Seconds since the previous call.
fn lap(start: &mut Instant) -> f64 {
    let seconds = start.elapsed().as_secs_f64();
    *start = Instant::now();
    seconds
}

fn gpu_piece(
    device: &Device,
    [plain, sealed]: [&mut [u8]; 2],
    files: &Files,
    (mode, cipher): (&str, Cipher),
    at: usize,
) -> Outcome<Steps> {
    let (lab, len, mut steps) = (device.lab, plain.len(), Steps::default());
    lab.upload(&counter(at / BLOCK), &device.counter).map_err(failed)?;
    device.with((KERNEL, mode), cipher, (THREADS, len), |launch| {
        let mut start = Instant::now();
        files.from.read_exact_at(plain, at as u64).map_err(lost)?;
        steps[0] = lap(&mut start);
        lab.upload(plain, &device.input).map_err(failed)?;
        steps[1] = lap(&mut start);
        lab.launch(launch).and_then(|()| lab.wait()).map_err(failed)?;
        steps[2] = lap(&mut start);
        lab.download(&device.output, sealed).map_err(failed)?;
        steps[3] = lap(&mut start);
        files.to.write_all_at(sealed, at as u64).map_err(lost)?;
        steps[4] = lap(&mut start);
        Ok(Some(()))
    })?;
    Ok(steps)
}

fn cpu_piece(
    cores: usize,
    data: &mut [u8],
    files: &Files,
    (mode, cipher): (&str, Cipher),
    at: usize,
) -> Outcome<Steps> {
    let key = CipherKey::new(cipher, &KEY[..cipher.key_len()]);
    let mut steps = Steps::default();
    let mut start = Instant::now();
    files.from.read_exact_at(data, at as u64).map_err(lost)?;
    steps[0] = lap(&mut start);
    let share = data.len().div_ceil(cores).next_multiple_of(BLOCK);
    thread::scope(|scope| {
        for (number, part) in data.chunks_mut(share).enumerate() {
            let key = &key;
            scope.spawn(move || apply(key, mode, (at + number * share) / BLOCK, part));
        }
    });
    steps[2] = lap(&mut start);
    files.to.write_all_at(data, at as u64).map_err(lost)?;
    steps[4] = lap(&mut start);
    Ok(steps)
}

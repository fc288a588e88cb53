//! Programs that run kernels, built from the C++ sources next to this file, and the pipes to them. Also
//! used by the tests of the laboratory.

use std::{
    io::{BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::OnceLock,
};
use tempfile::TempDir;

/// One parameter of an entry point.
pub enum Argument {
    Number(u64),
    Buffer(Vec<u8>),
    /// Reuses the buffer of the argument with this index.
    Same(u64),
}

/// Launch geometry: blocks, threads per block, bytes of dynamic shared memory.
#[derive(Clone, Copy)]
pub struct Geometry {
    pub blocks: u32,
    pub threads: u32,
    pub shared: u32,
}

/// A machine that kernels run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    Cpu,
    /// The CPU with an OS thread for each CUDA thread, under the thread sanitizer.
    Threads,
    Gpu,
}

/// A running program.
pub struct Runner {
    child: Child,
    jobs: Option<ChildStdin>,
    results: BufReader<ChildStdout>,
}

/// The directory that contains `kernels` and `tests`: the package's, or an ancestor.
pub fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from);
    let root = package.ancestors().find(|folder| folder.join("tests/kernels/jobs.h").exists());
    root.unwrap_or(&package).to_owned()
}

fn required(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "1")
}

/// Prints why a machine's tests are skipped. With `variable` set to 1, that is a failure.
pub fn skip(variable: &str, why: &str) {
    assert!(!required(variable), "{variable}=1, but {why}");
    println!("SKIPPED: {why}");
}

/// Builds `source`, a path relative to the root. `None` if there is no g++.
pub fn build(source: &str, flags: &[&str], program: PathBuf) -> Option<PathBuf> {
    let built = Command::new("g++")
        .args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"])
        // The fortified longjmp rejects jumps between the stacks of fibers.
        .args(["-U_FORTIFY_SOURCE", "-Ikernels", "-Itests/kernels", "-o"])
        .arg(&program)
        .args(flags)
        .args([source, "-ldl"])
        .current_dir(root())
        .status();
    match built {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        status => {
            assert!(status.expect("g++ starts").success(), "g++ builds {source}");
            Some(program)
        }
    }
}

/// The programs for the available machines, built once.
fn programs() -> &'static [(Machine, PathBuf)] {
    static PROGRAMS: OnceLock<(TempDir, Vec<(Machine, PathBuf)>)> = OnceLock::new();
    let (_, programs) = PROGRAMS.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut programs = Vec::new();
        match build("tests/kernels/on_cpu.cc", &[], folder.path().join("on_cpu")) {
            None => skip("REQUIRE_GXX", "no g++: the kernels are not run on the CPU"),
            Some(program) => programs.push((Machine::Cpu, program)),
        }
        match build("tests/kernels/on_gpu.cc", &[], folder.path().join("on_gpu")) {
            None => skip("REQUIRE_GPU", "no g++: the kernels are not run on a GPU"),
            Some(program) => {
                let probe = command(&program).stdin(Stdio::null()).output().expect("the runner starts");
                if probe.status.code() == Some(77) {
                    let why = String::from_utf8_lossy(&probe.stderr).trim().to_owned();
                    skip("REQUIRE_GPU", &format!("no GPU: {why}"));
                } else {
                    assert!(probe.status.success(), "{}", String::from_utf8_lossy(&probe.stderr));
                    programs.push((Machine::Gpu, program));
                }
            }
        }
        (folder, programs)
    });
    programs
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["warpcrypt", "hash"].map(|name| root().join(format!("kernels/{name}.fatbin"))));
    command
}

/// Starts a program on every available machine and fills the tables. OS threads are excluded because
/// they are slow.
pub fn runners() -> Vec<(Machine, Runner)> {
    programs().iter().map(|(machine, program)| (*machine, start(command(program)))).collect()
}

/// A runner on OS threads, whose program is built once. A data race ends it with a report on standard
/// error.
pub fn on_threads() -> Option<Runner> {
    static PROGRAM: OnceLock<Option<(TempDir, PathBuf)>> = OnceLock::new();
    let built = PROGRAM.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let flags = ["-O1", "-g", "-fsanitize=thread", "-pthread", "-DCUDA_ON_THREADS"];
        let program = build("tests/kernels/on_cpu.cc", &flags, folder.path().join("on_threads"))?;
        Some((folder, program))
    });
    let Some((_, program)) = built else {
        skip("REQUIRE_GXX", "no g++: the kernels are not searched for races");
        return None;
    };
    // Older versions of the sanitizer do not start with full address space randomisation.
    let mut fixed = Command::new("setarch");
    fixed.args([std::env::consts::ARCH, "-R"]).arg(program).env("TSAN_OPTIONS", "halt_on_error=1");
    Some(start(fixed))
}

/// Starts a program and fills the tables.
pub fn start(mut command: Command) -> Runner {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the runner starts");
    let jobs = child.stdin.take();
    let results = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut runner = Runner { child, jobs, results };
    runner.run("kuznyechik_tables", Geometry { blocks: 192, threads: 64, shared: 0 }, vec![]);
    runner
}

impl Runner {
    /// Launches an entry point and returns the resulting buffers, in order.
    pub fn run(&mut self, name: &str, geometry: Geometry, arguments: Vec<Argument>) -> Vec<Vec<u8>> {
        let mut job = Vec::new();
        job.extend((name.len() as u32).to_le_bytes());
        job.extend(name.as_bytes());
        for number in [geometry.blocks, geometry.threads, geometry.shared, arguments.len() as u32] {
            job.extend(number.to_le_bytes());
        }
        let mut lengths = Vec::new();
        for argument in arguments {
            let (kind, number, bytes) = match argument {
                Argument::Number(number) => (0u32, number, vec![]),
                Argument::Buffer(bytes) => (1, bytes.len() as u64, bytes),
                Argument::Same(place) => (2, place, vec![]),
            };
            job.extend(kind.to_le_bytes());
            job.extend(number.to_le_bytes());
            job.extend(&bytes);
            if kind == 1 {
                lengths.push(bytes.len());
            }
        }
        let pipe = self.jobs.as_mut().expect("open until the runner is dropped");
        pipe.write_all(&job).and_then(|()| pipe.flush()).expect("the runner takes the job");
        let read = |len| {
            let mut bytes = vec![0; len];
            self.results
                .read_exact(&mut bytes)
                .unwrap_or_else(|error| panic!("no result of {name}: {error}"));
            bytes
        };
        lengths.into_iter().map(read).collect()
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let status = self.child.wait().expect("the runner ends");
        assert!(std::thread::panicking() || status.success(), "the runner failed");
    }
}

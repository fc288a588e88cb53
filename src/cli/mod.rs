//! Commands, progress, exit codes: what a person or a script sees. Decides nothing about files or keys.

mod args;
mod bench;
mod daemon;
mod descriptors;
mod devices;
mod exit;
mod generate;
mod gpu_worker;
mod hashing;
mod info;
mod init;
mod keys;
mod log;
mod mount;
mod mounts;
mod options;
mod password;
mod progress;
mod session;
mod signals;
mod stat;
mod trial;
mod umount;
mod vaults;

use crate::engine;
use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use exit::{Code, Failure, Outcome};
use std::{
    env,
    ffi::{CStr, OsString},
    io::{self, Write},
    process::ExitCode,
};

/// What the laboratory, `benches/lab`, shares with the program. It is for nobody else, and changes without notice.
#[doc(hidden)]
pub mod lab {
    pub use super::{
        begin,
        exit::{Code, Failure, Outcome},
        generate::{completions, man},
        main_with,
        mount::fuse_available,
        mounts::at as mount_at,
        print,
        signals::Interrupt,
    };
}

/// Runs the program: the arguments are the process's own.
pub fn main() -> ExitCode {
    main_with(env::args_os())
}

/// Runs the program with these arguments, of which the first is its name.
pub fn main_with(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        // clap's own codes: 0 for help and version, 2 for a wrong line.
        Err(e) => e.exit(),
    };
    begin(c"warpcrypt");
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Init(args) => init::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Info(args) => info::run(&args.vault, args.json),
        Command::Passwd(args) => keys::passwd(&args),
        Command::Key(args) => keys::run(&args.action),
        Command::Devices { json, measure } => devices::run(json, measure),
        Command::Hash(args) => hashing::run(&args),
        Command::Match(args) => hashing::matching::run(&args),
        Command::Try(args) => trial::run(&args),
        Command::Mount(args) => mount::run(args),
        Command::Serve(args) => mount::serve_for_parent(args),
        Command::GpuWorker => gpu_worker::run(),
        Command::Umount(args) => umount::run(&args),
        Command::Bench { arguments } => bench::run(&arguments),
        Command::Completions { shell } => generate::completions(Cli::command(), shell),
        Command::Man { dir } => generate::man(Cli::command(), &dir),
    }
}

/// Prepares the process for any command, and gives it its name: one that was started as /proc/self/exe would be `exe` in
/// every list of processes.
pub fn begin(name: &CStr) {
    // A name only.
    let _ = rustix::thread::set_name(name);
    keep_secrets_in();
    signals::survive_size_limit();
    engine::start_gpus_with("/proc/self/exe");
}

/// No core dumps, and no looking into this process's memory by others of the same user.
fn keep_secrets_in() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    // Where the system forbids it, the rest is still worth doing.
    let _ = setrlimit(Resource::Core, none);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Prints what was asked for. A reader that has gone away (`| head`) is no error: then it returns false.
///
/// # Errors
/// If standard output cannot take it (a full disk): who asked would go on with a part of it.
pub fn print(text: &str) -> Outcome<bool> {
    print_bytes(text.as_bytes())
}

/// As `print`, for text with names that may be no UTF-8.
fn print_bytes(text: &[u8]) -> Outcome<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(unprinted(&e)),
    }
}

/// Standard output took no more.
fn unprinted(error: &io::Error) -> Failure {
    Failure::plain(Code::Failed, format!("standard output: {error}"))
}

/// Says what was done. It is done, whether anybody hears of it or not.
fn tell(text: &str) {
    let _ = print(text);
}

//! The command line: commands, progress and exit codes. It makes no decisions about file formats or
//! keys.

mod anchor;
mod args;
mod backup;
mod bench;
mod check;
mod confined;
mod daemon;
mod deferred;
mod descriptors;
mod devices;
mod doctor;
mod exclude;
mod exit;
mod freezing;
mod generate;
mod gpu_worker;
mod hashing;
mod holder;
mod info;
mod init;
mod json;
mod keys;
mod locking;
mod locks;
mod log;
mod mount;
mod mount_point;
mod mounter;
mod mounts;
mod named_file;
mod options;
mod password;
mod patience;
mod progress;
mod quoting;
mod reverse;
mod rights;
mod rotate;
mod session;
mod shared_store;
mod signals;
mod stat;
mod terminal;
mod transfer;
mod trial;
mod umount;
mod unheard;
mod unlocking;
mod vaults;

use args::{Cli, Command, OVERVIEW};
use clap::{CommandFactory, Parser};
use crypto::machine::allow_any_memory;
use exit::{Code, Failure, Outcome};
use std::{
    env,
    ffi::{CStr, OsString},
    fmt::Display,
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    process::ExitCode,
};

/// Items for `benches/lab` only. They may change without notice.
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

/// Runs the program with the process's own arguments.
pub fn main() -> ExitCode {
    main_with(env::args_os())
}

/// Runs the program with these arguments. The first is the program's name.
pub fn main_with(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = with_command(arguments);
    if arguments.len() < 2 {
        eprint!("{OVERVIEW}");
        return ExitCode::from(Code::Usage as u8);
    }
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        // clap exits with 0 for help and version, and with 2 for wrong usage.
        Err(e) => e.exit(),
    };
    begin(c"warpcrypt");
    if cli.any_kdf_memory {
        allow_any_memory();
    }
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Inserts `mount` if the first argument is an absolute path: mount.fuse, which handles `mount -t fuse
/// warpcrypt#VAULT MOUNT`, calls the program without a command.
fn with_command(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    if arguments.get(1).is_some_and(|first| first.as_bytes().starts_with(b"/")) {
        arguments.insert(1, "mount".into());
    }
    arguments
}

/// Parses arguments, the first of which is the program's name, and runs the command.
fn run_parsed(arguments: impl IntoIterator<Item = OsString>) -> Outcome {
    let cli = Cli::try_parse_from(arguments).unwrap_or_else(|e| e.exit());
    run(cli.command)
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Init(args) => init::run(&args),
        Command::Lock(args) => locking::lock(&args),
        Command::Unlock(args) => locking::unlock(&args),
        Command::Freeze(args) => freezing::freeze(&args),
        Command::Thaw { place } => freezing::thaw(&place),
        Command::Stat(args) => stat::run(&args),
        Command::Info(args) => info::run(&args.place, args.json),
        Command::Passwd(args) => keys::passwd(&args),
        Command::Key(args) => keys::run(&args.action),
        Command::Devices { json, measure } => devices::run(json, measure),
        Command::Doctor { json } => doctor::run(json),
        Command::Check(args) => check::run(&args),
        Command::Ls(args) => transfer::list(&args),
        Command::Cat(args) => transfer::cat(&args),
        Command::Export(args) => transfer::export(&args),
        Command::Import(args) => transfer::import(&args),
        Command::Hash(args) => hashing::run(&args),
        Command::Match(args) => hashing::matching::run(&args),
        Command::Try(args) => trial::run(&args),
        Command::Mount(args) => mount::run(args),
        Command::Serve(args) => mount::serve_for_parent(args),
        Command::GpuWorker => gpu_worker::run(),
        Command::GpuStarter => gpu_worker::run_starter(),
        Command::Confined { command } => confined::run(command),
        Command::Mounter(args) => mounter::run(args),
        Command::Umount(args) => umount::run(&args),
        Command::Bench { arguments } => bench::run(&arguments),
        Command::Completions { shell } => generate::completions(Cli::command(), shell),
        Command::Man { dir } => generate::man(Cli::command().after_help(exit::table()), &dir),
    }
}

/// Prepares the process for any command, and sets its name: a process started as /proc/self/exe would
/// otherwise be listed as `exe`.
pub fn begin(name: &CStr) {
    // The name only matters for process listings.
    let _ = rustix::thread::set_name(name);
    keep_secrets_in();
    signals::survive_size_limit();
    engine::start_gpus_with("/proc/self/exe");
}

/// Disables core dumps, and access to this process's memory by other processes of the same user.
fn keep_secrets_in() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    // Each protects independently, so a refusal of one is ignored.
    let _ = setrlimit(Resource::Core, none);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Prints a command's output. Returns false if the reader has gone away (`| head`), which does not count
/// as an error.
///
/// # Errors
/// If standard output fails, for example on a full disk: a caller must not mistake partial output for
/// all of it.
pub fn print(text: &str) -> Outcome<bool> {
    print_bytes(text.as_bytes())
}

/// As [`print()`], for text with names that may not be UTF-8.
fn print_bytes(text: &[u8]) -> Outcome<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(unprinted(&e)),
    }
}

/// A failure to write to standard output.
fn unprinted(error: &io::Error) -> Failure {
    Failure::plain(Code::Failed, format!("standard output: {error}"))
}

/// Prints a notice to standard error; the command continues.
fn note(text: impl Display) {
    // A closed standard error is no reason to stop.
    let _ = writeln!(io::stderr(), "warpcrypt: {text}");
}

/// Reports completed work. Errors are ignored, because the work is done.
fn tell(text: &str) {
    let _ = print(text);
}

//! Exit codes, in one table. The man page is generated from it, and a test compares `docs/exit-codes.md`
//! with it.

use std::{fmt, io, process::ExitCode};

/// Why a command failed. The numbers are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Code {
    Failed = 1,
    Usage = 2,
    WrongKey = 10,
    NoSuchSlot = 11,
    NotAVault = 12,
    UnknownVersion = 13,
    ConfigEdited = 14,
    AlreadyMounted = 15,
    InitTargetInUse = 16,
    TooMuchMemory = 17,
    MountPointMissing = 20,
    MountPointNotDir = 21,
    MountPointNotEmpty = 22,
    MountPointBusy = 23,
    NotMounted = 24,
    ReadOnlyStore = 30,
    DiskFull = 31,
    FuseUnavailable = 32,
    NoGpu = 33,
    AuditFailed = 40,
    Unreadable = 41,
    Interrupted = 130,
}

impl Code {
    /// Every code, in ascending order.
    pub const ALL: [Code; 22] = [
        Code::Failed,
        Code::Usage,
        Code::WrongKey,
        Code::NoSuchSlot,
        Code::NotAVault,
        Code::UnknownVersion,
        Code::ConfigEdited,
        Code::AlreadyMounted,
        Code::InitTargetInUse,
        Code::TooMuchMemory,
        Code::MountPointMissing,
        Code::MountPointNotDir,
        Code::MountPointNotEmpty,
        Code::MountPointBusy,
        Code::NotMounted,
        Code::ReadOnlyStore,
        Code::DiskFull,
        Code::FuseUnavailable,
        Code::NoGpu,
        Code::AuditFailed,
        Code::Unreadable,
        Code::Interrupted,
    ];

    /// The code with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Code::ALL.into_iter().find(|c| *c as u8 == number)
    }

    /// A short description.
    pub fn meaning(self) -> &'static str {
        match self {
            Code::Failed => "another error; the message says which",
            Code::Usage => "wrong usage of the command line",
            Code::WrongKey => "wrong password, key file or recovery key",
            Code::NoSuchSlot => "the vault has no key slot of that kind or number",
            Code::NotAVault => "the directory is not a vault",
            Code::UnknownVersion => "the vault has a format version that this program does not know",
            Code::ConfigEdited => "the vault's configuration is damaged or was edited without the key",
            Code::AlreadyMounted => "the vault is already mounted or in use",
            Code::InitTargetInUse => "init: the directory is already a vault, or not empty",
            Code::TooMuchMemory => "a password needs more than half of the machine's memory",
            Code::MountPointMissing => "the mount point does not exist",
            Code::MountPointNotDir => "the mount point is not a directory",
            Code::MountPointNotEmpty => "the mount point is not empty",
            Code::MountPointBusy => "the mount point is in use",
            Code::NotMounted => "umount, stat, lock, unlock, freeze, thaw: no vault is mounted there",
            Code::ReadOnlyStore => "the vault is on a read-only filesystem",
            Code::DiskFull => "no space left on the disk that is written to",
            Code::FuseUnavailable => "FUSE is not available",
            Code::NoGpu => "--engine gpu: there is no GPU engine",
            Code::AuditFailed => "hash --audit: the files do not match the list",
            Code::Unreadable => "some files are damaged or could not be read; the rest is done",
            Code::Interrupted => "interrupted by Ctrl-C or a signal",
        }
    }
}

/// The exit codes as a block of text for the help.
pub fn table() -> String {
    let mut text = String::from("Exit codes:\n    0  success\n");
    for code in Code::ALL {
        text += &format!("  {:>3}  {}\n", code as u8, code.meaning());
    }
    text
}

/// A failed command: its exit code, what happened, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Exit code.
    pub code: Code,
    /// The error on the first line, advice on the following lines.
    pub message: String,
}

impl Failure {
    /// A failure with a description and advice.
    pub fn new(code: Code, what: impl fmt::Display, advice: impl fmt::Display) -> Self {
        Failure { code, message: format!("{what}\n{advice}") }
    }

    /// A failure that needs no advice.
    pub fn plain(code: Code, what: impl fmt::Display) -> Self {
        Failure { code, message: what.to_string() }
    }

    /// A failure caused by Ctrl-C or a signal.
    pub fn interrupted() -> Self {
        Failure::plain(Code::Interrupted, "interrupted")
    }

    /// An I/O error during `what`. A full or read-only store keeps its own exit code.
    pub fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Failure::disk_full(what),
            io::ErrorKind::ReadOnlyFilesystem => Failure::read_only_store(what),
            _ => Failure::plain(Code::Failed, format!("{what}: {error}")),
        }
    }

    /// No space left on the disk that holds the vault.
    pub fn disk_full(what: impl fmt::Display) -> Self {
        Failure::new(
            Code::DiskFull,
            format!("{what}: no space left on the disk that holds the vault"),
            "Free some space there (or raise the quota) and try again; nothing was changed.",
        )
    }

    /// The vault is on a read-only filesystem.
    pub fn read_only_store(what: impl fmt::Display) -> Self {
        Failure::new(
            Code::ReadOnlyStore,
            format!("{what}: the vault is on a read-only filesystem"),
            "Mount it with --read-only, or make the filesystem below writable.",
        )
    }

    /// Prints the message to standard error and returns the exit code.
    pub fn report(&self) -> ExitCode {
        let mut lines = self.message.lines();
        eprintln!("warpcrypt: {}", lines.next().unwrap_or_default());
        for line in lines {
            eprintln!("  {line}");
        }
        ExitCode::from(self.code as u8)
    }
}

/// Result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

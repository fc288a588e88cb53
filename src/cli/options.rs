//! Mount options (`-o`), as in fstab: some are options of this program, others are passed to the kernel.

use super::{
    args::{CacheArg, DurabilityArg, EngineArg, MEMORY_MAX_MIB, MEMORY_MIN_MIB, MountArgs},
    exit::{Code, Failure, Outcome},
};
use clap::ValueEnum;
use std::path::PathBuf;

/// Options that the kernel (or fusermount3) understands.
const KERNEL: [&str; 12] = [
    "dev",
    "nodev",
    "suid",
    "nosuid",
    "exec",
    "noexec",
    "atime",
    "noatime",
    "sync",
    "async",
    "dirsync",
    "default_permissions",
];
/// Options for mount(8) and the init system; they are ignored here.
const FOR_OTHERS: [&str; 9] =
    ["rw", "relatime", "defaults", "auto", "noauto", "nofail", "user", "users", "_netdev"];

/// Moves this program's options from `args.options` to their fields. The kernel's options stay there.
///
/// # Errors
/// If an option is unknown or has a wrong value.
pub fn absorb(mut args: MountArgs) -> Outcome<MountArgs> {
    for option in std::mem::take(&mut args.options) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option.as_str(), None),
        };
        match (name, value) {
            ("ro", None) => args.read_only = true,
            ("allow_other", None) => args.allow_other = true,
            ("password-file", Some(file)) => args.unlock.secret.password_file = Some(PathBuf::from(file)),
            ("key-file", Some(file)) => args.unlock.secret.key_file = Some(PathBuf::from(file)),
            ("log-file", Some(file)) => args.log_file = Some(PathBuf::from(file)),
            ("engine", Some(engine)) => args.engine = parse::<EngineArg>(&option, engine)?,
            ("durability", Some(level)) => args.durability = parse::<DurabilityArg>(&option, level)?,
            ("cache", Some(cache)) => args.cache = parse::<CacheArg>(&option, cache)?,
            ("memory", Some(memory)) => {
                args.memory = mebibytes(memory).ok_or_else(|| unknown(&option))?;
            }
            (name, None) if KERNEL.contains(&name) => args.options.push(option),
            (name, None) if FOR_OTHERS.contains(&name) => {}
            (name, _) if name.starts_with("x-") || name.is_empty() => {}
            _ => return Err(unknown(&option)),
        }
    }
    let secret = &args.unlock.secret;
    let sources = [secret.password_file.is_some(), secret.key_file.is_some(), secret.password_stdin];
    let others = [secret.password_command.is_some(), args.unlock.recovery_key];
    if sources.into_iter().chain(others).filter(|&named| named).count() > 1 {
        return Err(Failure::new(
            Code::Usage,
            "more than one source of the password or key is given",
            "Give only one of them.",
        ));
    }
    Ok(args)
}

fn parse<T: ValueEnum>(option: &str, value: &str) -> Outcome<T> {
    T::from_str(value, false).map_err(|_| unknown(option))
}

fn mebibytes(value: &str) -> Option<u32> {
    value.parse().ok().filter(|&memory| (MEMORY_MIN_MIB..=MEMORY_MAX_MIB).contains(&i64::from(memory)))
}

fn unknown(option: &str) -> Failure {
    Failure::new(
        Code::Usage,
        format!("`{option}` is not a mount option, or its value is wrong"),
        "`warpcrypt mount --help` lists the mount options.",
    )
}

#[cfg(test)]
mod tests {
    use super::super::args::{Cli, Command};
    use super::*;
    use clap::Parser;

    fn options(text: &str) -> Outcome<MountArgs> {
        let cli = Cli::parse_from(["warpcrypt", "mount", "v", "m", "-o", text]);
        let Command::Mount(args) = cli.command else { unreachable!() };
        absorb(args)
    }

    #[test]
    fn ours_and_the_kernels_are_told_apart() {
        let args = options(
            "ro,noexec,nodev,defaults,x-systemd.automount,engine=cpu,key-file=/k,cache=direct,memory=64",
        )
        .unwrap();
        assert!(args.read_only && !args.allow_other);
        assert_eq!(args.options, ["noexec", "nodev"]);
        assert_eq!(args.engine, EngineArg::Cpu);
        assert_eq!((args.cache, args.memory), (CacheArg::Direct, 64));
        assert_eq!(args.unlock.secret.key_file.as_deref(), Some("/k".as_ref()));
    }

    #[test]
    fn unknown_options_and_two_sources_are_refused() {
        for text in [
            "fsname=x",
            "ro=1",
            "engine=fast",
            "cache=all",
            "memory=1",
            "noexec=1",
            "key-file=/k,password-file=/p",
        ] {
            assert_eq!(options(text).unwrap_err().code, Code::Usage, "{text}");
        }
    }
}

//! Mount options (`-o`), as in fstab. Some are options of this program, others are passed to the kernel.
//! Options of other FUSE filesystems that have no meaning here are ignored with a notice on standard
//! error.

use super::{
    args::{
        CacheArg, DurabilityArg, EngineArg, IoUringArg, MEMORY_MAX_MIB, MEMORY_MIN_MIB, MountArgs, duration,
    },
    exit::{Code, Failure, Outcome},
    note,
};
use clap::ValueEnum;
use std::path::PathBuf;

/// Options for the kernel or fusermount3.
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
/// Options for mount(8), the init system and other readers of fstab. Ignored here.
const FOR_OTHERS: [&str; 13] = [
    "relatime",
    "nodiratime",
    "lazytime",
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
];
/// Options of other FUSE filesystems about their kernel interface, inode numbers and caches.
const OF_OTHER_FILESYSTEMS: [&str; 37] = [
    "ac_attr_timeout",
    "async_read",
    "atomic_o_trunc",
    "attr_timeout",
    "big_writes",
    "blkdev",
    "blksize",
    "clone_fd",
    "congestion_threshold",
    "entry_timeout",
    "hard_remove",
    "intr",
    "intr_signal",
    "large_read",
    "max_background",
    "max_idle_threads",
    "max_read",
    "max_readahead",
    "max_threads",
    "max_write",
    "negative_timeout",
    "no_remote_flock",
    "no_remote_lock",
    "no_remote_posix_lock",
    "no_splice_move",
    "no_splice_read",
    "no_splice_write",
    "noforget",
    "nopath",
    "readdir_ino",
    "remember",
    "splice_move",
    "splice_read",
    "splice_write",
    "sync_read",
    "use_ino",
    "writeback_cache",
];

/// Moves this program's options from `args.options` to their fields and leaves the kernel's options
/// there. The last of several `ro` and `rw` wins, but `rw` does not undo `--read-only`.
///
/// # Errors
/// If an option is unknown, refused or has an invalid value.
pub fn absorb(mut args: MountArgs) -> Outcome<MountArgs> {
    let mut read_only = false;
    for option in std::mem::take(&mut args.options).iter().flat_map(|list| split(list)) {
        match option.as_str() {
            "ro" => read_only = true,
            "rw" => read_only = false,
            _ => take(&mut args, option)?,
        }
    }
    args.read_only |= read_only;
    one_source(&args)?;
    fit_for_reverse(&args)?;
    fit_for_sharing(&args)?;
    fit_for_owners(&mut args);
    Ok(args)
}

/// Splits a list of options at commas. `\,` and `\\` stand for a comma and a backslash in a value.
fn split(list: &str) -> Vec<String> {
    let mut options = Vec::new();
    let mut option = String::new();
    let mut rest = list.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            ',' => options.push(std::mem::take(&mut option)),
            '\\' => option.push(rest.next_if(|&next| next == ',' || next == '\\').unwrap_or('\\')),
            _ => option.push(c),
        }
    }
    options.push(option);
    options
}

fn take(args: &mut MountArgs, option: String) -> Outcome {
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option.as_str(), None),
    };
    match (name, value) {
        ("reverse", None) => args.reverse = true,
        ("exclude", Some(pattern)) => args.exclude.push(pattern.into()),
        ("exclude-from", Some(file)) => args.exclude_from.push(PathBuf::from(file)),
        ("one-file-system", None) => args.one_file_system = true,
        ("allow_other", None) => args.allow_other = true,
        ("shared", None) => args.shared = true,
        ("nonempty", None) => args.nonempty = true,
        ("any-path", None) => args.any_path = true,
        ("any-kdf-memory", None) => args.any_kdf_memory = true,
        ("for-uid", Some(uid)) => args.for_uid = Some(user_id(&option, uid)?),
        ("uid", Some(uid)) => args.owners.user = Some(user_id(&option, uid)?),
        ("gid", Some(gid)) => args.owners.group = Some(group_id(&option, gid)?),
        ("password-file", Some(file)) => args.unlock.secret.password_file = Some(PathBuf::from(file)),
        ("password-command", Some(line)) => args.unlock.secret.password_command = Some(line.to_owned()),
        ("key-file", Some(file)) => args.unlock.secret.key_file = Some(PathBuf::from(file)),
        ("anchor", Some(file)) => args.anchor = Some(PathBuf::from(file)),
        ("log-file", Some(file)) => args.log_file = Some(PathBuf::from(file)),
        ("engine", Some(engine)) => args.engine = parse::<EngineArg>(&option, engine)?,
        ("durability", Some(level)) => args.durability = parse::<DurabilityArg>(&option, level)?,
        ("cache", Some(cache)) => args.cache = parse::<CacheArg>(&option, cache)?,
        ("io-uring", Some(mode)) => args.io_uring = parse::<IoUringArg>(&option, mode)?,
        ("memory", Some(memory)) => args.memory = mebibytes(memory).ok_or_else(|| unknown(&option))?,
        ("idle", Some(time)) => args.idle = Some(duration(time).map_err(|_| unknown(&option))?),
        ("idle-unmount", Some(time)) => {
            args.idle_unmount = Some(duration(time).map_err(|_| unknown(&option))?);
        }
        ("umask", Some(_)) => return Err(no_umask()),
        (name, None) if KERNEL.contains(&name) => args.options.push(option),
        (name, None) if FOR_OTHERS.contains(&name) => {}
        ("comment" | "user", _) | ("", None) => {}
        (name, _) if name.starts_with("x-") => {}
        (name, _) => match ignored_because(name) {
            Some(reason) => note(format_args!("the option `{name}` is ignored: {reason}")),
            None => return Err(unknown(&option)),
        },
    }
    Ok(())
}

/// Why an option known from other filesystems has no effect here. `None` if the option is unknown.
fn ignored_because(name: &str) -> Option<&'static str> {
    Some(match name {
        "fsname" | "subtype" => "the mount table names the vault and its type, by which `umount` finds it",
        "auto_unmount" => "a mount whose process was killed stays until it is unmounted",
        "allow_root" => "root may enter its own mounts, and those of other users only with `allow_other`",
        "auto_cache" | "direct_io" | "kernel_cache" => "`cache=` says what the kernel caches",
        "discard" | "nodiscard" => {
            "a vault has no blocks of its own; the store's filesystem discards what it frees"
        }
        "strictatime" | "norelatime" => "access times are always updated as with `relatime`",
        name if OF_OTHER_FILESYSTEMS.contains(&name) => "it has no meaning for a vault",
        _ => return None,
    })
}

/// `umask` is refused. Ignoring it would grant access that it was meant to deny.
fn no_umask() -> Failure {
    Failure::new(
        Code::Usage,
        "`umask` is not to be had: files in a vault have permission bits of their own",
        "Leave it out. To keep others out, mount without `allow_other`, or use chmod inside the mount.",
    )
}

fn one_source(args: &MountArgs) -> Outcome {
    let secret = &args.unlock.secret;
    let passwords =
        [secret.password_file.is_some(), secret.password_stdin, secret.password_command.is_some()];
    let passwords = passwords.into_iter().filter(|&named| named).count();
    let recovery = args.unlock.recovery_key && passwords + usize::from(secret.key_file.is_some()) > 0;
    if passwords > 1 || recovery {
        return Err(Failure::new(
            Code::Usage,
            "more than one source of the password is given",
            "Give only one of them.",
        ));
    }
    Ok(())
}

/// Rejects options that apply only to vaults or only to reverse views, from the command line or `-o`.
fn fit_for_reverse(args: &MountArgs) -> Outcome {
    if !args.reverse {
        return without_reverse(args);
    }
    let plain = MountArgs::plain(&args.vault, &args.mount);
    let asked = [
        ("anchor", args.anchor != plain.anchor),
        ("cache", args.cache != plain.cache),
        ("durability", args.durability != plain.durability),
        ("engine", args.engine != plain.engine),
        ("idle", args.idle != plain.idle),
        ("idle-unmount", args.idle_unmount != plain.idle_unmount),
        ("io-uring", args.io_uring != plain.io_uring),
        ("memory", args.memory != plain.memory),
        ("shared", args.shared),
    ];
    match asked.into_iter().find(|(_, asked)| *asked) {
        None => Ok(()),
        Some((name, _)) => Err(Failure::new(
            Code::Usage,
            format!("`{name}` cannot be combined with `reverse`"),
            "It applies only to vaults. A reverse view writes nothing, caches nothing and encrypts on the CPU. Leave it out.",
        )),
    }
}

fn without_reverse(args: &MountArgs) -> Outcome {
    let asked = [
        ("exclude", !args.exclude.is_empty()),
        ("exclude-from", !args.exclude_from.is_empty()),
        ("one-file-system", args.one_file_system),
    ];
    match asked.into_iter().find(|(_, asked)| *asked) {
        None => Ok(()),
        Some((name, _)) => Err(Failure::new(
            Code::Usage,
            format!("`{name}` needs `reverse`"),
            "A vault always shows all that is in it; only a reverse view can leave something out.",
        )),
    }
}

/// Rejects options that cannot be combined with `--shared`, from the command line or `-o`.
fn fit_for_sharing(args: &MountArgs) -> Outcome {
    let (with, why) = match args {
        _ if !args.shared => return Ok(()),
        _ if args.anchor.is_some() => ("--anchor", "an anchor does not know what other machines confirm"),
        _ if args.cache == CacheArg::WriteBack => {
            ("--cache write-back", "the kernel would hide its gathered writes from the other machines")
        }
        _ => return Ok(()),
    };
    Err(Failure::new(
        Code::Usage,
        format!("--shared cannot be used with {with}: {why}"),
        "Leave one of them out.",
    ))
}

/// Drops the options that would let the owner who is shown use the rights of a stored owner, as a
/// set-user-id program or a device of root.
fn fit_for_owners(args: &mut MountArgs) {
    if args.owners.are_stored() {
        return;
    }
    args.options.retain(|option| {
        let dropped = ["suid", "dev"].contains(&option.as_str());
        if dropped {
            note(format_args!(
                "the option `{option}` is ignored: with `uid` or `gid`, it would give away rights of the stored owners"
            ));
        }
        !dropped
    });
}

fn user_id(option: &str, value: &str) -> Outcome<u32> {
    id(value).ok_or_else(|| no_id(option, "user", &format!("id -u {value}")))
}

fn group_id(option: &str, value: &str) -> Outcome<u32> {
    id(value).ok_or_else(|| no_id(option, "group", &format!("getent group {value}")))
}

/// The number of a user or group. The largest number means "unchanged" to chown(2).
fn id(value: &str) -> Option<u32> {
    value.parse().ok().filter(|&id| id != u32::MAX)
}

fn no_id(option: &str, whose: &str, shows: &str) -> Failure {
    Failure::new(
        Code::Usage,
        format!("`{option}` is not the number of a {whose}"),
        format!("`{}` shows it.", shows.trim_end()),
    )
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
    use fuse::Owners;

    fn options(text: &str) -> Outcome<MountArgs> {
        let cli = Cli::parse_from(["warpcrypt", "mount", "v", "m", "-o", text]);
        let Command::Mount(args) = cli.command else { unreachable!() };
        absorb(args)
    }

    #[test]
    fn ours_and_the_kernels_are_told_apart() {
        let args = options(
            "ro,noexec,nodev,defaults,x-systemd.automount,engine=cpu,key-file=/k,cache=direct,io-uring=off,memory=64",
        )
        .unwrap();
        assert!(args.read_only && !args.allow_other);
        assert_eq!(args.options, ["noexec", "nodev"]);
        assert_eq!(args.engine, EngineArg::Cpu);
        assert_eq!((args.cache, args.io_uring, args.memory), (CacheArg::Direct, IoUringArg::Off, 64));
        assert_eq!(args.unlock.secret.key_file.as_deref(), Some("/k".as_ref()));
    }

    #[test]
    fn the_last_of_ro_and_rw_counts() {
        for (text, read_only) in [("ro,rw", false), ("rw,ro", true), ("rw,ro,defaults", true), ("rw", false)]
        {
            assert_eq!(options(text).unwrap().read_only, read_only, "{text}");
        }
        let line = ["warpcrypt", "mount", "v", "m", "--read-only", "-o", "ro", "-o", "rw"];
        let Command::Mount(args) = Cli::parse_from(line).command else { unreachable!() };
        assert!(absorb(args).unwrap().read_only);
    }

    #[test]
    fn a_backslash_keeps_a_comma_or_a_backslash_in_a_value() {
        let args = options("noexec,password-command=cut -d\\, -f1 a\\\\b\\c,nodev").unwrap();
        assert_eq!(args.unlock.secret.password_command.as_deref(), Some("cut -d, -f1 a\\b\\c"));
        assert_eq!(args.options, ["noexec", "nodev"]);
        assert_eq!(split("a\\\\,b\\"), ["a\\", "b\\"]);
    }

    #[test]
    fn options_of_other_filesystems_are_ignored() {
        assert!(options("nodiratime,lazytime,discard,user=anna,user,strictatime").is_ok());
        let list = "fsname=x,subtype=y,comment=z,auto_unmount,allow_root,nonempty,big_writes,max_read=9";
        let args = options(list).unwrap();
        assert!(args.nonempty && args.options.is_empty() && !args.allow_other);
    }

    #[test]
    fn owners_are_numbers() {
        assert!(options("ro").unwrap().owners.are_stored());
        let args = options("uid=0,gid=4294967294,uid=7").unwrap();
        assert_eq!(args.owners, Owners { user: Some(7), group: Some(4_294_967_294) });
        assert_eq!(options("reverse,gid=8").unwrap().owners, Owners { user: None, group: Some(8) });
        for text in
            ["uid=ann", "gid=ann", "for-uid=ann", "uid=", "uid=-1", "gid=4294967295", "uid=0x7", "uid"]
        {
            let failure = options(text).unwrap_err();
            assert!(failure.code == Code::Usage && failure.message.contains(text), "{}", failure.message);
        }
        assert!(options("uid=ann").unwrap_err().message.contains("`id -u ann`"));
    }

    #[test]
    fn rights_of_a_stored_owner_are_not_given_to_another() {
        for text in ["suid,dev,noexec,uid=7", "gid=7,dev,noexec,suid"] {
            assert_eq!(options(text).unwrap().options, ["noexec"], "{text}");
        }
        assert_eq!(options("suid,dev").unwrap().options, ["suid", "dev"]);
    }

    #[test]
    fn a_reverse_view_takes_no_option_of_a_vault() {
        assert!(options("reverse,rw,noexec,log-file=/l,key-file=/k,engine=auto").unwrap().reverse);
        for text in [
            "anchor=/a",
            "cache=direct",
            "durability=relaxed",
            "engine=cpu",
            "idle=5m",
            "io-uring=on",
            "memory=64",
            "shared",
        ] {
            assert!(options(text).is_ok());
            for text in [format!("reverse,{text}"), format!("{text},reverse")] {
                let failure = options(&text).unwrap_err();
                let name = text.split([',', '=']).find(|word| *word != "reverse").unwrap();
                assert!(failure.code == Code::Usage && failure.message.contains(name), "{}", failure.message);
            }
        }
        let line = ["warpcrypt", "mount", "v", "m", "--reverse", "--engine", "cpu"];
        let Command::Mount(args) = Cli::parse_from(line).command else { unreachable!() };
        assert_eq!(absorb(args).unwrap_err().code, Code::Usage);
    }

    #[test]
    fn only_a_reverse_view_leaves_something_out() {
        let args =
            options("exclude=*.tmp,exclude=a\\,b=c,reverse,exclude-from=/list,one-file-system").unwrap();
        assert_eq!(args.exclude, ["*.tmp", "a,b=c"]);
        assert!(args.exclude_from == [PathBuf::from("/list")] && args.one_file_system);
        for text in ["exclude=a", "exclude-from=/list", "one-file-system"] {
            assert_eq!(options(text).unwrap_err().code, Code::Usage, "{text}");
        }
        for text in ["exclude", "exclude-from", "one-file-system=1"] {
            assert_eq!(options(&format!("reverse,{text}")).unwrap_err().code, Code::Usage, "{text}");
        }
    }

    #[test]
    fn a_shared_mount_takes_no_anchor_and_gathers_no_writes() {
        assert!(options("shared,cache=direct").unwrap().shared);
        for text in ["shared,anchor=/a", "cache=write-back,shared"] {
            assert_eq!(options(text).unwrap_err().code, Code::Usage, "{text}");
        }
        let line = ["warpcrypt", "mount", "v", "m", "--shared", "--anchor", "/a"];
        let Command::Mount(args) = Cli::parse_from(line).command else { unreachable!() };
        assert_eq!(absorb(args).unwrap_err().code, Code::Usage);
    }

    #[test]
    fn unknown_options_and_two_sources_are_refused() {
        for text in [
            "ro=1",
            "umask=077",
            "nonempty=1",
            "password-command",
            "engine=fast",
            "cache=all",
            "memory=1",
            "noexec=1",
            "password-command=x,password-file=/p",
        ] {
            assert_eq!(options(text).unwrap_err().code, Code::Usage, "{text}");
        }
    }
}

//! The filesystems that are compared, and how each is started.

use crate::PROGRAM;
use crypto::cipher::Cipher;
use std::{
    env, fs, io,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use warpcrypt::cli::lab::{Code, Failure, Outcome};

/// Names of all possible contenders, in the order of their colours.
pub const NAMES: [&str; 14] = [
    "tmpfs",
    "gocryptfs",
    "pass-through",
    "pass-through direct",
    "FUSE ceiling",
    "warpcrypt kuznyechik",
    "cryfs",
    "encfs",
    "warpcrypt",
    "securefs",
    "warpcrypt gpu",
    "kuznyechik gpu",
    "warpcrypt cpu",
    "kuznyechik cpu",
];

/// Password for all peers: there is nothing to protect.
const PASSWORD: &str = "benchmark";

/// A filesystem that takes part.
#[derive(Debug, Clone)]
pub struct Contender {
    /// Name in tables and plots.
    pub name: String,
    /// Whether it takes part by default.
    pub is_usual: bool,
    tool: Tool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Tool {
    Store,
    Plain {
        direct: bool,
        memory: bool,
    },
    Warpcrypt(Vault),
    /// Another build, with default settings.
    Before(PathBuf),
    Gocryptfs,
    Securefs,
    Encfs,
    Cryfs,
}

/// A vault and how it is mounted, in the terms of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Vault {
    cipher: &'static str,
    integrity: &'static str,
    engine: &'static str,
    cache: &'static str,
    io_uring: &'static str,
}

impl Vault {
    const USUAL: Vault = Vault {
        cipher: "aes-256-ctr",
        integrity: "turboshake128x4",
        engine: "auto",
        cache: "auto",
        io_uring: "off",
    };
    const KUZNYECHIK: Vault = Vault { cipher: "kuznyechik-ctr", ..Vault::USUAL };

    const fn on(self, engine: &'static str) -> Vault {
        Vault { engine, ..self }
    }
}

/// The paths that a contender uses.
pub struct Place {
    /// The encrypted directory.
    pub store: PathBuf,
    /// The mount point.
    pub mount: PathBuf,
    /// The file with its password or key.
    pub key: PathBuf,
}

impl Contender {
    /// All contenders available on this machine, and the build `before`.
    pub fn all(dir: &Path, before: Option<&Path>) -> Vec<Contender> {
        let named = |name: &str, tool| Contender { name: name.to_owned(), is_usual: true, tool };
        let vault = |name: &str, vault| named(name, Tool::Warpcrypt(vault));
        let rare = |name: &str, tool| Contender { is_usual: false, ..vault(name, tool) };
        let mut all = vec![
            named(&store_name(dir), Tool::Store),
            named("FUSE ceiling", Tool::Plain { direct: true, memory: true }),
            named("pass-through", Tool::Plain { direct: false, memory: false }),
            named("pass-through direct", Tool::Plain { direct: true, memory: false }),
            vault("warpcrypt", Vault::USUAL),
            vault("warpcrypt kuznyechik", Vault::KUZNYECHIK),
            rare("warpcrypt direct", Vault { cache: "direct", ..Vault::USUAL }),
            rare("warpcrypt rings", Vault { io_uring: "on", ..Vault::USUAL }),
            rare("warpcrypt kmac", Vault { integrity: "kmac128", ..Vault::USUAL }),
        ];
        all.extend(before.map(|program| named("warpcrypt before", Tool::Before(program.to_owned()))));
        if engine::gpus().is_ok() {
            all.extend([
                vault("warpcrypt cpu", Vault::USUAL.on("cpu")),
                vault("warpcrypt gpu", Vault::USUAL.on("gpu")),
                vault("kuznyechik cpu", Vault::KUZNYECHIK.on("cpu")),
                vault("kuznyechik gpu", Vault::KUZNYECHIK.on("gpu")),
                rare("cpu direct", Vault { cache: "direct", ..Vault::USUAL.on("cpu") }),
                rare("gpu direct", Vault { cache: "direct", ..Vault::USUAL.on("gpu") }),
            ]);
        }
        let peers = [
            ("gocryptfs", Tool::Gocryptfs),
            ("securefs", Tool::Securefs),
            ("encfs", Tool::Encfs),
            ("cryfs", Tool::Cryfs),
        ];
        all.extend(
            peers.into_iter().filter(|(name, _)| installed(name)).map(|(name, tool)| named(name, tool)),
        );
        all
    }

    /// The store itself, and a vault for every cipher and key size on every engine of this machine.
    pub fn ciphers(dir: &Path) -> Vec<Contender> {
        let mut all = vec![Contender { name: store_name(dir), is_usual: true, tool: Tool::Store }];
        let engines: &[&str] = if engine::gpus().is_ok() { &["cpu", "gpu"] } else { &["cpu"] };
        for engine in engines {
            all.extend(Cipher::ALL.map(|cipher| Contender {
                name: format!("{} {engine}", cipher.name()),
                is_usual: true,
                tool: Tool::Warpcrypt(Vault { cipher: cipher.name(), ..Vault::USUAL.on(engine) }),
            }));
        }
        all
    }

    /// Whether written data can be read back.
    pub fn keeps_data(&self) -> bool {
        !matches!(self.tool, Tool::Plain { memory: true, .. })
    }

    /// Creates its empty store.
    ///
    /// # Errors
    /// If a directory cannot be created, or the filesystem's own program fails.
    pub fn prepare(&self, place: &Place) -> Outcome {
        let made = [&place.store, &place.mount].into_iter().try_for_each(fs::create_dir_all);
        made.and_then(|()| fs::write(&place.key, format!("{PASSWORD}-{PASSWORD}\n")))
            .map_err(|e| Failure::io(place.store.display(), &e))?;
        let Some(mut init) = self.init(place) else { return Ok(()) };
        let done = init.stdin(Stdio::null()).stdout(Stdio::null()).output();
        let done = done.map_err(|e| Failure::io(&self.name, &e))?;
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        Err(Failure::plain(Code::Failed, format!("{}: {}", self.name, said.trim())))
    }

    fn init(&self, place: &Place) -> Option<Command> {
        let mut command = Command::new(self.program());
        match &self.tool {
            Tool::Before(_) => {
                command.arg("init").arg(&place.store).arg("--key-file").arg(&place.key);
            }
            Tool::Warpcrypt(vault) => {
                command.args([PROGRAM, "init"]).arg(&place.store).arg("--key-file").arg(&place.key);
                command.args(["--cipher", vault.cipher, "--integrity", vault.integrity]);
            }
            Tool::Gocryptfs => {
                command
                    .args(["-init", "-q", "-scryptn", "10", "-passfile"])
                    .arg(&place.key)
                    .arg(&place.store);
            }
            Tool::Securefs => {
                command.args(["create", "--pass", PASSWORD, "-r", "1"]).arg(&place.store);
            }
            // These create the store on the first mount.
            Tool::Store | Tool::Plain { .. } | Tool::Encfs | Tool::Cryfs => return None,
        }
        Some(command)
    }

    /// The command that serves the mount in the foreground; `None` if the store is used directly.
    pub fn serve(&self, place: &Place) -> Option<Command> {
        let (store, mount) = (&place.store, &place.mount);
        let mut command = Command::new(self.program());
        match &self.tool {
            Tool::Store => return None,
            Tool::Before(_) => {
                command
                    .arg("mount")
                    .arg(store)
                    .arg(mount)
                    .arg("--foreground")
                    .arg("--key-file")
                    .arg(&place.key);
            }
            Tool::Plain { direct, memory } => {
                command.arg("plain").arg(store).arg(mount);
                command.args(direct.then_some("--direct")).args(memory.then_some("--memory"));
            }
            Tool::Warpcrypt(vault) => {
                command.args([PROGRAM, "mount"]).arg(store).arg(mount).arg("--foreground");
                command.args(["--engine", vault.engine, "--cache", vault.cache]);
                command.args(["--io-uring", vault.io_uring]);
                command.arg("--key-file").arg(&place.key);
            }
            Tool::Gocryptfs => {
                command.args(["-fg", "-q", "-passfile"]).arg(&place.key).arg(store).arg(mount);
            }
            Tool::Securefs => {
                command.args(["mount", "--pass", PASSWORD]).arg(store).arg(mount);
            }
            Tool::Encfs => {
                command.args(["--standard", "--stdinpass", "-f"]).arg(store).arg(mount);
            }
            Tool::Cryfs => {
                let state = place.key.with_extension("state");
                command.env("CRYFS_FRONTEND", "noninteractive").env("CRYFS_NO_UPDATE_CHECK", "true");
                command.env("CRYFS_LOCAL_STATE_DIR", state).arg("-f").arg(store).arg(mount);
            }
        }
        Some(command)
    }

    /// Writes the input that the serving process reads first.
    pub fn greet(&self, to: &mut impl Write) -> io::Result<()> {
        match self.tool {
            Tool::Encfs | Tool::Cryfs => writeln!(to, "{PASSWORD}"),
            _ => Ok(()),
        }
    }

    fn program(&self) -> PathBuf {
        match &self.tool {
            Tool::Store | Tool::Plain { .. } | Tool::Warpcrypt(_) => "/proc/self/exe".into(),
            Tool::Before(program) => program.clone(),
            Tool::Gocryptfs | Tool::Securefs | Tool::Encfs | Tool::Cryfs => self.name.clone().into(),
        }
    }
}

/// Name of the filesystem that contains the directory.
fn store_name(dir: &Path) -> String {
    const TMPFS: u64 = 0x0102_1994;
    let kind = rustix::fs::statfs(dir).map(|about| about.f_type as u64);
    if kind == Ok(TMPFS) { "tmpfs".to_owned() } else { "store".to_owned() }
}

fn installed(program: &str) -> bool {
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

//! An open vault: unlocking it, the write lock, and shutting down.

use super::{
    AnchorUse, Dir, Files, OpenError, OpenFile, StatFs,
    anchor::{Anchor, AnchorThread, Owner, refuse_inside},
    aside::set_headless_aside,
    config_file::{self, Configs, open_vault, require_settled},
    former_list::FormerList,
    init::{is_store_read_only, require_case},
    keys::{KeyRing, NamespaceKeys, content_generations},
    lock::{Users, WriteLock},
    ownerless::drop_ownerless,
    pending::{Met, Pending},
    process,
    resources::MEMORY,
    rewrites::StoredRewrites,
    rotate::{RotationThread, WhyLeft},
    taken_id::StrandedId,
};
use content::{
    Background, Bounds, Budget, Buffered, ContentKeys, Context, Durability, Error, Result, SlotMemory, Space,
};
use crypto::secret::Secret;
use engine::{EngineChoice, Router};
use format::{
    config::{VAULT_ID, VaultConfig},
    dir_id::DirId,
    key_slot::SlotSecret,
    layout,
    name::{LISTS, NAME_MAX},
    recovery_key::RecoveryKey,
};
use parking_lot::{Mutex, ReentrantMutex, RwLock};
use std::{
    collections::{HashMap, HashSet},
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};
use store::StoreDir;

/// A secret that opens a key slot.
#[derive(Clone)]
pub enum Unlock {
    /// A password (no trailing newline).
    Password(zeroize::Zeroizing<Vec<u8>>),
    /// Content of a key file.
    KeyFile(zeroize::Zeroizing<Vec<u8>>),
    /// A printed recovery key, as typed.
    Recovery(zeroize::Zeroizing<String>),
    /// A password, and the content of a key file.
    PasswordAndKeyFile(zeroize::Zeroizing<Vec<u8>>, zeroize::Zeroizing<Vec<u8>>),
}

impl Unlock {
    /// Passes the secret to `f` in the form that key slots take.
    ///
    /// # Errors
    /// If the text that was typed is not a recovery key.
    pub fn with_secret<T>(&self, f: impl FnOnce(SlotSecret) -> T) -> std::result::Result<T, OpenError> {
        Ok(match self {
            Unlock::Password(password) => f(SlotSecret::Password(password)),
            Unlock::KeyFile(content) => f(SlotSecret::KeyFile(content)),
            Unlock::Recovery(text) => {
                let key = RecoveryKey::parse(text).map_err(|e| OpenError::Config(e.into()))?;
                f(SlotSecret::Recovery(&key))
            }
            Unlock::PasswordAndKeyFile(password, content) => {
                f(SlotSecret::PasswordAndKeyFile(password, content))
            }
        })
    }
}

/// Default time that one machine waits for another that holds a file or directory. A machine that writes
/// a file releases it sooner.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How to open.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Take no write lock and write nothing.
    pub read_only: bool,
    /// Engine to use.
    pub engine: EngineChoice,
    /// Kind of crash that an overwrite survives.
    pub durability: Durability,
    /// Bytes of memory for file contents that are being processed.
    pub memory: usize,
    /// Set if several machines may write. The value is how long one waits for another that holds a file
    /// or directory. See [`PATIENCE`].
    pub sharing: Option<Duration>,
    /// The anchor to compare the vault with. If it is new, the caller has to fill it: see
    /// `Vault::lacks_anchor`.
    pub anchor: Option<AnchorUse>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            read_only: false,
            engine: EngineChoice::default(),
            durability: Durability::default(),
            memory: MEMORY,
            sharing: None,
            anchor: None,
        }
    }
}

/// An open vault.
///
/// Lock order: `long_names`, `dir_ids`, `stranded_ids`, the lock in `pending` that is held while names
/// are made durable, `lists`, `modes`, the queue of `pending`.
pub struct Vault {
    pub(super) keys: KeyRing,
    /// Held while a directory is put under another key. Taken before all other locks.
    pub(super) renewing: Mutex<()>,
    /// The thread that continues a rotation.
    pub(super) rotation: RotationThread,
    /// Directories that could not be put under the present key, and why. See `Vault::renew_dir`.
    pub(super) left: Mutex<HashMap<DirId, WhyLeft>>,
    /// Number of names that were moved or added while a rotation was in progress.
    pub(super) moves: AtomicU64,
    /// The vault's id from the configuration.
    pub(super) id: [u8; VAULT_ID],
    pub(super) root: Arc<Dir>,
    pub(super) files: Arc<Files>,
    pub(super) pending: Pending,
    /// Set if small files other than those in `pending` may not be durable: a process that had the vault
    /// before was killed, and the store cannot be synced as a whole.
    pub(super) left_pending: Option<Met>,
    /// Serializes changes of long names, moves of names, and removals of directories.
    pub(super) long_names: Mutex<()>,
    /// Held for reading while an id file is read. Held for writing while one is created, or removed with
    /// its directory.
    pub(super) dir_ids: RwLock<()>,
    /// Ids of directories that could not be put back in place.
    pub(super) stranded_ids: Mutex<Vec<StrandedId>>,
    /// Held for reading while an attribute is read, or set on its node. Held for writing while a list of
    /// attributes changes.
    pub(super) lists: RwLock<()>,
    /// Whether a directory of lists may exist. Only a process that holds the vault exclusively creates
    /// one.
    pub(super) has_lists: AtomicBool,
    /// Whether names of lists may not be durable, because the previous holder of the vault may have been
    /// killed.
    pub(super) lists_uncertain: AtomicBool,
    /// Held while permission bits change. Reentrant, because a directory may have bits added temporarily
    /// while bits are added to a file in it.
    pub(super) modes: ReentrantMutex<()>,
    /// Whether the store has generation numbers, which distinguish successive inodes with the same
    /// number.
    pub(super) has_generations: bool,
    /// The user that this process acts as in the store.
    pub(super) user: u32,
    /// The last confirmed state, if an anchor is used.
    pub(super) anchor: Option<Arc<Anchor>>,
    /// The thread that writes changes to the anchor.
    pub(super) anchoring: AnchorThread,
    /// Complaints already logged, so that they are not repeated at each listing.
    pub(super) told: Mutex<HashSet<String>>,
    /// Complaints already logged about files of other programs, which are not damage.
    pub(super) told_of_strays: Mutex<HashSet<String>>,
    read_only: bool,
    /// As in [`OpenOptions`].
    pub(super) sharing: Option<Duration>,
    pub(super) lock: Option<Arc<WriteLock>>,
}

impl Vault {
    /// Unlocks and opens the vault at `path`. Also prepares the process: raises the limit of open files
    /// as far as allowed, and disables core dumps.
    ///
    /// Opening read-only takes no lock and writes nothing. Any number of readers can coexist with each
    /// other and with a writer.
    ///
    /// # Errors
    /// An `OpenError` with a separate variant for each problem that a user can fix.
    pub fn open(
        path: &Path,
        unlock: &Unlock,
        options: OpenOptions,
    ) -> std::result::Result<Arc<Vault>, OpenError> {
        let store = open_vault(path)?;
        let configs = Configs::read(&store, path)?;
        if !options.read_only {
            if is_store_read_only(&store) {
                return Err(OpenError::ReadOnlyStore);
            }
            require_case(&store, configs.newest()?.settings().names, path)?;
        }
        let users = if options.sharing.is_some() { Users::Several } else { Users::One };
        let lock =
            if options.read_only { None } else { Some(Arc::new(WriteLock::take(&store, path, users)?)) };
        // Read again under the lock: the previous holder may have replaced the configuration.
        let configs = match &lock {
            Some(_) => {
                require_settled(&store)?;
                Configs::read(&store, path)?
            }
            None => configs,
        };
        process::prepare(store.itself());
        let budget = Budget::of(options.memory);
        // Started first: the GPU is opened in the background, and is often ready by the time the key is
        // derived from a password.
        let router = Router::new(options.engine, budget.buffers)?;
        let (config, _, master) = unlock.with_secret(|secret| configs.unlock(&secret))??;
        let settings = config.settings();
        if options.sharing.is_some() && (config.is_rotating() || options.anchor.is_some()) {
            return Err(OpenError::NotShared(match config.is_rotating() {
                true => "it is being rewritten under another key: `warpcrypt key rotate` it to the end first",
                false => "an anchor does not know what other machines confirm",
            }));
        }
        let failed =
            |source: io::Error| OpenError::Store { action: "cannot read", path: path.into(), source };
        if options.anchor.is_some() && !options.read_only {
            // The anchor must not record a configuration that a power cut could still undo.
            store.sync().map_err(failed)?;
        }
        let anchor = match &options.anchor {
            Some(wanted) => Some(Arc::new(open_anchor(path, wanted, options.read_only, &config, &master)?)),
            None => None,
        };
        let aside = store.try_clone().map_err(failed)?;
        let [of_files, of_names] = [store.filesystem().map_err(failed)?, store.filesystem().map_err(failed)?];
        // In a shared vault another machine may be about to write the second copy. An exclusive holder
        // repairs it.
        if !configs.agree_on(&config) && !options.read_only && options.sharing.is_none() {
            require_case(&store, settings.names, path)?;
            // The configuration must not be replaced by one with a key that is not the vault's.
            if config_file::require_root(&store, path, &config, &master).is_ok() {
                config_file::mend_for(&config, &store, path, &master)?;
            }
        }
        let of_space = store.try_clone().map_err(failed)?;
        let has_generations = of_names.has_generations();
        // Weak, because the lock is released with the vault.
        let guard = lock.as_ref().map(Arc::downgrade).unwrap_or_default();
        let rewrites = StoredRewrites::open(store.try_clone().map_err(failed)?, config.is_rotating());
        let list = FormerList::open(&store, &config, &master).map(Arc::new);
        let context = Context {
            keys: ContentKeys::of(content_generations(&config, &master, list.as_ref())),
            router,
            durability: options.durability,
            read_only: options.read_only,
            sharing: options.sharing,
            guard: Box::new(move || match guard.upgrade() {
                Some(lock) => lock.check_to_write(),
                None => Err(io::Error::from_raw_os_error(libc::EIO)),
            }),
            overwrites_in_place: of_files.overwrites_in_place(),
            space: Space::of(Box::new(move || free_bytes(&of_space))),
            vacate: Box::new(move |file| {
                set_headless_aside(&aside, file)?;
                drop_ownerless(file)
            }),
            rewrites: Some(Box::new(rewrites.map_err(failed)?)),
            bounds: anchor.clone().map(|anchor| anchor as Arc<dyn Bounds>),
            buffered: Arc::new(Buffered::new(budget.behind)),
            ahead: Arc::default(),
            slots: SlotMemory::new(budget.slots),
            budget,
            background: Background::default(),
        };
        let device = store.itself().stat().map_err(failed)?.st_dev;
        let files =
            Files::new(Arc::new(context), device, Box::new(move || of_files.sync())).map_err(failed)?;
        let mut vault = Vault {
            renewing: Mutex::default(),
            rotation: RotationThread::default(),
            left: Mutex::default(),
            moves: AtomicU64::default(),
            id: *config.id(),
            keys: KeyRing::of(&config, &master, list.as_ref()),
            root: Arc::new(Dir::new(store.try_clone().map_err(failed)?, None)),
            files,
            pending: Pending::new(of_names, process::descriptors()),
            left_pending: None,
            long_names: Mutex::default(),
            dir_ids: RwLock::default(),
            stranded_ids: Mutex::default(),
            lists: RwLock::default(),
            has_lists: AtomicBool::new(true),
            lists_uncertain: AtomicBool::new(true),
            modes: ReentrantMutex::default(),
            has_generations,
            user: rustix::process::geteuid().as_raw(),
            anchor,
            anchoring: AnchorThread::default(),
            told: Mutex::default(),
            told_of_strays: Mutex::default(),
            read_only: options.read_only,
            sharing: options.sharing,
            lock,
        };
        if vault.lock.is_some() && matches!(vault.own_dir(LISTS), Ok(None)) {
            vault.has_lists = AtomicBool::new(false);
        }
        if vault.lock.as_ref().is_some_and(|lock| lock.was_left()) {
            // Data that a killed process left in the page cache is not durable yet, but later writes
            // will depend on it. On FUSE each file is synced separately: at its recovery, and where ids
            // and sidecars are met.
            let synced = store.sync_all().map_err(failed)?;
            // Machines that share a vault make ids and sidecars durable before others see them.
            vault.left_pending = (!synced && !vault.is_shared()).then(Met::default);
        }
        vault.root = Arc::new(vault.root_with_id(store).map_err(|e| match e {
            Error::Damaged(damage) => OpenError::DamagedRoot(damage),
            Error::Store(e) => failed(e),
            other => failed(io::Error::other(other.to_string())),
        })?);
        if let Some(anchor) = &vault.anchor {
            anchor.meet_root(&vault.root)?;
        }
        vault.recall_ctimes();
        Ok(Arc::new(vault))
    }

    /// The keys of names, directory ids, links and attributes.
    pub(super) fn keys(&self) -> Arc<NamespaceKeys> {
        self.keys.present()
    }

    /// The open files.
    pub fn files(&self) -> &Arc<Files> {
        &self.files
    }

    /// Whether the vault was opened read-only.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Fails if the vault is open for reading only, or if another process or machine has had its lock
    /// since.
    pub(super) fn writable(&self) -> Result<()> {
        match &self.lock {
            None => Err(Error::ReadOnly),
            Some(lock) => Ok(lock.check_to_write()?),
        }
    }

    /// The vault's root directory.
    pub fn root(&self) -> Arc<Dir> {
        self.root.clone()
    }

    /// Space of the store, as the size of a single file that would fit, so that everything reported as
    /// free can be allocated at once.
    pub fn statfs(&self) -> Result<StatFs> {
        let space = self.root.store.space()?;
        // Some FUSE filesystems report 0.
        let store_max = if space.f_namemax == 0 { NAME_MAX } else { space.f_namemax as usize };
        let contents = |blocks: u64| {
            layout::room_for_contents(blocks.saturating_mul(space.f_frsize)) / space.f_frsize.max(1)
        };
        Ok(StatFs {
            blocks: contents(space.f_blocks),
            bfree: contents(space.f_bfree),
            bavail: contents(space.f_bavail),
            files: space.f_files,
            ffree: space.f_ffree,
            bsize: u32::try_from(space.f_bsize).unwrap_or(u32::MAX),
            namelen: self.keys().names.name_max(store_max) as u32,
            frsize: u32::try_from(space.f_frsize).unwrap_or(u32::MAX),
        })
    }

    /// Makes a file durable with its attributes and the names that lead to it, as fsync promises.
    pub fn sync_file(&self, file: &OpenFile) -> Result<()> {
        self.make_names_durable()?;
        self.files.sync_whole(file)?;
        self.anchor_files()
    }

    /// Makes a file's data and the names that lead to it durable, as fdatasync promises.
    pub fn sync_data(&self, file: &OpenFile) -> Result<()> {
        self.make_names_durable()?;
        self.files.sync(file)?;
        self.anchor_files()
    }

    /// Flushes everything, writes the clean records and makes all of it durable, including names and
    /// attributes. Called at unmount. The write lock is released when the vault is dropped.
    pub fn shut_down(&self) -> Result<()> {
        self.rotation.stop();
        self.anchoring.stop();
        // Retried once: data that a failed sync may have lost is written again.
        let names = self.make_names_durable().or_else(|_| self.make_names_durable());
        // Must precede the cleaning of files, because some get an identity here.
        let anchored = self.anchor_names(None);
        let files = self.files.shut_down();
        let store = if self.read_only() { Ok(false) } else { self.sync_store() };
        names?;
        files?;
        store?;
        anchored?;
        self.anchor_files()?;
        self.store_ctimes();
        self.lock.as_ref().map_or(Ok(()), |lock| Ok(lock.finish()?))
    }
}

/// Bytes that the store has free for unprivileged users.
fn free_bytes(store: &StoreDir) -> io::Result<u64> {
    let space = store.space()?;
    match space.f_blocks {
        0 => Ok(u64::MAX), // the store does not count blocks
        _ => Ok(space.f_bavail.saturating_mul(space.f_frsize)),
    }
}

fn open_anchor(
    path: &Path,
    wanted: &AnchorUse,
    read_only: bool,
    config: &VaultConfig,
    master: &Secret<32>,
) -> std::result::Result<Anchor, OpenError> {
    let failed = |source| OpenError::Store { action: "cannot open", path: path.into(), source };
    refuse_inside(&wanted.file, &path.canonicalize().map_err(failed)?)?;
    Ok(Anchor::open(wanted, read_only, &Owner { config, master })?)
}

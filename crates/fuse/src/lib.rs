//! The mounted filesystem: decodes the kernel's requests, delegates to `vault`, and replies. It knows
//! nothing of chunks, keys or stored names beyond passing them on. Only this module creates errno values.
//!
//! - `filesystem` takes the kernel's requests from `/dev/fuse`; `fuser_replies` sends the answers there.
//! - `requests` handles each request; `replies` defines the answers.
//! - `names`, `nodes`, `files` and `listing` each serve one family of requests; `server` is their shared
//!   state.
//! - `owners` replaces the stored owners by one, if the mount is to show it.
//! - `inodes` and `handles` track what the kernel knows; `stale` drops outdated pages from its cache.
//! - `ring` receives and answers requests over io_uring.
//! - `loops` keeps as many event loops awake as the load needs; `small_reads` serves small reads in
//!   batches.
//! - `gate` holds requests while the vault is locked or frozen; `locking` and `freezing` change that
//!   state at the request of `control`, whose socket is in `control_dir`.
//! - `reverse` is the other filesystem, a plain directory in its stored form; `reverse_session` mounts
//!   it.
//! - `confinement` drops rights of the process.
//! - `place` opens a mount point. For `session`, `mounter` is the process that mounts and unmounts, and
//!   `device` does the actual calls. `detached` notices when another process has detached the mount.

mod affinity;
mod attr;
mod by_number;
mod caching;
mod caller;
mod capabilities;
mod confinement;
mod control;
mod control_dir;
mod detached;
mod device;
mod dir_resolve;
mod dirs;
mod errno;
mod files;
mod filesystem;
#[cfg(test)]
mod fixture;
mod forgotten;
mod freezing;
mod fuser_replies;
mod gate;
mod handing;
mod handles;
mod idle;
mod inodes;
mod listing;
mod locking;
mod loops;
mod metrics;
mod mounter;
mod names;
mod nodes;
mod owners;
mod pace;
mod pages;
mod permission_policy;
mod place;
mod preload;
mod read_queue;
mod replies;
mod requests;
mod reverse;
mod reverse_attr;
mod reverse_session;
pub mod ring;
mod scratch;
mod server;
mod session;
mod settings;
mod small_reads;
mod stale;
mod suspend_state;
mod wanted;
mod workers;

pub use caching::CacheMode;
pub use confinement::{Confinement, Reach, confine, in_force, refuse_calls};
pub use control::{ControlCommand, FROZEN, LOCKED, Patience, Status as ControlStatus, hears, process, tell};
pub use control_dir::{ControlDir, NoControlDir, SocketName};
pub use device::{end, unmount};
pub use mounter::{COMMAND as MOUNTER_COMMAND, Mounter, MounterTask, serve_mounter};
pub use owners::Owners;
pub use place::{MountPoint, PlaceError, Trust};
pub use reverse_session::mount_reverse;
pub use session::{MountOptions, RingMode, Session, Unmounter, mount};
pub use settings::{MOST_PAGES, PAGES, RINGS};

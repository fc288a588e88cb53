//! The mounted filesystem: decodes the kernel's requests, delegates to `vault`, replies. It knows nothing of chunks,
//! keys or stored names beyond passing them on. It is the only place that makes an errno.
//!
//! - `filesystem` takes the kernel's requests from `/dev/fuse`, `fuser_replies` sends the answers there.
//! - `requests` is what is done with each, `replies` what they are answered with.
//! - `names`, `nodes`, `files` and `listing` each do the work of one family of requests; `server` is what they share.
//! - `inodes` and `handles` hold what the kernel knows; `stale` drops pages that it should not have any more.
//! - `ring` takes requests over io_uring and answers them there.
//! - `loops` keeps as many event loops awake as there is work for; `small_reads` does small reads in batches.
//! - `gate` has requests wait while the vault is locked or frozen; `locking` and `freezing` do that, as `control` is told; `control_dir` has its socket.
//! - `reverse` is the other filesystem: a plain directory in its stored form; `reverse_session` mounts it.
//! - `confinement` takes rights from the process; `place` opens a mount point, `mounter` is the process that mounts and unmounts it, as `device` does that, for `session`; `detached` notices that others took it away.

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
mod dirs;
mod errno;
mod files;
mod filesystem;
mod forgotten;
mod freezing;
mod fuser_replies;
mod gate;
mod handing;
mod handles;
mod held;
mod idle;
mod inodes;
mod listing;
mod locking;
mod loops;
mod metrics;
mod mounter;
mod names;
mod nodes;
mod pace;
mod pages;
mod permissions;
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
mod wanted;
mod way;
mod workers;

pub use caching::CacheMode;
pub use confinement::{Confinement, Reach, confine, in_force, refuse_calls};
pub use control::{
    Command as ControlCommand, FROZEN, LOCKED, Patience, Status as ControlStatus, hears, process, tell,
};
pub use control_dir::{ControlDir, NoControlDir, SocketName};
pub use device::{end, unmount};
pub use mounter::{COMMAND as MOUNTER_COMMAND, Mounter, Task as MounterTask, serve_mounter};
pub use place::{MountPoint, PlaceError, Trust};
pub use reverse_session::mount_reverse;
pub use session::{MountOptions, RingMode, Session, Unmounter, mount};
pub use settings::{MOST_PAGES, PAGES, RINGS};

//! The content of one file over a `BackingFile`: reading, writing, commit and recovery.
//!
//! | module | purpose |
//! |---|---|
//! | `file` | an open file, made of the parts below; its segments; rewriting it under another key |
//! | `file_core`, `backing` | what background threads share with it: the state's lock; the stored file |
//! | `context`, `rewrites` | what all files of a vault share |
//! | `state`, `lock`, `file_times` | in-memory state of the file: stored version, pending writes, times |
//! | `record`, `tree` | stored version: commit records; slots and digests (limited by `slot_memory`) |
//! | `buffer`, `in_flight`, `gaps` | pending writes: buffered, in flight, still in the kernel |
//! | `record_writer` | writing of records |
//! | `recover` | reading of the stored state; recovery after a crash |
//! | `commit`, `flush`, `clean` | writes to the store; what leaves the buffer for it; the clean record |
//! | `read` | reads, including read-ahead (limited by `ahead_memory`) |
//! | `write` | writes into the buffer |
//! | `lease`, `lease_keeper` | files that other machines may write, too; revoked leases |
//! | `rebuild` | repair of a damaged file |
//! | `bound` | newest record known to be durable, for a keeper outside the store |
//! | `space` | free space in the store |
//! | `background` | threads for read-ahead, sealing and storing |
//! | `rules` | the rules of the commit protocol, by name |

// In tests, the store fails on command.
#[cfg(test)]
extern crate store_testing as store;

mod ahead_memory;
mod background;
mod backing;
mod bound;
mod breakable;
mod budget;
mod buffer;
mod chunk_range;
mod clean;
mod commit;
mod context;
mod damage;
mod error;
mod file;
mod file_core;
mod file_times;
mod flush;
mod gaps;
mod in_flight;
mod keys;
mod lease;
mod lease_keeper;
pub mod lease_rules;
mod lock;
mod read;
mod rebuild;
mod record;
mod record_writer;
mod recover;
mod rewrites;
mod rules;
mod slot_memory;
mod space;
mod state;
pub mod sync;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod time;
mod tree;
mod write;

pub use ahead_memory::ReadAheadMemory;
pub use background::Background;
pub use bound::{Bound, Bounds};
pub use budget::Budget;
pub use buffer::Buffered;
pub use clean::{CleanStep, Cleaner};
pub use context::{Context, Durability, Guard, Vacate};
pub use error::{Damage, Error, Mismatch, RecordOrder, Refused, Result};
pub use file::{File, Segment, each_piece, each_segment, newest_record, next_range};
pub use file_times::FileTimes;
pub use keys::{Accept, ContentKeys, Generation, Generations};
pub use lease_keeper::{LeaseKeeper, Stamp, is_passing, wait_for};
pub use lease_rules::LeaseRule;
pub use read::SmallRead;
pub use rebuild::{Rebuilt, rebuild};
pub use rewrites::{Rewrite, Rewrites, Sectors};
pub use slot_memory::SlotMemory;
pub use space::Space;
pub use time::Time;

//! The mount's metrics as JSON, served through an extended attribute of the root and over the control
//! socket.

use super::{confinement, inodes::ROOT, server::Server};
use serde_json::{Value, json};
use std::{ffi::OsStr, sync::atomic::Ordering};

/// Limited because an attribute holds at most 64 KiB, and each complaint contains a path.
const MOST_COMPLAINTS: usize = 8;

/// Whether this is the metrics attribute on the root.
pub fn is_metrics(number: u64, name: &OsStr) -> bool {
    number == ROOT && name == metrics::ATTRIBUTE
}

impl Server {
    /// The metrics as JSON, if the attribute is the metrics attribute and the user is root or the one who
    /// mounted. Other users see no such attribute.
    pub fn metrics(&self, number: u64, name: &OsStr, user: u32) -> Option<Vec<u8>> {
        let may = user == 0 || user == rustix::process::geteuid().as_raw();
        if !is_metrics(number, name) || !may {
            return None;
        }
        Some(self.metrics_text().into_bytes())
    }

    /// All metrics as JSON.
    pub fn metrics_text(&self) -> String {
        let mut all = metrics::snapshot();
        all.insert("program".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        all.insert("process".to_owned(), json!(std::process::id()));
        let frozen = self.frozen.load(Ordering::Relaxed);
        all.insert("locked".to_owned(), json!(self.gate.is_closed() && !frozen));
        all.insert("frozen".to_owned(), json!(frozen));
        let confined = confinement::in_force().map_or(Value::Null, |all| all.json());
        all.insert("confinement".to_owned(), confined);
        let memory = self.vault.memory();
        let buffers = json!({
            "in_use": memory.buffers,
            "peak": memory.peak,
            "bound": memory.bound,
            "ahead_of_readers": memory.ahead,
            "behind_writers": memory.behind,
            "slots": memory.slots,
        });
        all.insert("memory".to_owned(), buffers);
        let engines = self.vault.engines().into_iter().map(|engine| {
            json!({
                "name": engine.name,
                "description": engine.description,
                "batches": engine.batches,
                "chunks": engine.chunks,
                "bytes": engine.bytes,
                "failed": engine.failed,
                "in_service": engine.in_service,
            })
        });
        all.insert("engines".to_owned(), engines.collect());
        all.insert("open_files".to_owned(), json!(self.vault.files().open_count()));
        let (some, count) = self.vault.complaints(MOST_COMPLAINTS);
        all.insert("complaints".to_owned(), json!({ "count": count, "some": some }));
        Value::Object(all).to_string()
    }
}

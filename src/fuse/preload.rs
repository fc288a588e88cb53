//! The kernel is given the content of a small file when that is opened. The read that usually follows then needs no
//! request of its own.

use super::server::Server;
use crate::vault::OpenFile;
use fuser::INodeNo;

/// Files up to this size; the kernel would read as much ahead.
const LARGEST: u64 = 64 << 10;

impl Server {
    /// Gives the kernel the content of a small file; its node is untouched, and its use locked.
    ///
    /// The kernel locks a page until a read of it is answered, and storing content waits for that lock. Nobody has
    /// the node open, and an open has to wait for the node's lock. So no read can be in progress; nor a cut, after
    /// which the kernel would take the content for that of a longer file; nor a direct write, which the content
    /// would overwrite.
    pub fn preload(&self, node: u64, file: &OpenFile) {
        let size = file.file.size();
        let Some(kernel) = self.kernel().filter(|_| size > 0 && size <= LARGEST) else { return };
        // If this fails, the read that follows reports it.
        let _ = self.read_file(file, 0, size as usize, |data| {
            if data.len() as u64 == size {
                let _ = kernel.store(INodeNo(node), 0, data);
            }
        });
    }
}

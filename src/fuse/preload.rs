//! Small files are given to the kernel when they are opened: who opens one reads it, and then the read is
//! no request of its own.

use super::server::Server;
use crate::vault::OpenFile;
use fuser::INodeNo;

/// Files up to this size; the kernel would read as much ahead.
const MOST: u64 = 64 << 10;

impl Server {
    /// Gives the kernel the content of a small file; its node is untouched, and its use locked.
    ///
    /// The kernel locks a page until a read of it is answered, and taking content waits for that lock. Nobody
    /// has the node open and whoever wants to now waits, so no read of it can be under way; and no cut, after
    /// which the kernel would take the content for a longer file; and no write past the cache, which the content
    /// would overtake.
    pub fn preload(&self, node: u64, file: &OpenFile) {
        let size = file.file.size();
        let Some(kernel) = self.kernel().filter(|_| size > 0 && size <= MOST) else { return };
        // Whatever fails here is met again by the read that then comes.
        let _ = self.read_file(file, 0, size as usize, |data| {
            if data.len() as u64 == size {
                let _ = kernel.store(INodeNo(node), 0, data);
            }
        });
    }
}

//! Preloading: the kernel gets the content of a small file on open. The read that usually follows needs
//! no request.

use super::server::Server;
use fuser::INodeNo;
use vault::OpenFile;

/// Maximum size of a preloaded file in bytes. The kernel would read ahead as much.
const LARGEST: u64 = 64 << 10;

impl Server {
    /// Pushes the content of a small file to the kernel. The caller holds the lock of the node's
    /// `in_use`, which must be untouched.
    ///
    /// The kernel locks a page until a read of it is answered, and storing content waits for that lock.
    /// No program has the node open, and an open must wait for the node's lock. So no read can be in
    /// progress. Neither can a truncation, after which the kernel would take the content for that of a
    /// longer file, nor a direct write, which the content would overwrite.
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

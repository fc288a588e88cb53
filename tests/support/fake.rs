//! A mount that merely claims to be one of a vault, and a listener that answers commands in place of its
//! process.

use super::mounted::release;
use fuse::{ControlDir, SocketName};
use rustix::{
    mount::{MountFlags, mount},
    net::{Shutdown, shutdown},
    process::Uid,
    thread::set_thread_res_uid,
};
use std::{
    ffi::CString,
    fs::{self, File},
    io::{Read, Write},
    os::{fd::AsRawFd, unix::net::UnixListener},
    path::Path,
    sync::{Arc, Mutex},
    thread,
};
use tempfile::TempDir;

/// Unmounted on drop.
pub struct Fake {
    point: TempDir,
    fuse: Option<File>,
    _name: SocketName,
    listener: Arc<UnixListener>,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Fake {
    /// A mount owned by the user `owner`, with this source in the mount table. `answer` produces the reply
    /// to a command. Needs root.
    pub fn new(source: &Path, owner: u32, answer: impl Fn(&[u8]) -> String + Send + 'static) -> Fake {
        let point = TempDir::with_prefix("warpcrypt-test-fake-").expect("temporary directory");
        let fuse = File::options().read(true).write(true).open("/dev/fuse").expect("/dev/fuse");
        let data = format!("fd={},rootmode=40000,user_id={owner},group_id={owner}", fuse.as_raw_fd());
        let data = CString::new(data).expect("no zero byte");
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        mount(source, point.path(), "fuse.warpcrypt", flags, data.as_c_str()).expect("mount");
        let device = device_of(point.path());
        // The kernel attributes the socket to the thread that began to listen.
        let listen = move || {
            let owner = Uid::from_raw(owner);
            set_thread_res_uid(owner, owner, owner).expect("another user");
            let dir = ControlDir::make().expect("a directory for the socket");
            dir.listen(device).expect("listen")
        };
        let (name, listener) = thread::spawn(listen).join().expect("no panic");
        let listener = Arc::new(listener);
        let heard = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let (from, into) = (listener.clone(), heard.clone());
        thread::spawn(move || {
            while let Ok((mut stream, _)) = from.accept() {
                let mut command = Vec::new();
                let _ = stream.read_to_end(&mut command);
                into.lock().unwrap().push(command.clone());
                let done = [&[0], answer(&command).as_bytes()].concat();
                let _ = stream.write_all(&done);
            }
        });
        Fake { point, fuse: Some(fuse), _name: name, listener, heard }
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.point.path()
    }

    /// The commands received so far.
    pub fn heard(&self) -> Vec<Vec<u8>> {
        self.heard.lock().unwrap().clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = shutdown(&*self.listener, Shutdown::Both);
        // Close this first: requests to a mount without a server then fail instead of blocking.
        drop(self.fuse.take());
        release(self.point.path());
    }
}

/// Device number of the mount on `point`, determined without sending a request to it.
pub fn device_of(point: &Path) -> u64 {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    let line = table.lines().rfind(|line| line.split(' ').nth(4) == point.to_str()).expect("a line");
    let (major, minor) = line.split(' ').nth(2).and_then(|device| device.split_once(':')).expect("a device");
    rustix::fs::makedev(major.parse().expect("a number"), minor.parse().expect("a number"))
}

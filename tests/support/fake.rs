//! A mount that only says to be one of a vault, and who answers commands in the place of its process.

use super::{mounted::release, waiting::NEVER};
use rustix::{
    mount::{MountFlags, mount},
    net::{Shutdown, shutdown},
    process::Uid,
    thread::set_thread_res_uid,
};
use std::{
    ffi::CString,
    fs::{self, File},
    io::{ErrorKind, Read, Write},
    os::{
        fd::AsRawFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Dropping it takes the mount away.
pub struct Fake {
    point: TempDir,
    device: Option<File>,
    listener: Arc<UnixListener>,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Fake {
    /// A mount by the user `owner` with this source in the mount table. `answer` makes the text that a command is answered.
    /// Needs root.
    pub fn new(source: &Path, owner: u32, answer: impl Fn(&[u8]) -> String + Send + 'static) -> Fake {
        let point = TempDir::with_prefix("warpcrypt-test-fake-").expect("temporary directory");
        let device = File::options().read(true).write(true).open("/dev/fuse").expect("/dev/fuse");
        let data = format!("fd={},rootmode=40000,user_id={owner},group_id={owner}", device.as_raw_fd());
        let data = CString::new(data).expect("no zero byte");
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        mount(source, point.path(), "fuse.warpcrypt", flags, data.as_c_str()).expect("mount");
        let address = format!("warpcrypt-mount-{}", minor_of(point.path()));
        // The kernel says who listens: the thread that began to.
        let listen = move || {
            let owner = Uid::from_raw(owner);
            set_thread_res_uid(owner, owner, owner).expect("another user");
            let address = SocketAddr::from_abstract_name(address).expect("an address");
            let end = Instant::now() + NEVER;
            loop {
                match UnixListener::bind_addr(&address) {
                    // The mount that had the number before has just ended.
                    Err(e) if e.kind() == ErrorKind::AddrInUse && Instant::now() < end => {
                        thread::sleep(Duration::from_millis(5));
                    }
                    bound => return bound.expect("listen"),
                }
            }
        };
        let listener = Arc::new(thread::spawn(listen).join().expect("no panic"));
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
        Fake { point, device: Some(device), listener, heard }
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.point.path()
    }

    /// The commands that it was told.
    pub fn heard(&self) -> Vec<Vec<u8>> {
        self.heard.lock().unwrap().clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = shutdown(&*self.listener, Shutdown::Both);
        // First: nobody waits for the answer of a mount without one.
        drop(self.device.take());
        release(self.point.path());
    }
}

/// The minor number of the device that is mounted at `point`, without a request to it.
fn minor_of(point: &Path) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    let line = table.lines().find(|line| line.split(' ').nth(4) == point.to_str()).expect("a line");
    line.split(' ').nth(2).and_then(|device| device.split_once(':')).expect("a device").1.to_owned()
}

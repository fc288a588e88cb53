//! The way to a mount's process beside the kernel's: a socket that takes commands of root and of the user who mounted.
//!
//! Requests to the mount would not do: while the vault is locked they wait, and the event loops with them. The socket is in
//! a directory of the user who mounted and has a name made of the mount's device number, both of which the mount table tells.
//! Both sides also ask the kernel who the other is.
//!
//! A command is a byte for the version, one that says which it is, and its payload, up to the end of the stream. The
//! answer is a byte that says how it ended, and a text.

use super::{
    control_dir::{ControlDir, SocketName, connect_to},
    held::Held,
    locking::UnlockError,
    server::Server,
};
use crate::vault::{AnchorError, OpenError};
use crossbeam_channel::{RecvTimeoutError, bounded};
use parking_lot::Mutex;
use rustix::{
    net::{Shutdown, shutdown, sockopt::socket_peercred},
    process::{Pid, PidfdFlags, Uid, geteuid, pidfd_open},
};
use std::{
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use zeroize::Zeroizing;

/// The version of commands and answers.
const VERSION: u8 = 1;
/// Bytes of a command at most.
const COMMAND_MAX: usize = 4096;
/// Bytes of an answer's text at most.
const TEXT_MAX: usize = 64 << 10;
/// A command that is not there by then does not come, nor does the answer to a question.
const PATIENCE: Duration = Duration::from_secs(10);
/// So long who was told to stop still waits for an answer.
const MOMENT: Duration = Duration::from_secs(2);
/// How often who waits for an answer looks whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// What a mount can be told to do.
pub enum Command {
    /// Store everything, forget every key and all content, have programs wait.
    Lock,
    /// The same, and end the mount, whoever uses it.
    LockAndEnd,
    /// Take the master key back, and let programs go on.
    Unlock(Zeroizing<[u8; 32]>),
    /// Say whether the vault is locked or frozen.
    State,
    /// Tell the numbers that the mount's attribute has.
    Metrics,
    /// Store everything and hold the store as it is, for so long at most; have programs wait. The answer is the freeze's
    /// number.
    Freeze(Duration),
    /// Let programs go on; if a freeze is named by its number, that alone ends.
    Thaw(Option<u64>),
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It was done.
    Done,
    /// It failed; the text says why.
    Failed,
    /// The master key is not the vault's.
    WrongKey,
    /// The mount does not know it: the mount's program is of another version.
    Unknown,
    /// The vault is older than its anchor says.
    Old,
    /// The disk that is written to is full.
    Full,
}

/// How long the answer to a command is waited for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Patience<'a> {
    /// So long at most; else as long as it takes, but for a question.
    pub most: Option<Duration>,
    /// For a moment only once this is set.
    pub stop: Option<&'a AtomicBool>,
}

impl Command {
    /// Whether it only asks: what takes long is something else.
    pub fn is_question(&self) -> bool {
        match self {
            Command::State | Command::Metrics => true,
            Command::Lock
            | Command::LockAndEnd
            | Command::Unlock(_)
            | Command::Freeze(_)
            | Command::Thaw(_) => false,
        }
    }

    /// Whether it carries the master key.
    pub fn is_secret(&self) -> bool {
        matches!(self, Command::Unlock(_))
    }

    fn encode(&self) -> Zeroizing<Vec<u8>> {
        let number;
        let (code, payload): (u8, &[u8]) = match self {
            Command::Lock => (1, &[]),
            Command::LockAndEnd => (2, &[]),
            Command::Unlock(master) => (3, &master[..]),
            Command::State => (4, &[]),
            Command::Metrics => (5, &[]),
            Command::Freeze(most) => {
                number = most.as_secs().to_le_bytes();
                (6, &number)
            }
            Command::Thaw(None) => (7, &[]),
            Command::Thaw(Some(freeze)) => {
                number = freeze.to_le_bytes();
                (7, &number)
            }
        };
        Zeroizing::new([&[VERSION, code], payload].concat())
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [VERSION, 1] => Some(Command::Lock),
            [VERSION, 2] => Some(Command::LockAndEnd),
            [VERSION, 3, master @ ..] => {
                let mut key = Zeroizing::new([0; 32]);
                key.copy_from_slice(Some(master).filter(|master| master.len() == 32)?);
                Some(Command::Unlock(key))
            }
            [VERSION, 4] => Some(Command::State),
            [VERSION, 5] => Some(Command::Metrics),
            [VERSION, 6, seconds @ ..] => {
                Some(Command::Freeze(Duration::from_secs(u64::from_le_bytes(seconds.try_into().ok()?))))
            }
            [VERSION, 7] => Some(Command::Thaw(None)),
            [VERSION, 7, freeze @ ..] => {
                Some(Command::Thaw(Some(u64::from_le_bytes(freeze.try_into().ok()?))))
            }
            _ => None,
        }
    }
}

impl Status {
    const ALL: [Status; 6] =
        [Status::Done, Status::Failed, Status::WrongKey, Status::Unknown, Status::Old, Status::Full];

    fn code(self) -> u8 {
        match self {
            Status::Done => 0,
            Status::Failed => 1,
            Status::WrongKey => 2,
            Status::Unknown => 3,
            Status::Old => 4,
            Status::Full => 5,
        }
    }

    /// How an unlock ended that failed.
    fn of(error: &UnlockError) -> Self {
        match error {
            UnlockError::Vault(OpenError::OtherVault(_)) => Status::WrongKey,
            UnlockError::Vault(OpenError::Anchor(AnchorError::OldConfiguration { .. })) => Status::Old,
            UnlockError::Vault(OpenError::Anchor(e)) if e.is_disk_full() => Status::Full,
            UnlockError::Vault(_) | UnlockError::NotLocked => Status::Failed,
        }
    }
}

/// What [`Command::State`] is answered while the vault is locked.
pub const LOCKED: &str = "locked";
/// What it is answered while the vault is frozen.
pub const FROZEN: &str = "frozen";

/// The process of `owner`, who mounted it, behind the mount with this device number. An ordinary user reaches their own mounts
/// alone. Nothing secret goes to another user than root: any user can mount something that says to be another's vault.
fn reach(device: u64, owner: u32, secret: bool) -> io::Result<UnixStream> {
    let (owner, own) = (Uid::from_raw(owner), geteuid());
    if owner != own && !owner.is_root() && (secret || !own.is_root()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // The owner could have mounted something over the directory that never answers. The thread ends with this process.
    let (to, from) = bounded(1);
    thread::spawn(move || to.send(connect_to(device, owner)));
    let stream = match from.recv_timeout(PATIENCE) {
        Ok(connected) => connected?,
        Err(RecvTimeoutError::Timeout) => return Err(io::ErrorKind::TimedOut.into()),
        Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("an internal error")),
    };
    let peer = socket_peercred(&stream)?.uid;
    if peer != owner {
        return Err(io::Error::other(format!("another user's process (uid {peer}) answers in its place")));
    }
    Ok(stream)
}

/// Whether the process of a mount answers at all; as [`tell`]. One that does another command answers when that is done.
///
/// # Errors
/// `TimedOut` if it has not answered after ten seconds.
pub fn hears(device: u64, owner: u32) -> io::Result<()> {
    tell(device, owner, &Command::Metrics, &Patience::default()).map(drop)
}

/// The process behind a mount, and what is polled for its end; as [`tell`].
///
/// # Errors
/// As [`tell`].
pub fn process(device: u64, owner: u32) -> io::Result<(Pid, OwnedFd)> {
    let process = socket_peercred(reach(device, owner, false)?)?.pid;
    Ok((process, pidfd_open(process, PidfdFlags::empty())?))
}

/// Has the mount of `owner` with this device number do something. Only a process of root or of the user who calls is told. Root
/// tells those of other users, too, but nothing secret.
///
/// # Errors
/// If nobody listens there; what the system says. `TimedOut` if it has not been answered in time, and
/// `Interrupted` if who waits was told to stop: what is no question may be done all the same, but for a freeze.
pub fn tell(device: u64, owner: u32, command: &Command, patience: &Patience) -> io::Result<(Status, String)> {
    let mut stream = reach(device, owner, command.is_secret())?;
    let told = stream.write_all(&command.encode()).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
    let patience = match command.is_question() {
        true => Patience { most: Some(PATIENCE), ..*patience },
        false => *patience,
    };
    // It closes the socket to those whom it does not obey: at once, whatever they have written by then.
    let answer = told.and_then(|()| hear(&stream, &patience)).map_err(|e| match e.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::NotConnected => {
            io::ErrorKind::PermissionDenied.into()
        }
        _ => e,
    })?;
    let (code, text) = answer.split_first().ok_or(io::ErrorKind::PermissionDenied)?;
    let status = Status::ALL.into_iter().find(|known| known.code() == *code).unwrap_or(Status::Unknown);
    Ok((status, String::from_utf8_lossy(text).into_owned()))
}

/// What comes until the other end closes the socket.
fn hear(mut stream: &UnixStream, patience: &Patience) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(LOOK))?;
    let (since, mut stopped) = (Instant::now(), None);
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    let given_up = loop {
        match stream.read(&mut part) {
            Ok(0) => return Ok(answer),
            Ok(read) => answer.extend(&part[..read]),
            Err(e) if [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&e.kind()) => {}
            Err(e) => return Err(e),
        }
        if answer.len() > TEXT_MAX {
            return Ok(answer);
        }
        if patience.most.is_some_and(|most| since.elapsed() >= most) {
            break io::ErrorKind::TimedOut;
        }
        if patience.stop.is_some_and(|stop| stop.load(Ordering::SeqCst))
            && stopped.get_or_insert_with(Instant::now).elapsed() >= MOMENT
        {
            break io::ErrorKind::Interrupted;
        }
    };
    // From here on the other end notices that nobody takes its answer, unless that is here already.
    stream.shutdown(std::net::Shutdown::Read)?;
    stream.read_to_end(&mut answer)?;
    if answer.is_empty() { Err(given_up.into()) } else { Ok(answer) }
}

/// Ends the mount, whoever uses it.
pub type EndMount = Box<dyn Fn() -> io::Result<()> + Send>;

/// The mount's end of the socket, and the thread that listens there.
pub struct Control {
    name: Mutex<Option<SocketName>>,
    listener: Arc<UnixListener>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Control {
    /// Listens for commands to a mount.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(device: u64, dir: &ControlDir, server: Arc<Server>, end: EndMount) -> io::Result<Control> {
        let (name, listener) = dir.listen(device)?;
        let listener = Arc::new(listener);
        let own = listener.clone();
        let thread = thread::Builder::new().name("control".into()).spawn(move || {
            for stream in own.incoming() {
                match stream {
                    Ok(stream) => {
                        // Who asked may have gone away.
                        let _ = serve(&server, &end, stream);
                    }
                    // Shut down.
                    Err(e) if e.kind() == io::ErrorKind::InvalidInput => return,
                    Err(e) => {
                        log::warn!("a command cannot be heard: {e}");
                        thread::sleep(PATIENCE);
                    }
                }
            }
        })?;
        Ok(Control { name: Mutex::new(Some(name)), listener, thread: Mutex::new(Some(thread)) })
    }

    /// Hears no more commands; waits for the one that is being done.
    pub fn end(&self) {
        drop(self.name.lock().take());
        // One that is shut down already needs it no more.
        let _ = shutdown(&*self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.lock().take() {
            // What it calls answers its own panics, or the listener ends early.
            let _ = thread.join();
        }
    }
}

fn serve(server: &Arc<Server>, end: &EndMount, mut stream: UnixStream) -> io::Result<()> {
    let user = socket_peercred(&stream)?.uid;
    if !user.is_root() && user != geteuid() {
        return Ok(());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut bytes = Zeroizing::new(vec![0; COMMAND_MAX]);
    let mut filled = 0;
    while filled < COMMAND_MAX {
        match stream.read(&mut bytes[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    let command = Command::decode(&bytes[..filled]);
    let (status, text) = match command.as_ref().map(|command| obey(server, end, command)) {
        None => (Status::Unknown, String::new()),
        Some(Ok(text)) => (Status::Done, text),
        Some(Err((status, text))) => (status, text),
    };
    let taken = stream.write_all(&[&[status.code()], text.as_bytes()].concat());
    // Who asked has gone away, and will not thaw it.
    if taken.is_err() && status == Status::Done && matches!(command, Some(Command::Freeze(_))) {
        let _ = server.thaw(text.parse().ok());
    }
    taken
}

fn obey(server: &Arc<Server>, end: &EndMount, command: &Command) -> Result<String, (Status, String)> {
    let failed = |text| (Status::Failed, text);
    match command {
        Command::Lock => server.lock(false).map(|()| String::new()).map_err(failed),
        Command::LockAndEnd => {
            server.lock(true).map_err(failed)?;
            end().map(|()| String::new()).map_err(|e| failed(format!("locked, but still mounted: {e}")))
        }
        Command::Unlock(master) => match server.unlock(master) {
            Ok(()) => Ok(String::new()),
            Err(e) => Err((Status::of(&e), e.to_string())),
        },
        Command::Metrics => Ok(server.metrics_text()),
        Command::Freeze(most) => server.freeze(*most).map(|number| number.to_string()).map_err(failed),
        Command::Thaw(freeze) => server.thaw(*freeze).map(|()| String::new()).map_err(failed),
        Command::State => Ok(match *server.held.lock() {
            Held::Locked => LOCKED,
            Held::Frozen { .. } => FROZEN,
            Held::Not => "",
        }
        .to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_an_end_is_not_waited_for() {
        let (ours, mut its) = UnixStream::pair().expect("sockets");
        let dribble = thread::spawn(move || {
            while its.write_all(b"x").is_ok() {
                thread::sleep(LOOK / 5);
            }
        });
        let patience = Patience { most: Some(LOOK * 4), stop: None };
        let begun = Instant::now();
        assert!(!hear(&ours, &patience).expect("bytes").is_empty());
        assert!(begun.elapsed() < PATIENCE);
        dribble.join().expect("no panic");
    }

    #[test]
    fn who_is_told_to_stop_waits_a_moment_only() {
        let (ours, mut its) = UnixStream::pair().expect("sockets");
        let stop = AtomicBool::new(true);
        let patience = Patience { most: None, stop: Some(&stop) };
        assert_eq!(hear(&ours, &patience).expect_err("no answer").kind(), io::ErrorKind::Interrupted);
        assert!(its.write_all(b"late").is_err(), "nobody takes it");
    }

    #[test]
    fn who_unlocks_is_told_of_a_full_disk() {
        let at = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            Status::of(&UnlockError::Vault(AnchorError::File { path: "anchor".into(), source }.into()))
        };
        assert_eq!(
            [libc::ENOSPC, libc::EDQUOT, libc::EIO].map(at),
            [Status::Full, Status::Full, Status::Failed]
        );
    }

    #[test]
    fn commands_pass_through_the_socket() {
        let thaws = [None, Some(0), Some(u64::MAX)].map(Command::Thaw);
        for command in
            [Command::Lock, Command::LockAndEnd, Command::State, Command::Metrics].into_iter().chain(thaws)
        {
            let bytes = command.encode();
            assert_eq!(Command::decode(&bytes).expect("known").encode(), bytes);
        }
        let bytes = Command::Unlock(Zeroizing::new([7; 32])).encode();
        assert!(matches!(Command::decode(&bytes), Some(Command::Unlock(master)) if *master == [7; 32]));
        let bytes_of_freeze = Command::Freeze(Duration::from_secs(600)).encode();
        assert!(
            matches!(Command::decode(&bytes_of_freeze), Some(Command::Freeze(most)) if most.as_secs() == 600)
        );
        for bad in [
            &[][..],
            &[VERSION, 6, 1],
            &[VERSION, 7, 1],
            &[VERSION],
            &[VERSION, 0],
            &[VERSION + 1, 1],
            &[VERSION, 3, 7],
            &bytes[..33],
        ] {
            assert!(Command::decode(bad).is_none(), "{bad:?}");
        }
    }
}

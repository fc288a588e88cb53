//! Control channel to a mount's process besides the kernel's: a socket that accepts commands from root
//! and from the user who mounted.
//!
//! Requests to the mount itself would not work: while the vault is locked they wait, and so do the event
//! loops. The socket is in a directory of the user who mounted, and its name contains the mount's device
//! number. The mount table tells both. Each side also asks the kernel for the other's identity.
//!
//! A command consists of a version byte, a byte with the command's code, and its payload, up to the end
//! of the stream. The answer is a status byte and a text.

use super::{
    control_dir::{ControlDir, SocketName, connect_to},
    locking::UnlockError,
    server::Server,
    suspend_state::SuspendState,
};
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
use vault::{AnchorError, OpenError};
use zeroize::Zeroizing;

/// Protocol version of commands and answers.
const VERSION: u8 = 1;
/// Maximum length of a command in bytes.
const COMMAND_MAX: usize = 4096;
/// Maximum length of an answer's text in bytes.
const TEXT_MAX: usize = 64 << 10;
/// Timeout for receiving a command, and for the answer to a query.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a caller that was told to stop still waits for an answer.
const MOMENT: Duration = Duration::from_secs(2);
/// How often a waiting caller checks whether it should stop.
const LOOK: Duration = Duration::from_millis(50);

/// A command to a mount.
pub enum ControlCommand {
    /// Store everything, wipe all keys and contents, and block programs.
    Lock,
    /// Lock, then end the mount even if it is in use.
    LockAndEnd,
    /// Load the master key again and resume blocked programs.
    Unlock(Zeroizing<[u8; 32]>),
    /// Report whether the vault is locked or frozen.
    State,
    /// Report the numbers in the mount's metrics attribute.
    Metrics,
    /// Store everything, keep the store unchanged for at most this long, and block programs. The answer
    /// is the freeze's number.
    Freeze(Duration),
    /// Resume programs. With a number, only the freeze with that number ends.
    Thaw(Option<u64>),
}

/// Outcome of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Completed.
    Done,
    /// It failed; the text says why.
    Failed,
    /// The master key does not belong to the vault.
    WrongKey,
    /// The mount does not know the command: its program has a different version.
    Unknown,
    /// The vault is older than its anchor.
    Old,
    /// The disk being written to is full.
    Full,
}

/// How long to wait for the answer to a command.
#[derive(Debug, Clone, Copy, Default)]
pub struct Patience<'a> {
    /// Maximum time to wait; unlimited if `None`, except for a query.
    pub most: Option<Duration>,
    /// Once this is set, the caller waits only a moment longer.
    pub stop: Option<&'a AtomicBool>,
}

impl ControlCommand {
    /// Whether it is a query. Anything else may take long.
    pub fn is_question(&self) -> bool {
        match self {
            ControlCommand::State | ControlCommand::Metrics => true,
            ControlCommand::Lock
            | ControlCommand::LockAndEnd
            | ControlCommand::Unlock(_)
            | ControlCommand::Freeze(_)
            | ControlCommand::Thaw(_) => false,
        }
    }

    /// Whether it carries the master key.
    pub fn is_secret(&self) -> bool {
        matches!(self, ControlCommand::Unlock(_))
    }

    fn encode(&self) -> Zeroizing<Vec<u8>> {
        let number;
        let (code, payload): (u8, &[u8]) = match self {
            ControlCommand::Lock => (1, &[]),
            ControlCommand::LockAndEnd => (2, &[]),
            ControlCommand::Unlock(master) => (3, &master[..]),
            ControlCommand::State => (4, &[]),
            ControlCommand::Metrics => (5, &[]),
            ControlCommand::Freeze(most) => {
                number = most.as_secs().to_le_bytes();
                (6, &number)
            }
            ControlCommand::Thaw(None) => (7, &[]),
            ControlCommand::Thaw(Some(freeze)) => {
                number = freeze.to_le_bytes();
                (7, &number)
            }
        };
        Zeroizing::new([&[VERSION, code], payload].concat())
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [VERSION, 1] => Some(ControlCommand::Lock),
            [VERSION, 2] => Some(ControlCommand::LockAndEnd),
            [VERSION, 3, master @ ..] => {
                let mut key = Zeroizing::new([0; 32]);
                key.copy_from_slice(Some(master).filter(|master| master.len() == 32)?);
                Some(ControlCommand::Unlock(key))
            }
            [VERSION, 4] => Some(ControlCommand::State),
            [VERSION, 5] => Some(ControlCommand::Metrics),
            [VERSION, 6, seconds @ ..] => Some(ControlCommand::Freeze(Duration::from_secs(
                u64::from_le_bytes(seconds.try_into().ok()?),
            ))),
            [VERSION, 7] => Some(ControlCommand::Thaw(None)),
            [VERSION, 7, freeze @ ..] => {
                Some(ControlCommand::Thaw(Some(u64::from_le_bytes(freeze.try_into().ok()?))))
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

    /// The status of a failed unlock.
    fn of(error: &UnlockError) -> Self {
        match error {
            UnlockError::Vault(OpenError::OtherVault(_)) => Status::WrongKey,
            UnlockError::Vault(OpenError::Anchor(AnchorError::OldConfiguration { .. })) => Status::Old,
            UnlockError::Vault(OpenError::Anchor(e)) if e.is_disk_full() => Status::Full,
            UnlockError::Vault(_) | UnlockError::NotLocked => Status::Failed,
        }
    }
}

/// Answer to [`ControlCommand::State`] while the vault is locked.
pub const LOCKED: &str = "locked";
/// Answer to [`ControlCommand::State`] while the vault is frozen.
pub const FROZEN: &str = "frozen";

/// Connects to the process behind the mount with this device number, which `owner` mounted. An ordinary
/// user reaches only their own mounts. Secrets are sent only to the caller's own process or to root's,
/// because any user can mount something that claims to be another user's vault.
fn reach(device: u64, owner: u32, secret: bool) -> io::Result<UnixStream> {
    let (owner, own) = (Uid::from_raw(owner), geteuid());
    if owner != own && !owner.is_root() && (secret || !own.is_root()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // The owner could have mounted a filesystem that never answers over the directory. The thread ends
    // with this process.
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

/// Checks that the process of a mount answers at all; restrictions as in [`tell`]. A process that is busy
/// with another command answers after that.
///
/// # Errors
/// `TimedOut` if it has not answered after ten seconds.
pub fn hears(device: u64, owner: u32) -> io::Result<()> {
    tell(device, owner, &ControlCommand::Metrics, &Patience::default()).map(drop)
}

/// Returns the process behind a mount, and a descriptor to poll for its exit; restrictions as in
/// [`tell`].
///
/// # Errors
/// As [`tell`].
pub fn process(device: u64, owner: u32) -> io::Result<(Pid, OwnedFd)> {
    let process = socket_peercred(reach(device, owner, false)?)?.pid;
    Ok((process, pidfd_open(process, PidfdFlags::empty())?))
}

/// Sends a command to the mount of `owner` with this device number. The process must belong to root or to
/// the calling user. Root may also send commands to other users' mounts, but nothing secret.
///
/// # Errors
/// If no process listens there, or a system call fails. `TimedOut` if there was no answer in time, and
/// `Interrupted` if the caller was told to stop. In both cases a command other than a query or a freeze
/// may still be carried out.
pub fn tell(
    device: u64,
    owner: u32,
    command: &ControlCommand,
    patience: &Patience,
) -> io::Result<(Status, String)> {
    let mut stream = reach(device, owner, command.is_secret())?;
    let told = stream.write_all(&command.encode()).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
    let patience = match command.is_question() {
        true => Patience { most: Some(PATIENCE), ..*patience },
        false => *patience,
    };
    // The mount closes the socket to callers that it does not obey, at once, even if they have written
    // already.
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

/// Reads the answer until the other end closes the socket.
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
    // From here on the other end notices that its answer is not read, unless the answer has arrived
    // already.
    stream.shutdown(std::net::Shutdown::Read)?;
    stream.read_to_end(&mut answer)?;
    if answer.is_empty() { Err(given_up.into()) } else { Ok(answer) }
}

/// Ends the mount even if it is in use.
pub type EndMount = Box<dyn Fn() -> io::Result<()> + Send>;

/// The mount's end of the socket, and the listening thread.
pub struct Control {
    name: Mutex<Option<SocketName>>,
    listener: Arc<UnixListener>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Control {
    /// Listens for commands to a mount.
    ///
    /// # Errors
    /// Errors of the system calls.
    pub fn start(device: u64, dir: &ControlDir, server: Arc<Server>, end: EndMount) -> io::Result<Control> {
        let (name, listener) = dir.listen(device)?;
        let listener = Arc::new(listener);
        let own = listener.clone();
        let thread = thread::Builder::new().name("control".into()).spawn(move || {
            for stream in own.incoming() {
                match stream {
                    Ok(stream) => {
                        // The caller may have disconnected.
                        let _ = serve(&server, &end, stream);
                    }
                    // The listener was shut down.
                    Err(e) if e.kind() == io::ErrorKind::InvalidInput => return,
                    Err(e) => {
                        log::warn!("cannot accept a control connection: {e}");
                        thread::sleep(PATIENCE);
                    }
                }
            }
        })?;
        Ok(Control { name: Mutex::new(Some(name)), listener, thread: Mutex::new(Some(thread)) })
    }

    /// Stops accepting commands and waits for the one in progress.
    pub fn end(&self) {
        drop(self.name.lock().take());
        // Fails only if it was shut down already.
        let _ = shutdown(&*self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.lock().take() {
            // Called code handles its own panics; otherwise the listener has only ended early.
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
    let command = ControlCommand::decode(&bytes[..filled]);
    let (status, text) = match command.as_ref().map(|command| obey(server, end, command)) {
        None => (Status::Unknown, String::new()),
        Some(Ok(text)) => (Status::Done, text),
        Some(Err((status, text))) => (status, text),
    };
    let taken = stream.write_all(&[&[status.code()], text.as_bytes()].concat());
    // The caller has disconnected and will not thaw it.
    if taken.is_err() && status == Status::Done && matches!(command, Some(ControlCommand::Freeze(_))) {
        let _ = server.thaw(text.parse().ok());
    }
    taken
}

fn obey(server: &Arc<Server>, end: &EndMount, command: &ControlCommand) -> Result<String, (Status, String)> {
    let failed = |text| (Status::Failed, text);
    match command {
        ControlCommand::Lock => server.lock(false).map(|()| String::new()).map_err(failed),
        ControlCommand::LockAndEnd => {
            server.lock(true).map_err(failed)?;
            end().map(|()| String::new()).map_err(|e| failed(format!("locked, but still mounted: {e}")))
        }
        ControlCommand::Unlock(master) => match server.unlock(master) {
            Ok(()) => Ok(String::new()),
            Err(e) => Err((Status::of(&e), e.to_string())),
        },
        ControlCommand::Metrics => Ok(server.metrics_text()),
        ControlCommand::Freeze(most) => server.freeze(*most).map(|number| number.to_string()).map_err(failed),
        ControlCommand::Thaw(freeze) => server.thaw(*freeze).map(|()| String::new()).map_err(failed),
        ControlCommand::State => Ok(match *server.held.lock() {
            SuspendState::Locked => LOCKED,
            SuspendState::Frozen { .. } => FROZEN,
            SuspendState::Not => "",
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
        let thaws = [None, Some(0), Some(u64::MAX)].map(ControlCommand::Thaw);
        for command in
            [ControlCommand::Lock, ControlCommand::LockAndEnd, ControlCommand::State, ControlCommand::Metrics]
                .into_iter()
                .chain(thaws)
        {
            let bytes = command.encode();
            assert_eq!(ControlCommand::decode(&bytes).expect("known").encode(), bytes);
        }
        let bytes = ControlCommand::Unlock(Zeroizing::new([7; 32])).encode();
        assert!(
            matches!(ControlCommand::decode(&bytes), Some(ControlCommand::Unlock(master)) if *master == [7; 32])
        );
        let bytes_of_freeze = ControlCommand::Freeze(Duration::from_secs(600)).encode();
        assert!(
            matches!(ControlCommand::decode(&bytes_of_freeze), Some(ControlCommand::Freeze(most)) if most.as_secs() == 600)
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
            assert!(ControlCommand::decode(bad).is_none(), "{bad:?}");
        }
    }
}

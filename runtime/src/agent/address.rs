//! Where an agent is reached: a socket and a lock in the store's directory `agents`, whose name is a digest of the job's mark
//! or of the program's own pid, start time and pid namespace. The kernel shows the names of sockets to everybody
//! (`/proc/net/unix`), and the mark is nobody else's.
//!
//! The lock decides who is the agent; it vanishes with its holder, so a socket without one is a leftover. The
//! socket is bound and connected through `/proc/self/fd`, because a socket's path may not exceed 108 bytes and
//! a store's may. Whoever connects follows no link in there, and talks to nobody but the owner of the directory.

use std::collections::hash_map::RandomState;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher};
use std::io::{ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, setsockopt, socket, sockopt::PeerCredentials,
    sockopt::SendTimeout,
};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::geteuid;

use crate::capture::Program;
use crate::error::{Error, Result};
use crate::host;
use crate::proc::locks::{self, Lock, Owner};
use crate::proc::task::{self, Users};

/// What names are derived for.
const CONTEXT: &str = "ckpt 1: the names of an agent's lock and socket";
/// Bytes of a name, twice as many digits.
const NAME_BYTES: usize = 16;
/// How long an agent may leave those waiting that connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The place of one program's agent.
#[derive(Debug)]
pub struct Address {
    directory: PathBuf,
    name: String,
}

/// Held by the agent as long as it lives.
#[derive(Debug)]
pub struct Tenure {
    lock: File,
    lock_path: PathBuf,
    socket_path: PathBuf,
}

impl Drop for Tenure {
    fn drop(&mut self) {
        // Only a courtesy: leftovers of agents that were killed are harmless.
        let _ = fs::remove_file(&self.socket_path);
        let _ = fs::remove_file(&self.lock_path);
        let _ = self.lock.unlock();
    }
}

/// The users that may be the agent of a program.
#[derive(Clone, Copy, Debug)]
pub struct Trusted {
    program: Users,
}

impl Trusted {
    /// The users of process `pid`, root, and our own.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn by(pid: i32) -> Result<Trusted> {
        Ok(Trusted { program: task::users(pid)? })
    }

    fn contains(&self, user: u32) -> bool {
        user == 0 || user == geteuid().as_raw() || self.program.contains(&user)
    }
}

impl Address {
    /// For the program `identity` ([`crate::capture::Program::identity`]) whose store is at `store`.
    pub fn new(store: &Path, identity: &str) -> Address {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        let digest = hasher.update(identity.as_bytes()).finalize();
        let name = digest.as_bytes()[..NAME_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        Address { directory: store.join("agents"), name }
    }

    /// Name of a socket for the program's keeper, who is told it: it is short. In a directory of everybody's it is one that
    /// nobody can know before.
    pub fn keeper_socket(&self) -> PathBuf {
        let path = self.directory.join(format!("{}.keeper", self.name));
        if path.as_os_str().len() < ckpt_wire::device::SOCKET_BYTES {
            return path;
        }
        let number = RandomState::new().build_hasher().finish();
        std::env::temp_dir().join(format!("ckpt-{number:016x}.keeper"))
    }

    /// Whether there is an agent, or one was killed.
    pub fn was_occupied(&self) -> bool {
        self.lock_path().symlink_metadata().is_ok()
    }

    /// The process that is the agent, by the lock that it holds.
    pub fn holder(&self) -> Option<i32> {
        let inode = self.lock_path().symlink_metadata().ok()?.ino();
        let is_it = |lock: &Lock| lock.owner == Owner::Whole && lock.exclusive && lock.inode == inode && lock.pid > 0;
        locks::all().into_iter().find(is_it).map(|lock| lock.pid)
    }

    fn lock_path(&self) -> PathBuf {
        self.directory.join(format!("{}.lock", self.name))
    }

    /// Becomes the agent of `program`; `None` if somebody is it already.
    pub fn occupy(&self, program: &Program) -> Result<Option<(Tenure, UnixListener)>> {
        match DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(Error::io("create", &self.directory, error));
            }
            _ => {}
        }
        let (directory, about) = self.open_directory()?;
        if about.uid() != geteuid().as_raw() || about.mode() & 0o022 != 0 {
            return Err(self.refused(format!("it belongs to user {}, mode {:o}", about.uid(), about.mode() & 0o7777)));
        }
        let lock_path = self.lock_path();
        let failed = |source| Error::io("lock", &lock_path, source);
        let mut lock = loop {
            let lock = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&lock_path)
                .map_err(failed)?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            // The holder before us may have removed the file between our open and our lock.
            let ours = lock.metadata().map_err(failed)?;
            if fs::metadata(&lock_path).is_ok_and(|named| named.ino() == ours.ino()) {
                break lock;
            }
        };
        // ckpt-run-until-done looks for the agent of a process that it knows.
        let _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", about_process(program.pid)));
        let socket_path = self.directory.join(self.socket_name());
        let _ = fs::remove_file(&socket_path);
        let listener = UnixListener::bind(by_descriptor(&directory).join(self.socket_name()))
            .map_err(|source| Error::io("bind a socket in", &self.directory, source))?;
        Ok(Some((Tenure { lock, lock_path, socket_path }, listener)))
    }

    /// Connects to the agent, who must be one of `trusted`; `None` if there is none. The stream, and whose it is.
    pub fn connect(&self, trusted: Trusted) -> Result<Option<(UnixStream, u32)>> {
        let (directory, about) = match self.open_directory() {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let owner = about.uid();
        if !trusted.contains(owner) {
            return Err(self.refused(format!("it belongs to user {owner}")));
        }
        let path = by_descriptor(&directory).join(self.socket_name());
        let found = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path);
        let failed = |source| Error::io("connect to an agent in", &self.directory, source);
        let socket = match found {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            found => found.map_err(failed)?,
        };
        let about = socket.metadata().map_err(failed)?;
        if !about.file_type().is_socket() || about.uid() != owner {
            return Err(self.refused("what is there in the place of the agent's socket is none, or not its owner's"));
        }
        match connected(&by_descriptor(&socket), CONNECT_TIMEOUT) {
            Ok(stream) if peer_of(&stream)? == owner => Ok(Some((stream, owner))),
            Ok(stream) => Err(stranger(peer_of(&stream)?)),
            Err(Errno::ENOENT | Errno::ECONNREFUSED) => Ok(None),
            Err(Errno::EAGAIN) => Err(self.refused("the agent lets nobody in, for seconds")),
            Err(source) => Err(failed(source.into())),
        }
    }

    /// The directory, which no link may stand for.
    fn open_directory(&self) -> Result<(File, Metadata)> {
        let failed = |source| Error::io("open", &self.directory, source);
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(&self.directory);
        let directory = opened.map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP | libc::ENOTDIR) => self.refused("it is a link, or no directory"),
            _ => failed(error),
        })?;
        let about = directory.metadata().map_err(failed)?;
        Ok((directory, about))
    }

    fn refused(&self, why: impl Into<String>) -> Error {
        let what = format!("looking for the agent in {}", self.directory.display());
        Error::environment(what, why, "see who has put that there; the program runs on")
    }

    fn socket_name(&self) -> String {
        format!("{}.sock", self.name)
    }
}

/// What ckpt-run-until-done knows of a process: its pid and when it has begun.
fn about_process(pid: i32) -> String {
    format!("{pid} {}", task::start_time(pid).unwrap_or(0))
}

fn by_descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// A connection to the socket at `path`, whose owner may be busy, but not for ever.
fn connected(path: &Path, within: Duration) -> nix::Result<UnixStream> {
    let socket: OwnedFd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, SendTimeout, &TimeVal::milliseconds(within.as_millis() as i64))?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// The user at the other end.
fn peer_of(stream: &UnixStream) -> Result<u32> {
    let peer = getsockopt(stream, PeerCredentials);
    peer.map(|peer| peer.uid()).map_err(|source| Error::io("ask who is behind", "the agent's socket", source))
}

fn stranger(user: u32) -> Error {
    Error::environment(
        "talking over the agent's socket",
        format!("the other side belongs to user {user}"),
        "use a store of your own",
    )
}

/// Refuses a client that is neither the same user nor root. In a user namespace root is one of those outside, who cannot be told from each
/// other in there: that it could open the directory of the socket, which is ours alone, has to do.
pub fn refuse_strangers(stream: &UnixStream) -> Result<()> {
    let peer = peer_of(stream)?;
    if peer != geteuid().as_raw() && peer != 0 && !host::is_user_from_outside(peer) {
        return Err(stranger(peer));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{Backlog, bind, listen};

    use super::*;
    use crate::descriptor::pidfd_open;

    fn own_program() -> Program {
        let pid = std::process::id() as i32;
        Program { pid, pidfd: pidfd_open(pid).unwrap(), control_address: 0 }
    }

    fn trusted() -> Trusted {
        Trusted::by(std::process::id() as i32).unwrap()
    }

    #[test]
    fn only_one_can_be_the_agent_and_the_next_one_takes_over_when_it_ends() {
        let store = tempfile::tempdir().unwrap();
        let address = Address::new(store.path(), "4711-5");
        assert!(address.connect(trusted()).unwrap().is_none());
        assert!(!address.was_occupied());
        let held = address.occupy(&own_program()).unwrap().unwrap();
        assert!(address.was_occupied() && address.occupy(&own_program()).unwrap().is_none());
        assert!(address.connect(trusted()).unwrap().is_some());
        drop(held);
        assert!(address.connect(trusted()).unwrap().is_none());
        assert!(address.occupy(&own_program()).unwrap().is_some());
    }

    #[test]
    fn a_store_with_a_long_path_can_have_an_agent() {
        let store = tempfile::tempdir().unwrap();
        let deep = store.path().join("d".repeat(200));
        fs::create_dir(&deep).unwrap();
        let address = Address::new(&deep, "1-1");
        let _held = address.occupy(&own_program()).unwrap().unwrap();
        assert!(address.connect(trusted()).unwrap().is_some());
    }

    #[test]
    fn the_name_is_a_digest_and_the_lock_says_whose_agent_it_is() {
        let store = tempfile::tempdir().unwrap();
        let address = Address::new(store.path(), "0123456789abcdef-4026531836");
        let _held = address.occupy(&own_program()).unwrap().unwrap();
        let names = fs::read_dir(store.path().join("agents")).unwrap().map(|entry| entry.unwrap().file_name());
        let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        assert!(names.len() == 2 && names.iter().all(|name| !name.contains("0123456789abcdef")), "{names:?}");
        let said = fs::read_to_string(address.lock_path()).unwrap();
        assert_eq!(said.trim(), about_process(std::process::id() as i32));
    }

    #[test]
    fn links_in_the_place_of_the_directory_and_of_the_socket_are_not_followed() {
        let (store, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let elsewhere = Address::new(other.path(), "1-1");
        let _held = elsewhere.occupy(&own_program()).unwrap().unwrap();
        std::os::unix::fs::symlink(other.path().join("agents"), store.path().join("agents")).unwrap();
        let address = Address::new(store.path(), "1-1");
        assert!(address.connect(trusted()).is_err() && address.occupy(&own_program()).is_err());
        fs::remove_file(store.path().join("agents")).unwrap();
        fs::create_dir(store.path().join("agents")).unwrap();
        let (from, to) =
            (elsewhere.directory.join(elsewhere.socket_name()), address.directory.join(address.socket_name()));
        std::os::unix::fs::symlink(from, to).unwrap();
        let message = address.connect(trusted()).unwrap_err().to_string();
        assert!(message.contains("in the place of the agent's socket"), "{message}");
    }

    #[test]
    fn an_agent_that_lets_nobody_in_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let within = Duration::from_millis(100);
        let _first = connected(&path, within).unwrap();
        assert_eq!(connected(&path, within).unwrap_err(), Errno::EAGAIN);
    }

    /// A pair of sockets whose both ends belong to `user`, seen by `me`; the answer of [`refuse_strangers`].
    fn answer_between(user: u32, me: u32) -> Result<()> {
        let become_user = |id: u32| {
            // SAFETY: the call changes the credentials of this thread alone, which ends with the test.
            let answer = unsafe { libc::syscall(libc::SYS_setresuid, u32::MAX, id, u32::MAX) };
            assert_eq!(answer, 0, "becoming user {id}");
        };
        std::thread::spawn(move || {
            become_user(user);
            let (one, _other) = UnixStream::pair().unwrap();
            become_user(0);
            become_user(me);
            refuse_strangers(&one)
        })
        .join()
        .unwrap()
    }

    #[test]
    fn strangers_are_refused_at_the_socket_and_root_is_not() {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIPPED: being several users needs root");
            return;
        }
        let message = answer_between(1001, 1002).unwrap_err().to_string();
        assert!(message.contains("belongs to user 1001"), "{message}");
        answer_between(1002, 1002).unwrap();
        answer_between(0, 1002).unwrap();
        let message = answer_between(1001, 0).unwrap_err().to_string();
        assert!(message.contains("belongs to user 1001"), "root does not talk to everybody either: {message}");
    }
}

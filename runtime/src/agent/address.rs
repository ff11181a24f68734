//! Where an agent is reached: a socket and a lock in the store's directory `agents`, named by the program's own pid,
//! start time and pid namespace.
//!
//! The lock decides who is the agent; it vanishes with its holder, so a socket without one is a leftover. The
//! socket is bound and connected through `/proc/self/fd`, because a socket's path may not exceed 108 bytes and
//! a store's may.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use crate::error::{Error, Result};

/// The place of one program's agent.
#[derive(Debug)]
pub struct Address {
    directory: PathBuf,
    identity: String,
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

impl Address {
    /// For the program `identity` ([`crate::capture::Program::identity`]) whose store is at `store`.
    pub fn new(store: &Path, identity: String) -> Address {
        Address { directory: store.join("agents"), identity }
    }

    /// Name of a socket for the program's keeper, who is told it: it is short.
    pub fn keeper_socket(&self) -> PathBuf {
        let path = self.directory.join(format!("{}.keeper", self.identity));
        if path.as_os_str().len() < ckpt_wire::device::SOCKET_BYTES {
            return path;
        }
        std::env::temp_dir().join(format!("ckpt-{}.keeper", self.identity))
    }

    /// Whether there is an agent, or one was killed.
    pub fn was_occupied(&self) -> bool {
        self.lock_path().exists()
    }

    fn lock_path(&self) -> PathBuf {
        self.directory.join(format!("{}.lock", self.identity))
    }

    /// Becomes the agent; `None` if somebody is it already.
    pub fn occupy(&self) -> Result<Option<(Tenure, UnixListener)>> {
        match DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(Error::io("create", &self.directory, error));
            }
            _ => {}
        }
        let lock_path = self.lock_path();
        let failed = |source| Error::io("lock", &lock_path, source);
        let lock = loop {
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
        let socket_path = self.directory.join(format!("{}.sock", self.identity));
        let _ = fs::remove_file(&socket_path);
        let directory = File::open(&self.directory).map_err(|source| Error::io("open", &self.directory, source))?;
        let listener = UnixListener::bind(self.socket_by_descriptor(&directory))
            .map_err(|source| Error::io("bind a socket in", &self.directory, source))?;
        Ok(Some((Tenure { lock, lock_path, socket_path }, listener)))
    }

    /// Connects to the agent; `None` if there is none.
    pub fn connect(&self) -> Result<Option<UnixStream>> {
        let Ok(directory) = File::open(&self.directory) else { return Ok(None) };
        match UnixStream::connect(self.socket_by_descriptor(&directory)) {
            Ok(stream) => {
                refuse_strangers(&stream)?;
                Ok(Some(stream))
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ECONNREFUSED)) => Ok(None),
            Err(source) => Err(Error::io("connect to an agent in", &self.directory, source)),
        }
    }

    fn socket_by_descriptor(&self, directory: &File) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{}.sock", directory.as_raw_fd(), self.identity))
    }
}

/// Refuses a peer that is neither the same user nor root.
pub fn refuse_strangers(stream: &UnixStream) -> Result<()> {
    let peer = getsockopt(stream, PeerCredentials)
        .map_err(|source| Error::io("ask who is behind", "the agent's socket", source))?;
    let user = nix::unistd::geteuid().as_raw();
    if peer.uid() != user && peer.uid() != 0 && user != 0 {
        return Err(Error::environment(
            "talking over the agent's socket",
            format!("the other side belongs to user {}", peer.uid()),
            "use a store of your own",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_can_be_the_agent_and_the_next_one_takes_over_when_it_ends() {
        let store = tempfile::tempdir().unwrap();
        let address = Address::new(store.path(), "4711-5".to_owned());
        assert!(address.connect().unwrap().is_none());
        assert!(!address.was_occupied());
        let held = address.occupy().unwrap().unwrap();
        assert!(address.was_occupied() && address.occupy().unwrap().is_none());
        assert!(address.connect().unwrap().is_some());
        drop(held);
        assert!(address.connect().unwrap().is_none());
        assert!(address.occupy().unwrap().is_some());
    }

    #[test]
    fn a_store_with_a_long_path_can_have_an_agent() {
        let store = tempfile::tempdir().unwrap();
        let deep = store.path().join("d".repeat(200));
        fs::create_dir(&deep).unwrap();
        let address = Address::new(&deep, "1-1".to_owned());
        let _held = address.occupy().unwrap().unwrap();
        assert!(address.connect().unwrap().is_some());
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
    }
}

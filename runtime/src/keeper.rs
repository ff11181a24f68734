//! Talking to the keeper in a program, the thread of libckpt.so's that holds its devices: what capture and restore both say
//! over the line of [`ckpt_wire::device`].

use std::fs;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ckpt_wire::device::{self as wire, Answer, BRINGS_BACK, COMMAND_OPEN, COMMAND_RESUME, Command, Held, SOCKET_BYTES};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind, getsockopt, listen, recv, send,
    socket,
};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Uid, fchownat};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::descriptor;
use crate::error::{Error, Result};
use crate::proc::task;

/// How long the keeper may take for what the driver does at once.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long the driver may take to move what devices hold: at its slowest known, 3 GB/s, this is all of the largest.
pub const MOVING_WITHIN: Duration = Duration::from_secs(600);
/// How long a process may take from where its descriptors are closed to its end, in ms.
const ENDING_WITHIN_MS: u16 = 1000;
/// How many may knock before one is let in: those that only look whether somebody is there come first.
const KNOCKING: i32 = 1024;
/// How many may knock that are not let in.
const STRANGERS_MAX: usize = 10_000;

/// Bytes in which a driver is told of a device and the one that stands for it.
pub const PAIR_BYTES: usize = 32;

/// A process with a keeper.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    /// Its pid.
    pub pid: i32,
    /// Readable once it has ended.
    pub pidfd: BorrowedFd<'a>,
    /// Whether it is waited for as long as it is stopped (SIGSTOP, Ctrl-Z).
    pub may_be_stopped: bool,
}

/// A socket that a keeper is told the name of, which goes with this.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    name: PathBuf,
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Somebody may have removed it already.
        let _ = fs::remove_file(&self.name);
    }
}

impl Listener {
    /// At this name, which may be there already: nobody listens at it any more.
    ///
    /// # Errors
    /// When there can be no such socket.
    pub fn at(name: PathBuf) -> Result<Listener> {
        let failed = |error: Errno| Error::io("listen at", &name, error);
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).map_err(failed)?;
        // The name gets this mode: whoever may not write to it may not connect.
        fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR).map_err(failed)?;
        let _ = fs::remove_file(&name);
        bind(socket.as_raw_fd(), &UnixAddr::new(&name).map_err(failed)?).map_err(failed)?;
        listen(&socket, Backlog::new(KNOCKING).map_err(failed)?).map_err(failed)?;
        Ok(Listener { socket, name })
    }

    /// A process of this user and group may connect, too.
    ///
    /// # Errors
    /// When only others may say so.
    pub fn open_to(&self, user: u32, group: u32) -> Result<()> {
        let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        fchownat(AT_FDCWD, &self.name, user, group, AtFlags::AT_SYMLINK_NOFOLLOW)
            .map_err(|error| Error::io("give", &self.name, error))
    }

    /// What a keeper is to be asked, as bytes and where in its [`wire::Hold`] they go, in this order.
    pub fn request(&self, request: u32, quiet_within: Duration) -> [(usize, Vec<u8>); 3] {
        let mut path = vec![0; SOCKET_BYTES];
        let bytes = self.name.as_os_str().as_bytes();
        // One byte less than there are: it ends with a zero. `UnixAddr` has refused what is longer.
        let length = bytes.len().min(SOCKET_BYTES - 1);
        path[..length].copy_from_slice(&bytes[..length]);
        let within_ms = (quiet_within.as_millis() as u32).to_ne_bytes();
        [
            (offset_of!(wire::Hold, quiet_within_ms), within_ms.to_vec()),
            (offset_of!(wire::Hold, socket), path),
            (offset_of!(wire::Hold, request), request.to_ne_bytes().to_vec()),
        ]
    }

    /// The line to the keeper, and what it says first, which may take so long. Those who knock and say nothing are passed over,
    /// and so is everybody but the process.
    ///
    /// # Errors
    /// When it does not come, or the process has ended.
    pub fn accept<'a>(&self, kept: Kept<'a>, within: Duration) -> Result<(Line<'a>, Held)> {
        let failed = |error: Errno| Error::io("accept a connection of", format!("process {}", kept.pid), error);
        let deadline = Instant::now() + PATIENCE;
        let users = task::users(kept.pid)?;
        for _ in 0..STRANGERS_MAX {
            wait_to_read(self.socket.as_fd(), deadline, kept)?;
            let accepted = match accept4(self.socket.as_raw_fd(), SockFlag::SOCK_CLOEXEC) {
                // It has gone again.
                Err(Errno::ECONNABORTED | Errno::EINTR) => continue,
                accepted => accepted.map_err(failed)?,
            };
            let socket = descriptor::made(accepted).map_err(failed)?;
            let peer = getsockopt(&socket, PeerCredentials).map_err(failed)?;
            // 0: it is in a namespace of its own, and cannot be told from others of its user.
            if peer.pid() != kept.pid && !(peer.pid() == 0 && users.contains(&peer.uid())) {
                continue;
            }
            let line = Line { kept, socket };
            match line.try_receive(within)? {
                Some(held) => return Ok((line, held)),
                None => continue,
            }
        }
        Err(failed(Errno::EPERM))
    }
}

/// The connection to a keeper that holds devices. When this is dropped, they go on.
#[derive(Debug)]
pub struct Line<'a> {
    kept: Kept<'a>,
    socket: OwnedFd,
}

/// A command without arguments.
pub fn command(what: u32) -> Command {
    Command { what, ..Command::new_zeroed() }
}

impl Line<'_> {
    /// Says what is wanted.
    ///
    /// # Errors
    /// When nobody is there.
    pub fn send(&self, wanted: Command) -> Result<()> {
        let sent = send(self.socket.as_raw_fd(), wanted.as_bytes(), MsgFlags::MSG_NOSIGNAL);
        sent.map(drop).map_err(|error| self.ended(error))
    }

    /// What has come of it.
    ///
    /// # Errors
    /// When the keeper says nothing within this time, or is gone.
    pub fn receive(&self, within: Duration) -> Result<Answer> {
        self.try_receive(within)?.ok_or_else(|| self.ended(Errno::ECONNRESET))
    }

    /// Whether there is an answer within this time.
    ///
    /// # Errors
    /// When the program has ended.
    pub fn is_answered(&self, within: Duration) -> Result<bool> {
        let deadline = Instant::now() + within;
        Ok(poll_to_read(self.socket.as_fd(), deadline, self.kept)? == Readable::Yes)
    }

    /// Both.
    ///
    /// # Errors
    /// As for them.
    pub fn exchange(&self, wanted: Command) -> Result<Answer> {
        self.send(wanted)?;
        self.receive(PATIENCE)
    }

    /// The answer to a command that must not fail, which was for this.
    ///
    /// # Errors
    /// The driver's.
    pub fn good(&self, purpose: &str, answer: Answer) -> Result<Answer> {
        if answer.error == 0 {
            return Ok(answer);
        }
        Err(Error::environment(
            format!("{purpose} in process {}", self.kept.pid),
            why(answer.error),
            "the program runs on; try again",
        ))
    }

    /// How the driver names a device in every process.
    ///
    /// # Errors
    /// The driver's.
    pub fn identify(&self, device: i32) -> Result<[u8; 16]> {
        let answer = self.exchange(Command { device, ..command(wire::COMMAND_IDENTIFY) })?;
        let answer = self.good("naming a device", answer)?;
        let mut uuid = [0; 16];
        uuid.copy_from_slice(answer.values.as_bytes());
        Ok(uuid)
    }

    /// Has the driver give suspended devices back, other ones for those in so many pairs of them, which lie at an address of the
    /// program's. It may take its time. Evacuated memory is pinned then, unless it is to be brought back.
    ///
    /// # Errors
    /// When the keeper is gone.
    pub fn begin_to_resume(&self, pairs: u64, count: usize, brings_back: bool) -> Result<()> {
        let to = if brings_back { BRINGS_BACK } else { 0 };
        self.send(Command { address: pairs, to, bytes: (PAIR_BYTES * count) as u64, ..command(COMMAND_RESUME) })
    }

    /// Waits until that is done. The error is the driver's, and the step that failed.
    ///
    /// # Errors
    /// When the keeper is gone.
    pub fn resumed(&self) -> Result<std::result::Result<(), (i32, u64)>> {
        let answer = self.receive(MOVING_WITHIN)?;
        Ok(if answer.error == 0 { Ok(()) } else { Err((answer.error, answer.values[0])) })
    }

    /// Has imported memory of pieces renewed. The answer is [`Line::renewed`].
    ///
    /// # Errors
    /// When the keeper is gone.
    pub fn begin_to_renew(&self) -> Result<()> {
        self.send(command(wire::COMMAND_RENEW))
    }

    /// Waits until that is done. How many pieces there was no room for.
    ///
    /// # Errors
    /// The driver's, and when the keeper is gone.
    pub fn renewed(&self) -> Result<u64> {
        let answer = self.receive(MOVING_WITHIN)?;
        self.good("renewing device memory", answer).map(|answer| answer.values[0])
    }

    /// Lets the devices go on.
    ///
    /// # Errors
    /// When they were not held until now.
    pub fn open(self) -> Result<()> {
        let answer = self.exchange(command(COMMAND_OPEN))?;
        self.good("letting the devices go on", answer).map(drop)
    }

    /// Waits until the other end is closed, and with it the last descriptor that the keeper had.
    ///
    /// # Errors
    /// When it is not, within the time that anything may take.
    pub fn wait_until_closed(self) -> Result<()> {
        match self.try_receive::<Answer>(PATIENCE)? {
            None => Ok(()),
            Some(_) => Err(self.ended(Errno::EPROTO)),
        }
    }

    /// A message; none when the other end is closed.
    fn try_receive<T: FromZeros + FromBytes + IntoBytes>(&self, within: Duration) -> Result<Option<T>> {
        let mut message = T::new_zeroed();
        wait_to_read(self.socket.as_fd(), Instant::now() + within, self.kept)?;
        let received = recv(self.socket.as_raw_fd(), message.as_mut_bytes(), MsgFlags::empty());
        match received {
            Ok(bytes) if bytes == size_of::<T>() => Ok(Some(message)),
            Ok(0) | Err(Errno::ECONNRESET) => Ok(None),
            Ok(_) => Err(self.ended(Errno::EPROTO)),
            Err(error) => Err(self.ended(error)),
        }
    }

    /// Why nobody is at the other end: a process that ends closes its descriptors before it is gone.
    fn ended(&self, error: Errno) -> Error {
        let mut gone = [PollFd::new(self.kept.pidfd, PollFlags::POLLIN)];
        if matches!(error, Errno::ECONNRESET | Errno::EPIPE) && poll(&mut gone, ENDING_WITHIN_MS) == Ok(1) {
            return Error::ProgramGone { pid: self.kept.pid };
        }
        Error::io("talk to the keeper of", format!("process {}", self.kept.pid), error)
    }
}

/// What an answer's error says.
pub fn why(error: i32) -> String {
    match error {
        error if error < 0 => format!("the kernel says {}", Errno::from_raw(-error)),
        error => format!("the CUDA driver says error {error}"),
    }
}

fn wait_to_read(socket: BorrowedFd<'_>, mut deadline: Instant, kept: Kept<'_>) -> Result<()> {
    while poll_to_read(socket, deadline, kept)? == Readable::NotYet {
        if !(kept.may_be_stopped && task::is_job_stopped(kept.pid)) {
            return Err(late(kept.pid));
        }
        deadline = Instant::now() + PATIENCE;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Readable {
    Yes,
    NotYet,
}

fn poll_to_read(socket: BorrowedFd<'_>, deadline: Instant, kept: Kept<'_>) -> Result<Readable> {
    loop {
        let left_ms = deadline.saturating_duration_since(Instant::now()).as_millis();
        let timeout = PollTimeout::try_from(left_ms.min(i32::MAX as u128) as i32).unwrap_or(PollTimeout::MAX);
        let mut events = [PollFd::new(socket, PollFlags::POLLIN), PollFd::new(kept.pidfd, PollFlags::POLLIN)];
        match poll(&mut events, timeout) {
            Ok(0) => break Ok(Readable::NotYet),
            Ok(_) if events[0].any() == Some(true) => break Ok(Readable::Yes),
            Ok(_) => break Err(Error::ProgramGone { pid: kept.pid }),
            Err(Errno::EINTR) => {}
            Err(error) => break Err(Error::io("wait for", "the keeper", error)),
        }
    }
}

fn late(pid: i32) -> Error {
    Error::environment(
        format!("waiting for the thread of libckpt.so that holds the devices of process {pid}"),
        "it has not answered in time",
        "see whether the program is stopped, or the CUDA driver hangs; it goes on as before",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use nix::sys::socket::connect;
    use nix::sys::wait::waitpid;
    use nix::unistd::{ForkResult, fork, pause};

    use super::*;
    use crate::descriptor::pidfd_open;

    fn knock(path: &std::path::Path) -> OwnedFd {
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
        connect(socket.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
        socket
    }

    #[test]
    fn others_that_connect_first_are_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keeper");
        let listener = Listener::at(path.clone()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // SAFETY: the child makes system calls alone.
        let child = match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let _knocking = knock(&path);
                pause();
                // SAFETY: it ends this process.
                unsafe { libc::_exit(0) }
            }
            ForkResult::Parent { child } => child,
        };
        let mut arrived = [PollFd::new(listener.socket.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut arrived, PollTimeout::from(20_000_u16)).unwrap(), 1, "the stranger comes first");
        let keeper = knock(&path);
        let held = Held { request: 7, ..Held::new_zeroed() };
        send(keeper.as_raw_fd(), held.as_bytes(), MsgFlags::empty()).unwrap();
        let pid = std::process::id() as i32;
        let own = pidfd_open(pid).unwrap();
        let kept = Kept { pid, pidfd: own.as_fd(), may_be_stopped: false };
        let (_line, heard) = listener.accept(kept, PATIENCE).unwrap();
        assert_eq!(heard.request, 7);
        let stranger = pidfd_open(child.as_raw()).unwrap();
        descriptor::kill(stranger.as_fd()).unwrap();
        waitpid(child, None).unwrap();
    }
}

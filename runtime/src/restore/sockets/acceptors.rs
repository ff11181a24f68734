//! Sockets that take connections while the job's are being made: its own, and some that stand in for those that it has closed.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::names::Names;
use crate::descriptor::made;
use crate::image::Socket;
use crate::net::{self, Address};

type Result<T> = std::result::Result<T, Errno>;

/// How long a connection within this machine may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long all of them together wait for addresses that the kernel still keeps for connections which have ended. Within one
/// machine it gives them back after a second.
const ADDRESSES_TIMEOUT: Duration = Duration::from_secs(3);

/// Those that are there.
pub struct Acceptors {
    all: Vec<Acceptor>,
    /// Gives addresses.
    pub names: Names,
    /// Until when to wait for addresses.
    pub deadline: Instant,
}

impl Acceptors {
    /// None yet; `names` gives addresses.
    pub fn new(names: Names) -> Acceptors {
        Acceptors { all: Vec::new(), names, deadline: Instant::now() + ADDRESSES_TIMEOUT }
    }
}

struct Acceptor {
    name: Vec<u8>,
    directory: Vec<u8>,
    handle: OwnedFd,
}

/// Has `socket` take connections.
pub fn listen(socket: &OwnedFd, backlog: u32) -> Result<()> {
    // SAFETY: takes numbers.
    Errno::result(unsafe { libc::listen(socket.as_raw_fd(), backlog as i32) }).map(drop)
}

impl Acceptors {
    /// Adds one of the job, open at `handle`.
    pub fn add(&mut self, socket: &Socket, handle: &OwnedFd) -> Result<()> {
        let (name, directory) = (socket.name.clone(), socket.directory.clone());
        self.all.push(Acceptor { name, directory, handle: net::duplicate(handle.as_fd())? });
        Ok(())
    }

    /// Whether one takes connections to `name`.
    pub fn has(&self, name: &[u8]) -> bool {
        self.all.iter().any(|acceptor| Address(&acceptor.name).covers(Address(name)))
    }

    /// Connects `client` with a socket like `server`, which is accepted. One that stands in is made if none takes its connections.
    pub fn connect(&mut self, client: BorrowedFd<'_>, server: &Socket) -> Result<OwnedFd> {
        if !self.has(&server.name) {
            let handle = self.names.bound(server)?;
            listen(&handle, 16)?;
            self.add(server, &handle)?;
        }
        let directory = self.covering(&server.name).next().map_or(&[][..], |acceptor| &acceptor.directory);
        self.names.connect(client, server, directory)?;
        self.accept(client, server)
    }

    /// Takes no more connections.
    pub fn into_names(self) -> Names {
        self.names
    }

    fn covering(&self, name: &[u8]) -> impl Iterator<Item = &Acceptor> {
        self.all.iter().filter(move |acceptor| Address(&acceptor.name).covers(Address(name)))
    }

    /// Takes the connection of `client`. Others, who come from outside meanwhile, are sent away.
    fn accept(&self, client: BorrowedFd<'_>, server: &Socket) -> Result<OwnedFd> {
        let deadline = Instant::now() + TIMEOUT;
        let wanted = net::name(client)?;
        loop {
            let waiting: Vec<_> = self.covering(&server.name).collect();
            let mut polled: Vec<_> =
                waiting.iter().map(|acceptor| PollFd::new(acceptor.handle.as_fd(), PollFlags::POLLIN)).collect();
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Errno::ETIMEDOUT);
            }
            poll(&mut polled, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX))?;
            let ready = waiting.iter().zip(&polled).filter(|(_, polled)| polled.any().unwrap_or(false));
            for (acceptor, _) in ready {
                let accepted = accept_from(acceptor.handle.as_fd())?;
                if is_from(accepted.as_fd(), &wanted) {
                    return Ok(accepted);
                }
            }
        }
    }
}

fn accept_from(listener: BorrowedFd<'_>) -> Result<OwnedFd> {
    let (address, bytes) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: accept4 writes no address where there is no room for one.
    made(unsafe { libc::accept4(listener.as_raw_fd(), address, bytes, libc::SOCK_CLOEXEC) })
}

/// Whether it is connected with the socket of this process whose name is `wanted`.
fn is_from(accepted: BorrowedFd<'_>, wanted: &[u8]) -> bool {
    if let Some(wanted) = Address(wanted).internet() {
        return net::peer_name(accepted).is_ok_and(|name| Address(&name).internet() == Some(wanted));
    }
    let pid = net::option(accepted, libc::SOL_SOCKET, libc::SO_PEERCRED);
    pid.ok().and_then(|it| it.first_chunk().map(|&pid| i32::from_ne_bytes(pid))) == Some(std::process::id() as i32)
}

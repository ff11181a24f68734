//! Descriptors of a program that it sends us, where a container forbids `pidfd_getfd`.
//!
//! A clone of the program makes a Unix socket and sends them over it: it shares the memory and has another table of descriptors,
//! so that the program's is as before, whatever happens. It connects to a socket of ours that has no name in any directory, and is
//! known by its pid.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrLike, UnixAddr, accept4, bind,
    getsockname, getsockopt, listen, recvmsg, socket,
};
use zerocopy::IntoBytes;

use super::guest::Guest;
use super::twin::in_clone;
use crate::descriptor::{can_fetch, pidfd_getfd};
use crate::error::{Error, Result};
use crate::filtered;
use crate::proc::{fdinfo, task};
use crate::ptrace::{CallSite, Stopped, remote_call, write_memory};

/// Descriptors that one message carries at most (`SCM_MAX_FD`).
const IN_MESSAGE_MAX: usize = 253;
/// Descriptors that this process has open for other things, at most.
const OTHERS_MAX: u64 = 256;

/// How descriptors of a process are fetched.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// From the process behind this pidfd.
    Process(BorrowedFd<'a>),
    /// It has sent them.
    Sent(&'a Sent),
    /// They are ours.
    Own,
}

impl<'a> Source<'a> {
    /// From the process behind `pidfd`, unless it has sent them.
    pub fn of(pidfd: BorrowedFd<'a>, sent: Option<&'a Sent>) -> Source<'a> {
        sent.map_or(Source::Process(pidfd), Source::Sent)
    }

    /// A duplicate of descriptor `number`.
    ///
    /// # Errors
    /// The kernel's; [`Error::Environment`] where it cannot be had.
    pub fn fetch(self, number: i32) -> Result<OwnedFd> {
        let failed = |source| Error::io("duplicate a descriptor of the program", format!("fd/{number}"), source);
        match self {
            Source::Process(pidfd) => pidfd_getfd(pidfd, number),
            Source::Sent(Sent(sent)) => match sent.get(&number) {
                Some(sent) => sent.try_clone().map_err(failed),
                None => Err(Error::environment(
                    format!("fetching descriptor {number} of the program"),
                    "pidfd_getfd is forbidden here, and it cannot be sent over a socket",
                    filtered::ALLOW,
                )),
            },
            // SAFETY: it is open as long as the caller says that it is ours.
            Source::Own => unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned().map_err(failed),
        }
    }
}

/// The descriptors of a process, by their numbers.
#[derive(Debug)]
pub struct Sent(BTreeMap<i32, OwnedFd>);

impl Sent {
    /// Those of the process of `guest`, where they cannot be fetched; none where they can.
    ///
    /// # Errors
    /// When it cannot send them. It is as before.
    pub fn where_needed(guest: &mut Guest<'_>) -> Result<Option<Sent>> {
        let Err(errno) = can_fetch() else { return Ok(None) };
        log::debug!("pidfd_getfd: {}; process {} sends its descriptors", errno.desc(), guest.pid());
        let pid = guest.pid();
        let can_be_sent = |&number: &i32| {
            let target = task::link(pid, &format!("fd/{number}"));
            !target.is_ok_and(|target| target == crate::io_uring::NAME)
        };
        let numbers: Vec<i32> = fdinfo::numbers(pid)?.into_iter().filter(can_be_sent).collect();
        make_room_for(numbers.len() as u64)?;
        let received = with_sender(guest, |sender| {
            let received = numbers.chunks(IN_MESSAGE_MAX).map(|numbers| sender.send(numbers));
            received.collect::<Result<Vec<_>>>()
        })?;
        Ok(Some(Sent(numbers.iter().copied().zip(received.into_iter().flatten()).collect())))
    }
}

/// What call `number` makes in a clone of the process of `guest`, which has its memory. An error of the call is given as a value.
///
/// # Errors
/// When it cannot be sent.
pub fn made_in_clone(guest: &mut Guest<'_>, number: i64, arguments: [u64; 6]) -> Result<Result<OwnedFd, Errno>> {
    with_sender(guest, |sender| {
        let made = match sender.try_call(number, arguments)? {
            Ok(made) => made as i32,
            Err(errno) => return Ok(Err(errno)),
        };
        match sender.send(&[made])?.pop() {
            Some(received) => Ok(Ok(received)),
            None => Ok(Err(Errno::EBADF)),
        }
    })
}

/// A clone of a program that is connected with us.
struct Sender<'a> {
    pid: i32,
    clone: &'a mut Stopped,
    site: &'a CallSite,
    scratch: u64,
    socket: u64,
    connection: Option<OwnedFd>,
}

fn with_sender<T>(guest: &mut Guest<'_>, work: impl FnOnce(&mut Sender<'_>) -> Result<T>) -> Result<T> {
    let (pid, scratch) = (guest.pid(), guest.scratch());
    let calls = [libc::SYS_socket, libc::SYS_connect, libc::SYS_sendmsg];
    calls.into_iter().try_for_each(|number| guest.refuse_deadly("sending descriptors", number, 0))?;
    let cloned = in_clone(guest, |clone, site| {
        let mut sender = Sender { pid, clone, site, scratch, socket: 0, connection: None };
        sender.connect()?;
        work(&mut sender)
    })?;
    cloned.map_err(|errno| failed(pid, &format!("it cannot be cloned to send them ({})", errno.desc())))
}

impl Sender<'_> {
    fn try_call(&mut self, number: i64, arguments: [u64; 6]) -> Result<Result<u64, Errno>> {
        Ok(remote_call(self.clone, self.site, number, arguments)?.result)
    }

    fn call(&mut self, name: &str, number: i64, arguments: [u64; 6]) -> Result<u64> {
        let result = self.try_call(number, arguments)?;
        result.map_err(|errno| failed(self.pid, &format!("it cannot send them ({name}: {})", errno.desc())))
    }

    fn connect(&mut self) -> Result<()> {
        let ours = |errno: Errno| Error::io("make", "a socket for descriptors of the program", errno);
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).map_err(ours)?;
        // The kernel chooses a name that no other socket has.
        bind(listener.as_raw_fd(), &UnixAddr::new_unnamed()).map_err(ours)?;
        listen(&listener, Backlog::new(8).map_err(ours)?).map_err(ours)?;
        let address: UnixAddr = getsockname(listener.as_raw_fd()).map_err(ours)?;
        // SAFETY: an address is as many bytes as it says.
        let bytes = unsafe { std::slice::from_raw_parts(address.as_ptr().cast::<u8>(), address.len() as usize) };
        write_memory(self.pid, self.scratch, bytes)?;

        let kind = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as u64;
        self.socket = self.call("socket", libc::SYS_socket, [libc::AF_UNIX as u64, kind, 0, 0, 0, 0])?;
        let arguments = [self.socket, self.scratch, u64::from(address.len()), 0, 0, 0];
        self.call("connect", libc::SYS_connect, arguments)?;
        loop {
            let accepted = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK);
            // SAFETY: the kernel has just returned this descriptor, and this is its one owner.
            let accepted = unsafe { OwnedFd::from_raw_fd(accepted.map_err(ours)?) };
            // Others may have found the socket.
            if getsockopt(&accepted, PeerCredentials).map_err(ours)?.pid() == self.clone.tid() {
                self.connection = Some(accepted);
                return Ok(());
            }
        }
    }

    /// Has it send these, and receives them, in their order.
    fn send(&mut self, numbers: &[i32]) -> Result<Vec<OwnedFd>> {
        const HEADER: u64 = 0;
        const PART: u64 = 56;
        const BYTE: u64 = 72;
        const RIGHTS: u64 = 80;
        let rights_bytes = 16 + size_of_val(numbers) as u64;
        let at = |offset| self.scratch + offset;
        // No name; one part; the rights; no flags.
        let header: [u64; 7] = [0, 0, at(PART), 1, at(RIGHTS), rights_bytes, 0];
        let part: [u64; 2] = [at(BYTE), 1];
        let kind = libc::SOL_SOCKET as u64 | (libc::SCM_RIGHTS as u64) << 32;
        let rights = [[rights_bytes, kind].as_bytes(), numbers.as_bytes()].concat();
        write_memory(self.pid, at(HEADER), [header.as_bytes(), part.as_bytes(), &[0; 8]].concat().as_slice())?;
        write_memory(self.pid, at(RIGHTS), &rights)?;
        let flags = libc::MSG_NOSIGNAL as u64;
        self.call("sendmsg", libc::SYS_sendmsg, [self.socket, at(HEADER), flags, 0, 0, 0])?;
        let received = self.connection.as_ref().map_or(Err(Errno::ENOTCONN), receive);
        let received = received.map_err(|errno| Error::io("receive", "descriptors of the program", errno))?;
        match received.len() == numbers.len() {
            true => Ok(received),
            false => Err(failed(self.pid, "fewer have come than it has sent (RLIMIT_NOFILE)")),
        }
    }
}

fn receive(connection: &OwnedFd) -> nix::Result<Vec<OwnedFd>> {
    let mut byte = [0; 8];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut space = cmsg_space!([RawFd; IN_MESSAGE_MAX]);
    let message = recvmsg::<()>(connection.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut received = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = control {
            // SAFETY: the kernel has just made these descriptors, and this is their one owner.
            received.extend(numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
        }
    }
    Ok(received)
}

/// This process may have as many descriptors open, if it may have them at all.
fn make_room_for(count: u64) -> Result<()> {
    let failed = |errno| Error::io("raise", "the limit of open files", errno);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    // Each of one process, and a duplicate of some.
    let wanted = 2 * count + OTHERS_MAX;
    if wanted > soft { setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard).map_err(failed) } else { Ok(()) }
}

fn failed(pid: i32, why: &str) -> Error {
    let forbidden = can_fetch().err().map_or("", Errno::desc);
    Error::environment(
        format!("fetching descriptors of process {pid}"),
        format!("pidfd_getfd is forbidden here ({forbidden}), and {why}"),
        filtered::ALLOW,
    )
}

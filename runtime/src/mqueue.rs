//! The system calls of POSIX message queues: the C library may have none for them.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use nix::errno::Errno;

use crate::descriptor::made;

/// `struct mq_attr`, with the kernel's own names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's own names")]
pub struct Attributes {
    pub flags: i64,
    pub max_messages: i64,
    pub message_bytes: i64,
    pub queued: i64,
    reserved: [i64; 4],
}

impl Attributes {
    /// Of a queue that is to be made.
    pub fn of_new(max_messages: i64, message_bytes: i64) -> Attributes {
        Attributes { max_messages, message_bytes, ..Attributes::default() }
    }
}

/// Opens the queue `name`, which has no slash; `new` are the attributes of one that is made.
///
/// # Errors
/// As `mq_open(3)`.
pub fn open(name: &CStr, flags: i32, new: Option<&Attributes>) -> nix::Result<OwnedFd> {
    let attributes = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `name` ends with a zero, and the attributes are read if there are any.
    made(unsafe { libc::syscall(libc::SYS_mq_open, name.as_ptr(), flags | libc::O_CLOEXEC, 0o600, attributes) })
}

/// Removes the name of a queue.
///
/// # Errors
/// As `mq_unlink(3)`.
pub fn unlink(name: &CStr) -> nix::Result<()> {
    // SAFETY: `name` ends with a zero.
    Errno::result(unsafe { libc::syscall(libc::SYS_mq_unlink, name.as_ptr()) }).map(drop)
}

/// What a queue is like, and how many messages are in it.
///
/// # Errors
/// For what is no queue.
pub fn attributes(queue: BorrowedFd<'_>) -> nix::Result<Attributes> {
    let mut attributes = Attributes::default();
    let old = ptr::from_mut(&mut attributes);
    // SAFETY: the call writes one `Attributes`.
    let asked = unsafe { libc::syscall(libc::SYS_mq_getsetattr, queue.as_raw_fd(), ptr::null::<Attributes>(), old) };
    Errno::result(asked).map(|_| attributes)
}

/// Takes the next message of a queue that does not block: its bytes and its priority. `room` is for the longest that it can have.
///
/// # Errors
/// `EAGAIN` if there is none.
pub fn take(queue: BorrowedFd<'_>, room: &mut [u8]) -> nix::Result<(usize, u32)> {
    let mut priority = 0u32;
    let (at, bytes, until) = (room.as_mut_ptr(), room.len(), ptr::null::<u8>());
    // SAFETY: the call writes at most so many bytes to `room`, and one number to `priority`.
    let received =
        unsafe { libc::syscall(libc::SYS_mq_timedreceive, queue.as_raw_fd(), at, bytes, &raw mut priority, until) };
    Errno::result(received).map(|bytes| (bytes as usize, priority))
}

/// Puts a message into a queue that does not block.
///
/// # Errors
/// `EAGAIN` if it is full.
pub fn put(queue: BorrowedFd<'_>, message: &[u8], priority: u32) -> nix::Result<()> {
    let (at, bytes, until) = (message.as_ptr(), message.len(), ptr::null::<u8>());
    // SAFETY: the call reads so many bytes from `message`.
    let sent = unsafe { libc::syscall(libc::SYS_mq_timedsend, queue.as_raw_fd(), at, bytes, priority, until) };
    Errno::result(sent).map(drop)
}

/// Takes all messages out of a queue that is open for reading and does not block.
///
/// # Errors
/// For any other.
pub fn empty(queue: BorrowedFd<'_>) -> nix::Result<()> {
    let mut message = vec![0u8; attributes(queue)?.message_bytes as usize];
    loop {
        match take(queue, &mut message) {
            Ok(_) => {}
            Err(Errno::EAGAIN) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
}

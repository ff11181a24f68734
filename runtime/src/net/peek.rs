//! One look at what a socket has received, which leaves it there.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::{ptr, slice};

use nix::errno::Errno;

/// Descriptors that one message can have (SCM_MAX_FD).
pub const FILES_MAX: usize = 253;
/// Bytes for those, and for whatever else the program has asked to be told with each message.
const CONTROL_BYTES: usize = 4096;
const ADDRESS_BYTES: usize = 256;

/// What was seen.
#[derive(Debug)]
pub struct Look {
    /// How many bytes.
    pub bytes: usize,
    /// The address of the sender; empty where there is none.
    pub from: Vec<u8>,
    /// Duplicates of the descriptors that came along.
    pub files: Vec<OwnedFd>,
    /// Whether there was more than there was room for.
    pub truncated: bool,
}

/// Control messages begin where a word does.
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Looks at the first message, or where the last look has ended (SO_PEEK_OFF), with `room` for bytes.
///
/// # Errors
/// `EAGAIN` if there is nothing; the kernel's.
pub fn peek(socket: BorrowedFd<'_>, room: &mut [u8]) -> Result<Look, Errno> {
    let mut part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    look(socket, slice::from_mut(&mut part))
}

/// The first `count` bytes of a stream without descriptors, as far as they are there.
///
/// # Errors
/// The kernel's.
pub fn beginning(socket: BorrowedFd<'_>, count: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; count];
    let seen = match count {
        0 => 0,
        _ => peek(socket, &mut bytes)?.bytes,
    };
    bytes.truncate(seen);
    Ok(bytes)
}

/// How many bytes of a stream lie before what was sent together with its byte number `room.len()`. What was sent at once the kernel copies
/// at once, and stops before it when it cannot: behind the room there is no memory.
pub fn bytes_sent_before(socket: BorrowedFd<'_>, room: &mut [u8]) -> Result<usize, Errno> {
    let no_memory = ptr::without_provenance_mut(1);
    let mut parts = [
        libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() },
        libc::iovec { iov_base: no_memory, iov_len: 1 },
    ];
    match look(socket, &mut parts) {
        Err(Errno::EFAULT) => Ok(0),
        look => Ok(look?.bytes),
    }
}

/// Into memory of the caller's, or none.
fn look(socket: BorrowedFd<'_>, parts: &mut [libc::iovec]) -> Result<Look, Errno> {
    let mut from = vec![0_u8; ADDRESS_BYTES];
    let mut control = Control([0; CONTROL_BYTES]);
    // SAFETY: all zeros is a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = from.as_mut_ptr().cast();
    message.msg_namelen = ADDRESS_BYTES as libc::socklen_t;
    (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), parts.len());
    (message.msg_control, message.msg_controllen) = (control.0.as_mut_ptr().cast(), CONTROL_BYTES);
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: recvmsg writes no more to the buffers than `message` says.
    let bytes = Errno::result(unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, flags) })? as usize;
    from.truncate(message.msg_namelen as usize);
    let truncated = message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
    Ok(Look { bytes, from, files: received_files(&message), truncated })
}

fn received_files(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut found = Vec::new();
    // SAFETY: the macros walk the headers that the kernel wrote into the buffer of `message`.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: as above.
        let (level, kind, bytes) = unsafe { ((*header).cmsg_level, (*header).cmsg_type, (*header).cmsg_len) };
        if (level, kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: takes a number.
            let head = unsafe { libc::CMSG_LEN(0) } as usize;
            for index in 0..bytes.saturating_sub(head) / size_of::<i32>() {
                // SAFETY: a message of descriptors holds so many numbers, and each of them is ours from now on.
                found.push(unsafe {
                    let number = ptr::read_unaligned(libc::CMSG_DATA(header).cast::<i32>().add(index));
                    OwnedFd::from_raw_fd(number)
                });
            }
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    found
}

//! System calls on sockets with addresses and options as plain bytes.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

use crate::descriptor::made;

/// Bytes that any address and any option of [`super::options`] fit in.
const ROOM: usize = 256;
/// Instructions that a filter can have (BPF_MAXINSNS).
const FILTER_INSTRUCTIONS_MAX: usize = 4096;

type Result<T> = std::result::Result<T, Errno>;

/// A new socket, closed when another program is executed.
pub fn new(family: i32, kind: i32, protocol: i32) -> Result<OwnedFd> {
    // SAFETY: takes numbers.
    made(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) })
}

/// Two new sockets that are connected with each other.
pub fn pair(family: i32, kind: i32, protocol: i32) -> Result<[OwnedFd; 2]> {
    let mut numbers = [-1; 2];
    // SAFETY: socketpair writes two numbers to `numbers`.
    Errno::result(unsafe { libc::socketpair(family, kind | libc::SOCK_CLOEXEC, protocol, numbers.as_mut_ptr()) })?;
    // SAFETY: the kernel has just returned these descriptors, and nobody else owns them.
    Ok(numbers.map(|number| unsafe { OwnedFd::from_raw_fd(number) }))
}

/// Another descriptor of the same socket.
pub fn duplicate(socket: BorrowedFd<'_>) -> Result<OwnedFd> {
    socket.try_clone_to_owned().map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
}

/// The bytes of option `name` of `level`.
pub fn option(socket: BorrowedFd<'_>, level: i32, name: i32) -> Result<Vec<u8>> {
    let mut value = vec![0; ROOM];
    let mut bytes = ROOM as libc::socklen_t;
    let into = value.as_mut_ptr().cast();
    // SAFETY: getsockopt writes at most `bytes` bytes to `value`.
    Errno::result(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, into, &mut bytes) })?;
    value.truncate(bytes as usize);
    Ok(value)
}

/// An option that is an `int`.
pub fn number_option(socket: BorrowedFd<'_>, level: i32, name: i32) -> Result<i32> {
    let value = option(socket, level, name)?;
    value.first_chunk().map(|&value| i32::from_ne_bytes(value)).ok_or(Errno::EINVAL)
}

/// The instructions of the filter of a socket, eight bytes each (SO_GET_FILTER); empty without one. The kernel counts instructions here, not
/// bytes.
///
/// # Errors
/// `EACCES` for a program in eBPF, which it does not show.
pub fn filter(socket: BorrowedFd<'_>) -> Result<Vec<u8>> {
    let get = |into: *mut libc::c_void, mut count: libc::socklen_t| {
        // SAFETY: the kernel writes at most `count` instructions, for which the callers below have room.
        let found =
            unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_GET_FILTER, into, &mut count) };
        Errno::result(found).map(|_| count)
    };
    // Without room it says how many there are.
    if get(std::ptr::null_mut(), 0)? == 0 {
        return Ok(Vec::new());
    }
    let mut instructions = vec![0; FILTER_INSTRUCTIONS_MAX * size_of::<libc::sock_filter>()];
    let count = get(instructions.as_mut_ptr().cast(), FILTER_INSTRUCTIONS_MAX as libc::socklen_t)?;
    instructions.truncate(count as usize * size_of::<libc::sock_filter>());
    Ok(instructions)
}

/// Gives a socket such a filter.
pub fn set_filter(socket: BorrowedFd<'_>, instructions: &[u8]) -> Result<()> {
    let parsed: Vec<libc::sock_filter> = instructions
        .chunks_exact(size_of::<libc::sock_filter>())
        // SAFETY: each chunk has the size of an instruction, of which any bytes are one.
        .map(|chunk| unsafe { chunk.as_ptr().cast::<libc::sock_filter>().read_unaligned() })
        .collect();
    let length = u16::try_from(parsed.len()).map_err(|_| Errno::EINVAL)?;
    let program = libc::sock_fprog { len: length, filter: parsed.as_ptr().cast_mut() };
    let bytes = size_of::<libc::sock_fprog>() as libc::socklen_t;
    let from = (&raw const program).cast();
    // SAFETY: the kernel reads the program and its instructions, which outlive the call.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, from, bytes) };
    Errno::result(set).map(drop)
}

/// Sets option `name` of `level`.
pub fn set_option(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> Result<()> {
    let bytes = value.len() as libc::socklen_t;
    // SAFETY: setsockopt reads `bytes` bytes from `value`.
    Errno::result(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), bytes) }).map(drop)
}

type NameCall = unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32;

fn address_by(call: NameCall, socket: BorrowedFd<'_>) -> Result<Vec<u8>> {
    let mut address = vec![0; ROOM];
    let mut bytes = ROOM as libc::socklen_t;
    // SAFETY: both calls write at most `bytes` bytes to `address`.
    Errno::result(unsafe { call(socket.as_raw_fd(), address.as_mut_ptr().cast(), &mut bytes) })?;
    address.truncate(bytes as usize);
    Ok(address)
}

/// Its own address.
pub fn name(socket: BorrowedFd<'_>) -> Result<Vec<u8>> {
    address_by(libc::getsockname, socket)
}

/// The address that it is connected to.
pub fn peer_name(socket: BorrowedFd<'_>) -> Result<Vec<u8>> {
    address_by(libc::getpeername, socket)
}

/// Gives it an address.
pub fn bind(socket: BorrowedFd<'_>, address: &[u8]) -> Result<()> {
    // SAFETY: bind reads the address's bytes.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), address.len() as libc::socklen_t) };
    Errno::result(bound).map(drop)
}

/// Connects it with an address.
pub fn connect(socket: BorrowedFd<'_>, address: &[u8]) -> Result<()> {
    let bytes = address.len() as libc::socklen_t;
    // SAFETY: connect reads the address's bytes.
    Errno::result(unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), bytes) }).map(drop)
}

/// Ends one or both directions: `SHUT_RD`, `SHUT_WR` or `SHUT_RDWR`.
pub fn shut_down(socket: BorrowedFd<'_>, how: i32) -> Result<()> {
    // SAFETY: takes numbers.
    Errno::result(unsafe { libc::shutdown(socket.as_raw_fd(), how) }).map(drop)
}

/// Bytes, or memory for them, that were written and have not been taken by the other end (SIOCOUTQ).
pub fn unsent_bytes(socket: BorrowedFd<'_>) -> Result<usize> {
    let mut bytes = 0_i32;
    // SAFETY: the request writes one int to `bytes`.
    Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(bytes.max(0) as usize)
}

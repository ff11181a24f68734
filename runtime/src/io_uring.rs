//! io_uring: instances that have come as far as others, and what the kernel keeps of one that no file in /proc shows.

use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use linux_raw_sys::io_uring::{
    IORING_OFF_SQ_RING, IORING_SETUP_CQSIZE, IORING_SETUP_NO_SQARRAY, IORING_SETUP_SUBMIT_ALL, io_uring_buf_status,
    io_uring_params, io_uring_probe, io_uring_register_op,
};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::descriptor::made;

/// Name of a descriptor that leads to one, and of a mapping of it.
pub const NAME: &[u8] = b"anon_inode:[io_uring]";
/// The most requests that fit into one.
const ENTRIES_MAX: u32 = 32768;
/// Groups of buffers that can be registered.
const BUFFER_GROUPS: u32 = 1 << 16;
/// Bytes of a completion.
const COMPLETION_BYTES: usize = 16;

/// Whether an instance can be for `entries` requests and `completions`.
pub fn is_possible(entries: u32, completions: u32) -> bool {
    let is_size = |size: u32, most: u32| size.is_power_of_two() && size <= most;
    is_size(entries, ENTRIES_MAX) && is_size(completions, 2 * ENTRIES_MAX)
}

/// Where an instance has what in the memory that it shares with programs: the offsets of `struct io_uring_params`, in its order.
pub type Layout = [u32; 14];

/// An instance of our own.
#[derive(Debug)]
pub struct Ring {
    descriptor: OwnedFd,
    parameters: io_uring_params,
}

impl Ring {
    /// One for `entries` requests and `completions`, both powers of 2. Requests are found through an array, or else in order.
    ///
    /// # Errors
    /// The kernel's: EPERM or ENOSYS where io_uring is switched off, EINVAL where it is too old.
    pub fn new(entries: u32, completions: u32, has_array: bool) -> nix::Result<Ring> {
        // SAFETY: the parameters are integers, for which zero is a value.
        let mut parameters: io_uring_params = unsafe { MaybeUninit::zeroed().assume_init() };
        parameters.flags = IORING_SETUP_CQSIZE | IORING_SETUP_SUBMIT_ALL;
        parameters.flags |= if has_array { 0 } else { IORING_SETUP_NO_SQARRAY };
        parameters.cq_entries = completions;
        // SAFETY: the call reads and writes one io_uring_params.
        let descriptor = made(unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, &raw mut parameters) })?;
        if (parameters.sq_entries, parameters.cq_entries) != (entries, completions) {
            return Err(Errno::EINVAL);
        }
        Ok(Ring { descriptor, parameters })
    }

    /// Where it has what.
    pub fn layout(&self) -> Layout {
        let (sq, cq) = (&self.parameters.sq_off, &self.parameters.cq_off);
        let requests = [sq.head, sq.tail, sq.ring_mask, sq.ring_entries, sq.flags, sq.dropped, sq.array];
        let completions = [cq.head, cq.tail, cq.ring_mask, cq.ring_entries, cq.overflow, cq.cqes, cq.flags];
        let mut all = [0; 14];
        all[..7].copy_from_slice(&requests);
        all[7..].copy_from_slice(&completions);
        all
    }

    /// Does nothing `count` times: the kernel counts what it takes and completes, cannot be told to begin with another number,
    /// and programs keep copies of the counters. Takes about 0.1 us each. Then the first `read` completions have been taken out,
    /// so that it is ready to be read from, for who begins to watch it, if it was.
    ///
    /// # Errors
    /// The kernel's.
    pub fn advance(&self, count: u32, read: u32) -> nix::Result<()> {
        let memory = self.map()?;
        let (sq, cq) = (&self.parameters.sq_off, &self.parameters.cq_off);
        let (entries, has_array) = (self.parameters.sq_entries, self.has_array());
        for index in 0..if has_array { entries } else { 0 } {
            memory.word(sq.array + 4 * index).store(index, Ordering::Relaxed);
        }
        // Requests of zeros are those for nothing, and their completions are zeros, too.
        let mut left = count;
        while left > 0 {
            let batch = left.min(entries);
            memory.word(sq.tail).fetch_add(batch, Ordering::Release);
            let taken = enter(self.descriptor.as_fd(), batch)?;
            memory.word(cq.head).store(memory.word(cq.tail).load(Ordering::Acquire), Ordering::Release);
            left -= taken;
            if taken != batch {
                return Err(Errno::EIO);
            }
        }
        for index in 0..if has_array { entries } else { 0 } {
            memory.word(sq.array + 4 * index).store(0, Ordering::Relaxed);
        }
        memory.word(cq.head).store(read, Ordering::Release);
        let reached = memory.word(sq.head).load(Ordering::Acquire);
        let completed = memory.word(cq.tail).load(Ordering::Acquire);
        if (reached, completed) == (count, count) { Ok(()) } else { Err(Errno::EIO) }
    }

    /// Its descriptor.
    pub fn into_descriptor(self) -> OwnedFd {
        self.descriptor
    }

    fn has_array(&self) -> bool {
        self.parameters.flags & IORING_SETUP_NO_SQARRAY == 0
    }

    fn map(&self) -> nix::Result<Mapped> {
        let array_end =
            if self.has_array() { self.parameters.sq_off.array + 4 * self.parameters.sq_entries } else { 0 };
        let completions = self.parameters.cq_off.cqes as usize + self.parameters.cq_entries as usize * COMPLETION_BYTES;
        let bytes = NonZeroUsize::new(completions.max(array_end as usize)).ok_or(Errno::EINVAL)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let offset = i64::from(IORING_OFF_SQ_RING);
        // SAFETY: a mapping of its own, where the kernel finds room.
        let start = unsafe { mmap(None, bytes, protection, MapFlags::MAP_SHARED, &self.descriptor, offset) }?;
        Ok(Mapped { start, bytes: bytes.get() })
    }
}

/// The counters and completions of an instance.
struct Mapped {
    start: NonNull<libc::c_void>,
    bytes: usize,
}

impl Mapped {
    fn word(&self, offset: u32) -> &AtomicU32 {
        let offset = offset as usize;
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes, "the kernel's offsets lie within its memory");
        // SAFETY: aligned, within the mapping, and shared with the kernel, which is why it is atomic.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().cast::<u8>().add(offset).cast()) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and nothing refers to it any more.
        let _ = unsafe { munmap(self.start, self.bytes) };
    }
}

fn enter(ring: BorrowedFd<'_>, submitted: u32) -> nix::Result<u32> {
    let none = std::ptr::null::<libc::c_void>();
    // SAFETY: takes numbers; there are no signals to wait with.
    let taken = unsafe { libc::syscall(libc::SYS_io_uring_enter, ring.as_raw_fd(), submitted, 0, 0, none, 0) };
    Errno::result(taken).map(|taken| taken as u32)
}

fn register<T>(ring: BorrowedFd<'_>, operation: io_uring_register_op, argument: &mut T) -> nix::Result<()> {
    let number = ring.as_raw_fd();
    // SAFETY: each operation that is used here reads and writes one `T`.
    let done = unsafe { libc::syscall(libc::SYS_io_uring_register, number, operation as u32, &raw mut *argument, 1) };
    Errno::result(done).map(drop)
}

/// What has been registered with an instance, or makes it special, that nothing else shows; asked without changing it.
///
/// # Errors
/// The kernel's.
pub fn hidden_state(ring: BorrowedFd<'_>) -> nix::Result<Option<&'static str>> {
    use io_uring_register_op::{IORING_REGISTER_EVENTFD, IORING_REGISTER_PBUF_STATUS, IORING_REGISTER_PROBE};
    match enter(ring, 0) {
        Err(Errno::EBADFD) => return Ok(Some("it has not been enabled yet (IORING_SETUP_R_DISABLED)")),
        outcome => outcome?,
    };
    // Room for no operations behind the header.
    let mut operations = [0u64; 34];
    const { assert!(size_of::<io_uring_probe>() + 8 <= 34 * 8) };
    match register(ring, IORING_REGISTER_PROBE, &mut operations) {
        Err(Errno::EEXIST) => return Ok(Some("one thread alone may use it (IORING_SETUP_SINGLE_ISSUER)")),
        Err(Errno::EACCES) => return Ok(Some("it is restricted (IORING_REGISTER_RESTRICTIONS)")),
        outcome => outcome?,
    }
    // A number that is no descriptor is looked at only where none is registered.
    match register(ring, IORING_REGISTER_EVENTFD, &mut -1i32) {
        Err(Errno::EBADF) => {}
        Err(Errno::EBUSY) => return Ok(Some("an eventfd is registered with it")),
        outcome => return outcome.and(Err(Errno::EIO)),
    }
    for buf_group in 0..BUFFER_GROUPS {
        let mut status = io_uring_buf_status { buf_group, head: 0, resv: [0; 8] };
        match register(ring, IORING_REGISTER_PBUF_STATUS, &mut status) {
            Err(Errno::ENOENT) => {}
            Ok(()) => return Ok(Some("a ring of buffers is registered with it")),
            // A group that is none of a ring; but a kernel that does not know the question says the same of all.
            Err(Errno::EINVAL) if buf_group > 0 => return Ok(Some("buffers are provided to it")),
            Err(Errno::EINVAL) => return Ok(Some("the kernel does not tell which buffers it has")),
            Err(other) => return Err(other),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_comes_as_far_as_it_is_told_and_keeps_nothing_of_the_way() {
        for (has_array, count) in [(true, 0), (true, 1), (true, 1003), (false, 77)] {
            let ring = match Ring::new(16, 64, has_array) {
                Err(Errno::EPERM | Errno::ENOSYS) => return println!("io_uring is switched off"),
                ring => ring.unwrap(),
            };
            ring.advance(count, count / 2).unwrap();
            let memory = ring.map().unwrap();
            let (sq, cq) = (ring.parameters.sq_off, ring.parameters.cq_off);
            let counters =
                [sq.head, sq.tail, cq.head, cq.tail].map(|offset| memory.word(offset).load(Ordering::Relaxed));
            assert_eq!(counters, [count, count, count / 2, count]);
            let after = (cq.cqes as usize..memory.bytes).step_by(4);
            assert!(after.into_iter().all(|offset| memory.word(offset as u32).load(Ordering::Relaxed) == 0));
            assert_eq!(hidden_state(ring.descriptor.as_fd()).unwrap(), None);
        }
    }
}

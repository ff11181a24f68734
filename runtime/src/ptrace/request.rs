//! One function for each ptrace request: the only place that calls `ptrace(2)`.
//!
//! The libc call is used directly because nix has no requests for the extended state, signal masks, queued
//! signals and rseq, and its signals end at 31. Each request is a fault point.

use std::ffi::c_void;
use std::ptr;

use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::fault::{self, point};

/// Bytes of a `siginfo_t` on x86-64.
pub const SIGINFO_BYTES: usize = 128;
/// Bytes of an instruction of a seccomp filter.
const FILTER_INSTRUCTION_BYTES: usize = size_of::<libc::sock_filter>();

const PTRACE_GETSIGMASK: u32 = 0x420a;
const PTRACE_SETSIGMASK: u32 = 0x420b;
const PTRACE_PEEKSIGINFO: u32 = 0x4209;
const PTRACE_GET_RSEQ_CONFIGURATION: u32 = 0x420f;
const PTRACE_SECCOMP_GET_FILTER: u32 = 0x420c;
const PTRACE_SECCOMP_GET_METADATA: u32 = 0x420d;
const PTRACE_PEEKSIGINFO_SHARED: u32 = 1;

/// The restartable-sequence registration of a thread (`struct ptrace_rseq_configuration`).
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct RseqConfiguration {
    /// Address of the `struct rseq`; 0 when none is registered.
    pub address: u64,
    /// Its registered size, bytes.
    pub bytes: u32,
    /// The signature in front of abort handlers.
    pub signature: u32,
    flags: u32,
    pad: u32,
}

#[repr(C)]
struct PeekSiginfoArgs {
    offset: u64,
    flags: u32,
    count: i32,
}

/// Does one request whose address and data are plain numbers or pointers that the caller vouches for.
///
/// # Safety
/// `address` and `data` must be what `request` expects: pointers must be valid for the kernel's reads and
/// writes of that request for the duration of the call.
unsafe fn ptrace(request: u32, name: &'static str, tid: i32, address: usize, data: usize) -> Result<i64> {
    Errno::clear();
    // SAFETY: passed on to the caller of this function.
    let result = unsafe { libc::ptrace(request, tid, address as *mut c_void, data as *mut c_void) };
    let errno = Errno::last();
    fault::hit(name);
    if result == -1 && errno != Errno::UnknownErrno {
        return Err(match errno {
            Errno::ESRCH => Error::ThreadGone { tid },
            source => Error::Ptrace { request: name, tid, source },
        });
    }
    Ok(result)
}

/// A request without pointers.
fn plain(request: u32, name: &'static str, tid: i32, data: usize) -> Result<()> {
    // SAFETY: the requests passed here take numbers only.
    unsafe { ptrace(request, name, tid, 0, data) }.map(drop)
}

pub fn seize(tid: i32, options: i32) -> Result<()> {
    plain(libc::PTRACE_SEIZE, point::PTRACE_SEIZE, tid, options as usize)
}

pub fn interrupt(tid: i32) -> Result<()> {
    plain(libc::PTRACE_INTERRUPT, point::PTRACE_INTERRUPT, tid, 0)
}

pub fn set_options(tid: i32, options: i32) -> Result<()> {
    plain(libc::PTRACE_SETOPTIONS, point::PTRACE_SETOPTIONS, tid, options as usize)
}

pub fn cont(tid: i32, signal: i32) -> Result<()> {
    plain(libc::PTRACE_CONT, point::PTRACE_CONT, tid, signal as usize)
}

pub fn cont_to_syscall(tid: i32) -> Result<()> {
    plain(libc::PTRACE_SYSCALL, point::PTRACE_SYSCALL, tid, 0)
}

pub fn detach(tid: i32, signal: i32) -> Result<()> {
    plain(libc::PTRACE_DETACH, point::PTRACE_DETACH, tid, signal as usize)
}

pub fn event_message(tid: i32) -> Result<u64> {
    let mut message: u64 = 0;
    let data = ptr::from_mut(&mut message) as usize;
    // SAFETY: GETEVENTMSG writes one unsigned long to `data`, which outlives the call.
    unsafe { ptrace(libc::PTRACE_GETEVENTMSG, point::PTRACE_GETEVENTMSG, tid, 0, data) }?;
    Ok(message)
}

/// Reads register set `set` (an `NT_*` number) into `into`; returns the bytes written.
pub fn get_register_set(tid: i32, set: i32, into: &mut [u8]) -> Result<usize> {
    let mut iov = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let data = ptr::from_mut(&mut iov) as usize;
    // SAFETY: GETREGSET writes at most iov_len bytes to iov_base, which is `into`, and updates iov.
    unsafe { ptrace(libc::PTRACE_GETREGSET, point::PTRACE_GETREGSET, tid, set as usize, data) }?;
    Ok(iov.iov_len)
}

/// Writes register set `set` (an `NT_*` number) from `from`.
pub fn set_register_set(tid: i32, set: i32, from: &[u8]) -> Result<()> {
    let mut iov = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let data = ptr::from_mut(&mut iov) as usize;
    // SAFETY: SETREGSET only reads iov_len bytes from iov_base, which is `from`.
    unsafe { ptrace(libc::PTRACE_SETREGSET, point::PTRACE_SETREGSET, tid, set as usize, data) }.map(drop)
}

pub fn signal_mask(tid: i32) -> Result<u64> {
    let mut mask: u64 = 0;
    let data = ptr::from_mut(&mut mask) as usize;
    // SAFETY: GETSIGMASK writes the 8 bytes named by `address` to `data`.
    unsafe { ptrace(PTRACE_GETSIGMASK, point::PTRACE_GETSIGMASK, tid, 8, data) }?;
    Ok(mask)
}

pub fn set_signal_mask(tid: i32, mask: u64) -> Result<()> {
    let data = ptr::from_ref(&mask) as usize;
    // SAFETY: SETSIGMASK reads the 8 bytes named by `address` from `data`.
    unsafe { ptrace(PTRACE_SETSIGMASK, point::PTRACE_SETSIGMASK, tid, 8, data) }.map(drop)
}

/// The queued signals of the thread, or of its whole process when `shared`, oldest first.
pub fn queued_signals(tid: i32, shared: bool) -> Result<Vec<[u8; SIGINFO_BYTES]>> {
    const BATCH: usize = 32;
    // The kernel walks the queue from its beginning for each batch, and others may add to it all the while.
    const MOST: usize = 8192;
    let mut queued = Vec::new();
    loop {
        let mut batch = [[0u8; SIGINFO_BYTES]; BATCH];
        let flags = if shared { PTRACE_PEEKSIGINFO_SHARED } else { 0 };
        let args = PeekSiginfoArgs { offset: queued.len() as u64, flags, count: BATCH as i32 };
        let address = ptr::from_ref(&args) as usize;
        let data = batch.as_mut_ptr() as usize;
        // SAFETY: PEEKSIGINFO reads `args` and writes at most `count` siginfo_t to `data`, which holds BATCH.
        let copied = unsafe { ptrace(PTRACE_PEEKSIGINFO, point::PTRACE_PEEKSIGINFO, tid, address, data) }? as usize;
        queued.extend_from_slice(&batch[..copied]);
        if copied < BATCH {
            return Ok(queued);
        }
        if queued.len() > MOST {
            return Err(Error::unsupported(
                format!("thread {tid} with more than {MOST} queued signals"),
                "the program would be stopped for long while they are read",
                "take the checkpoint when they have been handled",
            ));
        }
    }
}

/// The rseq registration, or `None` where the kernel cannot tell (before 5.13).
pub fn rseq_configuration(tid: i32) -> Result<Option<RseqConfiguration>> {
    let mut configuration = RseqConfiguration::default();
    let data = ptr::from_mut(&mut configuration) as usize;
    let bytes = size_of::<RseqConfiguration>();
    // SAFETY: the request writes at most `address` = `bytes` bytes to `data`.
    match unsafe { ptrace(PTRACE_GET_RSEQ_CONFIGURATION, point::PTRACE_GETRSEQ, tid, bytes, data) } {
        Ok(_) => Ok((configuration.address != 0).then_some(configuration)),
        Err(Error::Ptrace { source: Errno::EIO, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A seccomp filter (`struct sock_filter`, 8 bytes each); filter 0 is the one that was added first. None where there is none.
pub fn filter(tid: i32, number: usize) -> Result<Option<Vec<[u8; FILTER_INSTRUCTION_BYTES]>>> {
    // SAFETY: with no place to write to, the request gives the number of instructions alone.
    let count = match unsafe { ptrace(PTRACE_SECCOMP_GET_FILTER, point::PTRACE_GETFILTER, tid, number, 0) } {
        Err(Error::Ptrace { source: Errno::ENOENT, .. }) => return Ok(None),
        count => count?,
    };
    let mut instructions = vec![[0; FILTER_INSTRUCTION_BYTES]; count as usize];
    let data = instructions.as_mut_ptr() as usize;
    // SAFETY: the thread is stopped and so is its filter what it was: the request writes `count` instructions to `data`.
    unsafe { ptrace(PTRACE_SECCOMP_GET_FILTER, point::PTRACE_GETFILTER, tid, number, data) }?;
    Ok(Some(instructions))
}

/// The flags of a seccomp filter (`SECCOMP_FILTER_FLAG_LOG` alone so far).
pub fn filter_flags(tid: i32, number: usize) -> Result<u64> {
    // struct seccomp_metadata: which filter, and its flags.
    let mut metadata = [number as u64, 0];
    let data = metadata.as_mut_ptr() as usize;
    let bytes = size_of_val(&metadata);
    // SAFETY: the request reads and writes at most `address` = `bytes` bytes at `data`.
    unsafe { ptrace(PTRACE_SECCOMP_GET_METADATA, point::PTRACE_GETFILTER, tid, bytes, data) }?;
    Ok(metadata[1])
}

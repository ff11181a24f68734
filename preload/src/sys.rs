//! System calls, made directly: they leave `errno` alone, need no symbol of libc, and cannot land in a hook.
//!
//! The registers are set in one place, [`call`]; each call below is a few lines that turn typed arguments into
//! registers. All of them may be used in a signal handler and in a child that shares our memory.

use core::arch::asm;
use core::ffi::{CStr, c_char};
use core::sync::atomic::AtomicU32;

use ckpt_wire::settings::text::Text;

use crate::errno::Errno;

/// A signal mask as the kernel has it: bit `n - 1` is signal `n`.
pub type Mask = u64;
/// Every signal that can be blocked.
pub const MASK_ALL: Mask = !0;

/// A signal action as the kernel has it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct KernelAction {
    /// Address of the handler, `SIG_DFL` or `SIG_IGN`.
    pub handler: usize,
    /// `SA_*`.
    pub flags: u64,
    /// Address of the code that returns from the handler.
    pub restorer: usize,
    /// What is blocked while the handler runs.
    pub mask: Mask,
}

/// A system call with up to six arguments.
///
/// # Safety
/// The arguments must be what call `number` asks for: pointers valid for what the kernel reads and writes through
/// them, and no effect on memory or descriptors that the program relies on.
#[inline(always)]
unsafe fn call(number: i64, arguments: [usize; 6]) -> Result<usize, Errno> {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the calling convention of x86-64 Linux; rcx and r11 are overwritten by `syscall`. What the call does
    // is answered for by the caller.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    match result {
        -4095..=-1 => Err(Errno(-(result as i32))),
        value => Ok(value as usize),
    }
}

/// Pid of the calling process.
pub fn getpid() -> i32 {
    // SAFETY: no arguments, no effects.
    unsafe { call(libc::SYS_getpid, [0; 6]) }.unwrap_or(0) as i32
}

/// Whether there is a process `pid`, ours to signal or not.
pub fn process_exists(pid: i32) -> bool {
    // SAFETY: signal 0 only asks.
    pid > 0 && unsafe { call(libc::SYS_kill, [pid as usize, 0, 0, 0, 0, 0]) } != Err(Errno(libc::ESRCH))
}

/// Whether processes `a` and `b` share their memory. An error when the kernel will not say.
pub fn same_memory(a: i32, b: i32) -> Result<bool, Errno> {
    const KCMP_VM: usize = 1;
    // SAFETY: kcmp only compares.
    unsafe { call(libc::SYS_kcmp, [a as usize, b as usize, KCMP_VM, 0, 0, 0]) }.map(|order| order == 0)
}

/// Sets the signal mask of the calling thread and returns the one before.
pub fn set_mask(mask: Mask) -> Mask {
    let mut before: Mask = 0;
    let arguments = [libc::SIG_SETMASK as usize, &raw const mask as usize, &raw mut before as usize, size_of::<Mask>()];
    let [a, b, c, d] = arguments;
    // SAFETY: both pointers are to live masks of the size given.
    let _ = unsafe { call(libc::SYS_rt_sigprocmask, [a, b, c, d, 0, 0]) };
    before
}

/// The present action of `signal`.
pub fn action(signal: i32) -> Result<KernelAction, Errno> {
    let mut before = KernelAction::default();
    let old = &raw mut before as usize;
    // SAFETY: a query; the kernel writes one action, whose mask is of the size given.
    unsafe { call(libc::SYS_rt_sigaction, [signal as usize, 0, old, size_of::<Mask>(), 0, 0]) }.map(|_| before)
}

/// Sets the action of `signal`.
///
/// # Safety
/// The handler must be `SIG_DFL`, `SIG_IGN` or one that may run in any thread at any instruction.
pub unsafe fn set_action(signal: i32, action: &KernelAction) -> Result<(), Errno> {
    let new = core::ptr::from_ref(action) as usize;
    // SAFETY: `new` is a live action whose mask is of the size given; the handler is the caller's word.
    unsafe { call(libc::SYS_rt_sigaction, [signal as usize, new, 0, size_of::<Mask>(), 0, 0]) }.map(|_| ())
}

/// Waits for the end of a child whose exit signal is 0. Nothing is known about it afterwards.
pub fn reap(pid: i32) {
    let arguments = [pid as usize, 0, libc::__WCLONE as usize, 0, 0, 0];
    // SAFETY: no pointers. The pid is of a child of ours that nobody else waits for.
    while unsafe { call(libc::SYS_wait4, arguments) } == Err(Errno(libc::EINTR)) {}
}

/// Lets `pid` trace the calling process where Yama restricts that; false for a kernel without Yama, which needs it not.
pub fn allow_tracer(pid: i32) -> bool {
    // SAFETY: two plain numbers.
    unsafe { call(libc::SYS_prctl, [libc::PR_SET_PTRACER as usize, pid as usize, 0, 0, 0, 0]) }.is_ok()
}

/// Whether the calling thread is known to be under no seccomp filter and without no_new_privs.
pub fn is_unconfined() -> bool {
    let is_off = |question: i32| {
        // SAFETY: both only ask, and take no pointers.
        let answer = unsafe { call(libc::SYS_prctl, [question as usize, 0, 0, 0, 0, 0]) };
        // A kernel without seccomp does not know the question.
        matches!(answer, Ok(0) | Err(Errno(libc::EINVAL)))
    };
    is_off(libc::PR_GET_SECCOMP) && is_off(libc::PR_GET_NO_NEW_PRIVS)
}

/// Whether process `pid` executes the file at `path`, as far as we may know.
pub fn executes(pid: i32, path: &[u8]) -> bool {
    let mut link = Text::<32>::new();
    link.push(b"/proc/").push_decimal(u64::from(pid.unsigned_abs()), 1).push(b"/exe");
    let mut target = [0_u8; 512];
    let arguments = [libc::AT_FDCWD as usize, link.as_ptr() as usize, target.as_mut_ptr() as usize, target.len(), 0, 0];
    // SAFETY: the path ends with a zero; the kernel writes at most the length given into `target`.
    let bytes = unsafe { call(libc::SYS_readlinkat, arguments) };
    bytes.is_ok_and(|bytes| bytes < target.len() && target.get(..bytes) == Some(path))
}

/// Fills `buffer` with random bytes without waiting for them; false when the kernel has none yet.
pub fn random(buffer: &mut [u8]) -> bool {
    let arguments = [buffer.as_mut_ptr() as usize, buffer.len(), libc::GRND_NONBLOCK as usize, 0, 0, 0];
    // SAFETY: the kernel writes at most the length given into `buffer`.
    let filled = unsafe { call(libc::SYS_getrandom, arguments) };
    filled == Ok(buffer.len())
}

/// The working directory, in `buffer`, without the terminating zero that follows it there.
pub fn working_directory(buffer: &mut [u8]) -> Result<&[u8], Errno> {
    let arguments = [buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0, 0];
    // SAFETY: the kernel writes at most the length given into `buffer`.
    let bytes = unsafe { call(libc::SYS_getcwd, arguments) }?;
    buffer.get(..bytes.saturating_sub(1)).ok_or(Errno(libc::ERANGE))
}

/// Maps `bytes` of zeros, which count as used where they have been written to.
pub fn map_zeros(bytes: usize) -> Result<*mut u8, Errno> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: without an address the kernel takes free space; descriptor -1 is asked for with MAP_ANONYMOUS.
    unsafe { call(libc::SYS_mmap, [0, bytes, protection, flags, usize::MAX, 0]) }.map(|address| address as *mut u8)
}

/// Lets other threads run.
pub fn yield_now() {
    // SAFETY: no arguments.
    let _ = unsafe { call(libc::SYS_sched_yield, [0; 6]) };
}

/// Copies memory of this process as far as it is there and can be read: how many bytes.
pub fn copy_what_is_there(to: *mut u8, from: *const u8, bytes: usize) -> usize {
    let (local, remote) = ([to as usize, bytes], [from as usize, bytes]);
    let arguments = [getpid() as usize, local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0];
    // SAFETY: two live vectors of one range each; the kernel finds out what is there.
    unsafe { call(libc::SYS_process_vm_readv, arguments) }.unwrap_or(0)
}

/// Writes the path of the working directory, and a zero: how many bytes it has without that.
pub fn current_directory(to: *mut u8, bytes: usize) -> Result<usize, Errno> {
    // SAFETY: the kernel writes at most the length given, and counts the zero.
    unsafe { call(libc::SYS_getcwd, [to as usize, bytes, 0, 0, 0, 0]) }.map(|bytes| bytes - 1)
}

/// Takes addresses, if nothing is mapped there: neither read nor written, and no memory.
pub fn reserve(address: usize, bytes: usize) -> Result<(), Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let arguments = [address, bytes, libc::PROT_NONE as usize, flags as usize, usize::MAX, 0];
    // SAFETY: nothing that is there is replaced; descriptor -1 is asked for with MAP_ANONYMOUS.
    unsafe { call(libc::SYS_mmap, arguments) }.map(drop)
}

/// Takes addresses in place of what is mapped there.
///
/// # Safety
/// Nobody may use that any more.
pub unsafe fn replace_by_reservation(address: usize, bytes: usize) -> Result<(), Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let arguments = [address, bytes, libc::PROT_NONE as usize, flags as usize, usize::MAX, 0];
    // SAFETY: the caller's word; descriptor -1 is asked for with MAP_ANONYMOUS.
    unsafe { call(libc::SYS_mmap, arguments) }.map(drop)
}

/// Changes what threads may do with memory.
pub fn protect(address: usize, bytes: usize, protection: i32) -> Result<(), Errno> {
    // SAFETY: no pointers; who may not be kept from this memory is the caller's business.
    unsafe { call(libc::SYS_mprotect, [address, bytes, protection as usize, 0, 0, 0]) }.map(drop)
}

/// Moves a mapping to other addresses, in one step; nothing is left where it was.
///
/// # Safety
/// It must be ours, of that length, and what is mapped where it goes must be needed by nobody.
pub unsafe fn move_mapping(from: usize, bytes: usize, to: usize) -> Result<(), Errno> {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    // SAFETY: the caller's word.
    unsafe { call(libc::SYS_mremap, [from, bytes, bytes, flags, to, 0]) }.map(drop)
}

/// Gives a mapping back.
///
/// # Safety
/// It must be ours, of that length, and nobody may use it any more.
pub unsafe fn unmap(address: *mut u8, bytes: usize) {
    // SAFETY: the caller's word.
    let _ = unsafe { call(libc::SYS_munmap, [address as usize, bytes, 0, 0, 0, 0]) };
}

/// Waits until `word` is not `expected`, somebody wakes its waiters, or so many milliseconds have passed. May return early.
pub fn futex_wait(word: &AtomicU32, expected: u32, within_ms: Option<u32>) {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    futex_wait_as(operation, word, expected, within_ms);
}

/// The same for a word that the kernel clears at the end of a thread.
pub fn futex_wait_for_kernel(word: &AtomicU32, expected: u32) {
    futex_wait_as(libc::FUTEX_WAIT, word, expected, None);
}

fn futex_wait_as(operation: i32, word: &AtomicU32, expected: u32, within_ms: Option<u32>) {
    let within = within_ms.map(|ms| [u64::from(ms / 1000), u64::from(ms % 1000) * 1_000_000]);
    let within = within.as_ref().map_or(0, |within| within.as_ptr() as usize);
    // SAFETY: a live word, and a live timespec or none.
    let _ =
        unsafe { call(libc::SYS_futex, [word.as_ptr() as usize, operation as usize, expected as usize, within, 0, 0]) };
}

/// Wakes all threads that wait for `word` to change.
pub fn futex_wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a live word.
    let _ = unsafe { call(libc::SYS_futex, [word.as_ptr() as usize, operation as usize, i32::MAX as usize, 0, 0, 0]) };
}

/// The calling thread's id.
pub fn gettid() -> i32 {
    // SAFETY: no arguments, no effects.
    unsafe { call(libc::SYS_gettid, [0; 6]) }.unwrap_or(0) as i32
}

/// Names the calling thread, in at most 15 bytes.
pub fn name_thread(name: &CStr) {
    // SAFETY: the kernel reads the text.
    let _ = unsafe { call(libc::SYS_prctl, [libc::PR_SET_NAME as usize, name.as_ptr() as usize, 0, 0, 0, 0]) };
}

/// Nanoseconds of a clock that only goes on.
pub fn now_ns() -> u64 {
    let mut now = [0_u64; 2];
    // SAFETY: the kernel writes one timespec, which is two eight-byte fields.
    let _ = unsafe {
        call(libc::SYS_clock_gettime, [libc::CLOCK_MONOTONIC as usize, now.as_mut_ptr() as usize, 0, 0, 0, 0])
    };
    let [seconds, nanoseconds] = now;
    seconds * 1_000_000_000 + nanoseconds
}

/// A descriptor that the CUDA driver has made for us in the program's table: has it closed by exec, and says which file it is.
pub fn adopt(fd: i32) -> Result<[u64; 2], Errno> {
    // SAFETY: two plain numbers and a command.
    unsafe { call(libc::SYS_fcntl, [fd as usize, libc::F_SETFD as usize, libc::FD_CLOEXEC as usize, 0, 0, 0]) }?;
    file_of(fd)
}

/// Closes what [`adopt`] was called for, unless the program has another file under that number by now.
pub fn close_adopted(fd: i32, file: [u64; 2]) {
    if file_of(fd) == Ok(file) {
        // SAFETY: ours.
        let _ = unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Device and inode.
fn file_of(fd: i32) -> Result<[u64; 2], Errno> {
    status_of(fd).map(|status| [status.st_dev, status.st_ino])
}

fn status_of(fd: i32) -> Result<libc::stat, Errno> {
    // SAFETY: numbers, for which zero is a value.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes one such structure.
    unsafe { call(libc::SYS_fstat, [fd as usize, &raw mut status as usize, 0, 0, 0, 0]) }?;
    Ok(status)
}

/// Reads what a file has from `offset` on, as much as there is room for. It is open for a moment, closed by exec.
pub fn read_file(path: &CStr, offset: usize, into: &mut [u8]) -> Result<usize, Errno> {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    // SAFETY: zero-terminated.
    let file = unsafe { call(libc::SYS_open, [path.as_ptr() as usize, flags, 0, 0, 0, 0]) }?;
    // SAFETY: the kernel writes at most the length given.
    let read = unsafe { call(libc::SYS_pread64, [file, into.as_mut_ptr() as usize, into.len(), offset, 0, 0]) };
    // SAFETY: ours.
    let _ = unsafe { call(libc::SYS_close, [file, 0, 0, 0, 0, 0]) };
    read
}

/// Has the calling thread receive a signal once more, with the same details, as soon as it does not block it.
pub fn receive_again(details: &libc::siginfo_t) {
    let whose =
        [getpid() as usize, gettid() as usize, details.si_signo as usize, core::ptr::from_ref(details) as usize];
    // SAFETY: live details; a process may send any to itself.
    let _ = unsafe { call(libc::SYS_rt_tgsigqueueinfo, [whose[0], whose[1], whose[2], whose[3], 0, 0]) };
}

/// Writes one line to standard error.
pub fn say(parts: &[&[u8]]) {
    let mut line = ckpt_wire::settings::text::Text::<1024>::new();
    for part in parts {
        line.push(part);
    }
    let bytes = line.as_bytes();
    // SAFETY: the kernel reads the length given.
    let _ = unsafe { call(libc::SYS_write, [2, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) };
}

/// Seconds since 1970.
pub fn seconds_since_1970() -> u64 {
    let mut now = [0_u64; 2];
    // SAFETY: the kernel writes one timespec, which is two eight-byte fields.
    let _ = unsafe {
        call(libc::SYS_clock_gettime, [libc::CLOCK_REALTIME as usize, now.as_mut_ptr() as usize, 0, 0, 0, 0])
    };
    let [seconds, _nanoseconds] = now;
    seconds
}

/// Ends the calling process, and nothing else.
pub fn exit(status: i32) -> ! {
    loop {
        // SAFETY: no pointers; it does not return.
        let _ = unsafe { call(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Ends the calling process as SIGKILL does.
pub fn end_program() -> ! {
    // SAFETY: two numbers. The first process of a pid namespace is shielded from it, and ends by the call that follows.
    let _ = unsafe { call(libc::SYS_kill, [getpid() as usize, libc::SIGKILL as usize, 0, 0, 0, 0]) };
    exit(128 + libc::SIGKILL)
}

/// Descriptors in the program's own table. Only for calls in which the driver itself would open and close some.
pub mod of_driver {
    use super::*;

    /// A copy of a descriptor of another process.
    pub fn fetch(pid: i32, descriptor: i32) -> Result<i32, Errno> {
        // SAFETY: no pointers.
        let process = unsafe { call(libc::SYS_pidfd_open, [pid as usize, 0, 0, 0, 0, 0]) }?;
        // SAFETY: no pointers.
        let fetched = unsafe { call(libc::SYS_pidfd_getfd, [process, descriptor as usize, 0, 0, 0, 0]) };
        close(process as i32);
        fetched.map(|fd| fd as i32)
    }

    /// A copy of a descriptor, which must be of this file still (see [`adopt`]).
    pub fn copy(descriptor: i32, file: [u64; 2]) -> Result<i32, Errno> {
        if file_of(descriptor)? != file {
            return Err(Errno(libc::EBADF));
        }
        // SAFETY: three plain numbers.
        unsafe { call(libc::SYS_fcntl, [descriptor as usize, libc::F_DUPFD_CLOEXEC as usize, 0, 0, 0, 0]) }
            .map(|fd| fd as i32)
    }

    /// Opens a file to read it, closed by exec.
    pub fn open(path: &CStr) -> Result<i32, Errno> {
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
        // SAFETY: zero-terminated.
        unsafe { call(libc::SYS_open, [path.as_ptr() as usize, flags, 0, 0, 0, 0]) }.map(|fd| fd as i32)
    }

    /// Reads some of it; nothing at its end.
    pub fn read(descriptor: i32, into: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: the kernel writes at most the length given.
        unsafe { call(libc::SYS_read, [descriptor as usize, into.as_mut_ptr() as usize, into.len(), 0, 0, 0]) }
    }

    /// Closes a descriptor that was opened for us.
    pub fn close(descriptor: i32) {
        // SAFETY: no pointers; the descriptor is ours.
        let _ = unsafe { call(libc::SYS_close, [descriptor as usize, 0, 0, 0, 0, 0]) };
    }
}

/// The calls that touch descriptors, directories and sessions. Only for a child with tables of its own.
pub mod in_child {
    use super::*;

    /// Opens `path`.
    ///
    /// # Safety
    /// `path` must be zero-terminated, and the descriptor table must not be the program's.
    pub unsafe fn open(path: *const u8, flags: i32, mode: u32) -> Result<i32, Errno> {
        // SAFETY: the caller's word on `path`.
        unsafe { call(libc::SYS_open, [path as usize, flags as usize, mode as usize, 0, 0, 0]) }.map(|fd| fd as i32)
    }

    /// Makes a directory.
    ///
    /// # Safety
    /// `path` must be zero-terminated.
    pub unsafe fn make_directory(path: *const u8, mode: u32) -> Result<(), Errno> {
        // SAFETY: the caller's word on `path`.
        unsafe { call(libc::SYS_mkdir, [path as usize, mode as usize, 0, 0, 0, 0]) }.map(|_| ())
    }

    /// Writes `bytes`, or as many as go in one call.
    pub fn write(fd: i32, bytes: &[u8]) -> Result<usize, Errno> {
        // SAFETY: the kernel reads the length given from `bytes`.
        unsafe { call(libc::SYS_write, [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) }
    }

    /// Whether it is a regular file of this process's user that has one name.
    pub fn is_file_of_ours(fd: i32) -> bool {
        // SAFETY: no arguments.
        let user = unsafe { call(libc::SYS_geteuid, [0; 6]) }.unwrap_or(usize::MAX);
        status_of(fd).is_ok_and(|found| {
            found.st_mode & libc::S_IFMT == libc::S_IFREG && found.st_nlink == 1 && found.st_uid as usize == user
        })
    }

    /// Copies `from` to the lowest free descriptor.
    pub fn duplicate(from: i32) -> Result<i32, Errno> {
        // SAFETY: no pointers; the table is the child's own.
        unsafe { call(libc::SYS_dup, [from as usize, 0, 0, 0, 0, 0]) }.map(|fd| fd as i32)
    }

    /// Has all descriptors that lead to a path with this beginning lead to /dev/null; where there is none, closes them.
    pub fn lead_to_null(beginning: &[u8]) -> Result<(), Errno> {
        let all = of_driver::open(c"/proc/self/fd")?;
        // SAFETY: zero-terminated; the table is the child's own.
        let null = unsafe { open(c"/dev/null".as_ptr().cast(), libc::O_RDWR | libc::O_CLOEXEC, 0) };
        let lead = |number: usize| match null {
            Ok(null) => {
                let arguments = [null as usize, number, libc::O_CLOEXEC as usize, 0, 0, 0];
                // SAFETY: no pointers; the table is the child's own.
                let _ = unsafe { call(libc::SYS_dup3, arguments) };
            }
            Err(_) => of_driver::close(number as i32),
        };
        let mut entries = [0_u8; 1024];
        let outcome = loop {
            let room = [all as usize, entries.as_mut_ptr() as usize, entries.len(), 0, 0, 0];
            // SAFETY: the kernel writes at most the length given.
            match unsafe { call(libc::SYS_getdents64, room) } {
                Ok(0) => break Ok(()),
                Ok(bytes) => each_number(entries.get(..bytes).unwrap_or_default(), |number, name| {
                    if leads_to(all, name, beginning) {
                        lead(number);
                    }
                }),
                Err(error) => break Err(error),
            }
        };
        if let Ok(null) = null {
            of_driver::close(null);
        }
        of_driver::close(all);
        outcome
    }

    /// Shows each entry of a directory (`linux_dirent64`) whose name is a number: that, and the name with the zero behind it.
    fn each_number(mut entries: &[u8], mut act: impl FnMut(usize, &[u8])) {
        const LENGTH: usize = 16;
        const NAME: usize = 19;
        while let Some(&[low, high]) = entries.get(LENGTH..LENGTH + 2) {
            let length = usize::from(u16::from_ne_bytes([low, high]));
            let Some(name) = entries.get(NAME..length) else { return };
            let digits = name.iter().map_while(|&byte| (byte as char).to_digit(10));
            if name.first().is_some_and(u8::is_ascii_digit) {
                act(digits.fold(0, |number, digit| number * 10 + digit as usize), name);
            }
            entries = entries.get(length..).unwrap_or_default();
        }
    }

    /// Whether the link of this name in a directory leads to a path with this beginning.
    fn leads_to(directory: i32, name: &[u8], beginning: &[u8]) -> bool {
        let mut target = [0_u8; 16];
        let arguments = [directory as usize, name.as_ptr() as usize, target.as_mut_ptr() as usize, target.len(), 0, 0];
        // SAFETY: the name ends with a zero; the kernel writes at most the length given.
        let read = unsafe { call(libc::SYS_readlinkat, arguments) };
        read.is_ok() && target.starts_with(beginning)
    }

    /// Closes every descriptor of the child.
    ///
    /// # Safety
    /// The descriptor table must not be the program's.
    pub unsafe fn close_all() -> Result<(), Errno> {
        // SAFETY: the caller's word that the table is the child's own.
        unsafe { call(libc::SYS_close_range, [0, u32::MAX as usize, 0, 0, 0, 0]) }.map(|_| ())
    }

    /// Becomes the leader of a new session.
    pub fn new_session() {
        // SAFETY: no arguments; the calling child is no group leader, so it succeeds.
        let _ = unsafe { call(libc::SYS_setsid, [0; 6]) };
    }

    /// Raises the calling process's limit for `resource` as far as it may: altogether, if its user may do that.
    pub fn raise_limit(resource: u32) {
        const NO_LIMIT: [u64; 2] = [u64::MAX; 2];
        // SAFETY: pid 0 is the caller, whose limits are the child's alone; the kernel reads one pair of numbers.
        let raised = unsafe { call(libc::SYS_prlimit64, [0, resource as usize, NO_LIMIT.as_ptr() as usize, 0, 0, 0]) };
        if raised.is_ok() {
            return;
        }
        // The present limit and the highest allowed one.
        let mut limit = [0_u64; 2];
        let resource = resource as usize;
        // SAFETY: pid 0 is the caller; the kernel writes one pair of numbers.
        let known = unsafe { call(libc::SYS_prlimit64, [0, resource, 0, limit.as_mut_ptr() as usize, 0, 0]) };
        let [_, highest] = limit;
        limit = [highest, highest];
        if known.is_ok() {
            // SAFETY: the kernel reads one pair of numbers. Limits belong to the child alone.
            let _ = unsafe { call(libc::SYS_prlimit64, [0, resource, limit.as_ptr() as usize, 0, 0, 0]) };
        }
    }

    /// Changes the working directory to `/`.
    ///
    /// # Safety
    /// The caller must not share its working directory with the program (`CLONE_FS`).
    pub unsafe fn enter_root_directory() {
        // SAFETY: the path is a literal; the caller's word on sharing.
        let _ = unsafe { call(libc::SYS_chdir, [c"/".as_ptr() as usize, 0, 0, 0, 0, 0]) };
    }

    /// Becomes another program. Returns only when that fails.
    ///
    /// # Safety
    /// `path` must be zero-terminated, and both lists must end with a null pointer and hold zero-terminated texts.
    pub unsafe fn execute(path: *const u8, argv: *const *const c_char, envp: *const *const c_char) -> Errno {
        // SAFETY: the caller's word on the three pointers.
        match unsafe { call(libc::SYS_execve, [path as usize, argv as usize, envp as usize, 0, 0, 0]) } {
            Err(errno) => errno,
            Ok(_) => Errno(0),
        }
    }
}

/// The calls of a thread that shares the program's memory and has a descriptor table of its own.
pub mod in_thread {
    use super::*;

    /// A connection to the socket at `path`, which keeps the borders of messages.
    ///
    /// # Safety
    /// The descriptor table must not be the program's.
    pub unsafe fn connect(path: &[u8; 108]) -> Result<i32, Errno> {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: plain numbers; the table is the thread's own.
        let fd = unsafe { call(libc::SYS_socket, [libc::AF_UNIX as usize, kind as usize, 0, 0, 0, 0]) }?;
        // Neither connecting nor sending waits for more than a second.
        let within = [1_u64, 0];
        let option = [libc::SOL_SOCKET as usize, libc::SO_SNDTIMEO as usize];
        // SAFETY: the kernel reads one timeval.
        unsafe { call(libc::SYS_setsockopt, [fd, option[0], option[1], within.as_ptr() as usize, 16, 0]) }?;
        let address = Address { family: libc::AF_UNIX as u16, path: *path };
        // SAFETY: the kernel reads one address.
        unsafe { call(libc::SYS_connect, [fd, &raw const address as usize, size_of::<Address>(), 0, 0, 0]) }?;
        Ok(fd as i32)
    }

    /// `sockaddr_un`.
    #[repr(C)]
    struct Address {
        family: u16,
        path: [u8; 108],
    }

    /// Sends a message.
    pub fn send(fd: i32, message: &[u8]) -> Result<(), Errno> {
        let flags = libc::MSG_NOSIGNAL as usize;
        let arguments = [fd as usize, message.as_ptr() as usize, message.len(), flags, 0, 0];
        // SAFETY: the kernel reads the length given.
        unsafe { call(libc::SYS_sendto, arguments) }.map(|_| ())
    }

    /// Receives a message, and waits for it if `waits`: as many bytes as there were, 0 at the end. Of a longer one the rest is
    /// lost.
    pub fn receive(fd: i32, message: &mut [u8], waits: bool) -> Result<usize, Errno> {
        let flags = libc::MSG_TRUNC | if waits { 0 } else { libc::MSG_DONTWAIT };
        let arguments = [fd as usize, message.as_mut_ptr() as usize, message.len(), flags as usize, 0, 0];
        loop {
            // SAFETY: the kernel writes at most the length given.
            let received = unsafe { call(libc::SYS_recvfrom, arguments) };
            if received != Err(Errno(libc::EINTR)) {
                return received;
            }
        }
    }

    /// Ends the calling thread alone.
    pub fn exit() -> ! {
        loop {
            // SAFETY: no pointers; it does not return.
            let _ = unsafe { call(libc::SYS_exit, [0; 6]) };
        }
    }
}

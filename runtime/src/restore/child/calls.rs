//! The system calls of the child: no allocation, no lock, no errno left to interpret.

use std::arch::asm;
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::AtomicU32;

use nix::errno::Errno;

use crate::image::SignalAction;
use crate::restore::clone_call::{CloneArguments, REAPING_TIMEOUT};
use crate::unread_bytes::unread_bytes;

type Result<T> = std::result::Result<T, Errno>;

/// `arch_prctl`: permission to use a state component that needs one.
const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
/// AMX tile data.
const XFEATURE_TILE_DATA: usize = 18;
/// Between two looks at whether an id is free.
const PAUSE_MS: u32 = 10;
/// How often an id is tried.
pub const ATTEMPTS: u32 = REAPING_TIMEOUT.as_millis() as u32 / PAUSE_MS;
/// Bytes of the kernel's signal set.
const SIGNAL_SET_BYTES: usize = 8;

/// `struct kernel_sigaction`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct KernelAction {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: u64,
}

impl From<&SignalAction> for KernelAction {
    fn from(action: &SignalAction) -> KernelAction {
        let &SignalAction { handler, flags, restorer, mask, .. } = action;
        KernelAction { handler, flags, restorer, mask }
    }
}

fn done(result: i32) -> Result<()> {
    Errno::result(result).map(drop)
}

pub fn close(number: RawFd) {
    // SAFETY: takes a number; the child owns its whole table.
    unsafe { libc::close(number) };
}

pub fn close_range(first: u32, last: u32) -> Result<()> {
    // SAFETY: takes numbers; the child owns its whole table.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } as i32)
}

pub fn duplicate_to(from: RawFd, to: RawFd, close_on_exec: bool) -> Result<()> {
    let flags = if close_on_exec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: takes numbers; what `to` was is given up.
    done(unsafe { libc::dup3(from, to, flags) })
}

/// Moves a descriptor to the lowest free number from `lowest`.
pub fn move_above(number: RawFd, lowest: RawFd) -> Result<RawFd> {
    if number >= lowest {
        return Ok(number);
    }
    let moved = duplicate_above(number, lowest);
    close(number);
    moved
}

/// Another descriptor of the same open file, at the lowest free number from `lowest`.
pub fn duplicate_above(number: RawFd, lowest: RawFd) -> Result<RawFd> {
    // SAFETY: F_DUPFD_CLOEXEC takes a number.
    Errno::result(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, lowest) })
}

pub fn open(path: &CStr, flags: i32) -> Result<RawFd> {
    const MODE: libc::mode_t = 0o666;
    // SAFETY: `path` ends with a zero and outlives the call.
    Errno::result(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, MODE) })
}

/// Opens again what `number` leads to: a new description of the same pipe or device.
pub fn reopen(number: RawFd, flags: i32) -> Result<RawFd> {
    let mut path = *b"/proc/self/fd/0000000000\0";
    let digits = path.len() - 11;
    let mut rest = number;
    for place in path[digits..digits + 10].iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    // The kernel takes no leading zeros: move the digits to the front.
    let zeros = path[digits..digits + 9].iter().take_while(|&&digit| digit == b'0').count();
    path.copy_within(digits + zeros.., digits);
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::EINVAL)?;
    open(path, flags)
}

pub fn seek(number: RawFd, offset: u64) -> Result<()> {
    // SAFETY: takes numbers.
    Errno::result(unsafe { libc::lseek(number, offset as i64, libc::SEEK_SET) }).map(drop)
}

pub fn status_flags(number: RawFd) -> Result<i32> {
    // SAFETY: F_GETFL takes no argument.
    Errno::result(unsafe { libc::fcntl(number, libc::F_GETFL) })
}

pub fn set_status_flags(number: RawFd, flags: i32) -> Result<()> {
    // SAFETY: F_SETFL takes a number.
    done(unsafe { libc::fcntl(number, libc::F_SETFL, flags) })
}

/// The file type bits of the mode.
pub fn file_type(number: RawFd) -> Result<libc::mode_t> {
    // SAFETY: all zeros is a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: fstat writes one `stat` to `stat`.
    done(unsafe { libc::fstat(number, &mut stat) })?;
    Ok(stat.st_mode & libc::S_IFMT)
}

pub fn write_all(number: RawFd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        // SAFETY: write reads `bytes.len()` bytes from `bytes`.
        let written = unsafe { libc::write(number, bytes.as_ptr().cast(), bytes.len()) };
        match written {
            -1 if Errno::last() == Errno::EINTR => {}
            -1 => return Err(Errno::last()),
            written => bytes = bytes.get(written as usize..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// Replaces the content of a small file of the kernel, unless it has it already (which needs no rights).
pub fn write_file(path: &CStr, content: &[u8]) -> Result<()> {
    let mut now = [0u8; 32];
    let number = open(path, libc::O_RDONLY)?;
    // SAFETY: read writes at most `now.len()` bytes to `now`.
    let bytes = unsafe { libc::read(number, now.as_mut_ptr().cast(), now.len()) };
    close(number);
    let now = now.get(..usize::try_from(bytes).unwrap_or(0)).unwrap_or_default();
    if now.trim_ascii_end() == content {
        return Ok(());
    }
    let number = open(path, libc::O_WRONLY)?;
    let result = write_all(number, content);
    close(number);
    result
}

pub fn pipe(flags: i32) -> Result<[RawFd; 2]> {
    let mut ends = [-1; 2];
    // SAFETY: pipe2 writes two numbers to `ends`.
    done(unsafe { libc::pipe2(ends.as_mut_ptr(), flags | libc::O_CLOEXEC) })?;
    Ok(ends)
}

/// How many bytes lie unread in a pipe.
pub fn unread(number: RawFd) -> Result<usize> {
    // SAFETY: the child owns its whole table, and `number` stays open during the call.
    unread_bytes(unsafe { BorrowedFd::borrow_raw(number) })
}

pub fn set_pipe_capacity(number: RawFd, bytes: u32) -> Result<()> {
    // SAFETY: F_SETPIPE_SZ takes a number.
    done(unsafe { libc::fcntl(number, libc::F_SETPIPE_SZ, bytes) })
}

pub fn eventfd(semaphore: bool) -> Result<RawFd> {
    let flags = if semaphore { libc::EFD_SEMAPHORE } else { 0 };
    // SAFETY: takes numbers.
    Errno::result(unsafe { libc::eventfd(0, flags | libc::EFD_CLOEXEC) })
}

pub fn timerfd(clock: i32) -> Result<RawFd> {
    // SAFETY: takes numbers.
    Errno::result(unsafe { libc::timerfd_create(clock, libc::TFD_CLOEXEC) })
}

pub fn signalfd(mask: u64) -> Result<RawFd> {
    const SIGNALS_BYTES: usize = size_of::<u64>();
    // SAFETY: signalfd4 reads a mask of so many bytes.
    let number = unsafe { libc::syscall(libc::SYS_signalfd4, -1, &raw const mask, SIGNALS_BYTES, libc::SFD_CLOEXEC) };
    Errno::result(number as RawFd)
}

pub fn epoll() -> Result<RawFd> {
    // SAFETY: takes a number.
    Errno::result(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

pub fn watch(epoll: RawFd, target: RawFd, events: u32, data: u64) -> Result<()> {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: epoll_ctl reads `event`.
    done(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, target, &mut event) })
}

/// Raises the limit of descriptors where it is lower than `needed`.
pub fn allow_descriptors(needed: u64) -> Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes one rlimit to `limit`.
    done(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    if limit.rlim_cur >= needed {
        return Ok(());
    }
    limit.rlim_cur = needed;
    limit.rlim_max = limit.rlim_max.max(needed);
    // SAFETY: setrlimit reads one rlimit from `limit`.
    done(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })
}

/// Opens the slave side of a pseudo-terminal.
pub fn open_slave(master: RawFd, flags: i32) -> Result<RawFd> {
    // SAFETY: TIOCGPTPEER takes flags.
    Errno::result(unsafe { libc::ioctl(master, libc::TIOCGPTPEER, flags | libc::O_CLOEXEC) })
}

pub fn unlock_slave(master: RawFd) -> Result<()> {
    let locked = 0i32;
    // SAFETY: TIOCSPTLCK reads one int.
    done(unsafe { libc::ioctl(master, libc::TIOCSPTLCK, &raw const locked) })
}

/// Makes a pseudo-terminal the one that controls the session that this process leads.
pub fn be_controlled_by(master: RawFd) -> Result<()> {
    // SAFETY: TIOCSCTTY takes a number.
    done(unsafe { libc::ioctl(master, libc::TIOCSCTTY, 0) })
}

/// Gives up the terminal that controls this process, which leads no session.
pub fn be_controlled_by_none(slave: RawFd) -> Result<()> {
    // SAFETY: takes no argument.
    done(unsafe { libc::ioctl(slave, libc::TIOCNOTTY) })
}

pub fn umask(mask: u32) {
    // SAFETY: takes a number and cannot fail.
    unsafe { libc::umask(mask) };
}

/// Makes directory `number` the working directory.
pub fn enter(number: RawFd) -> Result<()> {
    // SAFETY: takes a number.
    done(unsafe { libc::fchdir(number) })
}

/// The ordinary execution domain: another one would change what the mappings' protections mean.
pub fn take_ordinary_personality() {
    // SAFETY: takes a number.
    unsafe { libc::personality(0) };
}

/// Makes a child with process id `pid`, whose parent gets `exit_signal` when it ends; 0 in the child, which must not allocate,
/// take locks or return from what calls this: it does not matter then what other threads were doing.
/// `flags` are further ones of clone3's.
///
/// # Errors
/// EEXIST if the id stays in use for [`REAPING_TIMEOUT`].
pub fn clone_with_pid(pid: i32, exit_signal: i32, flags: u64) -> Result<i32> {
    clone_when_free(pid, CloneArguments { flags, exit_signal: exit_signal as u64, ..CloneArguments::default() })
}

/// Makes a child with the id that the kernel gives it; the rest is as above.
pub fn clone_with_any_id(exit_signal: i32, flags: u64) -> Result<i32> {
    let flags = flags | u64::from(exit_signal.unsigned_abs());
    // SAFETY: without CLONE_VM the child has its own copy of this stack and everything else; for the rest see above.
    let cloned = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    Errno::result(cloned).map(|pid| pid as i32)
}

/// Makes a thread of this process that does nothing until it is traced, with the id that the kernel gives it. If that is not `wanted`, it
/// ends at once. It runs without a stack, with signals blocked as they are.
pub fn clone_idle_thread(wanted: i32) -> Result<i32> {
    const FLAGS: i32 = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    let mut answer = libc::SYS_clone;
    // SAFETY: the thread makes system calls without a look at the stack or any other memory, so it does not matter what this one
    // does meanwhile.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov eax, {gettid}",
            "syscall",
            "cmp eax, r9d",
            "jne 4f",
            "3:",
            "mov eax, {pause}",
            "syscall",
            "jmp 3b",
            "4:",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "2:",
            gettid = const libc::SYS_gettid,
            pause = const libc::SYS_pause,
            exit = const libc::SYS_exit,
            inlateout("rax") answer,
            inlateout("rdi") i64::from(FLAGS) => _,
            in("rsi") 0_i64,
            in("rdx") 0_i64,
            in("r10") 0_i64,
            in("r8") 0_i64,
            in("r9") i64::from(wanted),
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    match answer {
        -4095..=-1 => Err(Errno::from_raw(-answer as i32)),
        tid => Ok(tid as i32),
    }
}

/// Makes a child with process id `pid` that sends no signal at its end, if nobody has that id; the rest is as above.
///
/// # Errors
/// EEXIST if somebody has.
pub fn clone_if_free(pid: i32) -> Result<i32> {
    clone_once(pid, CloneArguments::default())
}

fn clone_when_free(pid: i32, arguments: CloneArguments) -> Result<i32> {
    for _ in 0..ATTEMPTS {
        match clone_once(pid, arguments) {
            // One that has ended and that nobody has waited for yet has the id as its session or group.
            Err(Errno::EEXIST) => pause(),
            outcome => return outcome,
        }
    }
    Err(Errno::EEXIST)
}

fn clone_once(pid: i32, arguments: CloneArguments) -> Result<i32> {
    let wanted = [pid];
    let arguments = CloneArguments { set_tid: wanted.as_ptr() as u64, set_tid_size: 1, ..arguments };
    // SAFETY: without CLONE_VM the child has its own copy of this stack and everything else; for the rest see above.
    let cloned = unsafe { libc::syscall(libc::SYS_clone3, &arguments, size_of::<CloneArguments>()) };
    Errno::result(cloned).map(|pid| pid as i32)
}

/// Waits a little.
pub fn pause() {
    const PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: PAUSE_MS as i64 * 1_000_000 };
    // SAFETY: nanosleep reads one timespec.
    unsafe { libc::nanosleep(&PAUSE, ptr::null_mut()) };
}

/// Ends child `pid`.
pub fn kill(pid: i32) {
    // SAFETY: takes numbers; a child that has not been waited for has its id for itself.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Waits until child `pid` has ended, and leaves what is left of it.
pub fn wait_for_end(pid: i32) -> Result<()> {
    // SAFETY: siginfo_t is integers and pointers, for which zero is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    loop {
        let flags = libc::WEXITED | libc::WNOWAIT | libc::__WALL;
        // SAFETY: waitid writes one siginfo_t to `info`.
        match done(unsafe { libc::waitid(libc::P_PID, pid as u32, &mut info, flags) }) {
            Err(Errno::EINTR) => {}
            outcome => return outcome,
        }
    }
}

/// Waits until child `pid` has ended, and takes what is left of it: its exit code, or none if a signal has ended it.
pub fn reap(pid: i32) -> Result<Option<i32>> {
    let mut status = 0;
    loop {
        // SAFETY: waitpid writes one int to `status`.
        match Errno::result(unsafe { libc::waitpid(pid, &mut status, libc::__WALL) }) {
            Err(Errno::EINTR) => {}
            outcome => return outcome.map(|_| libc::WIFEXITED(status).then_some(libc::WEXITSTATUS(status))),
        }
    }
}

/// The id of this process.
pub fn own_pid() -> i32 {
    // SAFETY: takes no arguments.
    unsafe { libc::getpid() }
}

/// The process group of this process.
pub fn own_group() -> i32 {
    // SAFETY: takes no arguments.
    unsafe { libc::getpgrp() }
}

/// Lets process `pid` trace this one. A kernel without Yama refuses, and does not ask for it either.
pub fn allow_tracer(pid: i32) {
    // SAFETY: this prctl takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, pid as libc::c_ulong, 0, 0, 0) };
}

/// Whether this process adopts orphans below it.
pub fn adopt_orphans(adopts: bool) -> Result<()> {
    // SAFETY: this prctl takes numbers only.
    done(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, libc::c_ulong::from(adopts), 0, 0, 0) })
}

/// Ends this process so that `waitpid` says `status` of it.
pub fn end_with(status: i32) -> ! {
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: setrlimit reads one rlimit.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &no_core) };
        let _ = set_action(signal, &KernelAction::default());
        let blocked: u64 = !(1 << (signal - 1));
        // SAFETY: rt_sigprocmask reads one set of signals; kill takes numbers.
        unsafe {
            libc::syscall(libc::SYS_kill, libc::getpid(), signal);
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_SETMASK,
                &raw const blocked,
                ptr::null_mut::<u64>(),
                SIGNAL_SET_BYTES,
            );
        }
    }
    // SAFETY: ends the process without running anything of the restarter's.
    unsafe { libc::_exit(libc::WEXITSTATUS(status)) }
}

/// Forgets a signal that is queued for this process. It has the default action afterwards.
pub fn forget(signal: i32) -> Result<()> {
    set_action(signal, &KernelAction { handler: libc::SIG_IGN as u64, ..KernelAction::default() })?;
    set_action(signal, &KernelAction::default())
}

/// Sets the name that /proc shows.
pub fn name(name: &CStr) {
    // SAFETY: `name` ends with a zero and outlives the call, which cannot fail.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

pub fn join_group(pid: i32, group: i32) -> Result<()> {
    // SAFETY: takes numbers.
    done(unsafe { libc::setpgid(pid, group) })
}

pub fn lead_session() -> Result<()> {
    // SAFETY: no arguments.
    done(unsafe { libc::setsid() })
}

pub fn lead_group() -> Result<()> {
    // SAFETY: takes numbers.
    done(unsafe { libc::setpgid(0, 0) })
}

pub fn set_no_new_privs() -> Result<()> {
    // SAFETY: this prctl takes numbers only.
    done(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
}

pub fn request_tiles() -> Result<()> {
    // SAFETY: this arch_prctl takes numbers only.
    done(unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILE_DATA) } as i32)
}

pub fn set_action(signal: i32, action: &KernelAction) -> Result<()> {
    let old: *mut KernelAction = ptr::null_mut();
    let new = ptr::from_ref(action);
    // SAFETY: rt_sigaction reads `action`. Its handler is an address of the program; all signals are blocked until
    // the program is there.
    done(unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, new, old, SIGNAL_SET_BYTES) } as i32)
}

/// Waits for one byte; false when the other end is closed.
pub fn wait_for_byte(channel: RawFd) -> bool {
    let mut byte = 0u8;
    loop {
        // SAFETY: read writes at most one byte to `byte`.
        match unsafe { libc::read(channel, ptr::from_mut(&mut byte).cast(), 1) } {
            1 => return true,
            -1 if Errno::last() == Errno::EINTR => {}
            _ => return false,
        }
    }
}

/// Waits for one byte of `pipe`; false when the other end of `channel` is closed before.
pub fn wait_for_byte_or_hangup(pipe: RawFd, channel: RawFd) -> bool {
    let mut polled = [(pipe, libc::POLLIN), (channel, 0)].map(|(fd, events)| libc::pollfd { fd, events, revents: 0 });
    // SAFETY: poll reads and writes two pollfds.
    while unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) } == -1 && Errno::last() == Errno::EINTR {}
    polled[0].revents != 0 && wait_for_byte(pipe)
}

/// Waits until the other end is closed, and reads nothing: what comes may be for another process.
pub fn wait_for_hangup(channel: RawFd) {
    let mut polled = libc::pollfd { fd: channel, events: 0, revents: 0 };
    // SAFETY: poll reads and writes one pollfd.
    while unsafe { libc::poll(&raw mut polled, 1, -1) } == -1 && Errno::last() == Errno::EINTR {}
}

/// Whether the other end is closed.
pub fn has_hung_up(channel: RawFd) -> bool {
    let mut polled = libc::pollfd { fd: channel, events: 0, revents: 0 };
    // SAFETY: poll reads and writes one pollfd.
    unsafe { libc::poll(&raw mut polled, 1, 0) == 1 && polled.revents != 0 }
}

/// Waits until another process changes `word` from `now`, or so many nanoseconds.
pub fn wait_for_change(word: &AtomicU32, now: u32, within_ns: i64) {
    let within = libc::timespec { tv_sec: 0, tv_nsec: within_ns };
    // SAFETY: the kernel reads the word and one timespec.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, now, &raw const within) };
}

/// Wakes all that wait for a change of `word`.
pub fn tell_change(word: &AtomicU32) {
    // SAFETY: the kernel looks up who waits there.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Receives a packet with descriptors, which are put into `into`; gives how many there are.
pub fn receive_descriptors(channel: RawFd, into: &mut [RawFd]) -> Result<usize> {
    const ROOM_WORDS: usize = 256;
    let mut byte = 0u8;
    let mut part = libc::iovec { iov_base: ptr::from_mut(&mut byte).cast(), iov_len: 1 };
    // Aligned as a header has to be.
    let mut control = [0u64; ROOM_WORDS];
    // SAFETY: a msghdr is integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    loop {
        // SAFETY: recvmsg writes to what `message` leads to, which outlives the call.
        match Errno::result(unsafe { libc::recvmsg(channel, &raw mut message, libc::MSG_CMSG_CLOEXEC) }) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(0) => return Err(Errno::EPIPE),
            Ok(_) => break,
        }
    }
    // SAFETY: the kernel has written the headers that these walk over, within `control`.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
            return Err(Errno::EBADMSG);
        }
        let bytes = (*header).cmsg_len - libc::CMSG_LEN(0) as usize;
        let count = (bytes / size_of::<RawFd>()).min(into.len());
        ptr::copy_nonoverlapping(libc::CMSG_DATA(header).cast::<RawFd>(), into.as_mut_ptr(), count);
        Ok(count)
    }
}

/// Status flags that `F_SETFL` can change.
const SETTABLE: i32 = libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME;

/// Gives a descriptor the flags of `flags` that can be changed.
pub fn with_flags(number: RawFd, flags: i32) -> Result<RawFd> {
    set_status_flags(number, flags & SETTABLE)?;
    Ok(number)
}

/// Sends a report; when the other end is closed, the next read says so.
pub fn send(channel: RawFd, report: &[u8]) {
    // SAFETY: send reads `report.len()` bytes from `report`.
    unsafe { libc::send(channel, report.as_ptr().cast(), report.len(), libc::MSG_NOSIGNAL) };
}

/// Sends `bytes` and descriptors `files` to the address `to`, or to whom `socket` is connected with; of a stream, all of it.
pub fn send_message(socket: RawFd, to: &[u8], mut bytes: &[u8], mut files: &[RawFd]) -> Result<()> {
    #[repr(align(8))]
    struct Control([u8; 1536]);
    loop {
        let mut control = Control([0; 1536]);
        let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: all zeros is a valid `msghdr`.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        if !to.is_empty() {
            (message.msg_name, message.msg_namelen) = (to.as_ptr().cast_mut().cast(), to.len() as libc::socklen_t);
        }
        if !files.is_empty() {
            let file_bytes = size_of_val(files);
            // SAFETY: takes a number.
            let (space, length) = unsafe { (libc::CMSG_SPACE(file_bytes as u32), libc::CMSG_LEN(file_bytes as u32)) };
            if space as usize > control.0.len() {
                return Err(Errno::EINVAL);
            }
            (message.msg_control, message.msg_controllen) = (control.0.as_mut_ptr().cast(), space as usize);
            // SAFETY: `control` has room for the header and the numbers, as was just compared.
            unsafe {
                let header = libc::CMSG_FIRSTHDR(&raw const message);
                (*header).cmsg_level = libc::SOL_SOCKET;
                (*header).cmsg_type = libc::SCM_RIGHTS;
                (*header).cmsg_len = length as usize;
                ptr::copy_nonoverlapping(files.as_ptr().cast::<u8>(), libc::CMSG_DATA(header), file_bytes);
            }
        }
        // SAFETY: sendmsg reads what `message` leads to.
        let sent = unsafe { libc::sendmsg(socket, &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
        match Errno::result(sent) {
            Err(Errno::EINTR) => continue,
            sent => bytes = bytes.get(sent? as usize..).unwrap_or_default(),
        }
        if bytes.is_empty() {
            return Ok(());
        }
        files = &[];
    }
}

pub fn exit() -> ! {
    leave(1)
}

/// Ends this process with an exit code.
pub fn leave(code: i32) -> ! {
    // SAFETY: ends the process without running anything of the restarter's.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_end_can_be_opened_again_with_flags_of_its_own() {
        let ends = pipe(0).unwrap();
        let high = move_above(ends[0], 120).unwrap();
        let again = reopen(high, libc::O_RDONLY | libc::O_NONBLOCK).unwrap();
        assert_eq!(status_flags(again).unwrap() & libc::O_NONBLOCK, libc::O_NONBLOCK);
        assert_eq!(status_flags(high).unwrap() & libc::O_NONBLOCK, 0);
        assert_eq!(file_type(again).unwrap(), libc::S_IFIFO);
        for number in [high, again, ends[1]] {
            close(number);
        }
    }
}

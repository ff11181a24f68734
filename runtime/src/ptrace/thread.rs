//! A thread under control: running or stopped.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::registers::Registers;
use super::request::{self, RseqConfiguration, SIGINFO_BYTES};
use crate::error::{Error, Result};

const NT_PRSTATUS: i32 = 1;
const NT_X86_XSTATE: i32 = 0x202;
/// Larger than any XSAVE area of today (AMX: 11 KiB).
const XSTATE_BYTES_MAX: usize = 64 * 1024;

/// In a thread that is stopped, seccomp filters judge no call.
const PTRACE_O_SUSPEND_SECCOMP: i32 = 1 << 21;

/// How long a thread has to stop that is not where it should be.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether the signal, in a thread that blocks all, comes from the instruction where the thread is.
fn is_fault(signal: i32) -> bool {
    matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP | libc::SIGSYS)
}

/// Options of a seizure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options(i32);

impl Options {
    /// For a thread of the program: it survives our death.
    pub const PROGRAM: Options = Options(libc::PTRACE_O_TRACESYSGOOD);
    /// For a thread that is about to clone: the child is under control from its first instruction.
    pub const CLONING: Options =
        Options(libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEFORK);
    /// For the twin and for a process being rebuilt: it dies with us.
    pub const EXPENDABLE: Options = Options(Options::CLONING.0 | libc::PTRACE_O_EXITKILL);
    /// The same, without its children.
    pub const EXPENDABLE_ALONE: Options = Options(Options::PROGRAM.0 | libc::PTRACE_O_EXITKILL);
}

/// Why a thread reported a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// Our interrupt, the birth of a traced child, or a job-control stop, whose signal it has then (else SIGTRAP).
    Trap(i32),
    /// A signal is about to be delivered.
    Signal(i32),
    /// Entry to or exit from a system call.
    Syscall,
    /// A clone happened (`PTRACE_EVENT_CLONE` or `FORK`); the child is traced.
    Clone,
    /// Another ptrace event.
    Event(i32),
}

/// Outcome of one wait.
pub(super) enum Waited {
    Stop(StopCause),
    Nothing,
    Ended,
}

fn wait(tid: i32, flags: i32) -> Result<Waited> {
    let mut status = 0;
    // SAFETY: waitpid writes one int to `status`.
    let waited = unsafe { libc::waitpid(tid, &mut status, libc::__WALL | flags) };
    if waited == -1 {
        return match Errno::last() {
            Errno::EINTR => Ok(Waited::Nothing),
            Errno::ECHILD => Ok(Waited::Ended),
            source => Err(Error::Ptrace { request: "waitpid", tid, source }),
        };
    }
    if waited == 0 {
        return Ok(Waited::Nothing);
    }
    if !libc::WIFSTOPPED(status) {
        return Ok(Waited::Ended);
    }
    let signal = libc::WSTOPSIG(status);
    Ok(Waited::Stop(match status >> 16 {
        0 if signal == libc::SIGTRAP | 0x80 => StopCause::Syscall,
        0 => StopCause::Signal(signal),
        libc::PTRACE_EVENT_STOP => StopCause::Trap(signal),
        libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK => StopCause::Clone,
        event => StopCause::Event(event),
    }))
}

/// Whether `tid` is the main thread of its process.
fn is_main_thread(tid: i32) -> bool {
    // SAFETY: takes numbers only; no signal is sent.
    let found = unsafe { libc::syscall(libc::SYS_tgkill, tid, tid, 0) };
    found == 0 || Errno::last() != Errno::ESRCH
}

/// Waits for the next event of `tid`, however long it takes.
fn wait_blocking(tid: i32) -> Result<Waited> {
    if !is_main_thread(tid) {
        // Its end is reported whatever its siblings do, and to look at all of them takes the longer the more there are.
        loop {
            match wait(tid, 0)? {
                Waited::Nothing => {}
                waited => return Ok(waited),
            }
        }
    }
    loop {
        match wait(tid, libc::WNOHANG)? {
            Waited::Nothing => {}
            waited => return Ok(waited),
        }
        match take_note_of_any(tid, 0)? {
            Noted::NoneLeft => return Ok(Waited::Ended),
            // A stop of somebody else stays for whoever waits for it.
            Noted::StopOfOther => std::thread::yield_now(),
            Noted::OwnEvent | Noted::EndOfOther | Noted::Nothing => {}
        }
    }
}

/// Waits for the next event of `tid` until `deadline`; `Waited::Nothing` if none has come.
///
/// Spinning at first (a stop takes ten microseconds), then at growing distances, because `waitpid` has no time-out
/// and a signal-driven one would need the process's SIGALRM.
fn wait_until(tid: i32, deadline: Instant) -> Result<Waited> {
    let mut pause = Duration::from_micros(20);
    let mut spins = 0;
    loop {
        match wait(tid, libc::WNOHANG)? {
            Waited::Nothing if Instant::now() < deadline => {}
            waited => return Ok(waited),
        }
        if spins < 200 {
            spins += 1;
            std::thread::yield_now();
            continue;
        }
        if matches!(take_note_of_any(tid, libc::WNOHANG)?, Noted::EndOfOther) {
            continue;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// What one look at all whom we may wait for has shown.
enum Noted {
    /// An event of the thread that is waited for.
    OwnEvent,
    /// Another one has ended, and has been waited for.
    EndOfOther,
    StopOfOther,
    Nothing,
    NoneLeft,
}

/// Looks for an event of anybody, and waits for another one that has ended: the end of a main thread is reported only after
/// that of all its siblings, and the end of a traced sibling only counts once its tracer, which is us, has waited for it.
fn take_note_of_any(tid: i32, flags: i32) -> Result<Noted> {
    // SAFETY: siginfo_t is integers and pointers, for which zero is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = flags | libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: waitid writes one siginfo_t to `info`.
    match Errno::result(unsafe { libc::waitid(libc::P_ALL, 0, &mut info, flags) }) {
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok(Noted::Nothing),
        Err(Errno::ECHILD) => return Ok(Noted::NoneLeft),
        Err(source) => return Err(Error::Ptrace { request: "waitid", tid, source }),
    }
    // SAFETY: waitid has filled in the fields of a child's event, or left them zero.
    let other = unsafe { info.si_pid() };
    let has_ended = matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED);
    Ok(match other {
        0 => Noted::Nothing,
        _ if other == tid => Noted::OwnEvent,
        _ if has_ended => {
            wait(other, libc::WNOHANG)?;
            Noted::EndOfOther
        }
        _ => Noted::StopOfOther,
    })
}

/// Waits until the traced thread or process `tid`, which has been sent SIGKILL, has ended, and reaps it.
pub fn wait_until_gone(tid: i32) -> Result<()> {
    loop {
        match wait_blocking(tid)? {
            Waited::Ended => return Ok(()),
            Waited::Stop(_) | Waited::Nothing => {}
        }
    }
}

/// A seized thread that is running.
#[derive(Debug)]
pub struct Running {
    tid: i32,
}

impl Running {
    /// Takes control of thread `tid` without stopping it.
    pub fn seize(tid: i32, options: Options) -> Result<Running> {
        request::seize(tid, options.0)?;
        Ok(Running { tid })
    }

    /// The thread's id.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// Asks the thread to stop.
    pub fn interrupt(&self) -> Result<()> {
        request::interrupt(self.tid)
    }

    /// Waits for the stop that [`Running::interrupt`] has asked for. Signals that arrive first are delivered, each with the
    /// `siginfo_t` that it came with, so that none is lost: the thread then stops at the first instruction of its handler.
    ///
    /// It is asked again after each other stop. To the kernel any stop is an answer, and the delivery of a signal can come in
    /// between: while the signal of a timer is taken from its queue, the lock is let go that keeps the two apart.
    pub fn wait_for_trap(self, deadline: Instant) -> Result<Stopped> {
        loop {
            let signal = match self.wait_until(deadline)? {
                StopCause::Trap(signal) => {
                    return Ok(Stopped::new(self.tid, signal));
                }
                StopCause::Signal(signal) => signal,
                StopCause::Syscall | StopCause::Clone | StopCause::Event(_) => 0,
            };
            // While it stands still, so that it stops again before it takes another signal.
            match self.interrupt().and_then(|()| request::cont(self.tid, signal)) {
                // It has been killed where it stood. Its end is waited for: as long as we have not, it is not over for its siblings.
                Ok(()) | Err(Error::ThreadGone { .. }) => {}
                Err(error) => return Err(error),
            }
            if Instant::now() >= deadline {
                return Err(self.late());
            }
        }
    }

    fn late(&self) -> Error {
        Error::StopTimeout { tid: self.tid, timeout_ms: 0, why: String::new() }
    }

    fn wait_until(&self, deadline: Instant) -> Result<StopCause> {
        match wait_until(self.tid, deadline)? {
            Waited::Stop(cause) => Ok(cause),
            Waited::Ended => Err(Error::ThreadGone { tid: self.tid }),
            Waited::Nothing => Err(self.late()),
        }
    }
}

/// A seized thread that is stopped. Dropping it lets the thread go.
#[derive(Debug)]
pub struct Stopped {
    tid: i32,
    /// The signal that it reported its stop with.
    signal: i32,
    /// Signals that arrived during remote calls and are due when the thread goes on.
    held_signals: Vec<i32>,
    /// Whether its seccomp filters judge no call that it makes.
    is_unfiltered: bool,
    released: bool,
}

impl Stopped {
    fn new(tid: i32, signal: i32) -> Stopped {
        Stopped { tid, signal, held_signals: Vec::new(), is_unfiltered: false, released: false }
    }

    /// The thread's id.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// The signal of the job-control stop that it was in, if it was in one.
    pub fn job_stop_signal(&self) -> Option<i32> {
        [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].into_iter().find(|&signal| signal == self.signal)
    }

    /// The general registers.
    pub fn registers(&self) -> Result<Registers> {
        let mut bytes = [0u8; Registers::WORDS * 8];
        request::get_register_set(self.tid, NT_PRSTATUS, &mut bytes)?;
        let mut words = [0u64; Registers::WORDS];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(chunk.try_into().unwrap_or([0; 8]));
        }
        Ok(Registers::from_words(words))
    }

    /// Sets the general registers.
    pub fn set_registers(&self, registers: &Registers) -> Result<()> {
        let bytes: Vec<u8> = registers.to_words().iter().flat_map(|word| word.to_ne_bytes()).collect();
        request::set_register_set(self.tid, NT_PRSTATUS, &bytes)
    }

    /// The extended state (x87, SSE, AVX, AVX-512, AMX, PKRU ...) in the XSAVE format.
    pub fn extended_state(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; XSTATE_BYTES_MAX];
        let used = request::get_register_set(self.tid, NT_X86_XSTATE, &mut bytes)?;
        bytes.truncate(used);
        bytes.shrink_to_fit();
        Ok(bytes)
    }

    /// Sets the extended state.
    pub fn set_extended_state(&self, xsave: &[u8]) -> Result<()> {
        request::set_register_set(self.tid, NT_X86_XSTATE, xsave)
    }

    /// The blocked signals; bit 0 is signal 1. Inside a call like sigsuspend: the mask that it will put back.
    pub fn signal_mask(&self) -> Result<u64> {
        request::signal_mask(self.tid)
    }

    /// Sets the blocked signals.
    pub fn set_signal_mask(&self, mask: u64) -> Result<()> {
        request::set_signal_mask(self.tid, mask)
    }

    /// Signals queued for this thread, oldest first, as raw `siginfo_t`.
    pub fn queued_signals(&self) -> Result<Vec<[u8; SIGINFO_BYTES]>> {
        request::queued_signals(self.tid, false)
    }

    /// Signals queued for the whole process, oldest first, as raw `siginfo_t`.
    pub fn queued_process_signals(&self) -> Result<Vec<[u8; SIGINFO_BYTES]>> {
        request::queued_signals(self.tid, true)
    }

    /// The registration for restartable sequences.
    pub fn rseq_configuration(&self) -> Result<Option<RseqConfiguration>> {
        request::rseq_configuration(self.tid)
    }

    /// Changes the options of the seizure.
    pub fn set_options(&self, options: Options) -> Result<()> {
        let unfiltered = if self.is_unfiltered { PTRACE_O_SUSPEND_SECCOMP } else { 0 };
        request::set_options(self.tid, options.0 | unfiltered)
    }

    /// Has its seccomp filters judge no call until it is let go. `options` are those that it has.
    ///
    /// # Errors
    /// EPERM where we lack CAP_SYS_ADMIN or live under a filter, EINVAL from a kernel that cannot.
    pub fn suspend_filters(&mut self, options: Options) -> Result<()> {
        request::set_options(self.tid, options.0 | PTRACE_O_SUSPEND_SECCOMP)?;
        self.is_unfiltered = true;
        Ok(())
    }

    /// Whether [`Stopped::suspend_filters`] holds.
    pub fn is_unfiltered(&self) -> bool {
        self.is_unfiltered
    }

    /// Its seccomp filters from `first` on, counted from the one that was added first: the instructions of each, and its flags.
    ///
    /// # Errors
    /// As of [`Stopped::suspend_filters`].
    pub fn filters(&self, first: usize) -> Result<Vec<(Vec<u8>, u64)>> {
        let mut filters = Vec::new();
        while let Some(instructions) = request::filter(self.tid, first + filters.len())? {
            let flags = request::filter_flags(self.tid, first + filters.len())?;
            filters.push((instructions.concat(), flags));
        }
        Ok(filters)
    }

    /// The child of the clone that was just reported. It has the options of this thread.
    pub(super) fn cloned_child(&self, deadline: Instant) -> Result<Stopped> {
        let tid = request::event_message(self.tid)? as i32;
        let mut child = Running { tid }.wait_for_trap(deadline)?;
        child.is_unfiltered = self.is_unfiltered;
        Ok(child)
    }

    /// Lets the thread run to the next entry or exit of a system call and reports the stop; all signals are blocked in it.
    ///
    /// A signal that the mask does not hold back is held for the time after. One that the thread has caused itself by the
    /// instruction where it is would come again at once, and for ever: it is reported, and will not be delivered.
    ///
    /// With a deadline, a thread that has not come there by then is stopped where it is: [`StopCause::Trap`].
    pub(super) fn continue_to_syscall_stop(&mut self, deadline: Option<Instant>) -> Result<StopCause> {
        self.resume_to_syscall_stop()?;
        self.wait_for_syscall_stop(deadline)
    }

    /// The first half of [`Stopped::continue_to_syscall_stop`]: the thread runs, and is to be waited for.
    pub(super) fn resume_to_syscall_stop(&self) -> Result<()> {
        request::cont_to_syscall(self.tid)
    }

    /// Its second half.
    pub(super) fn wait_for_syscall_stop(&mut self, deadline: Option<Instant>) -> Result<StopCause> {
        let mut deadline = deadline;
        let mut is_interrupted = false;
        loop {
            let waited = match deadline {
                Some(deadline) => wait_until(self.tid, deadline)?,
                None => wait_blocking(self.tid)?,
            };
            match waited {
                Waited::Stop(StopCause::Signal(signal)) if is_fault(signal) => return Ok(StopCause::Signal(signal)),
                Waited::Stop(StopCause::Signal(signal)) => {
                    self.hold(signal)?;
                    request::cont_to_syscall(self.tid)?;
                }
                Waited::Stop(StopCause::Trap(signal)) if is_interrupted => return Ok(StopCause::Trap(signal)),
                Waited::Stop(StopCause::Trap(_) | StopCause::Event(_)) => request::cont_to_syscall(self.tid)?,
                Waited::Stop(cause) => return Ok(cause),
                Waited::Nothing if is_interrupted => {
                    let timeout_ms = INTERRUPT_TIMEOUT.as_millis() as u64;
                    return Err(Error::StopTimeout { tid: self.tid, timeout_ms, why: "inside libckpt.so".into() });
                }
                Waited::Nothing if deadline.is_some() => {
                    request::interrupt(self.tid)?;
                    is_interrupted = true;
                    deadline = Some(Instant::now() + INTERRUPT_TIMEOUT);
                }
                Waited::Nothing => {}
                Waited::Ended => {
                    self.released = true;
                    return Err(Error::ThreadGone { tid: self.tid });
                }
            }
        }
    }

    /// Lets the thread run until a signal is about to be delivered, which it will not be, and gives that.
    pub(super) fn continue_to_signal(&mut self) -> Result<i32> {
        loop {
            request::cont(self.tid, 0)?;
            match wait_blocking(self.tid)? {
                Waited::Stop(StopCause::Signal(signal)) => return Ok(signal),
                Waited::Stop(_) | Waited::Nothing => {}
                Waited::Ended => {
                    self.released = true;
                    return Err(Error::ThreadGone { tid: self.tid });
                }
            }
        }
    }

    /// Keeps a signal for the time after.
    ///
    /// # Errors
    /// When the thread has caused it by the instruction where it is.
    pub(super) fn hold(&mut self, signal: i32) -> Result<()> {
        if is_fault(signal) {
            return Err(Error::Ptrace { request: "remote call", tid: self.tid, source: Errno::EFAULT });
        }
        if !self.held_signals.contains(&signal) {
            self.held_signals.push(signal);
        }
        Ok(())
    }

    /// Lets the thread go on without control.
    pub fn detach(mut self) -> Result<()> {
        self.release()
    }

    /// The same for one whose program runs on already, and may have ended meanwhile. False if it has.
    pub fn detach_if_alive(self) -> Result<bool> {
        match self.detach() {
            Ok(()) => Ok(true),
            Err(Error::ThreadGone { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn release(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.released, true) {
            return Ok(());
        }
        let result = request::detach(self.tid, 0);
        for &signal in &self.held_signals {
            // SAFETY: tgkill takes numbers only. A thread that ended meanwhile needs no signal.
            unsafe { libc::syscall(libc::SYS_tkill, self.tid, signal) };
        }
        result
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if let Err(error) = self.release() {
            log::debug!("letting thread {} go: {error}", self.tid);
        }
    }
}

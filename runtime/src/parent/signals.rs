//! Our own signals: blocked, and read one by one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, pthread_sigmask, sigaction};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};

use crate::error::{Error, Result};

static PIPE_IGNORED_AT_START: AtomicBool = AtomicBool::new(false);

/// Notes whether SIGPIPE was ignored by whoever started us, for the program's sake. The Rust runtime ignores it
/// before `main`, so this must run earlier: see the `.init_array` entry of `main.rs`.
pub extern "C" fn note_dispositions_at_start() {
    // SAFETY: zero is a valid `struct sigaction`, and it is only written to.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action changes nothing; the old one is written to `action`.
    unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action) };
    PIPE_IGNORED_AT_START.store(action.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
}

/// All signals of this process, waiting to be read.
pub struct Signals {
    descriptor: SignalFd,
    inherited: Inherited,
}

impl Signals {
    /// Blocks every signal. SIGCHLD gets its default action: ignored, it would take the program's status away.
    pub fn block() -> Result<Signals> {
        let failed = |source: Errno| Error::io("block", PathBuf::from("signals"), source);
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: the default action runs no code of ours.
        let before = unsafe { sigaction(Signal::SIGCHLD, &default) }.map_err(failed)?;
        let mut mask = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut mask)).map_err(failed)?;
        let descriptor =
            SignalFd::with_flags(&SigSet::all(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(failed)?;
        let child_ignored = matches!(before.handler(), SigHandler::SigIgn);
        let pipe_ignored = PIPE_IGNORED_AT_START.load(Ordering::Relaxed);
        Ok(Signals { descriptor, inherited: Inherited { mask, child_ignored, pipe_ignored } })
    }

    /// Takes the next signal that has arrived.
    pub fn take_next(&self) -> Result<Option<siginfo>> {
        match self.descriptor.read_signal() {
            Ok(signal) => Ok(signal),
            Err(Errno::EINTR) => Ok(None),
            Err(source) => Err(Error::io("read", PathBuf::from("signals"), source)),
        }
    }

    /// What a forked child has to put back.
    pub fn inherited(&self) -> Inherited {
        self.inherited
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The signal state we were started with: the program must start with the same.
#[derive(Clone, Copy, Debug)]
pub struct Inherited {
    mask: SigSet,
    child_ignored: bool,
    pipe_ignored: bool,
}

impl Inherited {
    /// Puts it back. Only system calls: it may be called between fork and exec.
    pub fn apply(&self) -> io::Result<()> {
        disposition(Signal::SIGCHLD, self.child_ignored)?;
        disposition(Signal::SIGPIPE, self.pipe_ignored)?;
        self.apply_mask()
    }

    /// Puts the calling thread's blocked signals back.
    pub fn apply_mask(&self) -> io::Result<()> {
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&self.mask), None)?;
        Ok(())
    }
}

/// What SIGTERM ends this process with while [`Ending`] holds; 0 for what it would otherwise.
static CODE_OF_TERM: AtomicI32 = AtomicI32::new(0);

/// Signals that end a process end this one until this is dropped: pid 1 as well, which the kernel spares. The calling thread takes them, if
/// all others block them.
pub struct Ending(Vec<i32>);

impl Ending {
    /// From now on. With a `code`, SIGTERM ends it with that.
    pub fn begin(inherited: &Inherited, code: Option<u8>) -> Ending {
        const END_NOTHING: [i32; 7] =
            [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        CODE_OF_TERM.store(code.map_or(0, i32::from), Ordering::Relaxed);
        // Those whose action cannot be changed are refused, as are those that the C library has for itself.
        let ending =
            (1..=libc::SIGRTMAX()).filter(|number| !END_NOTHING.contains(number) && has_default_action(*number));
        let installed = ending.filter(|&number| set_action(number, end as *const () as usize)).collect();
        if let Err(error) = inherited.apply_mask() {
            log::warn!("signals have no effect before the program runs: {error}");
        }
        Ending(installed)
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        block_all();
        for &number in &self.0 {
            set_action(number, libc::SIG_DFL);
        }
    }
}

/// Real-time signals have no names in nix.
fn has_default_action(number: i32) -> bool {
    // SAFETY: zero is a valid `struct sigaction`, and it is only written to.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action changes nothing; the old one is written to `action`.
    unsafe { libc::sigaction(number, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_DFL }
}

/// Whether signal `number` has this action now, once: [`end`] or the default.
fn set_action(number: i32, handler: usize) -> bool {
    // SAFETY: zero is a valid `struct sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    (action.sa_sigaction, action.sa_flags) = (handler, libc::SA_RESETHAND | libc::SA_NODEFER);
    // SAFETY: the handler makes system calls alone.
    unsafe { libc::sigaction(number, &action, std::ptr::null_mut()) == 0 }
}

/// Ends this process as the signal does, or with an exit code where it does not.
extern "C" fn end(number: i32) {
    let code = CODE_OF_TERM.load(Ordering::Relaxed);
    // SAFETY: system calls that may be made in a handler. Children that are not complete end with this process.
    unsafe {
        if number != libc::SIGTERM || code == 0 {
            libc::kill(libc::getpid(), number);
        }
        libc::_exit(if number == libc::SIGTERM && code != 0 {
            code
        } else {
            i32::from(super::status::STATUS_OF_SIGNAL) + number
        })
    }
}

/// Blocks every signal for the calling thread.
pub fn block_all() {
    // The one way to fail is an unknown operation.
    let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None);
}

fn disposition(signal: Signal, ignored: bool) -> io::Result<()> {
    let handler = if ignored { SigHandler::SigIgn } else { SigHandler::SigDfl };
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: neither action runs code of ours.
    unsafe { sigaction(signal, &action) }?;
    Ok(())
}

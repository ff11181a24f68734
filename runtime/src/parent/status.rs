//! Changes of the program's status, without touching any other child.

use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;

use nix::errno::Errno;

use crate::error::{Error, Result};

/// A change of the program's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It has ended with this status.
    Exited(u8),
    /// A signal has ended it.
    Killed(i32),
    /// A signal has stopped it.
    Stopped(i32),
    /// It runs again.
    Continued,
}

/// The next change of process `pid`, if there is one; the end is reported last and reaps it.
pub fn next_event(pid: i32) -> Result<Option<Event>> {
    // SAFETY: zero is a valid siginfo_t, and si_pid stays zero when nothing has happened.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let which = libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED | libc::WNOHANG | libc::__WALL;
    // SAFETY: waitid writes one siginfo_t to `info`.
    if unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, which) } == -1 {
        return match Errno::last() {
            Errno::EINTR => Ok(None),
            source => Err(Error::io("wait for", process(pid), source)),
        };
    }
    // SAFETY: waitid fills these fields, or leaves them zero.
    let (changed, status) = unsafe { (info.si_pid(), info.si_status()) };
    if changed == 0 {
        return Ok(None);
    }
    Ok(Some(match info.si_code {
        libc::CLD_EXITED => Event::Exited((status & 0xff) as u8),
        libc::CLD_KILLED | libc::CLD_DUMPED => Event::Killed(status),
        libc::CLD_CONTINUED => Event::Continued,
        _ => Event::Stopped(status),
    }))
}

/// A descriptor that becomes readable when process `pid` ends, even if that sends no SIGCHLD.
pub fn end_descriptor(pid: i32) -> Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let descriptor = Errno::result(descriptor).map_err(|source| Error::io("open", process(pid), source))?;
    // SAFETY: the descriptor has just been made and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

fn process(pid: i32) -> PathBuf {
    PathBuf::from(format!("process {pid}"))
}

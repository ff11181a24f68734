//! Changes of the program's status, without touching any other child.

use std::path::PathBuf;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Added to the number of the signal that ended the program, as shells do.
pub const STATUS_OF_SIGNAL: u8 = 128;

/// Every change of status, of children of every kind.
const EVERY_CHANGE: i32 = libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED | libc::__WALL;

/// A change of the program's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    match wait(libc::P_PID, pid, EVERY_CHANGE | libc::WNOHANG) {
        Err(Errno::EINTR) => Ok(None),
        Err(source) => Err(Error::io("wait for", process(pid), source)),
        Ok(found) => Ok(found.map(|(_, event)| event)),
    }
}

/// Waits for a change of any child, and leaves it as it is: [`take`] is next.
pub fn next_of_any() -> Result<(i32, Event), Errno> {
    wait(libc::P_ALL, 0, EVERY_CHANGE | libc::WNOWAIT)?.ok_or(Errno::EINTR)
}

/// Takes the change of child `pid`; the end reaps it.
pub fn take(pid: i32) {
    // It can only fail because somebody else has taken it.
    let _ = wait(libc::P_PID, pid, EVERY_CHANGE | libc::WNOHANG);
}

/// Reaps the children that have ended, until it comes to one of `kept`, whose status is taken elsewhere, or to nobody.
pub fn reap_all_but(kept: &[i32]) {
    let which = libc::WEXITED | libc::__WALL | libc::WNOHANG | libc::WNOWAIT;
    while let Ok(Some((ended, _))) = wait(libc::P_ALL, 0, which)
        && !kept.contains(&ended)
    {
        take(ended);
    }
}

fn wait(whom: libc::idtype_t, pid: i32, which: i32) -> Result<Option<(i32, Event)>, Errno> {
    // SAFETY: zero is a valid siginfo_t, and si_pid stays zero when nothing has happened.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: waitid writes one siginfo_t to `info`.
    Errno::result(unsafe { libc::waitid(whom, pid as libc::id_t, &mut info, which) })?;
    // SAFETY: waitid fills these fields, or leaves them zero.
    let (changed, status) = unsafe { (info.si_pid(), info.si_status()) };
    let event = match info.si_code {
        _ if changed == 0 => return Ok(None),
        libc::CLD_EXITED => Event::Exited((status & 0xff) as u8),
        libc::CLD_KILLED | libc::CLD_DUMPED => Event::Killed(status),
        libc::CLD_CONTINUED => Event::Continued,
        _ => Event::Stopped(status),
    };
    Ok(Some((changed, event)))
}

fn process(pid: i32) -> PathBuf {
    PathBuf::from(format!("process {pid}"))
}

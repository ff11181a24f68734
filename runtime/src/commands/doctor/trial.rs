//! Trying something in a child, which may crash or hang.

use std::fmt;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, pipe};

use crate::filtered;

/// How long a child may try.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// First byte of a child's answer.
const WORKED: u8 = b'+';
const FAILED: u8 = b'-';

/// Why a trial did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// A call failed.
    pub fn call(call: &str, errno: Errno) -> Failure {
        Failure(format!("{call}: {}", errno.desc()))
    }

    /// It worked, but not as it should.
    pub fn wrong(what: impl Into<String>) -> Failure {
        Failure(what.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Outcome of a trial: what was found, or why it did not work.
pub type Outcome = Result<String, Failure>;

/// The result of the system call `call`, or its failure with the name.
pub fn checked(call: &str, result: libc::c_long) -> Result<i64, Failure> {
    Errno::result(result).map_err(|errno| Failure::call(call, errno))
}

/// Fails for calls that a filter ends processes for: no answer would come.
pub fn unless_deadly(calls: &[i64]) -> Result<(), Failure> {
    match filtered::deadly_among(calls) {
        None => Ok(()),
        Some(name) => Err(Failure(format!("a seccomp filter ends who calls {name}"))),
    }
}

/// A child process that is killed and reaped when this is dropped.
pub struct Child(Pid);

impl Child {
    /// Forks; the child does `work` and ends.
    pub fn start(work: impl FnOnce()) -> Result<Child, Failure> {
        // SAFETY: `ckpt doctor` has one thread, so the child may do whatever it likes; under `cargo test`, which
        // has several, glibc keeps the allocator usable, and no other lock is taken by what children do here.
        match unsafe { fork() }.map_err(|errno| Failure::call("fork", errno))? {
            ForkResult::Parent { child } => Ok(Child(child)),
            ForkResult::Child => {
                work();
                // SAFETY: _exit ends this process at once; nothing of the parent's is flushed twice.
                unsafe { libc::_exit(0) }
            }
        }
    }

    /// A child that does nothing until it is killed.
    pub fn idle() -> Result<Child, Failure> {
        Child::start(wait_to_be_killed)
    }

    /// Its pid.
    pub fn pid(&self) -> Pid {
        self.0
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
        while waitpid(self.0, None) == Err(Errno::EINTR) {}
    }
}

/// Waits for the end, which comes by SIGKILL; should the parent die first, it comes by itself.
pub fn wait_to_be_killed() {
    // SAFETY: alarm takes a number; its signal ends this process.
    unsafe { libc::alarm(2 * TRIAL_TIMEOUT.as_secs() as u32) };
    loop {
        nix::unistd::pause();
    }
}

/// What `work` returns in a child; the child is killed when it takes too long.
pub fn in_child(work: impl FnOnce() -> Outcome) -> Outcome {
    in_child_within(TRIAL_TIMEOUT, work)
}

fn in_child_within(limit: Duration, work: impl FnOnce() -> Outcome) -> Outcome {
    let (answer, to_parent) = pipe().map_err(|errno| Failure::call("pipe", errno))?;
    let mut to_parent = Some(std::fs::File::from(to_parent));
    let child = Child::start(|| {
        let (mark, text) = match work() {
            Ok(text) => (WORKED, text),
            Err(failure) => (FAILED, failure.0),
        };
        if let Some(file) = &mut to_parent {
            // Short enough for a pipe; a parent that is gone needs no answer.
            let _ = file.write_all(&[&[mark], text.as_bytes()].concat());
        }
    })?;
    to_parent.take();
    let text = read_until(std::fs::File::from(answer), Instant::now() + limit)
        .ok_or_else(|| Failure(format!("no answer within {} ms", limit.as_millis())))?;
    drop(child);
    match text.split_first() {
        Some((&WORKED, found)) => Ok(String::from_utf8_lossy(found).into_owned()),
        Some((_, why)) => Err(Failure(String::from_utf8_lossy(why).into_owned())),
        None => Err(Failure("the trial ended without an answer".to_owned())),
    }
}

/// All of `source`, or None if it does not end in time.
fn read_until(mut source: std::fs::File, deadline: Instant) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let mut buffer = [0; 512];
    loop {
        let left_ms = deadline.saturating_duration_since(Instant::now()).as_millis();
        let timeout = PollTimeout::try_from(left_ms).ok()?;
        match poll(&mut [PollFd::new(source.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) => return None,
            Ok(_) => match source.read(&mut buffer) {
                Ok(0) | Err(_) => return Some(text),
                Ok(bytes) => text.extend_from_slice(&buffer[..bytes]),
            },
            Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_answers_fails_crashes_or_hangs_and_is_gone_afterwards() {
        assert_eq!(in_child(|| Ok("fine".to_owned())), Ok("fine".to_owned()));
        assert_eq!(in_child(|| Err(Failure::wrong("bad"))), Err(Failure::wrong("bad")));
        // SAFETY: abort ends the child.
        let crashed = in_child(|| unsafe { libc::_exit(3) });
        assert_eq!(crashed, Err(Failure::wrong("the trial ended without an answer")));
        let hung = in_child_within(Duration::from_millis(20), || {
            wait_to_be_killed();
            Ok(String::new())
        });
        assert_eq!(hung, Err(Failure::wrong("no answer within 20 ms")));
    }
}

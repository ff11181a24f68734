//! The life of the first process in the program's pid namespace.
//!
//! The kernel ends everything in there when it ends. So it lives as long as anything does, needs nobody outside, holds
//! nothing that somebody waits for the end of, and reaps whoever has lost its parent.

use std::fs::OpenOptions;

use nix::errno::Errno;
use nix::unistd::{chdir, dup2_stderr, dup2_stdin, dup2_stdout};

use super::relay::{Message, Relay};
use super::status::{self, Event};
use crate::error::{Error, Result};

/// Lets go of all that the caller of `ckpt restart` may wait for the end of, but for `outside`: nothing is to be used any
/// more that has a descriptor.
pub fn hold_nothing(outside: &Relay) -> Result<()> {
    let failed = |source: Errno| Error::io("let go of", "the descriptors of ckpt restart", source);
    let null = OpenOptions::new().read(true).write(true).open("/dev/null");
    let null = null.map_err(|source| Error::io("open", "/dev/null", source))?;
    dup2_stdin(&null).and(dup2_stdout(&null)).and(dup2_stderr(&null)).map_err(failed)?;
    std::mem::forget(null);
    let kept = outside.number() as u32;
    for (first, last) in [(3, kept - 1), (kept + 1, u32::MAX)] {
        // SAFETY: closes descriptors of this process, which uses none of them from here on. An empty range is refused.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
    chdir("/").map_err(failed)
}

/// Sees to our child `program` and to all orphans until nobody is left, and ends this process. All signals must be
/// blocked.
///
/// When the program has ended, it is reaped as soon as `outside` has taken its status, or is gone.
pub fn live(program: i32, outside: Relay) -> ! {
    let mut outside = Some(outside);
    loop {
        match status::next_of_any() {
            Err(Errno::EINTR) => {}
            // ECHILD: nobody is left.
            Err(_) => break,
            Ok((pid, event)) if pid == program => {
                let has_ended = matches!(event, Event::Exited(_) | Event::Killed(_));
                // A message that cannot be delivered has nobody to hear it.
                let heard = outside.as_ref().is_some_and(|outside| outside.say(&Message::Changed(event), None).is_ok());
                let listener = if has_ended { outside.take() } else { None };
                if let Some(outside) = listener.filter(|_| heard) {
                    outside.wait_for_the_end();
                }
                status::take(pid);
            }
            Ok((pid, _)) => status::take(pid),
        }
    }
    // SAFETY: ends this process, which runs nothing of the one that it was forked from.
    unsafe { libc::_exit(0) }
}

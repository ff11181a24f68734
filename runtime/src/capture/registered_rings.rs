//! Threads can use an io_uring instance by a number of their own (IORING_REGISTER_RING_FDS), which only they can ask about.

use ckpt_wire::Control;
use linux_raw_sys::io_uring::IORING_ENTER_REGISTERED_RING;
use nix::errno::Errno;

use super::guest::Guest;
use super::threads::Captured;
use crate::error::{Error, Result};
use crate::ptrace::Stopped;

/// How many numbers a thread can have.
const NUMBERS: u64 = 16;

/// Refuses a thread of process `pid` that has such a number: it would lead nowhere after a restart.
///
/// # Errors
/// For a thread that has one, by its id.
pub fn refuse(pid: i32, threads: &mut [Stopped], ways: &[Captured], control: &Control) -> Result<()> {
    for (thread, way) in threads.iter_mut().zip(ways) {
        let tid = thread.tid();
        let mut guest = Guest::enter(pid, thread, control, way.home, &way.reissued)?;
        let mut has_one = false;
        for number in 0..NUMBERS {
            let flags = u64::from(IORING_ENTER_REGISTERED_RING);
            match guest.try_call(libc::SYS_io_uring_enter, [number, 0, 0, flags, 0, 0])? {
                Err(Errno::EBADF) => {}
                // It has used no instance at all, or the kernel knows no such numbers.
                Err(Errno::EINVAL | Errno::ENOSYS) => break,
                _ => has_one = true,
            }
        }
        guest.leave()?;
        if has_one {
            return Err(Error::unsupported(
                format!("thread {tid} of process {pid}"),
                "it has an io_uring instance registered for itself (IORING_REGISTER_RING_FDS)",
                "use the descriptor, or unregister it before the checkpoint",
            ));
        }
    }
    Ok(())
}

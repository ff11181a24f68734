//! A process that has an id which a restart wants.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

/// A child of the test with a chosen id, which does nothing until this is dropped. Only root can have it.
pub struct TakenId(Pid);

impl TakenId {
    /// Takes `id`, which must be free.
    pub fn new(id: i32) -> TakenId {
        // SAFETY: zero is a valid `clone_args`.
        let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
        arguments.exit_signal = libc::SIGCHLD as u64;
        arguments.set_tid = (&raw const id) as u64;
        arguments.set_tid_size = 1;
        // SAFETY: like fork: without CLONE_VM the child has its own copy of everything. The kernel reads `arguments` and `id`.
        let clone = || unsafe { libc::syscall(libc::SYS_clone3, &arguments, size_of::<libc::clone_args>()) };
        // An ended process that nobody has reaped yet may still have it.
        let mut child = clone();
        let end = Instant::now() + Duration::from_secs(10);
        while child == -1 && Errno::last() == Errno::EEXIST && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
            child = clone();
        }
        if child == 0 {
            loop {
                // SAFETY: waits for the signal that ends this process; nothing is allocated and no lock taken.
                unsafe { libc::pause() };
            }
        }
        Errno::result(child).unwrap_or_else(|error| panic!("taking the id {id}: {error}"));
        TakenId(Pid::from_raw(id))
    }
}

impl Drop for TakenId {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
        while waitpid(self.0, None) == Err(Errno::EINTR) {}
    }
}

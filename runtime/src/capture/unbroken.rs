//! Work that goes on to its end even if this process is killed in the middle of it.

use std::ffi::{c_int, c_void};

use nix::errno::Errno;

use crate::signal_mask;

/// Bytes of the stack of whoever does the work.
const STACK_BYTES: usize = 256 << 10;

/// Has `work` done in a process of its own that shares our memory, while this thread waits. It must not allocate, take a lock or
/// end the thread: who holds what may be gone by then. Descriptors that it opens are its own.
///
/// # Errors
/// The kernel's, where no process can be made. Then nothing has been done.
pub fn to_the_end(work: &mut (dyn FnMut() + Send)) -> Result<(), Errno> {
    let mut stack = vec![0u8; STACK_BYTES];
    let mut work: &mut (dyn FnMut() + Send) = work;
    // A signal for our process group is none for the work.
    let before = signal_mask::block_all()?;
    let top = stack.as_mut_ptr_range().end as usize & !15;
    // SAFETY: the stack is only the child's, and this thread stands still until the child has ended, so that it may use what is
    // ours as this thread would. It has no signal handler to run, and ends by `_exit` behind `run`.
    let child = unsafe {
        libc::clone(run, top as *mut c_void, libc::CLONE_VM | libc::CLONE_VFORK, (&raw mut work).cast::<c_void>())
    };
    let made = Errno::result(child);
    before.restore()?;
    let child = made?;
    // SAFETY: takes numbers, and a null pointer where no status is wanted.
    while unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::__WALL) } == -1 && Errno::last() == Errno::EINTR {}
    Ok(())
}

extern "C" fn run(work: *mut c_void) -> c_int {
    // SAFETY: it is what `to_the_end` has handed over, which waits.
    let work = unsafe { &mut *work.cast::<&mut (dyn FnMut() + Send)>() };
    work();
    0
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read, Write, pipe};

    use super::*;

    #[test]
    fn what_the_work_writes_is_there_and_nothing_is_left_of_who_did_it() {
        let mut done = 0;
        to_the_end(&mut || done = 41 + 1).unwrap();
        assert_eq!(done, 42);
        // SAFETY: takes numbers and a null pointer.
        let left = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG | libc::__WCLONE) };
        assert!(left <= 0);
    }

    #[test]
    fn it_comes_to_its_end_although_the_process_is_killed() {
        let (mut heard, mut said): (PipeReader, _) = pipe().unwrap();
        // SAFETY: the child makes system calls only, but for those of the C library that it may make after a fork.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: takes no argument.
                let own = unsafe { libc::getpid() };
                let _ = to_the_end(&mut || {
                    // SAFETY: takes numbers.
                    unsafe { libc::kill(own, libc::SIGKILL) };
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    let _ = said.write_all(b"done");
                });
                // SAFETY: ends the process.
                unsafe { libc::_exit(1) }
            }
            child => {
                drop(said);
                let mut words = String::new();
                heard.read_to_string(&mut words).unwrap();
                assert_eq!(words, "done");
                let mut status = 0;
                // SAFETY: waitpid writes one status.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL);
            }
        }
    }
}

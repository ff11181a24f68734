//! What the kernel has no call for. Each test here is the reason for a refusal: when it fails on a newer kernel, that state can be kept.

use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::time::Duration;

use ckpt_tests::processes;
use nix::errno::Errno;
use nix::sys::eventfd::EventFd;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpgid, getsid, pause, setpgid, setsid};

const LIMIT: Duration = Duration::from_secs(10);

/// A child that waits until this is dropped.
struct Child(Pid);

impl Child {
    /// One that does `first` before.
    fn that(first: impl FnOnce()) -> Child {
        // SAFETY: the child makes system calls alone.
        match unsafe { fork() }.expect("a child") {
            ForkResult::Parent { child } => Child(child),
            ForkResult::Child => {
                // SAFETY: it takes numbers.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                first();
                loop {
                    pause();
                }
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
        let _ = waitpid(self.0, Some(WaitPidFlag::__WALL));
    }
}

/// A process is in the session of its parent at its birth, and leaves it for one that it leads.
#[test]
fn nothing_takes_a_process_into_another_session() {
    let leader = Child::that(|| {
        let _ = setsid();
    });
    processes::wait_until("the child leads a session", LIMIT, || getsid(Some(leader.0)) == Ok(leader.0));
    assert_eq!(getpgid(Some(leader.0)), Ok(leader.0));
    let other = Child::that(|| {});
    // By its parent: neither into the group of the leader, nor as the leader into ours.
    assert_eq!(setpgid(other.0, leader.0), Err(Errno::EPERM));
    assert_eq!(setpgid(leader.0, getpgid(None).expect("ours")), Err(Errno::EPERM));
    assert_ne!(getsid(Some(other.0)), Ok(leader.0));
}

/// Such a thread has no registers that could be read, and makes no call for anybody.
#[test]
fn nothing_stops_a_thread_in_vfork() {
    let parent = Child::that(|| {
        // SAFETY: the child, which has memory of its own, waits; this thread waits for its end.
        unsafe {
            if libc::syscall(libc::SYS_clone, libc::CLONE_VFORK | libc::SIGCHLD, 0, 0, 0, 0) == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                loop {
                    libc::pause();
                }
            }
        }
    });
    let child = || processes::children(parent.0.as_raw()).first().copied();
    processes::wait_until("it has a child", LIMIT, || child().is_some());
    let child = Pid::from_raw(child().expect("a child"));
    ptrace::seize(parent.0, ptrace::Options::empty()).expect("our child");
    ptrace::interrupt(parent.0).expect("seized");
    kill(parent.0, Signal::SIGUSR1).expect("it lives");
    // It has half a second, where a stop takes microseconds.
    std::thread::sleep(Duration::from_millis(500));
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
    assert_eq!(waitpid(parent.0, Some(flags)), Ok(WaitStatus::StillAlive));
    assert_eq!(ptrace::getregs(parent.0), Err(Errno::ESRCH));
    kill(child, Signal::SIGKILL).expect("it lives");
    let stopped = waitpid(parent.0, Some(WaitPidFlag::__WALL));
    assert!(matches!(stopped, Ok(WaitStatus::PtraceEvent(..) | WaitStatus::Stopped(..))), "{stopped:?}");
}

/// The head of what `io_setup` maps, and the number of results that can be had.
fn aio_state(context: libc::c_ulong) -> (Vec<u8>, i64) {
    /// Ids, sizes, head and tail.
    const HEAD_BYTES: usize = 32;
    // SAFETY: the kernel has mapped a page there at least, and nothing unmaps it meanwhile.
    let head = unsafe { std::slice::from_raw_parts(context as *const u8, HEAD_BYTES) }.to_vec();
    let mut results = MaybeUninit::<[[u64; 4]; 4]>::uninit();
    let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes as many results as there is room for.
    let count = unsafe { libc::syscall(libc::SYS_io_getevents, context, 0, 4, results.as_mut_ptr(), &no_time) };
    (head, count)
}

/// A request that waits for an event is under way, and the context looks as if it were idle. (No file of /proc has a word on requests.)
#[test]
fn nothing_tells_of_a_request_of_asynchronous_io() {
    const POLL: u16 = 5;
    let mut context: libc::c_ulong = 0;
    // SAFETY: the kernel writes the context's number.
    assert_eq!(unsafe { libc::syscall(libc::SYS_io_setup, 8, &raw mut context) }, 0, "{}", Errno::last());
    let idle = aio_state(context);
    let event = EventFd::new().expect("an eventfd");
    // struct iocb: data, key and flags, code, descriptor, events.
    let mut request = [0u64; 8];
    request[2] = u64::from(POLL) | (event.as_raw_fd() as u64) << 32;
    request[3] = libc::POLLIN as u64;
    let requests = [request.as_ptr()];
    // SAFETY: one request, which the kernel copies.
    assert_eq!(unsafe { libc::syscall(libc::SYS_io_submit, context, 1, requests.as_ptr()) }, 1, "{}", Errno::last());
    assert_eq!(aio_state(context), idle);
    event.write(1).expect("room");
    processes::wait_until("the request has ended", LIMIT, || aio_state(context).1 == 1);
    // SAFETY: it is ours, and not used any more.
    unsafe { libc::syscall(libc::SYS_io_destroy, context, null_mut::<u8>()) };
}

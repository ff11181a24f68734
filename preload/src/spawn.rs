//! Starts an agent that is nobody's child in the job.
//!
//! Two children that share our memory, one inside the other. The inner one becomes the agent; exec resets a
//! process's exit signal to SIGCHLD, so it may not be the program's own child. The outer one, whose exit signal is
//! 0, ends at once and is reaped here, and the agent goes to init or the nearest subreaper. The program sees no
//! SIGCHLD, no child in `waitpid(-1)`, and none of its descriptors leaves: `./app | cat` ends when app ends.

use core::ffi::c_char;
use core::sync::atomic::{AtomicI32, Ordering};

use crate::agent_environment::AGENT_ENVIRONMENT;
use crate::child::{self, INNER_STACK};
use crate::control;
use crate::errno::Errno;
use crate::mark;
use crate::section::Section;
use crate::shared::Shared;
use crate::sys::{self, KernelAction, in_child};
use crate::trigger::Cause;
use ckpt_wire::settings::signals::SIGNAL_MAX;
use ckpt_wire::settings::text::Text;

/// Why there is no agent.
pub struct Failure {
    /// The system call that failed.
    pub step: &'static [u8],
    /// What it failed with.
    pub errno: Errno,
}

/// What the two children get and give back. Used by the holder of the section and its children.
struct Launch {
    argv: [*const c_char; 7],
    pid_text: Text<16>,
    /// Pid of the inner child, or a negative error number.
    inner: AtomicI32,
    /// Error number of the inner child's close_range; 0 for none.
    close_errno: AtomicI32,
    /// Error number of the inner child's execve; 0 for none.
    exec_errno: AtomicI32,
}

static LAUNCH: Shared<Launch> = Shared::new(Launch {
    argv: [core::ptr::null(); 7],
    pid_text: Text::new(),
    inner: AtomicI32::new(0),
    close_errno: AtomicI32::new(0),
    exec_errno: AtomicI32::new(0),
});

/// Starts `ckpt agent --pid PID --trigger CAUSE` and lets it trace this process.
pub fn start_agent(section: &mut Section, cause: Cause) -> Result<(), Failure> {
    // SAFETY: the section is ours, and the children of an earlier launch have ended or are other programs now.
    prepare(unsafe { &mut *LAUNCH.get() }, cause);
    let launch: *const Launch = LAUNCH.get();
    // SAFETY: `outer` asks for a prepared launch that stays; it is a static.
    unsafe { child::run(section, outer, launch) }.map_err(|errno| Failure { step: b"clone", errno })?;
    // SAFETY: the outer child has ended, and what the inner one did to this memory it did before its exec.
    let launch = unsafe { &*launch };
    let agent_pid = launch.inner.load(Ordering::Acquire);
    let outcomes = [
        (b"clone" as &[u8], -agent_pid.min(0)),
        (b"close_range", launch.close_errno.load(Ordering::Acquire)),
        (b"execve", launch.exec_errno.load(Ordering::Acquire)),
    ];
    if let Some((step, errno)) = outcomes.into_iter().find(|&(_, errno)| errno != 0) {
        return Err(Failure { step, errno: Errno(errno) });
    }
    sys::allow_tracer(agent_pid);
    control::agent_pid().store(agent_pid, Ordering::Release);
    // SAFETY: the field does not change after the constructor.
    mark::tell_agent(unsafe { (*control::control()).agent_text }, agent_pid);
    Ok(())
}

fn prepare(launch: &mut Launch, cause: Cause) {
    launch.pid_text.clear();
    launch.pid_text.push_decimal(u64::from(sys::getpid().unsigned_abs()), 1);
    let cause = match cause {
        Cause::Signal => c"signal",
        Cause::Interval => c"interval",
        Cause::Api => c"api",
    };
    launch.argv = [
        c"ckpt".as_ptr(),
        c"agent".as_ptr(),
        c"--pid".as_ptr(),
        launch.pid_text.as_ptr().cast(),
        c"--trigger".as_ptr(),
        cause.as_ptr(),
        core::ptr::null(),
    ];
    launch.inner = AtomicI32::new(0);
    launch.close_errno = AtomicI32::new(0);
    launch.exec_errno = AtomicI32::new(0);
}

/// The outer child.
///
/// # Safety
/// `launch` must be prepared, and the section must be held by the thread that waits for this child.
unsafe extern "C" fn outer(launch: *const Launch) -> ! {
    // SAFETY: the launcher is stopped until we end; the inner stack is free because the section is held.
    let pid = match unsafe { child::start(&INNER_STACK, inner, launch) } {
        Ok(pid) => pid,
        Err(errno) => -errno.0,
    };
    // SAFETY: a static, touched through atomics by the two children.
    unsafe { &*launch }.inner.store(pid, Ordering::Release);
    sys::exit(0)
}

/// The inner child: becomes the agent.
///
/// # Safety
/// As for `outer`.
unsafe extern "C" fn inner(launch: *const Launch) -> ! {
    // SAFETY: as in `outer`.
    let launch = unsafe { &*launch };
    in_child::new_session();
    // SAFETY: this process was cloned without CLONE_FILES: the table is its own.
    if let Err(errno) = unsafe { in_child::close_all() } {
        // Better no agent than one that keeps the program's pipes open.
        launch.close_errno.store(errno.0, Ordering::Release);
        sys::exit(127);
    }
    open_null();
    // SAFETY: cloned without CLONE_FS: the working directory is its own.
    unsafe { in_child::enter_root_directory() };
    reset_signals();
    raise_limits();
    // SAFETY: path, arguments and environment are zero-terminated texts in statics that no longer change, in
    // lists that end with a null pointer.
    let errno = unsafe {
        let path = (*control::control()).agent.as_ptr();
        in_child::execute(path, launch.argv.as_ptr(), (*AGENT_ENVIRONMENT.get()).as_ptr())
    };
    launch.exec_errno.store(errno.0, Ordering::Release);
    sys::exit(127)
}

/// Standard input, output and error of the agent. Where there is no /dev/null they stay closed.
fn open_null() {
    // SAFETY: a literal; the descriptor table is the child's own, and empty.
    if let Ok(fd) = unsafe { in_child::open(c"/dev/null".as_ptr().cast(), libc::O_RDWR, 0) } {
        let _ = in_child::duplicate(fd);
        let _ = in_child::duplicate(fd);
    }
}

/// Limits that the program or its shell has set, up to what its user may have: with them, the agent could not open its own
/// libraries, start threads, or write a checkpoint that is longer than the files the program may write.
fn raise_limits() {
    const LIMITS: [u32; 9] = [
        libc::RLIMIT_NOFILE,
        libc::RLIMIT_FSIZE,
        libc::RLIMIT_AS,
        libc::RLIMIT_DATA,
        libc::RLIMIT_STACK,
        libc::RLIMIT_CPU,
        libc::RLIMIT_NPROC,
        libc::RLIMIT_MEMLOCK,
        libc::RLIMIT_RTTIME,
    ];
    for resource in LIMITS {
        in_child::raise_limit(resource);
    }
}

/// Default actions and an empty mask, as a login gives them.
///
/// Each signal is ignored for an instant: that discards one that arrived since the clone (from a terminal, for the
/// whole process group), which would otherwise end or stop this process as soon as it is unblocked, and the program
/// waits for it.
fn reset_signals() {
    for handler in [libc::SIG_IGN, libc::SIG_DFL] {
        let action = KernelAction { handler, ..KernelAction::default() };
        for signal in 1..=SIGNAL_MAX {
            // SAFETY: no handler. Cloned without CLONE_SIGHAND: the actions are the child's own.
            let _ = unsafe { sys::set_action(signal, &action) };
        }
    }
    sys::set_mask(0);
}

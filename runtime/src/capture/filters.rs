//! Seccomp filters that a program has added itself.
//!
//! They would judge the calls that we have the program make. The kernel shows them, and lets them rest while a thread is stopped, to
//! whoever has CAP_SYS_ADMIN and lives under no filter itself. For anybody else such a program is refused, before it makes a call.

use ckpt_wire::Confinement;
use nix::errno::Errno;
use serde_bytes::ByteBuf;

use crate::error::{Error, Result};
use crate::image::{Filter, ThreadImage};
use crate::proc::confinement;
use crate::proc::task::FIRST_PROCESS;
use crate::ptrace::{Options, Stopped};

const ADVICE: &str = "let root take the checkpoint from outside of the filter (start the program with `ckpt run`, or give \
                      `ckpt checkpoint`, of another user's program with --dir), or start the program without its sandbox";
const WITHOUT: &str = "start the program without its sandbox";

/// Suspends the filters that `threads` of process `pid` have added since the job `began`. Those from before are its container's: we live
/// under them, too. To be asked before any call is made inside the program.
///
/// # Errors
/// Where the kernel does not let us.
pub fn suspend(pid: i32, threads: &mut [Stopped], began: Option<Confinement>) -> Result<()> {
    let of_process = confinement::of_thread(pid, pid)?.is_some_and(|main| main.no_new_privs);
    threads.iter_mut().try_for_each(|thread| suspend_of(pid, of_process, thread, began))
}

/// `of_process` is the main thread's no_new_privs, which all threads have after a restart.
fn suspend_of(pid: i32, of_process: bool, thread: &mut Stopped, began: Option<Confinement>) -> Result<()> {
    let tid = thread.tid();
    let refused = |what: &str, why: &str, advice: &str| {
        Err(Error::unsupported(format!("process {pid}: {what} on thread {tid}"), why, advice))
    };
    let (under, no_new_privs) = match confinement::of_thread(pid, tid)? {
        Some(Confinement { filters: 0, .. }) => return Ok(()),
        Some(now) => (now.filters, now.no_new_privs),
        None => {
            let why = "it is in strict mode, or the kernel does not count filters (Linux 5.9 does)";
            return refused("a seccomp filter", why, WITHOUT);
        }
    };
    let Some(before) = before(began) else {
        let why = "it is not known whether the program has added it: the job began without a record of its container's filters";
        return refused("a seccomp filter", why, "start the program with `ckpt run`");
    };
    if under <= before {
        return Ok(());
    }
    const WHAT: &str = "a seccomp filter that the program has added";
    if pid == FIRST_PROCESS {
        let why = "the first process of a pid namespace has calls to make when it is restarted";
        return refused(WHAT, why, "start it below another (`ckpt run` as pid 1), or without its sandbox");
    }
    if no_new_privs != of_process {
        return refused(WHAT, "no_new_privs of the thread is not that of the main thread", WITHOUT);
    }
    match thread.suspend_filters(Options::PROGRAM) {
        Err(Error::Ptrace { source: source @ (Errno::EPERM | Errno::EINVAL), .. }) => {
            let why = format!(
                "it cannot be read back without CAP_SYS_ADMIN, nor from under a filter ({}), and would judge our calls \
                 (filters: {under}, at its start: {before})",
                source.desc()
            );
            refused(WHAT, &why, ADVICE)
        }
        outcome => outcome,
    }
}

/// How many filters a job that `began` so has not added. Without a record, what we do not live under is the job's.
fn before(began: Option<Confinement>) -> Option<u32> {
    let began = began.or_else(|| confinement::own().filter(|own| own.filters == 0));
    began.map(|began| began.filters)
}

/// Enters into `images` which filters `threads` of process `pid` have added since the job `began`, and gives these, none twice.
///
/// # Errors
/// When one hands calls over to another process.
pub fn capture(
    pid: i32,
    threads: &[Stopped],
    began: Option<Confinement>,
    images: &mut [ThreadImage],
) -> Result<Vec<Filter>> {
    let mut all: Vec<Filter> = Vec::new();
    for (thread, image) in threads.iter().zip(images).filter(|(thread, _)| thread.is_unfiltered()) {
        for (instructions, flags) in thread.filters(before(began).unwrap_or_default() as usize)? {
            let logs = flags & libc::SECCOMP_FILTER_FLAG_LOG != 0;
            let filter = Filter { instructions: ByteBuf::from(instructions), logs };
            if filter.may_return(libc::SECCOMP_RET_USER_NOTIF) {
                return Err(Error::unsupported(
                    format!("process {pid}: a seccomp filter that asks another process on thread {}", thread.tid()),
                    "what it is asked through is not captured (SECCOMP_RET_USER_NOTIF)",
                    "start the program without its sandbox",
                ));
            }
            let known = all.iter().position(|known| *known == filter);
            image.filters.push(known.unwrap_or(all.len()) as u32);
            if known.is_none() {
                all.push(filter);
            }
        }
    }
    Ok(all)
}

//! What the seccomp filters over this process do with calls that most programs never make.
//!
//! A filter that answers with an error is as good as a kernel without the call. Others end whoever makes it, as systemd's do
//! (`SystemCallFilter=`). So where there are filters, the calls that ckpt makes, itself and in programs, are first made in a child,
//! which is under the same ones: what ends that is not made.

use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use crate::error::{Error, Result};
use crate::proc::confinement;
use crate::userfaultfd;

/// What to do about a filter that forbids a call.
pub const ALLOW: &str = "allow it in the container's seccomp profile (--cap-add SYS_PTRACE, or --security-opt seccomp=FILE, \
                         the profile), or in systemd's SystemCallFilter=";

/// A call as it is tried: nothing comes of it, but an answer.
struct Call {
    name: &'static str,
    number: i64,
    arguments: [u64; 4],
}

const fn call(name: &'static str, number: i64, arguments: [u64; 4]) -> Call {
    Call { name, number, arguments }
}

const NONE: u64 = u64::MAX;
/// An id that no process has.
const NOBODY: u64 = i32::MAX as u64;
const KCMP_VM: u64 = 1;
const LAST_DESCRIPTOR: u64 = u32::MAX as u64;
const ARCH_GET_XCOMP_PERM: u64 = 0x1022;
const PR_GET_MEMORY_MERGE: u64 = 68;
const IOPRIO_WHO_PROCESS: u64 = 1;
const USERFAULTFD: u64 = libc::O_CLOEXEC as u64 | userfaultfd::USER_MODE_ONLY;

/// Those that are made in programs, and by ckpt itself. Of `prctl` and `arch_prctl` each question is another call.
const CALLS: &[Call] = &[
    call("userfaultfd", libc::SYS_userfaultfd, [USERFAULTFD, 0, 0, 0]),
    call("membarrier", libc::SYS_membarrier, [0; 4]),
    call("arch_prctl", libc::SYS_arch_prctl, [ARCH_GET_XCOMP_PERM, 0, 0, 0]),
    call("prctl(PR_GET_PDEATHSIG)", libc::SYS_prctl, [libc::PR_GET_PDEATHSIG as u64, 0, 0, 0]),
    call("prctl(PR_GET_DUMPABLE)", libc::SYS_prctl, [libc::PR_GET_DUMPABLE as u64, 0, 0, 0]),
    call("prctl(PR_GET_SECUREBITS)", libc::SYS_prctl, [libc::PR_GET_SECUREBITS as u64, 0, 0, 0]),
    call("prctl(PR_GET_TIMERSLACK)", libc::SYS_prctl, [libc::PR_GET_TIMERSLACK as u64, 0, 0, 0]),
    call("prctl(PR_MCE_KILL_GET)", libc::SYS_prctl, [libc::PR_MCE_KILL_GET as u64, 0, 0, 0]),
    call("prctl(PR_GET_CHILD_SUBREAPER)", libc::SYS_prctl, [libc::PR_GET_CHILD_SUBREAPER as u64, 0, 0, 0]),
    call("prctl(PR_GET_TID_ADDRESS)", libc::SYS_prctl, [libc::PR_GET_TID_ADDRESS as u64, 0, 0, 0]),
    call("prctl(PR_GET_THP_DISABLE)", libc::SYS_prctl, [libc::PR_GET_THP_DISABLE as u64, 0, 0, 0]),
    call("prctl(PR_GET_MEMORY_MERGE)", libc::SYS_prctl, [PR_GET_MEMORY_MERGE, 0, 0, 0]),
    call("mincore", libc::SYS_mincore, [0; 4]),
    call("mremap", libc::SYS_mremap, [0; 4]),
    call("sigaltstack", libc::SYS_sigaltstack, [0; 4]),
    call("getitimer", libc::SYS_getitimer, [0; 4]),
    call("timer_gettime", libc::SYS_timer_gettime, [NOBODY, 0, 0, 0]),
    call("close_range", libc::SYS_close_range, [LAST_DESCRIPTOR, LAST_DESCRIPTOR, 0, 0]),
    call("setsid", libc::SYS_setsid, [0; 4]),
    call("io_uring_enter", libc::SYS_io_uring_enter, [NONE, 0, 0, 0]),
    call("socket", libc::SYS_socket, [NONE, 0, 0, 0]),
    call("connect", libc::SYS_connect, [NONE, 0, 0, 0]),
    call("sendmsg", libc::SYS_sendmsg, [NONE, 0, 0, 0]),
    call("kcmp", libc::SYS_kcmp, [NOBODY, NOBODY, KCMP_VM, 0]),
    call("process_vm_readv", libc::SYS_process_vm_readv, [0; 4]),
    call("process_vm_writev", libc::SYS_process_vm_writev, [0; 4]),
    call("pidfd_open", libc::SYS_pidfd_open, [0; 4]),
    call("pidfd_getfd", libc::SYS_pidfd_getfd, [NONE, 0, 0, 0]),
    call("pidfd_send_signal", libc::SYS_pidfd_send_signal, [NONE, 0, 0, 0]),
    call("ptrace", libc::SYS_ptrace, [libc::PTRACE_SEIZE as u64, NOBODY, 0, 0]),
    call("clone3", libc::SYS_clone3, [0; 4]),
    call("get_robust_list", libc::SYS_get_robust_list, [0; 4]),
    call("sched_getattr", libc::SYS_sched_getattr, [0; 4]),
    call("getpriority", libc::SYS_getpriority, [0; 4]),
    call("ioprio_get", libc::SYS_ioprio_get, [IOPRIO_WHO_PROCESS, 0, 0, 0]),
    call("name_to_handle_at", libc::SYS_name_to_handle_at, [NONE, 0, 0, 0]),
    call("open_by_handle_at", libc::SYS_open_by_handle_at, [NONE, 0, 0, 0]),
];

/// Those of them that change nothing in the process that makes them so.
const HARMLESS: [i64; 6] = [
    libc::SYS_ptrace,
    libc::SYS_clone3,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
];

/// Whether no child may be made for a trial.
static IS_ALONE: AtomicBool = AtomicBool::new(false);

/// What has come of a call that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// It was not tried: there are no filters.
    Free,
    /// It returned, with this error or none (0).
    Returned(i32),
    /// It ended the process.
    Deadly,
}

/// Has no child made for a trial, which would take an id that a program needs, until it is said that one may be. Meanwhile a call is tried by
/// making it: what would end us would do so a moment later, too.
pub fn make_no_child(is_alone: bool) {
    IS_ALONE.store(is_alone, Ordering::Relaxed);
}

/// Whether a filter ends who makes call `number` with the first argument `first`.
pub fn is_deadly(number: i64, first: u64) -> bool {
    answer(number, first) == Answer::Deadly
}

/// The name of the call, if a filter ends who makes it in a process that is under `filters`, as many as [`of`] says. Where these are
/// others than ours, that is not known, and it is as here.
pub fn deadly_under(filters: impl FnOnce() -> Option<u32>, number: i64, first: u64) -> Option<&'static str> {
    if !is_deadly(number, first) || filters() == Some(0) {
        return None;
    }
    CALLS.iter().find(|call| is_the_call(call, number, first)).map(|call| call.name)
}

/// The same of a call that need not be made: where it is not known, it is as if one did.
pub fn maybe_deadly_under(filters: impl FnOnce() -> Option<u32>, number: i64, first: u64) -> Option<&'static str> {
    let call = CALLS.iter().find(|call| is_the_call(call, number, first))?;
    let may_be = match filters() {
        Some(0) => false,
        filters if filters != own() => true,
        _ => is_deadly(number, first),
    };
    may_be.then_some(call.name)
}

/// How many filters process `pid` is under; `None` where the kernel does not tell.
///
/// # Errors
/// When the process is gone.
pub fn of(pid: i32) -> Result<Option<u32>> {
    Ok(confinement::of_thread(pid, pid)?.map(|confinement| confinement.filters))
}

/// How many this process is under. It adds none.
fn own() -> Option<u32> {
    static OWN: OnceLock<Option<u32>> = OnceLock::new();
    *OWN.get_or_init(|| confinement::own().map(|own| own.filters))
}

/// The names of the calls that a filter ends processes for.
pub fn deadly() -> impl Iterator<Item = &'static str> {
    CALLS.iter().filter(|call| is_deadly(call.number, call.arguments[0])).map(|call| call.name)
}

/// That of the first of these that it does so for.
pub fn deadly_among(calls: &[i64]) -> Option<&'static str> {
    let is_it = |call: &&Call| calls.contains(&call.number) && is_deadly(call.number, call.arguments[0]);
    CALLS.iter().find(is_it).map(|call| call.name)
}

/// Whether a filter forbids `ptrace`, as opposed to the rules of who may trace whom.
pub fn forbids_ptrace() -> bool {
    match answer(libc::SYS_ptrace, libc::PTRACE_SEIZE.into()) {
        Answer::Free => false,
        Answer::Returned(errno) => errno != libc::ESRCH,
        Answer::Deadly => true,
    }
}

/// Refuses to begin with `what` where a filter would end us in the middle of it, or forbids what nothing can take the place of.
///
/// # Errors
/// [`Error::Environment`], with the call.
pub fn refuse_without(what: &str, calls: &[i64]) -> Result<()> {
    if let Some(name) = deadly_among(calls) {
        return Err(Error::environment(what, format!("a seccomp filter ends who calls {name}"), ALLOW));
    }
    if calls.contains(&libc::SYS_ptrace) && forbids_ptrace() {
        return Err(Error::environment(what, "a seccomp filter forbids ptrace", ALLOW));
    }
    Ok(())
}

fn is_the_call(call: &Call, number: i64, first: u64) -> bool {
    let has_questions = matches!(number, libc::SYS_prctl | libc::SYS_arch_prctl);
    call.number == number && (!has_questions || call.arguments[0] == first)
}

fn answer(number: i64, first: u64) -> Answer {
    static ANSWERS: OnceLock<Vec<Answer>> = OnceLock::new();
    if IS_ALONE.load(Ordering::Relaxed) && ANSWERS.get().is_none() {
        return answer_here(number);
    }
    let answers = ANSWERS.get_or_init(|| if own() == Some(0) { Vec::new() } else { try_all(CALLS) });
    let place = CALLS.iter().position(|call| is_the_call(call, number, first));
    place.and_then(|place| answers.get(place).copied()).unwrap_or(Answer::Free)
}

/// The answer to a call that this process makes itself, if it is under filters.
fn answer_here(number: i64) -> Answer {
    let call = CALLS.iter().find(|call| call.number == number && HARMLESS.contains(&number));
    let Some(Call { arguments: [a, b, c, d], .. }) = call.filter(|_| own() != Some(0)) else { return Answer::Free };
    // SAFETY: numbers and null pointers, for which the kernel has an answer; these calls change nothing then.
    let returned = unsafe { libc::syscall(number, *a, *b, *c, *d, 0, 0) };
    Answer::Returned(if returned == -1 { Errno::last_raw() } else { 0 })
}

/// Makes each call in a child; the next one in another child where it was the end of that.
fn try_all(calls: &[Call]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while answers.len() < calls.len() {
        let before = answers.len();
        match try_in_child(&calls[before..]) {
            Ok(new) => answers.extend(new),
            // What cannot be tried is made as if there were no filters.
            Err(errno) => {
                log::warn!("what seccomp filters forbid is not known: {errno}");
                break;
            }
        }
        if answers.len() == before {
            break;
        }
    }
    answers
}

/// The answers to the first calls of some, as far as one child has come: it ends with the first that is deadly.
fn try_in_child(calls: &[Call]) -> nix::Result<Vec<Answer>> {
    let (answers, to_parent) = pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: the child makes system calls alone and ends without running anything of ours.
    let child = Errno::result(unsafe { libc::fork() })?;
    if child == 0 {
        call_and_tell(calls, to_parent.as_raw_fd());
    }
    drop(to_parent);
    let told = read_all(answers);
    let mut status = 0;
    // SAFETY: it writes one number.
    while Errno::result(unsafe { libc::waitpid(child, &raw mut status, libc::__WALL) }) == Err(Errno::EINTR) {}
    let (errors, _) = told.as_chunks::<4>();
    let mut answers: Vec<Answer> = errors.iter().map(|error| Answer::Returned(i32::from_ne_bytes(*error))).collect();
    if answers.len() < calls.len() && libc::WIFSIGNALED(status) {
        answers.push(Answer::Deadly);
    }
    Ok(answers)
}

/// The child: makes the calls, and writes the error of each before the next.
fn call_and_tell(calls: &[Call], to_parent: RawFd) -> ! {
    // SAFETY: the calls take numbers and null pointers, for which the kernel has an answer; what they change is this process's, which
    // ends. It leaves no core, since most of its memory is its parent's.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        for Call { number, arguments: [a, b, c, d], .. } in calls {
            let returned = libc::syscall(*number, *a, *b, *c, *d, 0, 0);
            let error = if returned == -1 { *libc::__errno_location() } else { 0 };
            libc::write(to_parent, (&raw const error).cast(), size_of_val(&error));
        }
        libc::_exit(0)
    }
}

fn read_all(answers: OwnedFd) -> Vec<u8> {
    let mut told = Vec::new();
    // What has come before an error counts.
    let _ = std::fs::File::from(answers).read_to_end(&mut told);
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_filters_no_call_is_deadly() {
        assert!(CALLS.iter().all(|call| !is_deadly(call.number, call.arguments[0])));
        assert!(refuse_without("a test", &[libc::SYS_ptrace]).is_ok());
    }

    #[test]
    fn every_call_returns_where_nothing_forbids_it() {
        let answers = try_all(CALLS);
        assert_eq!(answers.len(), CALLS.len());
        assert!(answers.iter().all(|answer| matches!(answer, Answer::Returned(_))), "{answers:?}");
        let of = |number: i64| answers[CALLS.iter().position(|call| call.number == number).expect("it is tried")];
        assert_eq!(of(libc::SYS_ptrace), Answer::Returned(libc::ESRCH));
        assert_eq!(of(libc::SYS_pidfd_getfd), Answer::Returned(libc::EBADF));
    }

    #[test]
    fn a_call_that_ends_its_process_is_deadly_and_the_next_is_tried() {
        let calls = [
            call("setsid", libc::SYS_setsid, [0; 4]),
            // As a filter does, to the group of the child alone.
            call("kill", libc::SYS_kill, [0, libc::SIGSYS as u64, 0, 0]),
            call("close", libc::SYS_close, [NONE, 0, 0, 0]),
        ];
        let expected = [Answer::Returned(0), Answer::Deadly, Answer::Returned(libc::EBADF)];
        assert_eq!(try_all(&calls), expected);
    }
}

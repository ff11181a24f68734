//! Control over another process, which is how a program is stopped.

use nix::sys::ptrace::{self, Options};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use super::finding::{Finding, State, setting};
use super::trial::{Child, Failure, Outcome, checked, in_child, unless_deadly, wait_to_be_killed};

/// By which a container has it.
const OPTION: &str = "--cap-add SYS_PTRACE";
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Stops a child of ours.
pub fn own_child() -> Finding {
    let outcome = in_child(|| stop_and_release(Child::idle()?.pid()));
    let advice = "allow ptrace: outside a container remove the seccomp rule, in docker add \
                  --cap-add=SYS_PTRACE, and set kernel.yama.ptrace_scope below 3";
    Finding::of("ptrace", "seize, interrupt and release a child", with_yama(outcome), State::No, advice)
        .required()
        .gives_up("", OPTION)
}

/// Stops a process that is not our child but allows it, as an agent does with its program.
pub fn by_permission() -> Finding {
    let outcome = in_child(|| {
        let (ready, says_ready) = nix::unistd::pipe().map_err(|errno| Failure::call("pipe", errno))?;
        let program = Child::start(|| {
            allow_any_tracer();
            let _ = nix::unistd::write(&says_ready, b"!");
            wait_to_be_killed();
        })?;
        drop(says_ready);
        let _ = nix::unistd::read(&ready, &mut [0]);
        // The tracer is a sibling of the program.
        in_child(|| stop_and_release(program.pid()))
    });
    let advice = "set kernel.yama.ptrace_scope to 1 or 0 (sysctl), or give ckpt CAP_SYS_PTRACE";
    let tried = "PR_SET_PTRACER in a process, then seize and interrupt it from a sibling";
    Finding::of("ptrace by permission", tried, with_yama(outcome), State::No, advice).required().gives_up("", OPTION)
}

fn allow_any_tracer() {
    // SAFETY: the call takes integers; it fails harmlessly where there is no Yama.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
}

fn stop_and_release(pid: Pid) -> Outcome {
    unless_deadly(&[libc::SYS_ptrace])?;
    ptrace::seize(pid, Options::empty()).map_err(|errno| Failure::call("PTRACE_SEIZE", errno))?;
    ptrace::interrupt(pid).map_err(|errno| Failure::call("PTRACE_INTERRUPT", errno))?;
    waitpid(pid, Some(nix::sys::wait::WaitPidFlag::__WALL)).map_err(|errno| Failure::call("waitpid", errno))?;
    // SAFETY: PTRACE_DETACH takes the pid of a stopped tracee and two zeros.
    let detached = unsafe { libc::ptrace(libc::PTRACE_DETACH, pid.as_raw(), 0, 0) };
    checked("PTRACE_DETACH", detached)?;
    Ok("works".to_owned())
}

fn with_yama(outcome: Outcome) -> Outcome {
    let yama = match setting(YAMA).as_deref() {
        None => "no Yama".to_owned(),
        Some(level) => format!("Yama level {level}"),
    };
    match outcome {
        Ok(found) => Ok(format!("{found}; {yama}")),
        Err(failure) => Err(Failure::wrong(format!("{failure}; {yama}"))),
    }
}

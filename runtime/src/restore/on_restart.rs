//! A command of the user's that runs when the program is complete and before it is let run (`--on-restart`).
//!
//! It runs where the program is: this process is in the program's namespaces already. It runs as the program's user and with no more than
//! that: no capability, descriptor, terminal or blocked signal of this process. The environment is the caller's, unless the program is
//! another user's.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::Duration;

use ckpt_wire::{ENV_COPY, ENV_JOB};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getegid, geteuid, setsid};

use crate::capabilities::OwnCapabilities;
use crate::descriptor::{close_inherited_on_exec, ends_within, pidfd_open};
use crate::error::{Error, Result};
use crate::image::ProcessImage;
use crate::restore::place::{Lasting, Place};

/// The pid of the program, as the command sees it.
const ENV_PID: &str = "CKPT_PID";
/// How many times the program has been restarted.
const ENV_GENERATION: &str = "CKPT_GENERATION";
/// What a command for another user's program finds in its environment besides.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const KEPT_VARIABLES: [&str; 4] = ["TERM", "LANG", "LC_ALL", "TZ"];
const SIGNAL_MAX: i32 = 64;

/// A command, and how long it may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnRestart {
    /// For `/bin/sh -c`.
    pub command: OsString,
    /// It is ended then.
    pub timeout: Duration,
}

impl OnRestart {
    /// Runs the command for the program whose first process `image` describes and `lasting` belongs to.
    ///
    /// # Errors
    /// When it cannot be started, fails, or takes too long.
    pub fn run(&self, image: &ProcessImage, lasting: Option<&Lasting>, place: &Place) -> Result<()> {
        let failed = |source: io::Error| Error::io("run", "the command of --on-restart", source);
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&self.command).stdin(Stdio::null());
        for connect in [Command::stdout, Command::stderr] {
            connect(&mut command, io::stderr().as_fd().try_clone_to_owned().map_err(failed)?);
        }
        let user = User::of(image, place);
        if user.is_another() {
            let kept = KEPT_VARIABLES.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
            command.env_clear().env("PATH", PATH).envs(kept).current_dir("/");
        }
        command.env_remove(ENV_COPY).env(ENV_PID, image.pid.to_string());
        if let Some(Lasting { generation, job, copy }) = lasting {
            command.env(ENV_JOB, format!("{job:016x}")).env(ENV_GENERATION, generation.to_string());
            command.envs(copy.iter().map(|id| (ENV_COPY, id)));
        }
        // SAFETY: between fork and exec nothing but system calls is made, with what has been allocated before.
        unsafe { command.pre_exec(move || user.become_it()) };
        let mut child = command.spawn().map_err(failed)?;
        let pid = child.id().cast_signed();
        let in_time =
            pidfd_open(pid).and_then(|pidfd| ends_within(&pidfd, self.timeout).map_err(|errno| failed(errno.into())));
        if in_time.as_ref().is_ok_and(|ended| *ended) {
            let status = child.wait().map_err(failed)?;
            return match (status.success(), status.signal()) {
                (true, _) => Ok(()),
                (false, Some(signal)) => Err(self.refused(format!("signal {signal} ended it"))),
                (false, None) => Err(self.refused(format!("it ended with exit code {}", status.code().unwrap_or(-1)))),
            };
        }
        // It leads a group, which is all that it has started, as far as that has not left it.
        let _ = kill(Pid::from_raw(-pid), Signal::SIGKILL);
        child.wait().map_err(failed)?;
        in_time?;
        Err(self.refused(format!("it took longer than {:?}, and was ended", self.timeout)))
    }

    fn refused(&self, why: String) -> Error {
        Error::environment(
            format!("the command of --on-restart (`{}`)", crate::units::printable(&self.command.to_string_lossy())),
            why,
            "the program was not let run, and its checkpoint is as before: mend the command, or restart without it",
        )
    }
}

/// Who the command runs as.
#[derive(Debug)]
struct User {
    user: u32,
    group: u32,
    /// None where they cannot be changed.
    groups: Option<Vec<libc::gid_t>>,
    /// Capabilities that may be gained by an execution.
    bounding: u64,
    no_new_privs: bool,
}

impl User {
    /// The one of the program, by what it may do now rather than by what it could become.
    fn of(image: &ProcessImage, place: &Place) -> User {
        let ([_, user, ..], [_, group, ..]) = (image.uids, image.gids);
        let groups = (geteuid().is_root() && !place.is_own_user_namespace()).then(|| image.groups.clone());
        let capabilities = &image.capabilities;
        // What root executes has all that this set has.
        let bounding = if user == 0 { capabilities.bounding & capabilities.permitted } else { capabilities.bounding };
        User { user, group, groups, bounding, no_new_privs: image.no_new_privs }
    }

    fn is_another(&self) -> bool {
        self.user != geteuid().as_raw()
    }

    /// In the child, before it executes the shell. Only system calls.
    fn become_it(&self) -> io::Result<()> {
        // Its own, and so no terminal that it could type into.
        setsid()?;
        close_inherited_on_exec()?;
        forget_signals()?;
        for capability in (0..u64::BITS).filter(|bit| self.bounding & (1 << bit) == 0) {
            // SAFETY: this prctl takes numbers. Who may not, or asks for one that does not exist, has nothing to lose by it: capabilities are
            // given up below.
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        }
        self.change_user()?;
        if self.user != 0 {
            give_up_capabilities()?;
        }
        // SAFETY: these prctls take numbers. The first comes after the change of user, which would undo it.
        unsafe {
            Errno::result(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
            if self.no_new_privs {
                Errno::result(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
            }
        }
        Ok(())
    }

    /// By bare calls: this process has one thread, and the C library's functions would look for others.
    fn change_user(&self) -> io::Result<()> {
        if let Some(groups) = &self.groups {
            // SAFETY: the list stays while the call reads it.
            Errno::result(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })?;
        }
        let is_own = (self.user, self.group) == (geteuid().as_raw(), getegid().as_raw());
        if !is_own {
            let (user, group) = (self.user, self.group);
            // SAFETY: these take numbers.
            Errno::result(unsafe { libc::syscall(libc::SYS_setresgid, group, group, group) })?;
            // SAFETY: as above.
            Errno::result(unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) })?;
        }
        Ok(())
    }
}

/// The default action for all signals, and none blocked. By bare calls: the C library's leave two signals out.
fn forget_signals() -> io::Result<()> {
    // Handler, flags, restorer and mask, as the kernel has them: all zero is the default action.
    let (default, none, bytes) = ([0_u64; 4], 0_u64, size_of::<u64>());
    for signal in 1..=SIGNAL_MAX {
        // SAFETY: no handler. Of SIGKILL and SIGSTOP the action cannot be changed.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null_mut::<u64>(), bytes) };
    }
    let (set, before) = (libc::SIG_SETMASK, std::ptr::null_mut::<u64>());
    // SAFETY: reads one set, of the length given.
    let done = unsafe { libc::syscall(libc::SYS_rt_sigprocmask, set, &raw const none, before, bytes) };
    Ok(Errno::result(done).map(drop)?)
}

fn give_up_capabilities() -> io::Result<()> {
    let clear = libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong;
    // SAFETY: a prctl that takes numbers, which an old kernel does not know.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, clear, 0, 0, 0) };
    Ok(OwnCapabilities::default().apply()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::sample_process;

    fn run(command: &str) -> Result<()> {
        let own = task_ids();
        let image = ProcessImage { uids: [own.0; 4], gids: [own.1; 4], ..sample_process() };
        let on_restart = OnRestart { command: command.into(), timeout: Duration::from_secs(10) };
        let lasting = Lasting { generation: 3, job: 0xab, copy: Some("one".to_owned()) };
        on_restart.run(&image, Some(&lasting), &Place::AsStarted)
    }

    fn task_ids() -> (u32, u32) {
        (geteuid().as_raw(), getegid().as_raw())
    }

    #[test]
    fn the_environment_says_which_program_it_is() {
        run("test $CKPT_COPY,$CKPT_PID,$CKPT_JOB,$CKPT_GENERATION = one,300000,00000000000000ab,3").unwrap();
    }

    #[test]
    fn nothing_of_ours_is_inherited() {
        let _kept = nix::unistd::dup(io::stdin()).unwrap();
        run("test \"$(cd /proc/self/fd && echo *)\" = '0 1 2 3' || test \"$(ls /proc/$$/fd | tr -d '\\n')\" = 012")
            .unwrap();
        run("grep -qx 'SigBlk:\t0000000000000000' /proc/self/status").unwrap();
        run("grep -qx 'SigIgn:\t0000000000000000' /proc/self/status").unwrap();
        run("test ! -t 0 && read -r line; test $? != 0").unwrap();
    }

    #[test]
    fn a_failure_says_how() {
        let code = run("exit 7").unwrap_err().to_string();
        assert!(code.contains("`exit 7`") && code.contains("exit code 7") && code.contains("not let run"), "{code}");
        let signal = run("kill -9 $$").unwrap_err().to_string();
        assert!(signal.contains("signal 9"), "{signal}");
    }

    #[test]
    fn what_takes_too_long_is_ended_with_all_of_its_group() {
        let (image, (user, group)) = (sample_process(), task_ids());
        let image = ProcessImage { uids: [user; 4], gids: [group; 4], ..image };
        let on_restart = OnRestart { command: "sleep 1000 | cat".into(), timeout: Duration::from_millis(200) };
        let message = on_restart.run(&image, None, &Place::AsStarted).unwrap_err().to_string();
        assert!(message.contains("longer than 200ms"), "{message}");
    }
}

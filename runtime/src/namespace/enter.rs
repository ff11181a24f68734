//! Going to a program in a pid namespace below ours, to work on it from inside.
//!
//! `ckpt` is executed again in there. Nothing else could do it: the pids of all that it looks at, starts and names have to
//! be those of the inside.

use std::ffi::{CString, OsString, c_char};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl::{set_dumpable, set_pdeathsig};
use nix::sys::signal::Signal;
use nix::unistd::{geteuid, setgroups, setsid};

use super::relay;
use crate::descriptor;
use crate::descriptor::pidfd_open;
use crate::error::{Error, Result};
use crate::proc::task;

/// How long ckpt may say nothing in another user's namespaces: while it waits for an agent it says so every second.
const SILENCE: Duration = Duration::from_secs(120);
/// What it finds in its environment there.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// And that its output is read by another ckpt, which passes over empty lines.
const RELAYED: &str = "CKPT_RELAYED=yes";

/// A program in a pid namespace below ours.
#[derive(Debug)]
pub struct Inside {
    outer: i32,
    /// Its pid in there.
    pub pid: i32,
    /// User and group, where the user namespace is another one.
    owner: Option<(u32, u32)>,
    namespaces: CloneFlags,
}

/// Whether process `pid` is in a pid namespace below ours.
pub fn is_below_ours(pid: i32) -> bool {
    task::ids_in_namespaces(pid).is_ok_and(|ids| ids.len() > 1)
}

impl Inside {
    /// Process `pid`, if it is in a namespace as `ckpt restart` makes them: with our own files in it. A container is not:
    /// its names mean something else.
    pub fn of(pid: i32) -> Option<Inside> {
        let ids = task::ids_in_namespaces(pid).ok()?;
        let inner = *ids.last().filter(|_| ids.len() > 1)?;
        let is_ours = |name: &str| {
            let file = format!("ns/{name}");
            Some(task::link(pid, &file).ok()? == task::link(std::process::id() as i32, &file).ok()?)
        };
        let same_file = |path: &Path| {
            let seen_inside = Path::new("/proc").join(pid.to_string()).join("root").join(path.strip_prefix("/").ok()?);
            let (own, inside) = (path.metadata().ok()?, seen_inside.metadata().ok()?);
            Some((own.dev(), own.ino()) == (inside.dev(), inside.ino()))
        };
        if !is_ours("ipc")? || !same_file(&std::env::current_exe().ok()?)? {
            return None;
        }
        let mut namespaces = CloneFlags::CLONE_NEWPID;
        namespaces.set(CloneFlags::CLONE_NEWNS, !is_ours("mnt")?);
        namespaces.set(CloneFlags::CLONE_NEWUSER, !is_ours("user")?);
        let owner = match namespaces.contains(CloneFlags::CLONE_NEWUSER) && geteuid().is_root() {
            true => Some(owner_of(pid)?),
            false => None,
        };
        Some(Inside { outer: pid, pid: inner, owner, namespaces })
    }
}

fn owner_of(pid: i32) -> Option<(u32, u32)> {
    let status = task::text(pid, "status").ok()?;
    let effective = |name| task::status_value(&status, name)?.split_whitespace().nth(1)?.parse().ok();
    Some((effective("Uid")?, effective("Gid")?))
}

/// Executes `ckpt ARGUMENTS` where `program` is, as its user if we are root, and gives the exit code. `None` if we may not
/// enter. This process has entered by half afterwards: all it can do is end.
///
/// What is executed was opened before, so that nobody in there has put it in its place. In another user's namespaces it has
/// nothing of ours: no terminal, no descriptor, no variable; what it says is passed on, without what a terminal obeys, and it is
/// given up if it says nothing for longer than `pause` and some time.
///
/// This process must have one thread.
pub fn run_inside(
    program: &Inside,
    arguments: impl IntoIterator<Item = OsString>,
    pause: Duration,
) -> Result<Option<u8>> {
    let place = || PathBuf::from(format!("the namespaces of process {}", program.outer));
    let failed = |source: Errno| Error::io("enter", place(), source);
    let executable = File::open("/proc/self/exe").map_err(|source| Error::io("open", "/proc/self/exe", source))?;
    let handle = pidfd_open(program.outer)?;
    if program.owner.is_some() {
        // Whoever rules in there may look into processes that have entered by half.
        set_dumpable(false).map_err(failed)?;
        // In there it is forbidden.
        setgroups(&[]).map_err(failed)?;
    }
    match setns(handle.as_fd(), program.namespaces) {
        Err(Errno::EPERM) => return Ok(None),
        Err(Errno::ESRCH) => return Err(Error::ProgramGone { pid: program.outer }),
        entered => entered.map_err(failed)?,
    }
    let launch = Launch::new(executable, arguments, program.owner.is_some());
    // It is not found by this name: it executes itself before.
    let mut command = Command::new("ckpt");
    if let Some((uid, gid)) = program.owner {
        command.uid(uid).gid(gid).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    // SAFETY: between fork and exec nothing but system calls is made, of what has been allocated before.
    unsafe { command.pre_exec(move || launch.execute()) };
    let started = |source| Error::io("start ckpt in", place(), source);
    let mut child = command.spawn().map_err(started)?;
    let is_heard = relay::to_the_end(&mut child, program.owner.map_or(0, |(user, _)| user), SILENCE + pause)?;
    if !is_heard {
        let _ = child.kill();
        let what = format!("the checkpoint in {}", place().display());
        return Err(Error::environment(what, "ckpt says nothing there", "see with ckpt list whether it is sealed"));
    }
    let status = child.wait().map_err(started)?;
    Ok(Some(status.code().or(status.signal().map(|signal| 128 + signal)).map_or(1, |code| code as u8)))
}

/// This command once more, by a descriptor.
struct Launch {
    executable: File,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    pointers: [Vec<*const c_char>; 2],
    is_other_user: bool,
}

// SAFETY: the pointers lead into the strings beside them, which nobody changes.
unsafe impl Send for Launch {}
// SAFETY: as above.
unsafe impl Sync for Launch {}

impl Launch {
    fn new(executable: File, arguments: impl IntoIterator<Item = OsString>, is_other_user: bool) -> Launch {
        let c_string = |text: OsString| CString::new(text.into_vec()).unwrap_or_default();
        let arguments: Vec<CString> = [OsString::from("ckpt")].into_iter().chain(arguments).map(c_string).collect();
        let entry = |(mut name, value): (OsString, OsString)| {
            name.push("=");
            name.push(value);
            name
        };
        let environment: Vec<CString> = match is_other_user {
            true => [PATH, RELAYED].map(OsString::from).into_iter().map(c_string).collect(),
            false => std::env::vars_os().map(entry).map(c_string).collect(),
        };
        let list = |texts: &[CString]| {
            texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect::<Vec<*const c_char>>()
        };
        let pointers = [list(&arguments), list(&environment)];
        Launch { executable, arguments, environment, pointers, is_other_user }
    }

    /// Only returns if that is not possible.
    fn execute(&self) -> std::io::Result<()> {
        debug_assert!(self.pointers[0].len() > self.arguments.len() && self.pointers[1].len() > self.environment.len());
        set_pdeathsig(Signal::SIGTERM)?;
        if self.is_other_user {
            setsid()?;
            descriptor::close_inherited_on_exec()?;
        }
        let (executable, [arguments, environment]) = (self.executable.as_raw_fd(), &self.pointers);
        // SAFETY: an empty path, and two lists of strings that end with a null.
        unsafe {
            libc::syscall(
                libc::SYS_execveat,
                executable,
                c"".as_ptr(),
                arguments.as_ptr(),
                environment.as_ptr(),
                libc::AT_EMPTY_PATH,
            )
        };
        Err(std::io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_our_own_namespace_is_nowhere_else() {
        let own = std::process::id() as i32;
        assert!(!is_below_ours(own) && Inside::of(own).is_none());
        assert!(!is_below_ours(i32::MAX), "nor is one that does not exist");
    }
}

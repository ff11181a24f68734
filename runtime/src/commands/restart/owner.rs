//! Restarting from another user's store, as that user.
//!
//! Root that trusts a store's owner lets the owner decide what runs, and no more: before anything of the store is opened, this command
//! executes itself again as the owner, with nothing of root's but the one capability that gives a program its ids. What the
//! image says of other users, groups and capabilities is refused ([`refuse_more`]).

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, absolute};

use ckpt_wire::ENV_KEY;
use nix::errno::Errno;
use nix::unistd::{Gid, fexecve, geteuid, getgroups};

use super::super::store_owner::StoreOwner;
use super::arguments::{AS_OWNER, Arguments, ENV_ON_RESTART};
use crate::audit;
use crate::capabilities::{self, CAP_CHECKPOINT_RESTORE, OwnCapabilities};
use crate::error::{Error, Result};
use crate::image::{JobImage, ProcessImage};

const TRUST_OPTION: &str = "--trust-owner";
/// Variables that say how to write on the user's terminal, and the command that is to run as the owner, too.
const KEPT_VARIABLES: [&str; 5] = ["TERM", "LANG", "LC_ALL", "TZ", ENV_ON_RESTART];
const PATH: &str = "PATH=/usr/local/bin:/usr/bin:/bin";

/// If we are root, and the store is a directory of another user who is trusted: executes this command again as that user.
///
/// # Errors
/// When that user cannot be become. Returns otherwise only if there is nothing to do.
pub fn become_owner(arguments: &Arguments) -> Result<()> {
    if !arguments.trust_owner || !geteuid().is_root() {
        return Ok(());
    }
    let Ok(found) = std::fs::metadata(&arguments.dir) else { return Ok(()) };
    if !found.is_dir() || found.uid() == 0 {
        return Ok(());
    }
    audit::of_store("trust-owner", &arguments.dir, |_| refuse_terminal(arguments))?;
    let failed = |source: io::Error| Error::io("become the owner of", &arguments.dir, source);
    let executable = File::open("/proc/self/exe").map_err(failed)?;
    let owner = StoreOwner::of(&found).map_err(failed)?;
    let environment = environment_of(&owner).map_err(failed)?;
    take_over(&owner).map_err(failed)?;
    let line = command_line().map_err(failed)?;
    // SAFETY: takes numbers; this process has one thread, which closes nothing that it uses: it is executed from one of them.
    unsafe { libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) };
    match fexecve(&executable, &line, &environment) {
        Ok(never) => match never {},
        Err(errno) => Err(failed(errno.into())),
    }
}

/// Refuses to hand root's terminal to a program of another user where a program can type into its terminal (TIOCSTI).
fn refuse_terminal(arguments: &Arguments) -> Result<()> {
    let is_forbidden = std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").is_ok_and(|text| text.trim() == "0");
    let has_terminal = io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal();
    if is_forbidden || !has_terminal || arguments.detach || arguments.stdio.is_some() {
        return Ok(());
    }
    Err(Error::environment(
        "restart a program of another user on your terminal",
        "it could type into the terminal what your shell executes (dev.tty.legacy_tiocsti is not 0)",
        "give --detach or --stdio FILE, or restart it as that user",
    ))
}

/// The environment of a restart as `owner`.
fn environment_of(owner: &StoreOwner) -> io::Result<Vec<CString>> {
    let mut environment = vec![CString::new(PATH)?];
    for name in KEPT_VARIABLES {
        if let Some(value) = std::env::var_os(name) {
            environment.push(CString::new([name.as_bytes(), b"=", &value.into_vec()].concat())?);
        }
    }
    // The name of a file gives nothing away; a command may.
    if let Some(file) = std::env::var_os(ENV_KEY).filter(|value| !value.as_bytes().starts_with(b"command:")) {
        environment.push(CString::new(
            [ENV_KEY.as_bytes(), b"=", &absolute(Path::new(&file))?.into_os_string().into_vec()].concat(),
        )?);
    }
    if let Some((name, home)) = &owner.account {
        for (variable, value) in [("USER=", name), ("LOGNAME=", name), ("HOME=", home)] {
            environment.push(CString::new([variable.as_bytes(), value.as_bytes()].concat())?);
        }
    }
    Ok(environment)
}

/// Becomes `owner`, and gives up all that is root's but the right to choose ids.
fn take_over(owner: &StoreOwner) -> io::Result<()> {
    // SAFETY: this prctl takes numbers only.
    Errno::result(unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) })?;
    owner.become_user()?;
    keep_only_ids()
}

/// Keeps the capability to choose ids, over the next execution too, if it is there, and no other.
fn keep_only_ids() -> io::Result<()> {
    let kept = OwnCapabilities::read()?.permitted() & 1 << CAP_CHECKPOINT_RESTORE;
    OwnCapabilities::all(kept).apply()?;
    if kept != 0 {
        capabilities::raise_ambient(CAP_CHECKPOINT_RESTORE)?;
    }
    Ok(())
}

/// Our own, for the owner.
fn command_line() -> io::Result<Vec<CString>> {
    let arguments = std::env::args_os().filter(|argument| argument != TRUST_OPTION);
    let line = arguments.chain([OsString::from(format!("--{AS_OWNER}"))]);
    line.map(|argument| CString::new(argument.into_vec()).map_err(io::Error::from)).collect()
}

/// What we start does not have our capability. To be called by the owner, first of all.
pub fn keep_rights_to_ourselves() {
    let clear = libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong;
    // SAFETY: this prctl takes numbers only; a kernel that does not know it has no such capabilities.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, clear, 0, 0, 0) };
}

/// Refuses a job with users, groups or capabilities that the owner of the store does not have.
pub fn refuse_more(job: &JobImage, dir: &Path) -> Result<()> {
    let user = geteuid().as_raw();
    let mut groups: Vec<u32> = getgroups().unwrap_or_default().into_iter().map(Gid::as_raw).collect();
    groups.push(nix::unistd::getegid().as_raw());
    job.processes.iter().try_for_each(|process| match more_than(process, user, &groups) {
        None => Ok(()),
        Some(more) => Err(Error::environment(
            format!("restart from {}, which belongs to user {user}", dir.display()),
            format!("process {} of the checkpoint has {more}, which that user does not", process.pid),
            "only what the owner of a store could have run is restarted from it",
        )),
    })
}

/// What a process has beyond `user` and `groups`.
fn more_than(process: &ProcessImage, user: u32, groups: &[u32]) -> Option<String> {
    let capabilities = process.capabilities;
    let held = capabilities.permitted | capabilities.effective | capabilities.inheritable | capabilities.ambient;
    let foreign_group = process.gids.iter().chain(&process.groups).find(|group| !groups.contains(group));
    match (process.uids.iter().find(|&&uid| uid != user), foreign_group) {
        (Some(other), _) => Some(format!("user id {other}")),
        (None, Some(group)) => Some(format!("group id {group}")),
        (None, None) if held != 0 => Some(format!("capabilities (mask {held:#x})")),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Capabilities;

    /// A process without rights: only what the test reads of it is of use.
    fn process() -> ProcessImage {
        let machine = crate::restore::sample_process();
        ProcessImage { uids: [5; 4], gids: [6; 4], groups: vec![7], capabilities: Capabilities::default(), ..machine }
    }

    #[test]
    fn what_the_owner_does_not_have_is_named() {
        let more = |change: &dyn Fn(&mut ProcessImage)| {
            let mut process = process();
            change(&mut process);
            more_than(&process, 5, &[6, 7])
        };
        assert_eq!(more(&|_| {}), None);
        assert_eq!(more(&|process| process.uids[3] = 0), Some("user id 0".into()));
        assert_eq!(more(&|process| process.gids[2] = 0), Some("group id 0".into()));
        assert_eq!(more(&|process| process.groups.push(42)), Some("group id 42".into()));
        for set in [0, 1, 2, 3] {
            let more = more(&|process| {
                let sets = &mut process.capabilities;
                *[&mut sets.permitted, &mut sets.effective, &mut sets.inheritable, &mut sets.ambient][set] = 2;
            });
            assert_eq!(more, Some("capabilities (mask 0x2)".into()), "set {set}");
        }
    }
}

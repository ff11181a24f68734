//! May this user rebuild it, and are its process ids free.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::{Uid, getegid, geteuid};

use crate::error::{Error, Result};
use crate::image::{Host, ProcessImage};
use crate::namespace;
use crate::proc::task::{self, FIRST_PROCESS, stat_number};
use crate::restore::ascending::Ids;
use crate::restore::clone_call::{REAPING_TIMEOUT, may_not_choose};
use crate::restore::credentials;
use crate::restore::place::Place;

/// How long one that has been killed may take to give back what it had.
const DYING_TIMEOUT: Duration = Duration::from_secs(20);

/// Checks users, groups and process ids; `then` is the host of the capture, `now` this one.
pub fn check(image: &ProcessImage, (place, ids): (&Place, Ids), then: &Host, now: &Host) -> Result<()> {
    check_namespace(image, then, now)?;
    let only_one_user = place.is_own_user_namespace();
    check_user(image, geteuid(), getegid().as_raw(), only_one_user)?;
    credentials::check(image, place)?;
    if ids == Ids::Chosen && !namespace::may_choose_ids() {
        return Err(may_not_choose(image.pid));
    }
    let ended = image.family.ended_children.iter().map(|ended| ended.pid);
    let threads = image.threads.iter().map(|thread| thread.tid);
    // Of the first process of a container our own.
    threads.chain(ended).filter(|&id| id != FIRST_PROCESS).try_for_each(check_free)
}

/// What was root in a user namespace must not be root of the machine.
fn check_namespace(image: &ProcessImage, then: &Host, now: &Host) -> Result<()> {
    if !then.is_in_user_namespace() || now.is_in_user_namespace() {
        return Ok(());
    }
    let changed = image.uids.iter().find(|&&uid| !then.is_same_outside(uid));
    let why = match (changed, image.capabilities.permitted) {
        (None, 0) => return Ok(()),
        (Some(uid), _) => {
            format!("process {} was user {uid} of a user namespace, which is another user here", image.pid)
        }
        (None, held) => format!("process {} had capabilities in a user namespace (mask {held:#x})", image.pid),
    };
    Err(Error::environment("restart", why, "restart it in such a namespace (unshare --user)"))
}

fn check_user(image: &ProcessImage, user: Uid, group: u32, only_one_user: bool) -> Result<()> {
    if user.is_root() && !only_one_user {
        return Ok(());
    }
    let own = image.uids.iter().all(|&uid| uid == user.as_raw()) && image.gids.iter().all(|&gid| gid == group);
    if own {
        return Ok(());
    }
    let what = format!("restart a program of user {} and group {}", image.uids[0], image.gids[0]);
    let why = format!("you are user {user} and group {group}");
    Err(Error::environment(what, why, "restart it as the same user, or as root"))
}

/// Checks that nobody has the id `tid`.
pub fn check_free(tid: i32) -> Result<()> {
    let begun = Instant::now();
    loop {
        let directory = Path::new("/proc").join(tid.to_string());
        if !directory.exists() {
            return Ok(());
        }
        let ended = has_ended(&directory);
        let patience = if ended { REAPING_TIMEOUT } else { DYING_TIMEOUT };
        if !(ended || is_dying(tid)) || begun.elapsed() > patience {
            let name = fs::read_to_string(directory.join("comm")).unwrap_or_default();
            return Err(in_use(tid, name.trim_end(), ended));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether it is a zombie, or disappears just now.
fn has_ended(directory: &Path) -> bool {
    let status = fs::read_to_string(directory.join("status")).unwrap_or_default();
    status.lines().find(|line| line.starts_with("State:")).is_none_or(|state| state.contains("zombie"))
}

/// Whether it has been killed, and gives back what it had: that of a large program takes a while.
fn is_dying(tid: i32) -> bool {
    /// In the flags of `/proc/PID/stat`.
    const PF_EXITING: u64 = 0x4;
    let is_exiting = || task::stat_fields(tid, "stat").is_ok_and(|stat| stat_number(&stat, 9) & PF_EXITING != 0);
    let status = task::text(tid, "status").unwrap_or_default();
    let is_killed = |pending: &str| {
        let signals = task::status_value(&status, pending).and_then(|text| u64::from_str_radix(text, 16).ok());
        signals.is_some_and(|signals| signals & 1 << (libc::SIGKILL - 1) != 0)
    };
    is_killed("SigPnd") || is_killed("ShdPnd") || is_exiting()
}

fn in_use(tid: i32, name: &str, ended: bool) -> Error {
    let advice = match ended {
        true => "it has ended; restart once its parent has noticed",
        false if tid == std::process::id() as i32 => {
            "that is this command; give it again, in a container as the first process of a fresh one"
        }
        false => "wait until it ends, or end it; in a container, restart as the first process of a fresh one",
    };
    Error::ids_not_to_be_had("restart", format!("pid {tid} is in use by `{name}`"), advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::host::Machine;
    use crate::restore::sample;

    #[test]
    fn a_pid_in_use_is_refused_with_its_holder() {
        let message = check_free(1).unwrap_err().to_string();
        let holder = fs::read_to_string("/proc/1/comm").unwrap();
        assert!(message.contains("pid 1 is in use") && message.contains(holder.trim_end()), "{message}");
        check_free(i32::MAX).unwrap();
    }

    #[test]
    fn a_pid_whose_process_has_just_ended_is_waited_for() {
        let mut child = std::process::Command::new("/bin/true").stdout(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id() as i32;
        // End of file: it is a zombie now, or about to become one.
        std::io::copy(&mut child.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
        while !has_ended(&Path::new("/proc").join(pid.to_string())) {
            thread::yield_now();
        }
        let parent = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            child.wait().unwrap();
        });
        check_free(pid).unwrap();
        parent.join().unwrap();
    }

    #[test]
    fn root_of_a_namespace_is_not_made_root_of_the_machine() {
        let machine = Machine::this().unwrap();
        let mut image = sample::process(&machine);
        image.capabilities.permitted = 0;
        let host = |user_map: &[[u32; 3]]| Host { user_map: user_map.to_vec(), ..machine.host.clone() };
        let (machine_itself, namespace) = (host(&[[0, 0, u32::MAX]]), host(&[[0, 1000, 1], [7, 7, 1]]));
        let message = check_namespace(&image, &namespace, &machine_itself).unwrap_err().to_string();
        assert!(message.contains("was user 0 of a user namespace"), "{message}");
        check_namespace(&image, &namespace, &namespace).unwrap();
        check_namespace(&image, &machine_itself, &machine_itself).unwrap();
        check_namespace(&image, &host(&[]), &machine_itself).unwrap();
        image.uids = [7; 4];
        check_namespace(&image, &namespace, &machine_itself).unwrap();
        image.capabilities.permitted = 1;
        check_namespace(&image, &namespace, &machine_itself).unwrap_err();
    }

    #[test]
    fn only_root_restores_somebody_else() {
        let mut image = sample::process(&Machine::this().unwrap());
        image.uids = [1000; 4];
        image.gids = [1000; 4];
        check_user(&image, Uid::from_raw(0), 0, false).unwrap();
        check_user(&image, Uid::from_raw(0), 0, true).unwrap_err();
        check_user(&image, Uid::from_raw(1000), 1000, false).unwrap();
        check_user(&image, Uid::from_raw(1001), 1000, false).unwrap_err();
        image.uids[2] = 0;
        check_user(&image, Uid::from_raw(1000), 1000, false).unwrap_err();
    }
}

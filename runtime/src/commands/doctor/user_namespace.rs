//! A user and a pid namespace: where an ordinary user may choose pids. Restart does not use them yet, so the
//! answer is for information.

use nix::sched::{CloneFlags, unshare};

use super::finding::{Finding, State, setting};
use super::set_tid;
use super::trial::{Failure, in_child};

const PROBE: &str = "user namespace";
const TRIED: &str = "unshare user, pid and mount namespaces in a child, map the user, choose a pid there";
const ADVICE: &str = "allow them: sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1, \
                      kernel.apparmor_restrict_unprivileged_userns=0; this version restarts without them";

/// The probe.
pub fn probe() -> Finding {
    let outcome = in_child(|| {
        enter()?;
        // The first child is pid 1 of the new pid namespace; without it nobody can be born there.
        in_child(set_tid::choose_a_pid)?;
        let limit = setting("/proc/sys/user/max_user_namespaces").unwrap_or_else(|| "unknown".to_owned());
        Ok(format!("works (at most {limit})"))
    });
    Finding::of(PROBE, TRIED, outcome, State::Degraded, ADVICE)
}

/// Moves this process into namespaces of its own, with its user and group ids unchanged.
fn enter() -> Result<(), Failure> {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS)
        .map_err(|errno| Failure::call("unshare", errno))?;
    for (path, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{uid} {uid} 1")),
        ("/proc/self/gid_map", format!("{gid} {gid} 1")),
    ] {
        std::fs::write(path, text).map_err(|error| Failure::wrong(format!("write {path}: {error}")))?;
    }
    Ok(())
}

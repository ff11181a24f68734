//! A user and a pid namespace: where an ordinary user may choose pids.

use nix::sched::{CloneFlags, unshare};

use super::finding::{Finding, State, setting};
use super::trial::{Child, Failure, Outcome, in_child};

const PROBE: &str = "user namespace";
const TRIED: &str = "unshare user, pid and mount namespaces in a child, map the user, start pid 1";
const ADVICE: &str = "allow them: sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1, \
                      kernel.apparmor_restrict_unprivileged_userns=0; only needed where set_tid says no";

/// The probe.
pub fn probe() -> Finding {
    Finding::of(PROBE, TRIED, in_child(enter), State::Degraded, ADVICE)
}

fn enter() -> Outcome {
    let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS)
        .map_err(|errno| Failure::call("unshare", errno))?;
    for (path, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{uid} {uid} 1")),
        ("/proc/self/gid_map", format!("{gid} {gid} 1")),
    ] {
        std::fs::write(path, text).map_err(|error| Failure::wrong(format!("write {path}: {error}")))?;
    }
    // The first child is pid 1 of the new pid namespace; without it nobody can be born there.
    drop(Child::idle()?);
    let limit = setting("/proc/sys/user/max_user_namespaces").unwrap_or_else(|| "unknown".to_owned());
    Ok(format!("works (at most {limit})"))
}

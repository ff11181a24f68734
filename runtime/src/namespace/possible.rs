//! Whether namespaces can be made here, found out without a process: one that is made to try takes an id that the program may need.

use std::fs;

use nix::sched::{CloneFlags, unshare};

use super::Kind;

/// The inode of the pid namespace that the kernel starts with: `PROC_PID_INIT_INO`.
const INITIAL_NAMESPACE: &str = "pid:[4026531836]";

/// Whether our pid namespace is the machine's own.
pub fn is_initial() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == INITIAL_NAMESPACE)
}

/// Whether it is worth trying to make a pid namespace with a /proc of its own. In a container the kernel refuses that /proc to a user
/// namespace, because parts of the container's own are covered.
pub fn may_be_made() -> bool {
    if unshare(CloneFlags::empty()).is_err() {
        return false;
    }
    let needs_user_namespace = Kind::for_this_process().is_ok_and(|kind| kind.user);
    !(needs_user_namespace && is_proc_covered(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()))
}

/// Whether something is mounted below /proc, but for what automounters put in a directory that is empty.
fn is_proc_covered(mounts: &str) -> bool {
    const EMPTY: &str = "/proc/sys/fs/binfmt_misc";
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    places.filter(|place| place.starts_with("/proc/")).any(|place| place != EMPTY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_covers_parts_of_proc() {
        let machine = "21 26 0:20 / /proc rw,nosuid - proc proc rw\n\
                       31 21 0:28 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n";
        assert!(!is_proc_covered(machine));
        assert!(is_proc_covered(&format!("{machine}40 21 0:5 /null /proc/kcore rw - devtmpfs devtmpfs rw\n")));
    }
}

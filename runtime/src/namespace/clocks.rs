//! A time namespace for a program whose clocks are to go on where those of this machine do not.
//!
//! `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` of the processes in it are those of the machine plus something that is
//! settled before the first process is born there. Who makes the namespace is not in it, only the children are.

use std::fs;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;

use crate::error::{Error, Result};
use crate::image::ClockOffsets;
use crate::proc::clocks;

/// `CLONE_NEWTIME`, for which nix has no name.
const NEW_TIME: CloneFlags = CloneFlags::from_bits_retain(libc::CLONE_NEWTIME);
const LIMIT: &str = "user.max_time_namespaces";

/// Has the clocks of all further child processes of this *thread* be `offsets` ahead of the machine's.
///
/// # Errors
/// What forbids it, by its name.
pub fn be_ahead_in_children_of_this_thread(offsets: ClockOffsets) -> Result<()> {
    unshare(NEW_TIME).map_err(refused)?;
    // That of the process is its main thread's.
    let path = format!("/proc/{}/timens_offsets", gettid());
    fs::write(&path, clocks::text(offsets)).map_err(|source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => refused(Errno::EPERM),
        _ => Error::io("write", path, source),
    })
}

/// Why there is no time namespace where ids cannot be chosen: whoever may make one may choose them.
pub fn no_clocks_without_choice() -> Error {
    refused(Errno::EPERM)
}

fn refused(errno: Errno) -> Error {
    let limit = fs::read_to_string(format!("/proc/sys/{}", LIMIT.replace('.', "/")));
    refused_under(errno, limit.ok().and_then(|text| text.trim().parse().ok()))
}

fn refused_under(errno: Errno, limit: Option<u64>) -> Error {
    let (why, advice) = match errno {
        Errno::EINVAL => (
            "this kernel has none (Linux before 5.6, or without CONFIG_TIME_NS)".to_owned(),
            "boot one that has, as those of the distributions do".to_owned(),
        ),
        Errno::ENOSPC => (
            match limit {
                Some(0) => format!("{LIMIT} is 0"),
                // A user namespace has a limit of its own, and that of those around it counts too.
                _ => format!("there are as many as {LIMIT} allows, here or around this user namespace"),
            },
            format!("root allows it with sysctl {LIMIT}=1000"),
        ),
        Errno::EPERM => (
            "it needs CAP_SYS_ADMIN and CAP_SYS_TIME, and no container or security module that forbids it".to_owned(),
            "restart as root, or with --namespace always, outside of containers".to_owned(),
        ),
        errno => (errno.desc().to_owned(), "see time_namespaces(7) for the cause".to_owned()),
    };
    Error::environment("make a time namespace for the program", why, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_forbids_a_time_namespace_is_named_with_what_to_do() {
        let message = |errno, limit| refused_under(errno, limit).to_string();
        assert!(message(Errno::ENOSPC, Some(0)).contains("user.max_time_namespaces is 0; root allows it with sysctl"));
        let around = message(Errno::ENOSPC, Some(9));
        assert!(around.contains("as many as user.max_time_namespaces allows, here or around"), "{around}");
        assert!(message(Errno::EPERM, Some(9)).contains("--namespace always"));
        assert!(message(Errno::EINVAL, None).contains("CONFIG_TIME_NS"));
        assert!(message(Errno::ENOMEM, None).contains(Errno::ENOMEM.desc()));
    }
}

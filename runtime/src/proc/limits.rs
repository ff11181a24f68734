//! `/proc/PID/limits`: the resource limits of a process, which are readable there also when it is another user's.

use super::task;
use crate::error::{Error, Result};

/// Where the two columns begin, and their width.
const SOFT: usize = 26;
const HARD: usize = 47;
const WIDTH: usize = 20;
/// What stands there for no limit.
const UNLIMITED: &str = "unlimited";

/// Soft and hard limits of process `pid`, in the order of their numbers (`RLIMIT_*`).
pub fn limits(pid: i32) -> Result<Vec<(u64, u64)>> {
    let text = task::text(pid, "limits")?;
    let failed = || Error::io("understand", format!("/proc/{pid}/limits"), std::io::ErrorKind::InvalidData);
    let both = |line: &str| column(line, SOFT).zip(column(line, HARD));
    text.lines().skip(1).map(|line| both(line).ok_or_else(failed)).collect()
}

fn column(line: &str, begin: usize) -> Option<u64> {
    match line.get(begin..begin + WIDTH)?.trim() {
        UNLIMITED => Some(libc::RLIM_INFINITY),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::resource::{Resource, getrlimit};

    use super::*;

    #[test]
    fn they_are_what_the_process_itself_is_told() {
        let found = limits(std::process::id() as i32).unwrap();
        let all = [Resource::RLIMIT_CPU, Resource::RLIMIT_STACK, Resource::RLIMIT_NOFILE, Resource::RLIMIT_RTTIME];
        for resource in all {
            assert_eq!(found[resource as usize], getrlimit(resource).unwrap(), "{resource:?}");
        }
        assert_eq!(found.len(), Resource::RLIMIT_RTTIME as usize + 1);
    }
}

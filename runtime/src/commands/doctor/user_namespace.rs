//! Namespaces as a restart makes them for a program that cannot have its pids otherwise: of users, pids and mounts.

use super::finding::{Finding, State, setting};
use super::set_tid;
use super::trial::{Failure, in_child};
use crate::error::Error;
use crate::namespace::{self, Kind};

const PROBE: &str = "user namespace";
const TRIED: &str = "unshare user, pid and mount namespaces in a child, map the user, mount /proc, choose a pid there";
const ADVICE: &str = "allow them: sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1, \
                      kernel.apparmor_restrict_unprivileged_userns=0; without them an ordinary user cannot restart, and \
                      root neither while a pid is taken";
const ADVICE_IN_CONTAINER: &str = "nothing, where the row process ids says chosen or reached";

/// The probe.
pub fn probe() -> Finding {
    let outcome = in_child(|| {
        let failed = |error: Error| Failure::wrong(error.reason());
        let kind = Kind { user: true };
        namespace::make(kind).map_err(failed)?;
        // The first child is pid 1 of the new pid namespace; without it nobody can be born there.
        in_child(|| namespace::become_first_process(kind).map_err(failed).and_then(|()| set_tid::choose_a_pid()))?;
        let limit = setting("/proc/sys/user/max_user_namespaces").unwrap_or_else(|| "unknown".to_owned());
        Ok(format!("works (at most {limit})"))
    });
    let advice = if namespace::is_initial() { ADVICE } else { ADVICE_IN_CONTAINER };
    Finding::of(PROBE, TRIED, outcome, State::Degraded, advice)
}

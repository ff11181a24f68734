//! The seccomp filters over this process, and what they end processes for.

use super::finding::{Finding, State};
use crate::filtered;
use crate::proc::confinement;

const PROBE: &str = "seccomp";
const TRIED: &str = "count the filters in /proc/self/status, and make the calls that ckpt makes in children";

/// The probe.
pub fn probe() -> Finding {
    let Some(own) = confinement::own() else {
        let advice =
            "use Linux 5.9 or newer: before it a container's filters cannot be told from a program's, which is refused";
        return Finding::new(PROBE, TRIED, State::Degraded, "filters that the kernel does not count", advice);
    };
    let filters = match own.filters {
        0 => "no filter".to_owned(),
        1 => "a filter".to_owned(),
        many => format!("{many} filters"),
    };
    let rights = if own.no_new_privs { ", no_new_privs" } else { "" };
    let deadly: Vec<&str> = filtered::deadly().collect();
    if deadly.is_empty() {
        return Finding::new(PROBE, TRIED, State::Ok, format!("{filters}{rights}"), "");
    }
    let found = format!("{filters}{rights}; ended is who calls {}", deadly.join(", "));
    let advice = "nothing needs to be done: these are not called; have the filter answer with an error instead (systemd: \
                  SystemCallErrorNumber=EPERM), or allow them";
    Finding::new(PROBE, TRIED, State::Degraded, found, advice)
}

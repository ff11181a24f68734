//! Memory overcommit: the copy-on-write twin of a program counts as much memory again.

use super::finding::{Finding, State, setting};

const PROBE: &str = "overcommit";
const TRIED: &str = "read /proc/sys/vm/overcommit_memory";
const STRICT: &str = "2";

/// The probe.
pub fn probe() -> Finding {
    let mode = setting("/proc/sys/vm/overcommit_memory").unwrap_or_else(|| "unknown".to_owned());
    let state = if mode == STRICT { State::Degraded } else { State::Ok };
    let advice = "set vm.overcommit_memory to 0 or 1: under strict accounting a large program has no room for its \
                  twin, and stays stopped while it is copied";
    Finding::new(PROBE, TRIED, state, format!("mode {mode}"), advice)
}

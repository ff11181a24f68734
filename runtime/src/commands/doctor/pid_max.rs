//! The range of pids: in a small one, the pid of a program that ended is soon somebody else's.

use super::finding::{Finding, State, setting};

const PROBE: &str = "pid_max";
const TRIED: &str = "read /proc/sys/kernel/pid_max";
/// The kernel's default on small machines.
const SMALL: u64 = 32_768;

/// The probe.
pub fn probe() -> Finding {
    let Some(pids) = setting("/proc/sys/kernel/pid_max").and_then(|text| text.parse::<u64>().ok()) else {
        return Finding::new(PROBE, TRIED, State::Degraded, "not readable", "mount /proc");
    };
    let state = if pids > SMALL { State::Ok } else { State::Degraded };
    let advice = "raise kernel.pid_max to 4194304: a restart needs the program's old pids to be free";
    Finding::new(PROBE, TRIED, state, pids.to_string(), advice)
}

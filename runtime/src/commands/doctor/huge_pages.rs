//! Transparent huge pages, which write protection splits.

use super::finding::{Finding, State, setting};

const PROBE: &str = "huge pages";
const TRIED: &str = "read /sys/kernel/mm/transparent_hugepage/enabled";
const PATH: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The probe.
pub fn probe() -> Finding {
    let Some(setting) = setting(PATH) else {
        return Finding::new(PROBE, TRIED, State::Ok, "not in this kernel", "");
    };
    let chosen = setting.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
    if chosen != "always" {
        return Finding::new(PROBE, TRIED, State::Ok, chosen, "");
    }
    let advice =
        "nothing needs to be done; if a program with huge pages slows down after a checkpoint, set it to madvise";
    Finding::new(
        PROBE,
        TRIED,
        State::Degraded,
        "always: tracking writes splits them, and the program then misses the TLB more often",
        advice,
    )
}

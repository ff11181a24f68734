//! A time namespace as a restart makes it for a program whose clocks go on after a reboot.

use nix::sched::{CloneFlags, unshare};
use nix::time::{ClockId, clock_gettime};

use super::finding::{Finding, State};
use super::trial::{Failure, in_child};
use crate::error::Error;
use crate::image::ClockOffsets;
use crate::namespace;

const PROBE: &str = "time namespace";
const TRIED: &str = "be an hour ahead in a child, by a time namespace (of an ordinary user: in a user namespace)";
const ADVICE: &str = "allow them: sysctl user.max_time_namespaces, Linux 5.6 with CONFIG_TIME_NS, no container that forbids \
                      them; without them a program's CLOCK_MONOTONIC jumps when it is restarted after a reboot or on another host";
const HOUR_S: i64 = 3600;

/// The probe.
pub fn probe() -> Finding {
    let outcome = in_child(|| {
        let own = crate::proc::clocks::offsets(std::process::id() as i32).map_err(failed)?;
        let hour_ns = HOUR_S * 1_000_000_000;
        let (monotonic_ns, boottime_ns) = (own.monotonic_ns + hour_ns, own.boottime_ns + hour_ns);
        let ahead = ClockOffsets { monotonic_ns, boottime_ns };
        if let Err(refused) = namespace::be_ahead_in_children_of_this_thread(ahead) {
            unshare(CloneFlags::CLONE_NEWUSER).map_err(|_| failed(refused))?;
            namespace::be_ahead_in_children_of_this_thread(ahead).map_err(failed)?;
        }
        let before = monotonic_s()?;
        in_child(move || match monotonic_s()? - before {
            HOUR_S.. => Ok("works".to_owned()),
            _ => Err(Failure::wrong("the child's clock is that of its parent")),
        })
    });
    Finding::of(PROBE, TRIED, outcome, State::Degraded, ADVICE)
        .gives_up("clocks that go on after a reboot (time namespace)", "--cap-add SYS_ADMIN")
}

fn failed(error: Error) -> Failure {
    Failure::wrong(error.reason())
}

fn monotonic_s() -> Result<i64, Failure> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_err(|errno| Failure::call("clock_gettime", errno))?;
    Ok(now.tv_sec())
}

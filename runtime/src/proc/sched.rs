//! What the scheduler says of a thread: `/proc/PID/task/TID/sched`, where the kernel has it (`CONFIG_SCHED_DEBUG`), and
//! `/proc/PID/schedstat`, where it counts that (`CONFIG_SCHED_INFO`).

use std::fs;
use std::time::Duration;

use super::task;

/// The scheduler's records of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sched {
    /// When it was last seen running, ns of its CPU's own clock; for a thread that sleeps, when it fell asleep.
    pub ran_at_ns: u64,
    /// How often it has given up its CPU by itself: to sleep, or to stop.
    pub yields: u64,
}

impl Sched {
    /// That of thread `tid` of process `pid`.
    pub fn of(pid: i32, tid: i32) -> Option<Sched> {
        parse(&task::text(pid, &format!("task/{tid}/sched")).ok()?)
    }

    /// That of the calling thread.
    pub fn own() -> Option<Sched> {
        parse(&fs::read_to_string("/proc/thread-self/sched").ok()?)
    }
}

/// How long the first thread of process `pid` has waited for a CPU; nothing where the kernel does not say.
pub fn waited_for_cpu(pid: i32) -> Duration {
    task::text(pid, "schedstat").ok().and_then(|text| parse_waited(&text)).unwrap_or_default()
}

/// Of time on a CPU, time waiting for one, both in ns, and turns.
fn parse_waited(text: &str) -> Option<Duration> {
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

fn parse(text: &str) -> Option<Sched> {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start().strip_prefix(':').map(str::trim)
    };
    // Milliseconds with six decimals.
    let time_ns = |name: &str| {
        let (ms, rest) = value(name)?.split_once('.')?;
        ms.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(rest.parse().ok()?)
    };
    Some(Sched { ran_at_ns: time_ns("se.exec_start")?, yields: value("nr_voluntary_switches")?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read() {
        let text = "sleep (17, #threads: 1)\n\
                    -------------------------------------------------------------------\n\
                    se.exec_start                                :     374680.299001\n\
                    nr_switches                                  :                    3\n\
                    nr_voluntary_switches                        :                    2\n";
        let expected = Sched { ran_at_ns: 374_680_299_001, yields: 2 };
        assert_eq!(parse(text), Some(expected));
        assert_eq!(parse("nr_voluntary_switches : 3\n"), None);
    }

    #[test]
    fn waiting_for_a_cpu_is_read() {
        assert_eq!(parse_waited("418293192 5993678557 379\n"), Some(Duration::from_nanos(5_993_678_557)));
        assert_eq!(parse_waited("0\n"), None);
    }
}

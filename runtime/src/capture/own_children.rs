//! Processes below those of a job that are ours and not the program's: the two that libckpt.so starts an agent through, and
//! the clones that hold memory for one.

use std::cmp::Ordering;

use super::comparison::{Shared, order};
use crate::proc::task::{self, stat_number};

/// Whether a process that has ended or does not run was a child of the trigger or of a twin's birth: one without exit signal.
/// `stat` is that of `/proc/PID/stat` behind the name. A program's own children signal their end, but for clones that it made
/// without one, which are told apart by still running.
pub fn is_over(stat: &[String]) -> bool {
    let ended_or_waiting = stat.first().is_some_and(|state| matches!(state.as_str(), "Z" | "X" | "D"));
    has_no_exit_signal(stat) && ended_or_waiting
}

/// Whether a process of the job starts an agent while it runs: a child without exit signal that has its parent's memory. What
/// it starts is none of the job, and is its child until it ends, which is soon.
///
/// A clone of the program's own may look the same; nobody does once the thread that made it stands still, because that waits in
/// vfork for those of ours.
pub fn is_starting_an_agent(pid: i32, stat: &[String]) -> bool {
    // The one or the other may have ended since.
    has_no_exit_signal(stat) && has_memory_of(pid, parent(stat))
}

/// Whether it is an agent: one that a signal has started is given to the process that adopts orphans, which may be the program.
/// Each has a session for itself, which few children have.
pub fn is_agent(pid: i32, stat: &[String]) -> bool {
    let leads_session = stat_number(stat, 6) as i32 == pid;
    leads_session
        && task::executes_what_we_do(pid)
        && task::bytes(pid, "cmdline").is_ok_and(|words| words.split(|&byte| byte == 0).nth(1) == Some(b"agent"))
}

/// Whether it is a clone that holds memory for an agent: it has no descriptors.
pub fn is_clone_of_agent(pid: i32) -> bool {
    let status = task::text(pid, "status").unwrap_or_default();
    let tracer = task::status_value(&status, "TracerPid").and_then(|tracer| tracer.parse().ok()).unwrap_or(0);
    let has_none = || std::fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|mut all| all.next().is_none());
    tracer != 0 && task::executes_what_we_do(tracer) && has_none()
}

fn has_memory_of(pid: i32, parent: i32) -> bool {
    match order(parent, pid, Shared::Memory) {
        Ok(Some(order)) => order == Ordering::Equal,
        // What a clone has for itself soon looks different.
        Ok(None) => {
            let maps = |pid| task::bytes(pid, "maps").ok().filter(|maps| !maps.is_empty());
            maps(pid).is_some_and(|of_child| maps(parent) == Some(of_child))
        }
        Err(_) => false,
    }
}

fn has_no_exit_signal(stat: &[String]) -> bool {
    stat_number(stat, 38) == 0
}

fn parent(stat: &[String]) -> i32 {
    stat_number(stat, 4) as i32
}

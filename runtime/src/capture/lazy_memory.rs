//! Waits until a program that was restarted with `--lazy` has all its memory.
//!
//! While pages are missing its mappings are registered with a userfaultfd that nobody in the program holds. One that the
//! program holds is its own, and refused where mappings are sorted.

use std::time::{Duration, Instant};

use crate::proc::maps::{self, Mapping};
use crate::proc::{fdinfo, task};

/// There is no event for it: the kernel says that memory is complete by a flag of its mappings alone.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// After that it is refused where mappings are sorted.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// Waits for process `pid` and all that descend from it.
pub fn wait_until_there(pid: i32) {
    let begun = Instant::now();
    let mut to_see = vec![pid];
    while let Some(&next) = to_see.last() {
        if is_missing(next) && begun.elapsed() < WAIT_MAX {
            std::thread::sleep(LOOK_AGAIN);
            continue;
        }
        to_see.pop();
        to_see.extend(task::children(next).unwrap_or_default());
    }
    let waited_ms = begun.elapsed().as_millis();
    if waited_ms > LOOK_AGAIN.as_millis() {
        log::info!("waited {waited_ms} ms until all memory of process {pid} was there");
    }
}

/// One that has ended misses nothing.
fn is_missing(pid: i32) -> bool {
    let comes_later = |mapping: &Mapping| mapping.has(b"um");
    maps::mappings(pid).is_ok_and(|mappings| mappings.iter().any(comes_later)) && !handles_faults(pid)
}

/// Whether the program has a userfaultfd of its own.
fn handles_faults(pid: i32) -> bool {
    let is_userfaultfd = |number: &i32| {
        task::link(pid, &format!("fd/{number}")).is_ok_and(|target| target == b"anon_inode:[userfaultfd]")
    };
    fdinfo::numbers(pid).is_ok_and(|numbers| numbers.iter().any(is_userfaultfd))
}

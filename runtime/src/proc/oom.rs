//! Whom the kernel ends when memory runs out, of the host or of a control group: whoever has most of it, unless
//! `/proc/PID/oom_score_adj` says otherwise.
//!
//! A checkpoint needs memory besides the program's: what the twin has of its own once the program writes, and the agent's copies. If it
//! is not there, the attempt is what that may cost. A wish all this is: where it cannot be had, the kernel decides.

use std::fs;

use super::task;

/// What makes a process the first (`OOM_SCORE_ADJ_MAX`).
const FIRST: i32 = 1000;

/// Has process `pid` ended before others. It has memory of its own: the kernel does the same to all that share it.
pub fn end_first(pid: i32) {
    set(pid, FIRST);
}

/// Has this process ended when process `pid` would be, and not before: who loses the one has lost the other.
pub fn end_like(pid: i32) {
    if let Some(score) = of(pid) {
        set(std::process::id() as i32, score);
    }
}

/// As long as it lives, this process is ended before others.
#[derive(Debug)]
pub struct EndedFirst {
    before: Option<i32>,
}

impl EndedFirst {
    /// This process, until the value is dropped.
    pub fn from_now() -> EndedFirst {
        let own = std::process::id() as i32;
        let before = of(own);
        end_first(own);
        EndedFirst { before }
    }
}

impl Drop for EndedFirst {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            set(std::process::id() as i32, before);
        }
    }
}

fn of(pid: i32) -> Option<i32> {
    task::text(pid, "oom_score_adj").ok()?.trim().parse().ok()
}

fn set(pid: i32, score: i32) {
    if let Err(error) = fs::write(format!("/proc/{pid}/oom_score_adj"), score.to_string()) {
        log::debug!("oom_score_adj of process {pid} is not {score}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn this_process_is_the_first_for_a_while_and_others_can_be_like_it() {
        let own = std::process::id() as i32;
        let before = of(own).unwrap();
        // It waits until its input is closed.
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        {
            let _first = EndedFirst::from_now();
            assert_eq!(of(own), Some(FIRST));
            assert_eq!(of(child.id() as i32), Some(before), "it was there before");
            end_like(child.id() as i32);
            assert_eq!(of(own), Some(before));
        }
        assert_eq!(of(own), Some(before));
        end_first(child.id() as i32);
        assert_eq!(of(child.id() as i32), Some(FIRST));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}

//! What every measurement needs: on what and by what it was made, noise, and processor time.

use std::process::Command;

use rustix::time::{ClockId, clock_gettime};

/// Prints machine, kernel, commit and `command`, each behind a `#`. A commit with a `+` has been changed since.
pub fn print(command: &str) {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("# {}, Linux {}", model.trim_matches([' ', '\t', ':']), kernel.trim());
    let commit = Command::new("git").args(["describe", "--always", "--dirty=+", "--exclude=*"]).output();
    let commit =
        commit.map_or_else(|_| "unknown".into(), |output| String::from_utf8_lossy(&output.stdout).into_owned());
    println!("# commit {}", commit.trim());
    println!("# {command}");
}

/// Bytes that do not repeat (xorshift64).
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = (0..bytes / 8).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.collect()
}

/// Processor time of this thread, in nanoseconds.
#[allow(dead_code, reason = "not every measurement is of one thread")]
pub fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

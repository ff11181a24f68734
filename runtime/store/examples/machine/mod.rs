//! The first lines of every table of figures: on what and by what they were measured.

use std::process::Command;

/// Prints machine, kernel, commit and `command`, each behind a `#`.
pub fn print(command: &str) {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("# machine: {}, {cores} CPUs; Linux {}", model.trim_matches([' ', '\t', ':']), kernel.trim());
    println!("# load average before: {}", load.trim());
    println!("# commit: {}", commit());
    println!("# command: {command}");
}

/// With a `+` when files have been changed since.
fn commit() -> String {
    let described = Command::new("git").args(["describe", "--always", "--dirty=+", "--exclude=*"]).output();
    described.map_or_else(|_| "unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().into())
}

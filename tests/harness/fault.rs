//! Killing the agent at a chosen fault point.

use std::collections::BTreeMap;
use std::path::Path;

/// Environment variable: `NAME:K` kills the agent after the K-th passage of NAME.
pub const KILL: &str = "CKPT_FAULT";
/// Environment variable: file that receives the name of each passage.
pub const TRACE: &str = "CKPT_FAULT_TRACE";

/// How often each fault point was passed, from a trace file.
pub fn passages(trace: &Path) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for name in std::fs::read_to_string(trace).unwrap_or_default().lines() {
        *counts.entry(name.to_owned()).or_insert(0) += 1;
    }
    counts
}

/// For each point the passages to die at: the first, the last, and `more` spread between them.
pub fn plan(passages: &BTreeMap<String, u64>, more: u64) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, &count) in passages {
        let parts = more + 1;
        let mut chosen: Vec<u64> = (0..=parts).map(|part| 1 + (count - 1) * part / parts).collect();
        chosen.dedup();
        faults.extend(chosen.into_iter().map(|passage| format!("{name}:{passage}")));
    }
    faults
}

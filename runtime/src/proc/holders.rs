//! Who has a file open.

use std::fs;
use std::path::Path;

/// The processes that have the file at `path` open, as far as they may be looked at.
pub fn of(path: &str) -> Vec<i32> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|&pid| has_open(pid, Path::new(path))).collect()
}

fn has_open(pid: i32, path: &Path) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().any(|descriptor| fs::read_link(descriptor.path()).is_ok_and(|target| target == path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_file_open_is_found_and_nobody_has_what_is_not_there() {
        let path = std::env::current_exe().unwrap();
        let _open = fs::File::open(&path).unwrap();
        assert!(of(path.to_str().unwrap()).contains(&(std::process::id() as i32)));
        assert_eq!(of("/no/such/file"), [0; 0]);
    }
}

//! Files and directories that /proc has of processes. They belong to those, not to a path: a restart opens them when the
//! processes are there again, and one of a process that has ended says so for ever.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::stat::SFlag;

use super::entry::unsettled;
use super::pidfds::is_child_that_has_ended;
use crate::error::Result;
use crate::image::FileKind;
use crate::proc::fdinfo::FdInfo;
use crate::proc::{DELETED, task};

/// What it is, if it is one of a process; `pids` are those of the job.
pub fn kind(info: &FdInfo, format: SFlag, pids: &[i32]) -> Result<Option<FileKind>> {
    let Some((pid, rest)) = parse(&info.target) else { return Ok(None) };
    let directory = format == SFlag::S_IFDIR;
    let is_one = directory || format == SFlag::S_IFREG;
    if !is_one || std::fs::metadata("/proc").is_ok_and(|proc| proc.dev() != info.metadata.device) {
        return Ok(None);
    }
    let path = info.target.strip_suffix(DELETED).unwrap_or(&info.target).to_vec();
    let of = |pid, begun| FileKind::OfProcess { pid, begun, path, directory, offset: info.position };
    // The number may be another process's by now.
    let leads_there = std::fs::metadata(Path::new(OsStr::from_bytes(&info.target)))
        .is_ok_and(|found| found.ino() == info.metadata.inode);
    if !leads_there {
        return Ok(Some(of(0, 0)));
    }
    let is_of_thread = thread_of(rest).is_some_and(|tid| tid != pid);
    match process_of(pid) {
        Some(process) if pids.contains(&process) && (process != pid || is_of_thread) => {
            let why = "what /proc has of a thread other than the main one is not captured yet";
            Err(unsettled(info, why, "close it, or try again"))
        }
        // Its descriptor may be one that a restart hands over together with it.
        Some(process) if pids.contains(&process) && is_of_descriptor(rest) => {
            let why = "what /proc has of a descriptor is there again only behind the descriptor";
            Err(unsettled(info, why, "close it, or try again"))
        }
        Some(process) if pids.contains(&process) || is_child_that_has_ended(process, pids) => Ok(Some(of(pid, 0))),
        Some(_) => Ok(Some(of(pid, task::start_time(pid)?))),
        None => Ok(Some(of(0, 0))),
    }
}

/// The process, or thread, that `/proc/PID` or what is below it is of, and what follows.
fn parse(target: &[u8]) -> Option<(i32, &[u8])> {
    let below = target.strip_prefix(b"/proc/")?;
    let digits = below.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(below.len());
    let (number, rest) = below.split_at(digits);
    let is_end = rest.is_empty() || rest.starts_with(b"/") || rest == DELETED;
    std::str::from_utf8(number).ok()?.parse().ok().filter(|_| is_end).map(|pid| (pid, rest))
}

/// The thread that `/task/TID` or what is below it is of.
fn thread_of(rest: &[u8]) -> Option<i32> {
    let mut parts = rest.strip_prefix(b"/task/")?.split(|&byte| byte == b'/');
    std::str::from_utf8(parts.next()?).ok()?.parse().ok()
}

/// Whether it is a file of `/fdinfo`.
fn is_of_descriptor(rest: &[u8]) -> bool {
    const FOLDER: &[u8] = b"/fdinfo/";
    rest.windows(FOLDER.len()).any(|part| part == FOLDER)
}

/// The process that thread `tid` belongs to.
fn process_of(tid: i32) -> Option<i32> {
    task::status_value(&task::text(tid, "status").ok()?, "Tgid")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_below_the_directory_of_a_process_are_its() {
        assert_eq!(parse(b"/proc/12"), Some((12, &b""[..])));
        assert_eq!(parse(b"/proc/12 (deleted)"), Some((12, DELETED)));
        assert_eq!(parse(b"/proc/12/task/13/comm"), Some((12, &b"/task/13/comm"[..])));
        for other in [&b"/proc"[..], b"/proc/", b"/proc/meminfo", b"/proc/12x", b"/process/12", b"/tmp/proc/12"] {
            assert_eq!(parse(other), None);
        }
        assert_eq!(thread_of(b"/task/13/comm"), Some(13));
        assert_eq!(thread_of(b"/task"), None);
        assert!(is_of_descriptor(b"/fdinfo/3") && is_of_descriptor(b"/task/13/fdinfo/3"));
        assert!(!is_of_descriptor(b"/fdinfo") && !is_of_descriptor(b"/stat"));
        assert_eq!(process_of(std::process::id() as i32), Some(std::process::id() as i32));
    }
}

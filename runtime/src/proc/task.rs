//! Threads, children and small text files of a process in /proc.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::image::Capabilities;

/// The first process of a pid namespace, which the kernel gives orphans to.
pub const FIRST_PROCESS: i32 = 1;

/// Most files of a process fit into so many bytes.
const FILE_BYTES: usize = 2048;
/// How often the children of a process are listed again whose threads end.
const CHILDREN_TRIES: u32 = 50;

/// Ids of the threads of `pid`, ascending.
pub fn threads(pid: i32) -> Result<Vec<i32>> {
    let path = PathBuf::from(format!("/proc/{pid}/task"));
    let failed = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::NotFound => Error::ProgramGone { pid },
        _ => Error::io("read", &path, source),
    };
    let mut tids = Vec::new();
    for entry in fs::read_dir(&path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        tids.extend(name.to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    tids.sort_unstable();
    Ok(tids)
}

/// Ids of the children of all threads of `pid`, zombies included.
pub fn children(pid: i32) -> Result<Vec<i32>> {
    let mut tries = CHILDREN_TRIES;
    loop {
        match children_once(pid) {
            // A thread has ended meanwhile: its children are another one's, which may have been asked already.
            Err(Error::ProgramGone { .. }) if tries > 0 => tries -= 1,
            outcome => return outcome,
        }
    }
}

fn children_once(pid: i32) -> Result<Vec<i32>> {
    let mut children = Vec::new();
    for tid in threads(pid)? {
        let text = text(pid, &format!("task/{tid}/children"))?;
        children.extend(text.split_whitespace().filter_map(|word| word.parse::<i32>().ok()));
    }
    Ok(children)
}

/// The fields of `/proc/PID/stat` (or of `task/TID/stat` by `file`) from the state on: field 3 is index 0.
pub fn stat_fields(pid: i32, file: &str) -> Result<Vec<String>> {
    let text = text(pid, file)?;
    // The command is in parentheses and may contain anything, so the fields start behind the last one.
    let tail = text.rsplit_once(')').map_or("", |(_, tail)| tail);
    Ok(tail.split_whitespace().map(str::to_owned).collect())
}

/// A number of `/proc/PID/stat`, by its number in proc(5) (3 = state).
pub fn stat_number(fields: &[String], field: usize) -> u64 {
    fields.get(field - 3).and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// The value of `name` in `/proc/PID/status`.
pub fn status_value<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// The ids of `pid` in the pid namespaces that it is in, from ours downward: the last one is what it knows itself by.
pub fn ids_in_namespaces(pid: i32) -> Result<Vec<i32>> {
    let status = text(pid, "status")?;
    let ids = status_value(&status, "NSpid").unwrap_or("");
    Ok(ids.split_whitespace().filter_map(|id| id.parse().ok()).collect())
}

/// User ids of a process, as our user namespace shows them: real, effective, saved and that of the file system.
pub type Users = [u32; 4];

/// The user ids of process `pid`.
pub fn users(pid: i32) -> Result<Users> {
    let status = text(pid, "status")?;
    let ids: Vec<u32> = status_value(&status, "Uid").unwrap_or("").split_whitespace().flat_map(str::parse).collect();
    // A process that ends while we read has no ids.
    ids.try_into().map_err(|_| Error::ProgramGone { pid })
}

/// Whether process `pid` executes a program that has given it rights (AT_SECURE): the dynamic linker passes over LD_PRELOAD there.
pub fn has_rights_of_its_program(pid: i32) -> bool {
    let words = bytes(pid, "auxv").unwrap_or_default();
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or([0; 8]));
    words.chunks_exact(16).any(|entry| word(&entry[..8]) == libc::AT_SECURE && word(&entry[8..]) != 0)
}

/// The capability sets in `/proc/PID/status`.
pub fn capabilities(pid: i32) -> Result<Capabilities> {
    let status = text(pid, "status")?;
    let set = |name| status_value(&status, name).and_then(|set| u64::from_str_radix(set, 16).ok()).unwrap_or(0);
    Ok(Capabilities {
        inheritable: set("CapInh"),
        permitted: set("CapPrm"),
        effective: set("CapEff"),
        bounding: set("CapBnd"),
        ambient: set("CapAmb"),
    })
}

/// A text file of `/proc/PID`.
pub fn text(pid: i32, file: &str) -> Result<String> {
    bytes(pid, file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// A file of `/proc/PID`, raw.
pub fn bytes(pid: i32, file: &str) -> Result<Vec<u8>> {
    let path = PathBuf::from(format!("/proc/{pid}/{file}"));
    read(&path).map_err(|source| unreadable(pid, path, source))
}

/// What [`fs::read`] gives, without asking for a length first, which is 0 here.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::with_capacity(FILE_BYTES);
    File::open(path)?.take(u64::MAX).read_to_end(&mut content)?;
    Ok(content)
}

/// What it means that `path`, a file of `/proc/PID`, cannot be opened, or read on.
pub fn unreadable(pid: i32, path: PathBuf, source: std::io::Error) -> Error {
    match source.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => Error::ProgramGone { pid },
        _ => Error::io("read", path, source),
    }
}

/// The target of a link of `/proc/PID`, raw.
pub fn link(pid: i32, file: &str) -> Result<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    let path = PathBuf::from(format!("/proc/{pid}/{file}"));
    let target = fs::read_link(&path).map_err(|source| Error::io("read link", path, source))?;
    Ok(target.into_os_string().into_vec())
}

/// Whether process `pid` executes the same file as we do, and has its code mapped: a program whose link was left leading to us when it
/// was restarted has not.
pub fn executes_what_we_do(pid: i32) -> bool {
    let (Ok(own), Ok(other)) = (link(std::process::id() as i32, "exe"), link(pid, "exe")) else { return false };
    let is_mapped =
        || bytes(pid, "maps").is_ok_and(|maps| maps.split(|&byte| byte == b'\n').any(|line| line.ends_with(&own)));
    own == other && is_mapped()
}

/// The CPU that the main thread ran on last.
pub fn last_cpu(pid: i32) -> Result<usize> {
    Ok(stat_number(&stat_fields(pid, "stat")?, 39) as usize)
}

/// Whether `/proc` shows the process under a job-control stop; to be asked before it is seized.
pub fn is_job_stopped(pid: i32) -> bool {
    text(pid, "status").is_ok_and(|status| status_value(&status, "State").is_some_and(|state| state.starts_with('T')))
}

/// Whether process `pid` lives: one that has ended and waits to be reaped does not.
pub fn lives(pid: i32) -> bool {
    let status = text(pid, "status").unwrap_or_default();
    status_value(&status, "State").is_some_and(|state| !state.starts_with(['Z', 'X']))
}

/// What a core dump of the process has, as bits of core(5). None where the kernel makes no dumps.
pub fn core_dump_filter(pid: i32) -> Option<u32> {
    u32::from_str_radix(text(pid, "coredump_filter").ok()?.trim(), 16).ok()
}

/// When the process started, in clock ticks since boot as our time namespace shows it: with the pid it names a
/// process for ever, to all in there.
pub fn start_time(pid: i32) -> Result<u64> {
    Ok(stat_number(&stat_fields(pid, "stat")?, 22))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_threads_and_status_are_found() {
        let pid = std::process::id() as i32;
        assert!(threads(pid).unwrap().contains(&pid));
        let status = text(pid, "status").unwrap();
        assert_eq!(status_value(&status, "Tgid").unwrap().parse::<i32>().unwrap(), pid);
        assert!(start_time(pid).unwrap() > 0);
        assert_eq!(ids_in_namespaces(pid).unwrap(), [pid]);
        assert_eq!(users(pid).unwrap()[1], nix::unistd::geteuid().as_raw());
        assert!(!has_rights_of_its_program(pid));
    }

    #[test]
    fn a_process_that_does_not_exist_is_gone() {
        assert!(matches!(threads(i32::MAX), Err(Error::ProgramGone { .. })));
    }
}

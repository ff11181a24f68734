//! Instances of io_uring. One whose requests are all completed is made anew by a restart; the program's queues are memory that
//! it maps, and are captured as such.
//!
//! Nothing says how many requests are under way; what is shown are requests that wait for a file (`PollList`), and how many the
//! kernel has taken and completed in all. Where these are equal none is under way, but for programs in which one request may
//! have several completions, or none.

use std::collections::HashMap;
use std::os::fd::AsFd;

use super::entry::{Entry, refused, unsettled};
use super::table::Table;
use crate::capture::regions::SharedMemory;
use crate::error::{Error, Result};
use crate::image::{FileKind, IoUring, OpenFile};
use crate::io_uring::{NAME, Ring, hidden_state, is_possible};
use crate::proc::maps::{self, Mapping};
use crate::proc::task;
use crate::ptrace::read_memory;

/// Where the memory of one can be mapped: counters, completions and the array of numbers, by either name.
const COUNTERS: [u64; 2] = [0, 0x800_0000];
/// And the requests.
const REQUESTS: u64 = 0x1000_0000;
/// Bytes of a request.
const REQUEST_BYTES: u64 = 64;
/// Offset of the array among the offsets.
const ARRAY: usize = 6;

const CLOSE_IT: &str = "close it before the checkpoint";
const WAIT: &str = "take the checkpoint when nothing is under way";

/// Where instances are mapped in the processes of a job; read when the first one is met.
#[derive(Debug, Default)]
pub struct Mapped(Option<Vec<(i32, Mapping)>>);

impl Mapped {
    /// All mappings of the instance with this inode in `pids`, and whose they are.
    fn of(&mut self, inode: u64, pids: &[i32]) -> Result<Vec<(i32, Mapping)>> {
        let all = match self.0.take() {
            Some(all) => all,
            None => all_mappings(pids)?,
        };
        let own = all.iter().filter(|(_, mapping)| mapping.inode == inode).cloned().collect();
        self.0 = Some(all);
        Ok(own)
    }
}

/// The mappings of all instances.
fn all_mappings(pids: &[i32]) -> Result<Vec<(i32, Mapping)>> {
    let mut found = Vec::new();
    for &pid in pids {
        let rings = maps::outline(pid)?.into_iter().filter(|mapping| mapping.name == NAME);
        found.extend(rings.map(|mapping| (pid, mapping)));
    }
    Ok(found)
}

/// The instance that `entry` leads to; `pids` are the processes of the job.
pub fn kind(entry: Entry<'_>, pids: &[i32], mapped: &mut Mapped) -> Result<FileKind> {
    let info = entry.info;
    let text = task::text(entry.owner.pid, &format!("fdinfo/{}", info.number))?;
    let shown = Shown::of(&text).ok_or_else(|| refused(info, "the kernel does not tell what is in it", CLOSE_IT))?;
    if let Some(why) = shown.special() {
        return Err(refused(info, why, CLOSE_IT));
    }
    if shown.taken != shown.completed || shown.is_waiting {
        return Err(unsettled(info, "requests may be under way in it", WAIT));
    }
    let handle = entry.fetch()?;
    let examine = |source| Error::io("examine", info.shown(), source);
    if let Some(why) = hidden_state(handle.as_fd()).map_err(examine)? {
        return Err(refused(info, why, CLOSE_IT));
    }
    let (entries, completions) = (shown.entries, shown.completions);
    let mappings = mapped.of(info.metadata.inode, pids)?;
    let of_requests = || mappings.iter().filter(|(_, mapping)| mapping.offset == REQUESTS);
    if of_requests().next().is_none() {
        return Err(refused(info, "no process of the job has its requests mapped", CLOSE_IT));
    }
    let room = (u64::from(entries) * REQUEST_BYTES).next_multiple_of(ckpt_store::PAGE_BYTES as u64);
    if of_requests().any(|(_, mapping)| mapping.bytes() > room) {
        return Err(refused(info, "its requests are larger than usual (IORING_SETUP_SQE128)", CLOSE_IT));
    }
    // One like it says where the kernel has the array, were there one.
    let like = Ring::new(entries, completions, true).map_err(examine)?.layout();
    let has_array = has_array(&mappings, like[ARRAY], entries)?;
    let layout = if has_array { like } else { Ring::new(entries, completions, false).map_err(examine)?.layout() };
    let inode = info.metadata.inode;
    Ok(FileKind::IoUring(IoUring {
        entries,
        completions,
        used: shown.taken,
        read: shown.read,
        has_array,
        layout,
        inode,
    }))
}

/// Whether the program uses the array at `offset` of the counters: libraries write the number of each request to its own place at the
/// beginning. An instance without one has nothing there.
fn has_array(mappings: &[(i32, Mapping)], offset: u32, entries: u32) -> Result<bool> {
    let end = u64::from(offset) + 4 * u64::from(entries);
    let counters = mappings.iter().find(|(_, it)| COUNTERS.contains(&it.offset) && it.bytes() >= end);
    let Some((pid, mapping)) = counters else { return Ok(false) };
    let mut array = vec![0; 4 * entries as usize];
    read_memory(*pid, mapping.start + u64::from(offset), &mut array)?;
    Ok(entries == 1 || array.iter().any(|&byte| byte != 0))
}

/// Says of mapped instances which files they are.
///
/// # Errors
/// When no descriptor leads to one.
pub fn connect(files: &[OpenFile], memory: &mut SharedMemory) -> Result<()> {
    let inode = |(index, file): (usize, &OpenFile)| match &file.kind {
        FileKind::IoUring(ring) => Some((ring.inode, index as u32)),
        _ => None,
    };
    let rings: HashMap<u64, u32> = files.iter().enumerate().filter_map(inode).collect();
    let mapped = memory.objects.iter_mut().zip(&memory.places).filter(|(_, (name, _))| name == NAME);
    for (object, (_, inode)) in mapped {
        let ring = rings.get(inode).ok_or_else(|| {
            let why = "its memory is mapped, and no descriptor leads to it any more";
            Error::unsupported(format!("io_uring instance {inode}"), why, "unmap it before the checkpoint")
        })?;
        object.ring = Some(*ring);
    }
    Ok(())
}

/// Whether a process with `table` has one open.
pub fn has_one(table: &Table, files: &[OpenFile]) -> bool {
    table.descriptors.iter().any(|it| matches!(files[it.file as usize].kind, FileKind::IoUring(_)))
}

/// What fdinfo says of an instance.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shown {
    entries: u32,
    completions: u32,
    taken: u32,
    completed: u32,
    read: u32,
    /// Something waits for a file, or there was no room for completions.
    is_waiting: bool,
    thread: i64,
    files: u32,
    buffers: u32,
    has_personalities: bool,
    polls_network: bool,
}

impl Shown {
    /// None where something is missing: an old kernel, or one that is at work in it.
    fn of(text: &str) -> Option<Shown> {
        let value = |name: &str| task::status_value(text, name);
        let number = |name: &str| value(name)?.parse::<u32>().ok();
        let mask = |name: &str| u32::from_str_radix(value(name)?.strip_prefix("0x")?, 16).ok()?.checked_add(1);
        let has_lines = |name: &str| {
            let mut lines = text.lines().skip_while(|line| !line.starts_with(name));
            lines.nth(1).is_some_and(|line| line.starts_with([' ', '\t']))
        };
        let shown = Shown {
            entries: mask("SqMask")?,
            completions: mask("CqMask")?,
            taken: number("CachedSqHead")?,
            completed: number("CachedCqTail")?,
            read: number("CqHead")?,
            is_waiting: has_lines("PollList:") || has_lines("CqOverflowList:"),
            thread: value("SqThread")?.parse().ok()?,
            files: number("UserFiles")?,
            buffers: number("UserBufs")?,
            has_personalities: value("Personalities").is_some(),
            polls_network: value("NAPI").is_some_and(|napi| napi != "disabled"),
        };
        let is_whole = text.contains("\nPollList:") && text.contains("\nCqOverflowList:");
        (is_whole && is_possible(shown.entries, shown.completions)).then_some(shown)
    }

    /// What of it is not captured.
    fn special(&self) -> Option<&'static str> {
        match self {
            Shown { thread, .. } if *thread != -1 => Some("a thread of the kernel's polls it (IORING_SETUP_SQPOLL)"),
            Shown { files: 1.., .. } => Some("files are registered with it"),
            Shown { buffers: 1.., .. } => Some("buffers are registered with it"),
            Shown { has_personalities: true, .. } => Some("credentials are registered with it"),
            Shown { polls_network: true, .. } => Some("it polls the network (IORING_REGISTER_NAPI)"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: &str = "pos:\t0\nSqMask:\t0x7\nSqHead:\t20\nSqTail:\t21\nCachedSqHead:\t20\nCqMask:\t0xf\nCqHead:\t19\nCqTail:\t20\n\
        CachedCqTail:\t20\nSQEs:\t1\n    0: opcode:NOP\nCQEs:\t0\nSqThread:\t-1\nSqThreadCpu:\t-1\nUserFiles:\t0\nUserBufs:\t0\n\
        PollList:\nCqOverflowList:\nNAPI:\tdisabled\n";

    #[test]
    fn an_idle_instance_is_told_from_a_busy_and_from_a_special_one() {
        let idle = Shown::of(IDLE).unwrap();
        let expected =
            Shown { entries: 8, completions: 16, taken: 20, completed: 20, read: 19, thread: -1, ..Shown::default() };
        assert_eq!((idle.special(), idle), (None, expected));
        let waiting = IDLE.replace("PollList:\n", "PollList:\n  op=6, task_works=0\n");
        assert!(Shown::of(&waiting).unwrap().is_waiting);
        let overflown = IDLE.replace("CqOverflowList:\n", "CqOverflowList:\n  user_data=1, res=0, flags=0\n");
        assert!(Shown::of(&overflown).unwrap().is_waiting);
        assert_eq!(Shown::of(&IDLE.replace("PollList:\n", "")), None);
        for (from, to, why) in [
            ("SqThread:\t-1", "SqThread:\t77", "SQPOLL"),
            ("UserFiles:\t0", "UserFiles:\t3", "files"),
            ("UserBufs:\t0", "UserBufs:\t1", "buffers"),
            ("NAPI:\tdisabled", "NAPI:\tenabled", "network"),
            ("NAPI:", "Personalities:\n    1\nNAPI:", "credentials"),
        ] {
            let special = Shown::of(&IDLE.replace(from, to)).unwrap().special().unwrap_or_default();
            assert!(special.contains(why), "{special}");
        }
    }
}

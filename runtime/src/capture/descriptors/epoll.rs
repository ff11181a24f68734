//! What an epoll instance watches.
//!
//! An instance knows what it watches by an open file description and the number that this had. When the number has been closed, and the
//! description lives on under another one, or in another process, the instance goes on watching it.

use std::collections::HashMap;

use super::entry::{Entry, refused};
use super::table::Table;
use crate::capture::comparison::is_watched;
use crate::error::Result;
use crate::image::{EpollTarget, FileKind, OpenFile};
use crate::proc::fdinfo::FdInfo;

/// What such names of files begin with that all share one inode.
const ANONYMOUS: &[u8] = b"anon_inode:";

/// Something that is watched under a number which leads elsewhere now.
#[derive(Debug)]
pub struct Elsewhere {
    /// Index of the instance among the job's files.
    instance: usize,
    /// Which of its targets.
    target: usize,
    /// A descriptor that leads there, a process and a number.
    place: (i32, i32),
    /// Why it is refused if that cannot be restored.
    refusal: crate::error::Error,
}

/// An epoll instance, which is to be file `instance` of the job; `all` are the descriptors of its process, and `entries` those of the
/// job. What it watches elsewhere is added to `elsewhere`.
pub fn kind(
    entry: Entry<'_>,
    instance: usize,
    all: &[FdInfo],
    entries: &[Entry<'_>],
    elsewhere: &mut Vec<Elsewhere>,
) -> Result<FileKind> {
    let (info, epoll) = (entry.info, (entry.owner.pid, entry.info.number));
    let (mut targets, mut met) = (Vec::new(), HashMap::new());
    let by_number: HashMap<i32, &FdInfo> = all.iter().map(|info| (info.number, info)).collect();
    for (_, value) in info.fields.iter().filter(|(name, _)| name == "tfd") {
        let unreadable = || refused(info, "what it watches cannot be read", "close it before the checkpoint");
        let (target, inode) = epoll_target(value).ok_or_else(unreadable)?;
        let times: &mut usize = met.entry(target.number).or_default();
        let before = std::mem::replace(times, *times + 1);
        let is_it = |place: (i32, i32), at: &FdInfo| -> Result<bool> {
            Ok(at.metadata.inode == inode && is_watched(place, epoll, target.number, before)?)
        };
        let is_there = match by_number.get(&target.number) {
            // Sockets, pipes and terminals are known by their inodes: the kernel would have to look through all that is watched.
            Some(at) if !at.target.starts_with(ANONYMOUS) && before == 0 => at.metadata.inode == inode,
            Some(at) => is_it((epoll.0, at.number), at)?,
            None => false,
        };
        if !is_there {
            let refusal = || {
                let why = format!("it watches descriptor {}, which has been closed or replaced", target.number);
                refused(info, &why, "remove it from the epoll set before closing it")
            };
            let mut places = entries.iter().map(|other| ((other.owner.pid, other.info.number), other.info));
            let found = places.find_map(|(place, info)| is_it(place, info).map(|is| is.then_some(place)).transpose());
            let place = found.transpose()?.ok_or_else(refusal)?;
            elsewhere.push(Elsewhere { instance, target: targets.len(), place, refusal: refusal() });
        }
        targets.push(target);
    }
    Ok(FileKind::Epoll { targets })
}

/// Completes the targets that are `elsewhere`, when all files have their indexes: those of the descriptors of process `pids[N]` are in
/// `tables[N]`.
pub fn connect(elsewhere: Vec<Elsewhere>, pids: &[i32], tables: &[Table], files: &mut [OpenFile]) -> Result<()> {
    for Elsewhere { instance, target, place, refusal } in elsewhere {
        let table = pids.iter().position(|&pid| pid == place.0).and_then(|index| tables.get(index));
        let descriptor = table.and_then(|table| table.descriptors.iter().find(|other| other.number == place.1));
        let file = descriptor.map(|descriptor| descriptor.file);
        // What is there only after the restart has begun cannot be watched under a number that it does not have.
        let is_there_early = file
            .and_then(|file| files.get(file as usize))
            .is_some_and(|file| !file.is_handed_over() && !matches!(file.kind, FileKind::Standard { .. }));
        match &mut files[instance].kind {
            FileKind::Epoll { targets } if is_there_early => targets[target].file = file,
            _ => return Err(refusal),
        }
    }
    Ok(())
}

/// Parses the rest of `tfd: 17 events: 19 data: 11  pos:0 ino:40f sdev:10`.
fn epoll_target(value: &str) -> Option<(EpollTarget, u64)> {
    let mut words = value.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut hex_after = |name: &str| -> Option<u64> {
        let word = words.next()?;
        let digits = match word.strip_prefix(name)? {
            "" => words.next()?,
            digits => digits,
        };
        u64::from_str_radix(digits, 16).ok()
    };
    let events = hex_after("events:")?;
    let data = hex_after("data:")?;
    hex_after("pos:");
    let inode = hex_after("ino:")?;
    Some((EpollTarget { number, events: events as u32, data, file: None }, inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_epoll_is_read_with_or_without_blanks_behind_the_colons() {
        let (target, inode) =
            epoll_target("17 events:       19 data:               11  pos:0 ino:40f sdev:10").unwrap();
        assert_eq!(target, EpollTarget { number: 17, events: 0x19, data: 0x11, file: None });
        assert_eq!(inode, 0x40f);
        let (target, inode) = epoll_target("5 events: 80000019 data: ffffffffffffffff  pos:0 ino:1 sdev:f").unwrap();
        assert_eq!((target.events, target.data, inode), (0x8000_0019, u64::MAX, 1));
    }
}

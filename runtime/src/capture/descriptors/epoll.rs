//! What an epoll instance watches.

use super::refused;
use crate::error::Result;
use crate::image::{EpollTarget, FileKind};
use crate::proc::fdinfo::FdInfo;

/// An epoll instance; `all` are the descriptors of its process.
pub fn kind(info: &FdInfo, all: &[FdInfo]) -> Result<FileKind> {
    let mut targets = Vec::new();
    for (_, value) in info.fields.iter().filter(|(name, _)| name == "tfd") {
        let unreadable = || refused(info, "what it watches cannot be read", "close it before the checkpoint");
        let (target, inode) = epoll_target(value).ok_or_else(unreadable)?;
        let watched = all.iter().find(|other| other.number == target.number);
        if watched.is_none_or(|watched| watched.metadata.inode != inode) {
            let why = format!("it watches descriptor {}, which has been closed or replaced", target.number);
            return Err(refused(info, &why, "remove it from the epoll set before closing it"));
        }
        targets.push(target);
    }
    Ok(FileKind::Epoll { targets })
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
    Some((EpollTarget { number, events: events as u32, data }, inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_epoll_is_read_with_or_without_blanks_behind_the_colons() {
        let (target, inode) =
            epoll_target("17 events:       19 data:               11  pos:0 ino:40f sdev:10").unwrap();
        assert_eq!(target, EpollTarget { number: 17, events: 0x19, data: 0x11 });
        assert_eq!(inode, 0x40f);
        let (target, inode) = epoll_target("5 events: 80000019 data: ffffffffffffffff  pos:0 ino:1 sdev:f").unwrap();
        assert_eq!((target.events, target.data, inode), (0x8000_0019, u64::MAX, 1));
    }
}

//! What has no name but its kind: counters, timers, sets of signals.

use super::entry::{Entry, refused};
use crate::capture::timerfds;
use crate::error::Result;
use crate::image::FileKind;

/// What a descriptor that leads to something without name is.
pub fn kind(entry: Entry<'_>) -> Result<FileKind> {
    let info = entry.info;
    match info.target.as_slice() {
        b"anon_inode:[eventfd]" => Ok(FileKind::EventFd {
            count: info
                .field("eventfd-count")
                .and_then(|count| u64::from_str_radix(count, 16).ok())
                .ok_or_else(|| refused(info, "its counter cannot be read", "close it before the checkpoint"))?,
            semaphore: info.field("eventfd-semaphore") == Some("1"),
        }),
        b"anon_inode:[timerfd]" => timerfds::capture(info, &entry.fetch()?),
        b"anon_inode:[signalfd]" => {
            let mask = info.field("sigmask").and_then(|mask| u64::from_str_radix(mask, 16).ok());
            let unreadable = || refused(info, "its signals cannot be read", "close it before the checkpoint");
            Ok(FileKind::SignalFd { mask: mask.ok_or_else(unreadable)? })
        }
        _ => Err(refused(info, "this kind of object is not captured yet", "close it before the checkpoint")),
    }
}

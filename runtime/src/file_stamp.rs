//! Telling without reading it that a file has not changed.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// How old the last change must be for the next one to have another time: file systems count in ticks of the kernel's clock
/// (10 ms at most), and some in steps of their own.
const SETTLED_NS: i64 = 2_000_000_000;

/// What a file system says of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileStamp {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    /// `st_size`.
    pub bytes: u64,
    /// `st_mtim`, ns since the epoch.
    pub modified_ns: i64,
    /// `st_ctim`, ns since the epoch.
    pub changed_ns: i64,
}

/// When a file was changed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTimes {
    /// `st_mtim`, ns since the epoch.
    pub modified_ns: i64,
    /// `st_ctim`, ns since the epoch.
    pub changed_ns: i64,
}

impl FileStamp {
    /// That of a file.
    pub fn of(metadata: &Metadata) -> FileStamp {
        let ns = |seconds: i64, ns: i64| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
        FileStamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// That of a file, unless a change right after it could go unseen.
    pub fn settled(metadata: &Metadata) -> Option<FileStamp> {
        let stamp = FileStamp::of(metadata);
        stamp.is_settled().then_some(stamp)
    }

    /// Whether the next change gives other times.
    pub fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as i64);
        self.changed_ns.max(self.modified_ns) < now - SETTLED_NS
    }

    /// When it was changed last.
    pub fn times(&self) -> FileTimes {
        FileTimes { modified_ns: self.modified_ns, changed_ns: self.changed_ns }
    }

    /// Device and inode.
    pub fn place(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Whether a file that is still open has this content. Its last link may be gone, or there may be another one, which changes the
    /// time of its last change.
    pub fn is_content_of(&self, metadata: &Metadata) -> bool {
        FileStamp { changed_ns: self.changed_ns, ..FileStamp::of(metadata) } == *self
    }

    /// Whether a file that a path leads to is this one, unchanged. After a boot its file system may have another number.
    pub fn is_that_of(&self, metadata: &Metadata) -> bool {
        FileStamp { device: self.device, ..FileStamp::of(metadata) } == *self
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_file_that_was_just_written_has_no_stamp_and_an_old_one_another_after_each_change() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(FileStamp::settled(&file.metadata().unwrap()), None);
        // The time of the last change of anything cannot be set: an old file of the system's has to do.
        let old = File::open("/proc/self/exe").unwrap().metadata().unwrap();
        if let Some(stamp) = FileStamp::settled(&old) {
            assert_eq!((FileStamp::settled(&old), stamp.place()), (Some(stamp), (old.dev(), old.ino())));
        }
        let long_ago = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(1));
        file.set_times(long_ago).unwrap();
        assert_eq!(
            FileStamp::settled(&file.metadata().unwrap()),
            None,
            "whoever sets the time of a change is seen, too"
        );
    }
}

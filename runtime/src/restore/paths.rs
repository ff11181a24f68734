//! Paths and open flags of an image, as the system takes them.

use std::ffi::CString;

use crate::error::{Error, Result};
use crate::image::{FileKind, OpenFile, path_of};

/// Flags that do something at `open` and are not state of the open file.
const OPENING_FLAGS: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOFOLLOW | libc::O_CLOEXEC;

/// The bytes of an image as a path for a system call.
pub fn c_path(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| Error::io("open", path_of(bytes), std::io::ErrorKind::InvalidInput))
}

/// The path by which the description is reopened, if it is.
pub fn reopened_path(file: &OpenFile) -> Option<&[u8]> {
    match &file.kind {
        FileKind::Regular { path, .. } | FileKind::Directory { path, .. } | FileKind::Device { path } => Some(path),
        FileKind::Named { path, .. } => Some(path),
        FileKind::Unlinked { .. } | FileKind::Standard { .. } | FileKind::Pipe { .. } => None,
        FileKind::EventFd { .. } | FileKind::TimerFd { .. } | FileKind::SignalFd { .. } => None,
        FileKind::Epoll { .. } | FileKind::IoUring(_) | FileKind::Socket(_) => None,
        FileKind::PidFd { .. } | FileKind::OfProcess { .. } | FileKind::Inotify { .. } | FileKind::Fanotify(_) => None,
        FileKind::MessageQueue { .. } => None,
        FileKind::TerminalMaster { .. } | FileKind::Terminal { .. } | FileKind::HungUpTerminal { .. } => None,
    }
}

/// The flags with which it is reopened. A file that is missing has passed the preflight because it was empty, and is made
/// again.
pub fn reopening_flags(file: &OpenFile) -> i32 {
    let kept = file.flags & !OPENING_FLAGS | libc::O_NOCTTY;
    // O_TMPFILE contains O_DIRECTORY, and stays in the flags of a file that got its name later.
    let of_file = kept & !libc::O_TMPFILE;
    match &file.kind {
        FileKind::Regular { size: 0, .. } if !file.is_path_only() => of_file | libc::O_CREAT,
        FileKind::Regular { .. } | FileKind::Unlinked { .. } => of_file,
        FileKind::Directory { .. } => kept | libc::O_DIRECTORY,
        _ => kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regular(flags: i32, size: u64) -> OpenFile {
        let kind =
            FileKind::Regular { path: b"/f".to_vec(), device: (0, 0), inode: 1, size, offset: 0, modified_ns: 0 };
        OpenFile { kind, flags }
    }

    #[test]
    fn nothing_is_truncated_or_made_by_reopening_a_file_that_had_content() {
        let flags = libc::O_RDWR | libc::O_APPEND | libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NONBLOCK;
        let expected = libc::O_RDWR | libc::O_APPEND | libc::O_NONBLOCK | libc::O_NOCTTY;
        assert_eq!(reopening_flags(&regular(flags, 5)), expected);
        assert_eq!(reopening_flags(&regular(flags, 0)), expected | libc::O_CREAT);
        assert_eq!(reopening_flags(&regular(libc::O_RDONLY | libc::O_TRUNC, 0)), libc::O_NOCTTY | libc::O_CREAT);
        assert_eq!(reopening_flags(&regular(libc::O_RDONLY | libc::O_TRUNC, 5)), libc::O_NOCTTY);
        assert_eq!(reopening_flags(&regular(libc::O_RDWR | libc::O_TMPFILE, 5)), libc::O_RDWR | libc::O_NOCTTY);
    }

    #[test]
    fn a_path_with_a_zero_in_it_is_refused() {
        assert!(c_path(b"a\0b").is_err());
        assert_eq!(c_path(b"/a b").unwrap().as_bytes(), b"/a b");
    }
}

//! Logs that others append to, too.

use super::{FileKind, Objects};

impl Objects {
    /// Whether others have appended to the regular file with this device and inode behind the last that the job has written: all of its
    /// descriptions append and do nothing else, and the last of them that has written ends before the file does.
    pub fn others_append_to(&self, device: (u32, u32), inode: u64) -> bool {
        let writers = self.files.iter().filter(|file| file.is_writable()).filter_map(|file| match file.kind {
            FileKind::Regular { device: on, inode: number, size, offset, .. } if (on, number) == (device, inode) => {
                let appends = file.flags & (libc::O_ACCMODE | libc::O_APPEND) == libc::O_WRONLY | libc::O_APPEND;
                Some((appends, size, offset))
            }
            _ => None,
        });
        let (mut all_append, mut bytes, mut last) = (true, 0, 0);
        for (appends, size, offset) in writers {
            all_append &= appends;
            bytes = bytes.max(size);
            last = last.max(offset);
        }
        // One that has written nothing yet does not say who has.
        all_append && last > 0 && last < bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::OpenFile;

    #[test]
    fn a_log_that_ends_behind_the_jobs_last_line_is_one_of_others() {
        let file = |inode, size, offset, flags| OpenFile {
            kind: FileKind::Regular { path: b"/log".to_vec(), device: (8, 1), inode, size, offset, modified_ns: 0 },
            flags,
        };
        let append = libc::O_WRONLY | libc::O_APPEND;
        let is_others =
            |files: &[OpenFile]| Objects { files: files.to_vec(), ..Objects::default() }.others_append_to((8, 1), 5);
        assert!(is_others(&[file(5, 100, 70, append)]));
        assert!(is_others(&[file(5, 100, 70, append), file(5, 100, 0, append), file(6, 100, 100, append)]));
        assert!(!is_others(&[file(5, 100, 100, append)]), "nobody else has");
        assert!(!is_others(&[file(5, 100, 70, append), file(5, 100, 100, append)]), "two of the job have");
        assert!(!is_others(&[file(5, 100, 0, append)]), "it has not written yet");
        assert!(!is_others(&[file(5, 100, 70, libc::O_WRONLY)]), "it writes where it is");
        assert!(!is_others(&[file(5, 100, 70, libc::O_RDWR | libc::O_APPEND)]), "it may be reading there");
    }
}

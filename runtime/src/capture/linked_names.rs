//! Files whose first name has been removed, and which have another: `sem_open` makes a semaphore under a name that nobody knows, and
//! gives it its own when it is ready.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;

use nix::sys::stat::{major, minor};

use crate::proc::maps::Mapping;
use crate::proc::{DELETED, sysvipc};

/// What has never had another name.
const NAMELESS: [&[u8]; 3] = [b"/memfd:", b"/dev/zero", sysvipc::MAPPED_NAME];
/// Directories with more entries are not searched.
const ENTRIES_MAX: usize = 20_000;

/// Another name of the file of a shared mapping, in the directory of its first one.
pub fn other_name(mapping: &Mapping) -> Option<Vec<u8>> {
    let first = mapping.name.strip_suffix(DELETED).filter(|name| mapping.shared && name.starts_with(b"/"))?;
    if NAMELESS.iter().any(|nameless| first.starts_with(nameless)) {
        return None;
    }
    let directory = Path::new(OsStr::from_bytes(first)).parent()?;
    let mut entries = fs::read_dir(directory).ok()?.flatten().take(ENTRIES_MAX);
    let found = entries.find(|entry| entry.ino() == mapping.inode && is_it(&entry.path(), mapping))?;
    Some(found.path().into_os_string().into_vec())
}

fn is_it(path: &Path, mapping: &Mapping) -> bool {
    let (kernel_major, kernel_minor) = mapping.device;
    fs::symlink_metadata(path).is_ok_and(|there| {
        let device = (major(there.dev()) as u32, minor(there.dev()) as u32);
        there.is_file() && there.ino() == mapping.inode && device == (kernel_major, kernel_minor)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_under_the_name_that_it_was_given_later() {
        let dir = tempfile::tempdir().unwrap();
        let (first, later) = (dir.path().join("first"), dir.path().join("later"));
        fs::write(&first, "x").unwrap();
        fs::hard_link(&first, &later).unwrap();
        let about = fs::metadata(&first).unwrap();
        fs::remove_file(&first).unwrap();
        let mapping = Mapping {
            shared: true,
            inode: about.ino(),
            device: (major(about.dev()) as u32, minor(about.dev()) as u32),
            name: [first.as_os_str().as_bytes(), DELETED].concat(),
            ..Mapping::default()
        };
        assert_eq!(other_name(&mapping), Some(later.clone().into_os_string().into_vec()));
        assert_eq!(other_name(&Mapping { shared: false, ..mapping.clone() }), None);
        fs::remove_file(&later).unwrap();
        assert_eq!(other_name(&mapping), None);
    }
}

//! Whether others can change where a path leads to.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use crate::without_links;

/// The directory at `path`, if root and `user` alone can make the path lead elsewhere, and make or exchange entries of the directory:
/// each directory on it belongs to one of the two, and others cannot write to it. On the way it may also be sticky, if what the path
/// takes in it belongs to one of the two. (Groups and access lists count as others; the kernel shows the rights that a list gives
/// among those of the group.)
///
/// # Errors
/// When a directory cannot be opened.
pub fn directory(path: &Path, user: u32) -> io::Result<Option<File>> {
    let is_own = |metadata: &Metadata| metadata.uid() == 0 || metadata.uid() == user;
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let mut here = without_links::open(Path::new("/"), flags, 0)?;
    for component in path.components() {
        let name = match component {
            Component::Normal(name) => name,
            Component::RootDir | Component::CurDir => continue,
            // The kernel writes no such paths.
            Component::ParentDir | Component::Prefix(_) => return Ok(None),
        };
        let metadata = here.metadata()?;
        let next = match without_links::open_at(&here, name, flags, 0) {
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Ok(None),
            opened => opened?,
        };
        let may_be_exchanged = others_may_write(&metadata) && (!is_sticky(&metadata) || !is_own(&next.metadata()?));
        if !is_own(&metadata) || may_be_exchanged {
            return Ok(None);
        }
        here = next;
    }
    let metadata = here.metadata()?;
    Ok((is_own(&metadata) && !others_may_write(&metadata)).then_some(here))
}

fn others_may_write(metadata: &Metadata) -> bool {
    metadata.mode() & 0o022 != 0
}

fn is_sticky(metadata: &Metadata) -> bool {
    metadata.mode() & libc::S_ISVTX != 0
}

/// The directory that `path` is in, and its name there. None of the root directory, and of what ends in `..`.
pub fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    Some((path.parent()?, path.file_name()?))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    use nix::unistd::geteuid;

    use super::*;

    #[test]
    fn directories_that_others_can_write_to_are_not_trusted_unless_they_are_sticky() {
        if !geteuid().is_root() {
            println!("SKIPPED: directories of several users need root");
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path().canonicalize().unwrap();
        let inner = top.join("open/inner");
        fs::create_dir_all(&inner).unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let is_trusted = |path: &Path, user| directory(path, user).unwrap().is_some();

        assert!(is_trusted(&inner, 0));
        mode(&top.join("open"), 0o777);
        assert!(!is_trusted(&inner, 0));
        mode(&top.join("open"), 0o775);
        assert!(!is_trusted(&inner, 0), "a group is others");
        mode(&top.join("open"), 0o1777);
        assert!(is_trusted(&inner, 0));
        assert!(!is_trusted(&top.join("open"), 0), "others can make entries of it");
        chown(&inner, Some(65534), None).unwrap();
        assert!(!is_trusted(&inner, 0), "of another user in a sticky directory");
        assert!(is_trusted(&inner, 65534));
    }
}

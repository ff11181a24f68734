//! Saving what a restart replaces in a file, beside it.

use std::fs::{File, Permissions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::PathBuf;

use nix::unistd::geteuid;

use super::reach::Spot;
use crate::saved_name::{Saved, saved_name};
use crate::sparse;

/// Copies kept of one file and checkpoint.
const COPIES_MAX: u32 = 100;
/// Bytes compared at a time.
const COMPARED_BYTES: usize = 1 << 20;

/// Saves what lies from `start` on in `file`, which is at `spot`, under the first free name. A copy that exists already with
/// the same content will do.
pub fn save(file: &mut File, spot: &Spot, start: u64, id: u64, saved: Saved) -> io::Result<PathBuf> {
    for number in 0..COPIES_MAX {
        let beside = beside(spot, id, saved, number)?;
        file.seek(SeekFrom::Start(start))?;
        match beside.make(libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o600, None) {
            Ok(mut copy) => {
                let copied = match saved {
                    Saved::Whole => file.metadata().and_then(|metadata| sparse::copy(file, &copy, metadata.len())),
                    Saved::Tail => io::copy(file, &mut copy).map(drop),
                };
                let copied = copied.and_then(|()| share_as(file, &copy)).and_then(|()| copy.sync_all());
                if copied.is_err() {
                    let _ = beside.remove(); // half a copy is worse than none
                }
                return copied.map(|()| beside.path().to_owned());
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if beside.open_regular(false, None).and_then(|copy| same_content(file, start, &copy))? {
                    return Ok(beside.path().to_owned());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("there are {COPIES_MAX} copies already")))
}

/// Lets those read `copy` who may read `file`. It stays its owner's alone where it cannot have the group of the file.
fn share_as(file: &File, copy: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    let user = geteuid().is_root().then_some(metadata.uid());
    let has_group = fchown(copy, user, Some(metadata.gid())).is_ok() || copy.metadata()?.gid() == metadata.gid();
    let shared = if has_group { 0o777 } else { 0o700 };
    copy.set_permissions(Permissions::from_mode(metadata.mode() & shared))
}

/// Renames what is at `spot`, so that it is out of the way; gives its new path.
pub fn move_aside(spot: &Spot, id: u64) -> io::Result<PathBuf> {
    for number in 0..COPIES_MAX {
        let beside = beside(spot, id, Saved::Whole, number)?;
        match spot.rename_to(beside.name()) {
            Ok(()) => return Ok(beside.path().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("there are {COPIES_MAX} copies already")))
}

fn beside(spot: &Spot, id: u64, saved: Saved, number: u32) -> io::Result<Spot> {
    let name = saved_name(spot.path(), id, saved, number);
    spot.beside(name.file_name().unwrap_or_default())
}

/// Whether what lies from `start` on in `file` is all of `copy`.
fn same_content(file: &File, start: u64, copy: &File) -> io::Result<bool> {
    let bytes = copy.metadata()?.len();
    if file.metadata()?.len() != start + bytes {
        return Ok(false);
    }
    let (mut one, mut other) = (vec![0; COMPARED_BYTES], vec![0; COMPARED_BYTES]);
    for at in (0..bytes).step_by(COMPARED_BYTES) {
        let wanted = (bytes - at).min(COMPARED_BYTES as u64) as usize;
        file.read_exact_at(&mut one[..wanted], start + at)?;
        copy.read_exact_at(&mut other[..wanted], at)?;
        if one[..wanted] != other[..wanted] {
            return Ok(false);
        }
    }
    Ok(true)
}

//! Saving what a restart replaces in a file, beside it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::saved_name::{Saved, saved_name};
use crate::sparse;

/// Copies kept of one file and checkpoint.
const COPIES_MAX: u32 = 100;
/// Bytes compared at a time.
const COMPARED_BYTES: usize = 1 << 20;

/// Saves what lies from `start` on in `file`, whose path is `path`, under the first free name. A copy that exists already with
/// the same content will do.
pub fn save(file: &mut File, path: &Path, start: u64, id: u64, saved: Saved) -> io::Result<PathBuf> {
    let mode = file.metadata()?.mode() & 0o777;
    for number in 0..COPIES_MAX {
        let name = saved_name(path, id, saved, number);
        file.seek(SeekFrom::Start(start))?;
        match OpenOptions::new().write(true).create_new(true).mode(mode).open(&name) {
            Ok(mut copy) => {
                let copied = match saved {
                    Saved::Whole => file.metadata().and_then(|metadata| sparse::copy(file, &copy, metadata.len())),
                    Saved::Tail => io::copy(file, &mut copy).map(drop),
                };
                let copied = copied.and_then(|()| copy.sync_all());
                if copied.is_err() {
                    let _ = fs::remove_file(&name); // half a copy is worse than none
                }
                return copied.map(|()| name);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if File::open(&name).and_then(|copy| same_content(file, start, &copy))? {
                    return Ok(name);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("there are {COPIES_MAX} copies already")))
}

/// Renames what `path` leads to, so that it is out of the way.
pub fn move_aside(path: &Path, id: u64) -> io::Result<PathBuf> {
    for number in 0..COPIES_MAX {
        let name = saved_name(path, id, Saved::Whole, number);
        if fs::symlink_metadata(&name).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            fs::rename(path, &name)?;
            return Ok(name);
        }
    }
    Err(io::Error::other(format!("there are {COPIES_MAX} copies already")))
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

//! Saving what a restart replaces in a file, beside it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::saved_name::{Saved, saved_name};

/// Copies kept of one file and checkpoint.
const COPIES_MAX: u32 = 100;

/// Saves what lies from `start` on in `file`, whose path is `path`, under the first free name. A copy that exists already with
/// the same content will do.
pub fn save(file: &mut File, path: &Path, start: u64, id: u64, saved: Saved) -> io::Result<PathBuf> {
    let mode = file.metadata()?.mode() & 0o777;
    for number in 0..COPIES_MAX {
        let name = saved_name(path, id, saved, number);
        file.seek(SeekFrom::Start(start))?;
        match OpenOptions::new().write(true).create_new(true).mode(mode).open(&name) {
            Ok(mut copy) => {
                let copied = io::copy(file, &mut copy).and_then(|_| copy.sync_all());
                if copied.is_err() {
                    let _ = fs::remove_file(&name); // half a copy is worse than none
                }
                return copied.map(|()| name);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if File::open(&name).and_then(|copy| same_content(file, copy))? {
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

fn same_content(one: &mut File, other: File) -> io::Result<bool> {
    let mut one = io::BufReader::new(one).bytes();
    let mut other = io::BufReader::new(other).bytes();
    loop {
        match (one.next().transpose()?, other.next().transpose()?) {
            (None, None) => return Ok(true),
            (a, b) if a != b => return Ok(false),
            _ => {}
        }
    }
}

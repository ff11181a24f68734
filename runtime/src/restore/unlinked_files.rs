//! Files that no path leads to: made anew, without a name, where they were if that is possible.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ckpt_store::Store;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};

use super::captured_files::write_content;
use super::file_mappings::MappingPlan;
use super::paths::c_path;
use crate::descriptor::made;
use crate::error::{Error, Result};
use crate::image::{Objects, UnlinkedFile, path_of};

/// Makes a file with its content, as its owner can read and write it for now.
pub fn make(file: &UnlinkedFile, store: &Store, spare_directory: &Path) -> Result<File> {
    let path = path_of(&file.path);
    let failed = |source: io::Error| Error::io("make again, without a name,", path, source);
    let made = match file.memory_seals {
        Some(_) => memory_file(&file.path, true)?,
        None => {
            let beside = unnamed(path.parent().unwrap_or(Path::new("/")));
            // Its directory may have gone with it, or belong to somebody else by now.
            beside.or_else(|_| unnamed(spare_directory)).map_err(failed)?
        }
    };
    write_content(&made, &file.content, store, &failed)?;
    seal(&made, file, LATE_SEALS.complement())?;
    Ok(made)
}

fn unnamed(directory: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(directory)
}

/// A file in memory that can be mapped, and sealed if that is wished.
pub fn memory_file(name: &[u8], may_be_sealed: bool) -> Result<File> {
    let failed = |source: io::Error| Error::io("make the shared memory", path_of(name), source);
    let text = c_path(name)?;
    let flags = libc::MFD_CLOEXEC | if may_be_sealed { libc::MFD_ALLOW_SEALING } else { 0 };
    // SAFETY: `text` ends with a zero and outlives the call.
    let file = made(unsafe { libc::memfd_create(text.as_ptr(), flags) }).map_err(|errno| failed(errno.into()))?;
    Ok(File::from(file))
}

/// Seals that forbid a mapping which the program may have had already.
const LATE_SEALS: SealFlag = SealFlag::F_SEAL_FUTURE_WRITE.union(SealFlag::F_SEAL_SEAL);

fn seal(file: &File, unlinked: &UnlinkedFile, which: SealFlag) -> Result<()> {
    let Some(seals) = unlinked.memory_seals else { return Ok(()) };
    let seals = SealFlag::from_bits_truncate(seals) & which;
    fcntl(file.as_fd(), FcntlArg::F_ADD_SEALS(seals))
        .map(drop)
        .map_err(|errno| Error::io("seal", path_of(&unlinked.path), errno))
}

/// Gives the files their modes and last seals, when all have been opened and mapped.
pub fn complete(objects: &Objects, plan: &MappingPlan) -> Result<()> {
    for (unlinked, &file) in objects.unlinked_files.iter().zip(&plan.unlinked) {
        let file = &plan.files[file];
        file.set_permissions(Permissions::from_mode(unlinked.mode))
            .map_err(|source| Error::io("set the mode of", path_of(&unlinked.path), source))?;
        seal(file, unlinked, LATE_SEALS)?;
    }
    Ok(())
}

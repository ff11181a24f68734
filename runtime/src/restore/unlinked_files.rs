//! Files that no path leads to: made anew, without a name, where they were if that is possible.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ckpt_store::{PAGE_BYTES, Store};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;

use super::captured_files::write_content;
use super::huge_pages;
use super::mapping_plan::MappingPlan;
use super::paths::c_path;
use super::reach::{self, Holders, Rights};
use crate::descriptor::made;
use crate::error::{Error, Result};
use crate::image::{FileContent, JobImage, UnlinkedFile, path_of};

const NANOSECONDS: i64 = 1_000_000_000;

/// Makes a file with its content, as its owner can read and write it for now, with the rights of one of its `holders`.
pub fn make(file: &UnlinkedFile, holders: &[Rights], store: &Store, spare_directory: &Path) -> Result<File> {
    let path = path_of(&file.path);
    let failed = |source: io::Error| Error::io("make again, without a name,", path, source);
    let made = match file.memory_seals {
        Some(_) => memory_file(&file.path, true, file.huge_page_bytes)?,
        None => {
            let flags = libc::O_TMPFILE | libc::O_RDWR;
            let beside = reach::open(path.parent().unwrap_or(Path::new("/")), flags, holders, None);
            // Its directory may have gone with it, or belong to somebody else by now.
            beside.or_else(|_| unnamed(spare_directory)).map_err(failed)?
        }
    };
    match file.huge_page_bytes {
        0 => write_content(&made, &file.content, store, &failed)?,
        _ => write_huge_pages(&made, &file.content, store, &failed)?,
    }
    seal(&made, file, LATE_SEALS.complement())?;
    Ok(made)
}

fn unnamed(directory: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(directory)
}

/// Writes all of a content into a new file of huge pages. What is zero takes none.
fn write_huge_pages(
    file: &File,
    content: &FileContent,
    store: &Store,
    failed: &dyn Fn(io::Error) -> Error,
) -> Result<()> {
    file.set_len(content.bytes).map_err(failed)?;
    if content.bytes == 0 {
        return Ok(());
    }
    let mapped = huge_pages::map(file, content.bytes).map_err(failed)?;
    let mut page = [0; PAGE_BYTES];
    for (number, key) in store.page_list(&content.pages)?.iter().filter(|(_, key)| !key.is_zero()) {
        store.read_pages(&[key], &mut page)?;
        mapped.write(number * PAGE_BYTES as u64, &page);
    }
    Ok(())
}

/// A file in memory that can be mapped, and sealed if that is wished; of huge pages of so many bytes, unless that is 0.
pub fn memory_file(name: &[u8], may_be_sealed: bool, huge_page_bytes: u64) -> Result<File> {
    let failed = |source: io::Error| Error::io("make the shared memory", path_of(name), source);
    let text = c_path(name)?;
    let huge = match huge_page_bytes {
        0 => 0,
        bytes => libc::MFD_HUGETLB | huge_pages::size_bits(bytes).cast_unsigned(),
    };
    let flags = libc::MFD_CLOEXEC | huge | if may_be_sealed { libc::MFD_ALLOW_SEALING } else { 0 };
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

/// Gives the files their owners, modes and last seals, when all have been opened and mapped.
pub fn complete(job: &JobImage, plan: &MappingPlan) -> Result<()> {
    let holders = Holders::of(job);
    for (index, (unlinked, &file)) in job.objects.unlinked_files.iter().zip(&plan.unlinked).enumerate() {
        let (file, path) = (&plan.files[file], path_of(&unlinked.path));
        // A process that has it can give it a name: it must not run as the user of this command.
        let holder = &holders.of_unlinked(index)[0];
        reach::give(file, path, (holder.user, holder.group), unlinked.mode, holder)
            .map_err(|source| Error::io("set the mode of", path, source))?;
        if let Some([read, written]) = unlinked.times_ns {
            futimens(file, &time(read), &time(written))
                .map_err(|source| Error::io("set the times of", path, source))?;
        }
        seal(file, unlinked, LATE_SEALS)?;
    }
    Ok(())
}

fn time(ns: i64) -> TimeSpec {
    TimeSpec::new(ns.div_euclid(NANOSECONDS), ns.rem_euclid(NANOSECONDS))
}

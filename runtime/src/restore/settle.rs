//! Puts the files on disk in step with the memory, when nothing else can fail any more.
//!
//! - A file that the program maps for writing gets the pages of the checkpoint back, those that differ, and its size
//!   if it is shorter.
//! - A file that was open for writing and has grown since is cut back to its size at the checkpoint, or the program
//!   would append its output a second time. What is cut off is first saved beside it as NAME.ckpt-ID.tail, so that
//!   nothing is lost; where that is impossible, a warning says so.
//!
//! The standard streams are never touched: they are the restarter's.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ckpt_store::{PAGE_BYTES, PageKey, Store};

use super::file_comparison::read_padded;
use super::file_mappings::{MappingPlan, Source};
use super::paths::{is_writable, path_of};
use crate::error::{Error, Result};
use crate::image::{Backing, FileIdentity, FileKind, ProcessImage, Region};

const PAGE: u64 = PAGE_BYTES as u64;
/// Tails kept of one file and checkpoint.
const TAILS_MAX: u32 = 100;

/// Pages of the shared files that must be written, found and verified before anything is written.
#[derive(Debug)]
pub struct SharedPages {
    /// Region, page in it, key.
    pages: Vec<(usize, u64, PageKey)>,
}

impl SharedPages {
    /// Finds the pages in which the mapped files differ from the checkpoint, and verifies them in the store.
    pub fn find(image: &ProcessImage, plan: &MappingPlan, store: &Store) -> Result<SharedPages> {
        let mut found = Vec::new();
        for (index, region, identity, file) in writable_mappings(image, plan) {
            let list = store.page_list(&region.pages)?;
            let mut content = [0; PAGE_BYTES];
            for page in 0..pages_within(region, identity) {
                read_padded(file, identity.offset + page * PAGE, &mut content)
                    .map_err(|source| Error::io("read", path_of(&identity.path), source))?;
                let key = list.get(page);
                if store.digest().key_of(&content) != key {
                    read_page(store, key, &mut content)?;
                    found.push((index, page, key));
                }
            }
        }
        Ok(SharedPages { pages: found })
    }

    fn write(&self, image: &ProcessImage, plan: &MappingPlan, store: &Store) -> Result<()> {
        for (index, region, identity, file) in writable_mappings(image, plan) {
            let failed = |source| Error::io("write the mapped pages of", path_of(&identity.path), source);
            if file.metadata().map_err(failed)?.len() < identity.size {
                file.set_len(identity.size).map_err(failed)?;
            }
            for &(_, page, key) in self.pages.iter().filter(|(of, ..)| *of == index) {
                let mut content = [0; PAGE_BYTES];
                read_page(store, key, &mut content)?;
                let start = identity.offset + page * PAGE;
                let bytes = identity.size.saturating_sub(start).min(PAGE) as usize;
                debug_assert!(page < region.bytes / PAGE);
                file.write_all_at(&content[..bytes], start).map_err(failed)?;
            }
        }
        Ok(())
    }
}

fn read_page(store: &Store, key: PageKey, into: &mut [u8; PAGE_BYTES]) -> Result<()> {
    if key.is_zero() {
        into.fill(0);
        return Ok(());
    }
    Ok(store.read_pages(&[key], into)?)
}

/// Pages of the region that lie within the file as it was.
fn pages_within(region: &Region, identity: &FileIdentity) -> u64 {
    (region.bytes / PAGE).min(identity.size.saturating_sub(identity.offset).div_ceil(PAGE))
}

fn writable_mappings<'a>(
    image: &'a ProcessImage,
    plan: &'a MappingPlan,
) -> impl Iterator<Item = (usize, &'a Region, &'a FileIdentity, &'a File)> {
    let sources = image.regions.iter().zip(&plan.sources).enumerate();
    sources.filter_map(|(index, (region, source))| match (&region.backing, source) {
        (Backing::SharedFile { file: identity, .. }, &Source::SharedFile { file, may_write: true, .. }) => {
            Some((index, region, identity, plan.files.get(file)?))
        }
        _ => None,
    })
}

/// Writes the shared files' pages and cuts grown files back. `id` names the checkpoint in the tails' names.
pub fn settle(id: u64, image: &ProcessImage, plan: &MappingPlan, store: &Store, shared: &SharedPages) -> Result<()> {
    shared.write(image, plan, store)?;
    for file in image.files.iter().filter(|file| is_writable(file)) {
        if let FileKind::Regular { path, size, .. } = &file.kind {
            cut_back(path_of(path), *size, id)?;
        }
    }
    Ok(())
}

fn cut_back(path: &Path, size: u64, id: u64) -> Result<()> {
    let failed = |source| Error::io("cut back to its size at the checkpoint", path, source);
    if fs::metadata(path).map_err(failed)?.len() <= size {
        return Ok(());
    }
    let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    match save_tail(&mut file, path, size, id) {
        Ok(tail) => log::info!("{}: what was written after the checkpoint is in {}", path.display(), tail.display()),
        Err(error) => {
            log::warn!("{}: what was written after the checkpoint could not be saved: {error}", path.display());
        }
    }
    file.set_len(size).map_err(failed)
}

/// Saves what lies beyond `size` under the first free name. A tail that exists already with the same content will do.
fn save_tail(file: &mut File, path: &Path, size: u64, id: u64) -> io::Result<PathBuf> {
    let mode = file.metadata()?.mode() & 0o777;
    for number in 0..TAILS_MAX {
        let tail = tail_path(path, id, number);
        file.seek(SeekFrom::Start(size))?;
        match OpenOptions::new().write(true).create_new(true).mode(mode).open(&tail) {
            Ok(mut saved) => {
                let copied = io::copy(file, &mut saved).and_then(|_| saved.sync_all());
                if copied.is_err() {
                    let _ = fs::remove_file(&tail); // half a tail is worse than none
                }
                return copied.map(|()| tail);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if File::open(&tail).and_then(|saved| same_content(file, saved))? {
                    return Ok(tail);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("there are {TAILS_MAX} tails already")))
}

fn tail_path(path: &Path, id: u64, number: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".ckpt-{id}.tail"));
    if number > 0 {
        name.push(format!(".{number}"));
    }
    PathBuf::from(name)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::sample::ScratchDir;

    #[test]
    fn what_is_cut_off_is_saved_beside_the_file() {
        let dir = ScratchDir::new();
        let path = dir.file("log", b"before|after");
        cut_back(&path, 7, 3).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"before|");
        assert_eq!(fs::read(dir.path().join("log.ckpt-3.tail")).unwrap(), b"after");
        cut_back(&path, 7, 3).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_second_tail_gets_a_name_of_its_own_unless_it_is_the_same() {
        let dir = ScratchDir::new();
        let path = dir.file("log", b"");
        for (run, content) in ["x1", "x2", "x1"].iter().enumerate() {
            fs::write(&path, content).unwrap();
            cut_back(&path, 1, 9).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"x", "run {run}");
        }
        assert_eq!(fs::read(dir.path().join("log.ckpt-9.tail")).unwrap(), b"1");
        assert_eq!(fs::read(dir.path().join("log.ckpt-9.tail.1")).unwrap(), b"2");
        assert!(!dir.path().join("log.ckpt-9.tail.2").exists());
    }
}

//! Making the content of a file hold still.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::held::{Content, Held, Known};
use crate::file_stamp::FileStamp;
use crate::sparse;

/// Bytes of files that are copied into memory, together.
const IN_MEMORY_BYTES_MAX: u64 = 32 << 20;

/// Read at a time through a descriptor of the program.
const PIECE_BYTES: usize = 1 << 20;

/// Copies files, the small ones into memory.
#[derive(Debug)]
pub struct Holder<'a> {
    /// What the last checkpoint has.
    pub known: &'a Known,
    /// Whether the program runs on before the content has been read.
    pub runs_on: bool,
    /// Where copies may be.
    pub store: &'a Path,
    in_memory_bytes: u64,
}

impl<'a> Holder<'a> {
    /// Has copied nothing.
    pub fn new(known: &'a Known, runs_on: bool, store: &'a Path) -> Holder<'a> {
        Holder { known, runs_on, store, in_memory_bytes: 0 }
    }

    /// Makes the content of `file`, opened for reading, hold still. `unseen`: it may be written to in a way that leaves no time.
    pub fn hold(&mut self, file: File, unseen: bool) -> io::Result<Held> {
        let metadata = file.metadata()?;
        let bytes = metadata.len();
        let stamp = if unseen { None } else { FileStamp::settled(&metadata) };
        let known = stamp.and_then(|stamp| self.known.get(&stamp.place()).filter(|known| known.stamp == stamp));
        let content = match known {
            Some(known) => Content::Known(known.content.clone()),
            None if !self.runs_on => Content::File(file),
            None if bytes <= IN_MEMORY_BYTES_MAX.saturating_sub(self.in_memory_bytes) => {
                self.in_memory_bytes += bytes;
                Content::Copy(read(&file, bytes)?)
            }
            None => Content::File(copied(&file, bytes, self.store)?),
        };
        Ok(Held { bytes, content, stamp })
    }
}

impl Holder<'_> {
    /// The same of a file that is to be read through a descriptor of the program itself, whose place in it stays as it is.
    pub fn hold_through(&mut self, shared: &File) -> io::Result<Held> {
        let metadata = shared.metadata()?;
        let (bytes, stamp) = (metadata.len(), FileStamp::settled(&metadata));
        let copy = unnamed(self.store)?;
        let mut buffer = vec![0; PIECE_BYTES];
        let mut at = 0;
        while at < bytes {
            let wanted = (bytes - at).min(PIECE_BYTES as u64) as usize;
            let read = shared.read_at(&mut buffer[..wanted], at)?;
            if read == 0 {
                break;
            }
            copy.write_all_at(&buffer[..read], at)?;
            at += read as u64;
        }
        copy.set_len(bytes)?;
        Ok(Held { bytes, content: Content::File(copy), stamp })
    }
}

fn read(mut file: &File, bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::with_capacity(bytes as usize);
    file.seek(SeekFrom::Start(0))?;
    file.take(bytes).read_to_end(&mut content)?;
    Ok(content)
}

/// A copy without a name.
fn copied(file: &File, bytes: u64, directory: &Path) -> io::Result<File> {
    let copy = unnamed(directory)?;
    sparse::copy(file, &copy, bytes)?;
    Ok(copy)
}

fn unnamed(directory: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(directory)
}

/// Bytes that the file takes on its file system: a hole takes none.
pub fn bytes_there(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    Ok(metadata.len().min(metadata.blocks().saturating_mul(512)))
}

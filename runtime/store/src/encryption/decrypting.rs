//! A file of an encrypted store while it is read: the frames that have the bytes are read, proved and decrypted.

use std::{
    cell::Cell,
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use ring::aead::LessSafeKey;

use super::{
    frames::{self, FRAME_BYTES, FileHead, HEAD_BYTES, content_before, frame_of, frame_start},
    store_key::StoreKey,
};
use crate::{StoreError, backend::ReadFile};

/// Frames read with one call: as many as stay in a core's own cache.
const FRAMES_TOGETHER: u64 = 32;

thread_local! {
    /// Where a thread reads frames to: memory that it has touched before costs no page faults.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A file that does not change.
struct DecryptingFile {
    file: Box<dyn ReadFile>,
    path: PathBuf,
    key: LessSafeKey,
    file_bytes: u64,
    frames: u64,
    content_bytes: u64,
    /// The content of a frame that was read for a few bytes, as those behind them often are next.
    latest: Mutex<Option<(u64, Vec<u8>)>>,
}

/// A file that is damaged, or another's. Who reads it is told; that it is there is true all the same.
struct RefusedFile {
    path: PathBuf,
    file_bytes: u64,
    offset: u64,
    what: &'static str,
    expected: &'static str,
    found: String,
}

impl ReadFile for RefusedFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file_bytes)
    }

    fn read_exact_at(&self, _offset: u64, _out: &mut [u8]) -> io::Result<()> {
        Err(corrupt(&self.path, self.offset, self.what, self.expected, &self.found))
    }
}

/// Opens the file that is `name`, by its first frame, which is read.
pub(super) fn open(
    file: Box<dyn ReadFile>,
    path: &Path,
    name: &str,
    store_key: &StoreKey,
) -> io::Result<Box<dyn ReadFile>> {
    let file_bytes = file.length()?;
    let refused = |offset, what, expected, found: String| -> io::Result<Box<dyn ReadFile>> {
        Ok(Box::new(RefusedFile { path: path.into(), file_bytes, offset, what, expected, found }))
    };
    let Some((frames, content_bytes)) = frames::content_of(file_bytes) else {
        return refused(0, "an encrypted file", "of a length that one can have", format!("of {file_bytes} bytes"));
    };
    let mut first = vec![0; file_bytes.min(FRAME_BYTES as u64) as usize];
    file.read_exact_at(0, &mut first)?;
    let Some(head) = FileHead::of(&first) else {
        return refused(0, "the head of an encrypted file", "one of this version", "another, or none".into());
    };
    let key = store_key.of_file(name, &head);
    let latest = Mutex::default();
    let opened = DecryptingFile { file, path: path.into(), key, file_bytes, frames, content_bytes, latest };
    match frames::decrypt(&opened.key, 0, frames == 1, &mut first[HEAD_BYTES..]) {
        Some(content) => opened.keep(0, content.to_vec()),
        None => return refused(HEAD_BYTES as u64, FRAME, RIGHT_FRAME, OTHER_FRAME.into()),
    }
    Ok(Box::new(opened))
}

const FRAME: &str = "an encrypted frame";
const RIGHT_FRAME: &str = "that of this store, this file and this place";
const OTHER_FRAME: &str = "another, or a damaged one";

impl DecryptingFile {
    fn decrypted<'a>(&self, frame: u64, bytes: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let content = frames::decrypt(&self.key, frame, frame + 1 == self.frames, bytes);
        content.ok_or_else(|| corrupt(&self.path, frame_start(frame), FRAME, RIGHT_FRAME, OTHER_FRAME))
    }

    fn keep(&self, frame: u64, content: Vec<u8>) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some((frame, content));
    }

    /// Takes bytes from the frame that is kept; whether it is that one.
    fn take_kept(&self, frame: u64, offset: u64, out: &mut [u8]) -> bool {
        let kept = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, content)) = kept.as_ref().filter(|(kept, _)| *kept == frame) else { return false };
        let from = (offset - content_before(frame)) as usize;
        out.copy_from_slice(&content[from..from + out.len()]);
        true
    }

    /// Fills `out` from `offset` of the content, both of which lie in the frames `first` to `last`.
    fn read_frames(&self, first: u64, last: u64, offset: u64, out: &mut [u8], scratch: &mut Vec<u8>) -> io::Result<()> {
        let (start, end) = (frame_start(first), self.file_bytes.min((last + 1) * FRAME_BYTES as u64));
        let bytes = (end - start) as usize;
        if scratch.len() < bytes {
            scratch.resize(bytes, 0);
        }
        let scratch = &mut scratch[..bytes];
        self.file.read_exact_at(start, scratch)?;
        let (mut rest, mut filled) = (scratch, 0);
        for frame in first..=last {
            let length = (frame_start(frame + 1) - frame_start(frame)) as usize;
            let (this, others) = rest.split_at_mut(length.min(rest.len()));
            let content = self.decrypted(frame, this)?;
            let from = (offset + filled as u64 - content_before(frame)) as usize;
            let taken = (content.len() - from).min(out.len() - filled);
            out[filled..filled + taken].copy_from_slice(&content[from..from + taken]);
            filled += taken;
            if first == last {
                self.keep(frame, content.to_vec());
            }
            rest = others;
        }
        Ok(())
    }
}

impl ReadFile for DecryptingFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.content_bytes)
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > self.content_bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (first, last) = (frame_of(offset), frame_of(offset + out.len() as u64 - 1));
        if first == last && self.take_kept(first, offset, out) {
            return Ok(());
        }
        let mut scratch = SCRATCH.take();
        let read = (first..=last).step_by(FRAMES_TOGETHER as usize).try_for_each(|frame| {
            let until = last.min(frame + FRAMES_TOGETHER - 1);
            let from = offset.max(content_before(frame));
            let end = (offset + out.len() as u64).min(content_before(until + 1));
            let out = &mut out[(from - offset) as usize..(end - offset) as usize];
            self.read_frames(frame, until, from, out, &mut scratch)
        });
        SCRATCH.set(scratch);
        read
    }

    fn is_at_hand(&self, offset: u64) -> bool {
        self.file.is_at_hand(frame_start(frame_of(offset)))
    }

    fn will_be_read(&self, offset: u64, length: u64) {
        let start = frame_start(frame_of(offset));
        let end = frame_start(frame_of(offset.saturating_add(length)) + 1);
        self.file.will_be_read(start, end.min(self.file_bytes).saturating_sub(start));
    }
}

/// An error of the store inside that of the system, where [`crate::files`] finds it.
fn corrupt(path: &Path, offset: u64, what: &'static str, expected: &str, found: &str) -> io::Error {
    let (path, expected, found) = (path.into(), expected.into(), found.into());
    io::Error::other(StoreError::Corrupt { path, offset, what, expected, found })
}

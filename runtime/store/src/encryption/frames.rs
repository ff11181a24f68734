//! The shape of an encrypted file: a head, and frames one after another, each ending in its tag.
//!
//! All frames but the last are as long as [`FRAME_BYTES`] in the file, the head counting to the first: so frame n begins at
//! n times that, and long writes stay multiples of a disk's blocks. How long the content is follows from how long the
//! file is, and the last frame is encrypted as the last one: a file that was cut has no last frame.

use ring::aead::{Aad, LessSafeKey, Nonce, Tag};

use super::random;
use crate::format::VERSION;

/// Bytes of a whole frame in the file.
pub(super) const FRAME_BYTES: usize = 16 << 10;
/// Bytes in front of the first frame.
pub(super) const HEAD_BYTES: usize = 64;
/// Bytes of what authenticates a frame.
pub(super) const TAG_BYTES: usize = 16;
/// The shortest file: no content.
pub(super) const FILE_BYTES_MIN: u64 = (HEAD_BYTES + TAG_BYTES) as u64;

const MAGIC: &[u8; 8] = b"ckptencr";
const SALT_AT: usize = 16;
const SALT_BYTES: usize = 32;

/// The first bytes of a file. Its key is derived from all of them, so none can be changed.
#[derive(Clone, Copy)]
pub(super) struct FileHead([u8; HEAD_BYTES]);

impl FileHead {
    /// The head of a new file, like no other.
    pub fn random() -> std::io::Result<Self> {
        let salt: [u8; SALT_BYTES] = random()?;
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(FRAME_BYTES as u32).to_le_bytes());
        bytes[SALT_AT..SALT_AT + SALT_BYTES].copy_from_slice(&salt);
        Ok(Self(bytes))
    }

    /// The head that a file begins with, if it is one.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let head = Self(*bytes.first_chunk()?);
        let of_this_version =
            head.0[8..12] == VERSION.to_le_bytes() && head.0[12..16] == (FRAME_BYTES as u32).to_le_bytes();
        (head.0.starts_with(MAGIC) && of_this_version).then_some(head)
    }

    pub fn bytes(&self) -> &[u8; HEAD_BYTES] {
        &self.0
    }
}

/// Where a frame begins, and how long its content can be.
pub(super) fn content_room(frame: u64) -> usize {
    if frame == 0 { FRAME_BYTES - HEAD_BYTES - TAG_BYTES } else { FRAME_BYTES - TAG_BYTES }
}

/// Bytes of the content in front of a frame.
pub(super) fn content_before(frame: u64) -> u64 {
    let of_whole_frames = frame * (FRAME_BYTES - TAG_BYTES) as u64;
    if frame == 0 { 0 } else { of_whole_frames - HEAD_BYTES as u64 }
}

/// The frame that has this byte of the content.
pub(super) fn frame_of(offset: u64) -> u64 {
    offset.saturating_add(HEAD_BYTES as u64) / (FRAME_BYTES - TAG_BYTES) as u64
}

/// Where the bytes of a frame begin in the file.
pub(super) fn frame_start(frame: u64) -> u64 {
    if frame == 0 { HEAD_BYTES as u64 } else { frame * FRAME_BYTES as u64 }
}

/// How many frames a file of this length has, and how long its content is. `None` where no file of that length was written.
pub(super) fn content_of(file_bytes: u64) -> Option<(u64, u64)> {
    if file_bytes < FILE_BYTES_MIN {
        return None;
    }
    let frames = file_bytes.div_ceil(FRAME_BYTES as u64);
    let last = file_bytes - frame_start(frames - 1);
    // The last frame of several has content, or it would not be there.
    let least = TAG_BYTES as u64 + u64::from(frames > 1);
    (last >= least).then(|| (frames, content_before(frames - 1) + last - TAG_BYTES as u64))
}

/// How long the file of so much content is.
pub(super) fn file_bytes(content_bytes: u64) -> u64 {
    let last = frame_of(content_bytes.saturating_sub(1));
    frame_start(last) + content_bytes - content_before(last) + TAG_BYTES as u64
}

/// The number of a frame and whether it is the last one: no two frames of a file have the same.
fn nonce(frame: u64, is_last: bool) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&frame.to_le_bytes());
    bytes[8] = u8::from(is_last);
    Nonce::assume_unique_for_key(bytes)
}

/// Encrypts the content of a frame in place, and gives its tag.
pub(super) fn encrypt(key: &LessSafeKey, frame: u64, is_last: bool, content: &mut [u8]) -> std::io::Result<Tag> {
    let sealed = key.seal_in_place_separate_tag(nonce(frame, is_last), Aad::empty(), content);
    sealed.map_err(|_| std::io::Error::other("a frame is too long to be encrypted"))
}

/// Decrypts a frame in place: its content, if it is that frame of that file.
pub(super) fn decrypt<'a>(key: &LessSafeKey, frame: u64, is_last: bool, bytes: &'a mut [u8]) -> Option<&'a [u8]> {
    key.open_in_place(nonce(frame, is_last), Aad::empty(), bytes).ok().map(|content| &*content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_byte_lies_follows_from_the_length_of_the_file() {
        let mut file_bytes = FILE_BYTES_MIN;
        for content in 0..3 * FRAME_BYTES as u64 {
            let (frame, expected) = (frame_of(content.saturating_sub(1)), super::file_bytes(content));
            assert!(content - content_before(frame) <= content_room(frame) as u64);
            assert_eq!(content_of(expected), Some((frame + 1, content)), "{content} bytes");
            assert!(content == 0 || expected > file_bytes, "each length has another file");
            file_bytes = expected;
        }
    }

    #[test]
    fn lengths_that_no_file_has_are_refused() {
        let frame = FRAME_BYTES as u64;
        for bytes in [0, 1, FILE_BYTES_MIN - 1, frame + 1, frame + TAG_BYTES as u64, 7 * frame + 3] {
            assert_eq!(content_of(bytes), None, "{bytes}");
        }
        assert!(content_of(u64::MAX).is_some_and(|(_, content)| content < u64::MAX));
    }
}

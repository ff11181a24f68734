//! Encrypting as bytes are gathered: they are added to a frame in the buffer that is to be written, and encrypted there.
//!
//! Which frame is the last one is known at the end alone, so a full frame waits for the byte behind it.

use std::io;

use ring::aead::LessSafeKey;

use super::frames::{self, FRAME_BYTES, FileHead, content_room};

/// What encrypts a file.
pub struct Encryptor {
    head: Option<FileHead>,
    key: LessSafeKey,
    /// The frame that is being filled, and where its content begins in the buffer.
    frame: u64,
    content_at: usize,
}

impl Encryptor {
    pub(super) fn new(head: FileHead, key: LessSafeKey) -> Self {
        Self { head: Some(head), key, frame: 0, content_at: 0 }
    }

    /// How long buffers are best: the longest up to `bytes` that whole frames fill, and one frame at least.
    pub fn buffer_bytes(bytes: usize) -> usize {
        (bytes / FRAME_BYTES).max(1) * FRAME_BYTES
    }

    /// Adds bytes to a buffer that has room up to its length `full`, and gives back those that are for the next one:
    /// [`Encryptor::go_on_at`] says where they go there.
    pub fn add<'a>(&mut self, buffer: &mut Vec<u8>, full: usize, mut bytes: &'a [u8]) -> io::Result<&'a [u8]> {
        self.put_head(buffer);
        while !bytes.is_empty() {
            let room = content_room(self.frame) - (buffer.len() - self.content_at);
            if room == 0 {
                self.end_frame(buffer, false)?;
                if buffer.len() >= full {
                    break;
                }
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(room));
            buffer.extend_from_slice(now);
            bytes = later;
        }
        Ok(bytes)
    }

    /// The bytes that follow go to another buffer, from this place on, or what was written of this one is gone.
    pub fn go_on_at(&mut self, at: usize) {
        self.content_at = at;
    }

    /// Where the bytes end that are encrypted.
    pub fn encrypted_to(&self) -> usize {
        self.content_at
    }

    /// Ends the last frame. Nothing is added behind it.
    pub fn end(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        self.put_head(buffer);
        self.end_frame(buffer, true)
    }

    fn put_head(&mut self, buffer: &mut Vec<u8>) {
        if let Some(head) = self.head.take() {
            buffer.extend_from_slice(head.bytes());
            self.content_at = buffer.len();
        }
    }

    fn end_frame(&mut self, buffer: &mut Vec<u8>, is_last: bool) -> io::Result<()> {
        let tag = frames::encrypt(&self.key, self.frame, is_last, &mut buffer[self.content_at..])?;
        buffer.extend_from_slice(tag.as_ref());
        self.frame += 1;
        self.content_at = buffer.len();
        Ok(())
    }
}

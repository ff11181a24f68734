//! A file of an encrypted store while it is written. Long ones are encrypted by the thread that has the bytes, which takes the
//! [`Encryptor`] away; records are encrypted here, whole.

use std::io;

use super::encryptor::Encryptor;
use crate::backend::WriteFile;

/// Whole frames are written when they are at least so many bytes together.
const WRITE_BYTES: usize = 128 << 10;

/// A file being written.
pub(super) struct EncryptingFile {
    file: Box<dyn WriteFile>,
    /// `None` when it was taken away, or when the last frame is written.
    encryptor: Option<Encryptor>,
    was_taken: bool,
    buffer: Vec<u8>,
}

impl EncryptingFile {
    pub fn new(file: Box<dyn WriteFile>, encryptor: Encryptor) -> Self {
        Self { file, encryptor: Some(encryptor), was_taken: false, buffer: Vec::new() }
    }

    /// Writes the last frame. Nothing is appended behind it.
    fn end(&mut self) -> io::Result<()> {
        let Some(mut encryptor) = self.encryptor.take() else { return Ok(()) };
        encryptor.end(&mut self.buffer)?;
        self.file.append(&self.buffer)?;
        self.buffer = Vec::new();
        Ok(())
    }
}

impl WriteFile for EncryptingFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.was_taken {
            return self.file.append(bytes);
        }
        let ended = || io::Error::other("nothing can be added to an encrypted file that has ended");
        let encryptor = self.encryptor.as_mut().ok_or_else(ended)?;
        encryptor.add(&mut self.buffer, usize::MAX, bytes)?;
        if encryptor.encrypted_to() >= WRITE_BYTES {
            self.file.append(&self.buffer[..encryptor.encrypted_to()])?;
            self.buffer.drain(..encryptor.encrypted_to());
            encryptor.go_on_at(0);
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.end()?;
        self.file.sync()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.end()?;
        self.file.hold()
    }

    fn check_hold(&self) -> io::Result<()> {
        self.file.check_hold()
    }

    fn take_encryptor(&mut self) -> Option<Encryptor> {
        let encryptor = self.encryptor.take()?;
        self.was_taken = true;
        Some(encryptor)
    }
}

//! Writes a difference as bytes (kernels/FORMAT.md) while it is being found.

use std::io::{self, Write};

use crc32fast::Hasher;
use rayon::prelude::*;

use super::{Head, Sink};

/// Bytes of which a thread computes the checksum at a time.
const CRC_BYTES: usize = 1 << 20;

/// Writes one difference to `W`, with one call for the head and one for each piece of the data.
///
/// It is whole only once [`Encoder::finish`] has returned.
#[derive(Debug)]
pub struct Encoder<W> {
    to: W,
    crc: Hasher,
    /// Bytes of data that are still to come.
    missing: u64,
}

impl<W: Write> Encoder<W> {
    /// Writes to `to`, which may get some ten bytes at a time from small differences, and else at least a MiB.
    pub fn new(to: W) -> Self {
        Self { to, crc: Hasher::new(), missing: 0 }
    }

    /// Writes the trailer, and gives back what was written to: flushing and making it durable is the caller's affair.
    ///
    /// # Errors
    /// When writing fails, or the data were not as long as the head says.
    pub fn finish(mut self) -> io::Result<W> {
        if self.missing > 0 {
            return Err(io::Error::other(format!("{} bytes of data are missing", self.missing)));
        }
        self.to.write_all(&self.crc.finalize().to_le_bytes())?;
        Ok(self.to)
    }
}

impl<W: Write> Sink for Encoder<W> {
    fn head(&mut self, head: &Head) -> io::Result<()> {
        self.missing = head.data_bytes;
        self.to.write_all(&head.encode())
    }

    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        let too_long = || io::Error::other("there are more data than the head says");
        self.missing = self.missing.checked_sub(bytes.len() as u64).ok_or_else(too_long)?;
        self.crc.combine(&crc32(bytes));
        self.to.write_all(bytes)
    }
}

/// The CRC-32 of bytes, by all cores when there are many.
pub(super) fn crc32(bytes: &[u8]) -> Hasher {
    let of = |bytes: &[u8]| {
        let mut crc = Hasher::new();
        crc.update(bytes);
        crc
    };
    let behind = |mut crc: Hasher, next: Hasher| {
        crc.combine(&next);
        crc
    };
    match bytes.len() {
        0..=CRC_BYTES => of(bytes),
        _ => bytes.par_chunks(CRC_BYTES).map(of).reduce(Hasher::new, behind),
    }
}

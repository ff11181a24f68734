//! Where a difference goes while it is being found.
//!
//! A difference can be as long as the memory that it is of, so whoever finds one never holds it whole: it hands over what
//! the data are, then the data in pieces, which may lie in the regions themselves.

use std::io;

use super::{Difference, Head};

/// Takes one difference: its head once, then its data in order, in pieces of any length but 0.
pub trait Sink {
    /// All but the data.
    ///
    /// # Errors
    /// When it cannot be taken. The checkpoint then has not been taken either.
    fn head(&mut self, head: &Head) -> io::Result<()>;

    /// The next bytes of the data.
    ///
    /// # Errors
    /// As for the head.
    fn data(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// Collects all of it in memory.
impl Sink for Difference {
    fn head(&mut self, head: &Head) -> io::Result<()> {
        *self = Self { head: head.clone(), data: Vec::new() };
        let bytes = usize::try_from(head.data_bytes).unwrap_or(usize::MAX);
        self.data.try_reserve_exact(bytes).map_err(|_| io::ErrorKind::OutOfMemory.into())
    }

    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.data.extend_from_slice(bytes);
        Ok(())
    }
}

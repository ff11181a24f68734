//! What there was no memory for, and what was done without.

use super::{
    context::Context,
    error::{Error, Result},
};
use crate::merkle::{Method, Shortage};

/// What there was no memory for so far.
pub struct Short {
    asked: Method,
    needed: u64,
    /// Entries of the history that were forgotten.
    pub forgotten: usize,
}

impl Short {
    /// So far there was memory for everything.
    pub fn of(asked: Method) -> Self {
        Self { asked, needed: 0, forgotten: 0 }
    }

    /// Notes how many bytes are missing, or passes the error on.
    pub fn missing(&mut self, error: Error, context: &Context) -> Result<()> {
        let bytes = error.missing_bytes().ok_or(error)?;
        self.needed = self.needed.max(context.used_bytes() + bytes);
        Ok(())
    }

    /// What is to be said of it.
    pub fn shortage(&self, context: &Context) -> Option<Shortage> {
        let Self { asked, needed, forgotten } = *self;
        let allowed = context.bytes_max().unwrap_or(context.used_bytes());
        (needed > 0).then_some(Shortage { asked, needed, allowed, forgotten })
    }
}

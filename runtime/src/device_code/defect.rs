//! What is wrong with one piece of code, before it is known where that piece comes from.

use std::borrow::Cow;

use crate::error::Error;

/// Something that cannot be understood.
#[derive(Debug)]
pub(super) struct Defect {
    /// Where, counted from the beginning of the piece.
    offset: usize,
    why: Cow<'static, str>,
}

impl Defect {
    pub fn at(offset: usize, why: impl Into<Cow<'static, str>>) -> Defect {
        Defect { offset, why: why.into() }
    }

    /// The error to report, for the piece that is called `code`.
    pub fn of(self, code: impl Into<String>) -> Error {
        Error::DeviceCode { code: code.into(), offset: self.offset as u64, why: self.why.into_owned() }
    }
}

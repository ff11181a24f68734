//! Which global variables the device code in an image has.
//!
//! An image is what a program gives to `cuModuleLoadData` or `cuLibraryLoadData`: PTX, a cubin, or a fatbin of both for
//! several architectures. The driver lists a module's kernels but not its variables, so their names are read here, and
//! the driver is asked for the addresses by name (`cuModuleGetGlobal`); the names are therefore those that the linker
//! sees. A name too many costs one question, a name too few is memory that no checkpoint holds: what cannot be
//! understood is an error, and the list is never merely shorter. An image is the program's own bytes and may be wrong
//! in every way: all of it is checked, and what it says cannot make us take memory without limit.

mod cubin;
mod defect;
mod fatbin;
mod found;
mod ptx;
#[cfg(test)]
mod tests;
mod variable;

use crate::error::{Error, Result};
use defect::Defect;
use found::Found;
pub use variable::{Kind, Variable};

/// Code that is stored packed in a fatbin may be this long when unpacked, one piece at a time.
pub const UNPACKED_BYTES_MAX: u64 = 1 << 30;

/// The variables of all the code in `image`, sorted by name and each once: a name occurs twice only where the code for
/// two architectures disagrees about what it is. Not those that the compiler made for itself (string literals).
///
/// PTX ends with a zero byte, which belongs to `image`.
///
/// # Errors
/// [`Error::DeviceCode`] when `image` is cut short, damaged or no device code; [`Error::Unsupported`] when it is the
/// wrapper of an image elsewhere (see [`wrapped`]), or has code in a form that is not known.
pub fn variables(image: &[u8]) -> Result<Vec<Variable>> {
    variables_within(image, UNPACKED_BYTES_MAX)
}

/// As [`variables`], for packed code that takes no more than `unpacked_bytes_max` when unpacked.
///
/// # Errors
/// As [`variables`]; [`Error::DeviceCode`] for a longer one too.
pub fn variables_within(image: &[u8], unpacked_bytes_max: u64) -> Result<Vec<Variable>> {
    let mut found = Found::default();
    match Form::of(image) {
        Form::Fatbin => fatbin::variables(image, unpacked_bytes_max, &mut found)?,
        Form::Cubin => cubin::variables(image, &mut found).map_err(|defect| defect.of("a cubin"))?,
        Form::Ptx => {
            terminated(image).and_then(|text| ptx::variables(text, &mut found)).map_err(|defect| defect.of("PTX"))?
        }
        Form::Wrapper => {
            return Err(Error::unsupported(
                "a fatbin's wrapper",
                "it has an address in the program's memory instead of code",
                "the image is what lies there",
            ));
        }
    }
    Ok(found.into_variables())
}

/// How many bytes the image has that begins with `head` (its first 64 bytes). `None`: as many as there are up to and
/// with the first zero byte (PTX). A `head` that is no image's, or shorter, gives a length that [`variables`] refuses.
pub fn length(head: &[u8]) -> Option<u64> {
    match Form::of(head) {
        Form::Fatbin => fatbin::length(head),
        Form::Cubin => cubin::length(head),
        Form::Wrapper => Some(fatbin::WRAPPER_BYTES),
        Form::Ptx => None,
    }
}

/// The address of the image itself, if `head` begins with the wrapper that the compiler puts around a fatbin.
pub fn wrapped(head: &[u8]) -> Option<u64> {
    (Form::of(head) == Form::Wrapper).then(|| fatbin::wrapped(head))?
}

/// What an image can be, told by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Fatbin,
    Cubin,
    Wrapper,
    /// Whatever is none of the others: the parser looks whether it is.
    Ptx,
}

impl Form {
    fn of(head: &[u8]) -> Form {
        match head {
            _ if head.starts_with(&fatbin::MAGIC) => Form::Fatbin,
            _ if head.starts_with(&fatbin::WRAPPER_MAGIC) => Form::Wrapper,
            _ if head.starts_with(&cubin::MAGIC) => Form::Cubin,
            _ => Form::Ptx,
        }
    }
}

/// `image` up to its first zero byte.
fn terminated(image: &[u8]) -> Result<&[u8], Defect> {
    let end = image.iter().position(|&byte| byte == 0);
    end.map(|end| &image[..end]).ok_or_else(|| Defect::at(image.len(), "no zero byte ends the text: it is cut short"))
}

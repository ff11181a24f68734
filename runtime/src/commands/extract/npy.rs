//! The head of a .npy file (NumPy's format, version 1.0): what makes raw bytes an array.
//!
//! It is one line of text. The crates that write it read it, too, and bring a parser for Python's literals.

use crate::error::{Error, Result};

/// Element types by NumPy's names, with their bytes.
const TYPES: [(&str, u64); 13] = [
    ("u1", 1),
    ("u2", 2),
    ("u4", 4),
    ("u8", 8),
    ("i1", 1),
    ("i2", 2),
    ("i4", 4),
    ("i8", 8),
    ("f2", 2),
    ("f4", 4),
    ("f8", 8),
    ("c8", 8),
    ("c16", 16),
];
/// The head ends at a multiple of this.
const ALIGNMENT: usize = 64;
/// What stands in front of the text: a mark, the version, and the text's length.
const BEFORE_BYTES: usize = 10;

/// The head of a file with `bytes` of elements of type `dtype`, in one dimension.
///
/// # Errors
/// When there is no such type, or the bytes are not a whole number of elements.
pub fn head(dtype: &str, bytes: u64) -> Result<Vec<u8>> {
    let Some(&(_, size)) = TYPES.iter().find(|(name, _)| *name == dtype) else {
        let names = TYPES.map(|(name, _)| name).join(", ");
        return Err(Error::Usage(format!("--dtype {dtype}: there is no such type; use one of {names}")));
    };
    if !bytes.is_multiple_of(size) {
        return Err(Error::Usage(format!("--dtype {dtype}: {bytes} bytes are no whole number of elements of {size}")));
    }
    let order = if size == 1 { '|' } else { '<' };
    let mut text = format!("{{'descr': '{order}{dtype}', 'fortran_order': False, 'shape': ({},), }}", bytes / size);
    while !(BEFORE_BYTES + text.len() + 1).is_multiple_of(ALIGNMENT) {
        text.push(' ');
    }
    text.push('\n');
    let mut head = b"\x93NUMPY\x01\x00".to_vec();
    head.extend_from_slice(&(text.len() as u16).to_le_bytes());
    head.extend_from_slice(text.as_bytes());
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_is_aligned_and_says_type_and_length() {
        let head = head("f8", 80).unwrap();
        assert!(head.len().is_multiple_of(64) && head.starts_with(b"\x93NUMPY\x01\x00"));
        assert_eq!(usize::from(u16::from_le_bytes([head[8], head[9]])), head.len() - 10);
        let text = std::str::from_utf8(&head[10..]).unwrap();
        assert!(text.contains("'descr': '<f8'") && text.contains("'shape': (10,)") && text.ends_with(" \n"), "{text}");
        assert!(super::head("u1", 3).unwrap().windows(5).any(|part| part == b"'|u1'"));
    }

    #[test]
    fn unknown_types_and_broken_elements_are_refused() {
        assert!(head("f3", 9).unwrap_err().to_string().contains("f4, f8"));
        assert!(head("f8", 9).unwrap_err().to_string().contains("9 bytes"));
    }
}

//! The names under which a restart saves what it replaces: `NAME.ckpt-ID` for a whole file, `NAME.ckpt-ID.tail` for what is cut
//! off, and with `.1`, `.2` ... behind where there is another content of that name already.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// All of a file.
    Whole,
    /// What lies behind the end that it gets.
    Tail,
}

/// The name beside `path` for what the restart of checkpoint `id` saves, the one after `number` others.
pub fn saved_name(path: &Path, id: u64, saved: Saved, number: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".ckpt-{id}"));
    if saved == Saved::Tail {
        name.push(".tail");
    }
    if number > 0 {
        name.push(format!(".{number}"));
    }
    PathBuf::from(name)
}

/// Whether a file is called as what a restart saves.
pub fn is_saved_name(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    let mark = b".ckpt-";
    let Some(at) = bytes.windows(mark.len()).rposition(|window| window == mark) else { return false };
    let is_number = |text: &&[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let mut parts = bytes[at + mark.len()..].split(|&byte| byte == b'.');
    let begins_with_an_id = parts.next().is_some_and(|id| is_number(&id));
    let rest: Vec<&[u8]> = parts.collect();
    begins_with_an_id
        && match rest.as_slice() {
            [] | [b"tail"] => true,
            [number] | [b"tail", number] => is_number(number),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_name_is_known_as_one_and_no_other() {
        for (saved, number) in [(Saved::Whole, 0), (Saved::Whole, 12), (Saved::Tail, 0), (Saved::Tail, 3)] {
            let name = saved_name(Path::new("/d/log.txt"), 7, saved, number);
            assert!(name.starts_with("/d") && is_saved_name(name.file_name().unwrap()), "{name:?}");
        }
        assert_eq!(saved_name(Path::new("/d/x"), 7, Saved::Whole, 0), Path::new("/d/x.ckpt-7"));
        assert_eq!(saved_name(Path::new("/d/x"), 7, Saved::Tail, 2), Path::new("/d/x.ckpt-7.tail.2"));
        for name in ["x", "x.ckpt-", "x.ckpt-7a", "ckpt-7", "x.ckpt-7.tale", "x.ckpt-7.tail.x", "x.ckpt-7.1.2"] {
            assert!(!is_saved_name(OsStr::new(name)), "{name}");
        }
    }
}

//! The names under which a restart saves what it replaces: `NAME.ckpt-ID` for a whole file, `NAME.ckpt-ID.tail` for what is cut
//! off, and with `.1`, `.2` ... behind where there is another content of that name already. They lie in the store, below
//! [`DIRECTORY`] as the files lie below the root; or beside the files, where the store cannot have them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// In a store: what restarts have saved.
pub const DIRECTORY: &str = "saved";

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

/// What a file is called that a restart has saved, and the checkpoint and what of it was saved. None of others.
pub fn parse(name: &OsStr) -> Option<(&OsStr, u64, Saved)> {
    let bytes = name.as_bytes();
    let mark = b".ckpt-";
    let at = bytes.windows(mark.len()).rposition(|window| window == mark)?;
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let mut parts = bytes[at + mark.len()..].split(|&byte| byte == b'.');
    let id = parts.next().filter(|id| is_number(id))?;
    let id = std::str::from_utf8(id).ok()?.parse().ok()?;
    let rest: Vec<&[u8]> = parts.collect();
    let saved = match rest.as_slice() {
        [] => Saved::Whole,
        [b"tail"] => Saved::Tail,
        [number] if is_number(number) => Saved::Whole,
        [b"tail", number] if is_number(number) => Saved::Tail,
        _ => return None,
    };
    Some((OsStr::from_bytes(&bytes[..at]), id, saved))
}

/// Whether a file is called as what a restart saves.
pub fn is_saved_name(name: &OsStr) -> bool {
    parse(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_name_is_known_as_one_and_no_other() {
        for (saved, number) in [(Saved::Whole, 0), (Saved::Whole, 12), (Saved::Tail, 0), (Saved::Tail, 3)] {
            let name = saved_name(Path::new("/d/log.txt"), 7, saved, number);
            assert_eq!(parse(name.file_name().unwrap()), Some((OsStr::new("log.txt"), 7, saved)), "{name:?}");
        }
        assert_eq!(saved_name(Path::new("/d/x"), 7, Saved::Whole, 0), Path::new("/d/x.ckpt-7"));
        assert_eq!(saved_name(Path::new("/d/x"), 7, Saved::Tail, 2), Path::new("/d/x.ckpt-7.tail.2"));
        for name in [
            "x",
            "x.ckpt-",
            "x.ckpt-7a",
            "ckpt-7",
            "x.ckpt-7.tale",
            "x.ckpt-7.tail.x",
            "x.ckpt-7.1.2",
            "x.ckpt-99999999999999999999",
        ] {
            assert!(!is_saved_name(OsStr::new(name)), "{name}");
        }
    }
}

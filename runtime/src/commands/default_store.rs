//! The store that a command means when none is named: the one that `ckpt run` uses there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ckpt_wire::ENV_DIR;

use crate::error::{Error, Result};

/// In the working directory.
const DIR_DEFAULT: &str = "ckpt-store";

/// `$CKPT_DIR`, or `./ckpt-store`.
pub fn dir() -> PathBuf {
    let environment = std::env::var_os(ENV_DIR).filter(|dir| !dir.is_empty());
    environment.map_or_else(|| PathBuf::from(DIR_DEFAULT), PathBuf::from)
}

/// The store and the numbers that the words `[DIR] N...` name; `lister` is the command that has them.
///
/// # Errors
/// [`Error::Usage`] when there is something else than numbers.
pub fn with_numbers(words: &[OsString], lister: &str) -> Result<(PathBuf, Vec<u64>)> {
    let (dir, numbers) = match words.split_first() {
        Some((first, rest)) if !is_number(Path::new(first)) => (PathBuf::from(first), rest),
        _ => (dir(), words),
    };
    let number = |word: &OsString| {
        let text = word.to_string_lossy();
        text.parse().map_err(|_| Error::Usage(format!("{text} is not a number; `{lister}` has them")))
    };
    Ok((dir, numbers.iter().map(number).collect::<Result<_>>()?))
}

/// The store and the checkpoints that the words `[DIR] N...` name: at least `least` checkpoints.
///
/// # Errors
/// [`Error::Usage`] when there are fewer, or something else than numbers.
pub fn with_checkpoints(words: &[OsString], least: usize) -> Result<(PathBuf, Vec<u64>)> {
    let (dir, numbers) = with_numbers(words, "ckpt list")?;
    if numbers.len() < least {
        let wanted = if least == 1 { "the number of a checkpoint" } else { "the numbers of two checkpoints" };
        return Err(Error::Usage(format!("name {wanted} behind the store; `ckpt list {}` has them", dir.display())));
    }
    Ok((dir, numbers))
}

/// The store and the checkpoint, where both may be left out: one word that is a number is a checkpoint of the default store.
pub fn with_checkpoint(dir_or_number: &Path, number: Option<u64>) -> (PathBuf, Option<u64>) {
    match (number, dir_or_number.to_str().and_then(|text| text.parse().ok())) {
        (None, Some(number)) if is_number(dir_or_number) => (dir(), Some(number)),
        _ => (dir_or_number.to_owned(), number),
    }
}

/// Whether a word is a number, and not a directory that is called so.
fn is_number(word: &Path) -> bool {
    word.to_str().is_some_and(|text| text.parse::<u64>().is_ok()) && !word.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn numbers_alone_are_of_the_default_store() {
        assert_eq!(with_checkpoints(&words(&["7", "9"]), 2).unwrap(), (dir(), vec![7, 9]));
        assert_eq!(with_checkpoints(&words(&["store", "7"]), 1).unwrap(), ("store".into(), vec![7]));
        assert_eq!(with_checkpoints(&words(&["s3://b/p", "7"]), 1).unwrap(), ("s3://b/p".into(), vec![7]));
        for wrong in [&["store"][..], &["7", "x"], &["store", "x"], &["store", "-1"], &[]] {
            assert!(matches!(with_checkpoints(&words(wrong), 1), Err(Error::Usage(_))), "{wrong:?}");
        }
        assert_eq!(with_checkpoint(Path::new("7"), None), (dir(), Some(7)));
        assert_eq!(with_checkpoint(Path::new("store"), None), ("store".into(), None));
        assert_eq!(with_checkpoint(Path::new("7"), Some(3)), ("7".into(), Some(3)));
    }
}

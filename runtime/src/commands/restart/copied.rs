//! What `--copy` asks for: the id of a copy, and where its checkpoints go.

use std::path::{Path, PathBuf};

use ckpt_wire::{COPY_ID_BYTES_MAX, ENV_DIR, is_copy_id};

use super::Arguments;
use crate::commands::run::store_dir;
use crate::error::{Error, Result};
use crate::location::Location;
use crate::restore::Copied;

/// What stands for an id that is not given. It is none itself.
pub const RANDOM: &str = "?";

/// Which copy is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyWish {
    /// Any.
    Random,
    /// The one of this id.
    Named(String),
}

/// Reads the value of `--copy`.
pub fn check_copy(text: &str) -> std::result::Result<CopyWish, String> {
    match text {
        RANDOM => Ok(CopyWish::Random),
        id if is_copy_id(id.as_bytes()) => Ok(CopyWish::Named(id.to_owned())),
        _ => Err(format!("the id of a copy is 1 to {COPY_ID_BYTES_MAX} of the characters A-Z a-z 0-9 . _ -")),
    }
}

impl CopyWish {
    /// A copy as it is wished.
    pub fn copied(&self) -> Result<Copied> {
        let id = match self {
            CopyWish::Random => None,
            CopyWish::Named(id) => Some(id.as_str()),
        };
        Copied::new(id).map_err(|source| Error::io("read", "/dev/urandom", source))
    }
}

/// The directory that is named for the checkpoints of a copy of what is at `source`; none if there is none, and CKPT_DIR names the source.
///
/// # Errors
/// If `--dir` names the source, to which a copy writes nothing; if there is an interval and no directory.
pub fn next_dir(arguments: &Arguments, source: &Location) -> Result<Option<PathBuf>> {
    let is_source = |dir: &Path| matches!(source, Location::Directory(from) if is_same(from, dir));
    match &arguments.next_dir {
        Some(named) => match store_dir(Some(named))? {
            dir if is_source(&dir) => Err(Error::Usage(format!(
                "--dir {}: a copy writes nothing to the store that it comes from; name another directory",
                dir.display()
            ))),
            dir => Ok(Some(dir)),
        },
        None => {
            let by_environment = std::env::var_os(ENV_DIR).filter(|dir| !dir.is_empty());
            let dir = by_environment.map(|_| store_dir(None)).transpose()?.filter(|dir| !is_source(dir));
            match (&dir, &arguments.interval) {
                (None, Some(interval)) if super::interval_ms(interval) != Some(0) => Err(Error::Usage(
                    "--interval: a copy has no store for checkpoints unless one is named; give --dir DIR".to_owned(),
                )),
                _ => Ok(dir),
            }
        }
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_checked_and_may_be_left_to_chance() {
        assert_eq!(check_copy(RANDOM), Ok(CopyWish::Random));
        assert_eq!(check_copy("web-1"), Ok(CopyWish::Named("web-1".to_owned())));
        for id in ["", "a b", "../x", &"x".repeat(COPY_ID_BYTES_MAX + 1)] {
            assert!(check_copy(id).is_err_and(|why| why.contains("1 to 64")), "{id}");
        }
    }
}

//! The value of `--copy`.

use ckpt_wire::{COPY_ID_BYTES_MAX, is_copy_id};

use crate::error::{Error, Result};
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

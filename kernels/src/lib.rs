//! The hot loops of ckpt. Today: the two digests of a 4 KiB page.
#![forbid(unsafe_code)]

pub mod page_digest;

//! The hot loops of ckpt: the digests of a 4 KiB page, SHA-1 of many pages at once, and de-duplication finer than a page.
//!
//! Everything outside is safe to call. `unsafe` is only where vector registers are loaded and stored and where a
//! function compiled for a CPU feature is entered after that feature was found, in the files named here with `allow`.
#![deny(unsafe_code)]

#[cfg(target_os = "linux")]
pub mod device;
pub mod merkle;
pub mod murmur3;
pub mod page_digest;
pub mod sha1;

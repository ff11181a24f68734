//! Murmur3-x64-128 (Austin Appleby, public domain) of chunks and of pairs of digests.
//!
//! It names chunks of device memory, of tens of bytes to some ten thousand, so it must be fast; it is no cryptographic
//! hash, and who fears a collision has the difference checked ([`crate::merkle`]). The seed keeps the levels of a tree
//! apart: 32 bytes of data never have the digest of a node over two others.

mod portable;

/// A digest: the two words of the algorithm, little-endian.
pub type Digest = [u8; 16];

/// The digest of `bytes` with a seed.
pub fn murmur3(bytes: &[u8], seed: u32) -> Digest {
    portable::digest(bytes, seed)
}

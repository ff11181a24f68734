//! The bytes of a store's files, and nothing else: encoding, decoding, checksums, bounds.
//!
//! Every fixed block ends in the CRC-32 of what comes before it, and is checked before any field of it is looked at.
//! Everything of variable length has its length and CRC-32 in such a block. Numbers are little-endian.

pub(crate) mod cbor;
pub(crate) mod condemned;
pub(crate) mod fields;
pub(crate) mod header;
pub(crate) mod manifest;
pub(crate) mod node;
pub(crate) mod pack;
pub(crate) mod row;

/// The version of every file of the store. It stays 0, with no promise to read older stores, until a first release.
pub(crate) const VERSION: u32 = 0;

//! The header of one piece of code in a fatbin.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout};

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Entry {
    pub kind: U16,
    _version: U16,
    /// Of this header, with the options behind it.
    pub header_bytes: U32,
    /// Of the code as it is stored, with its padding.
    pub stored_bytes: U64,
    /// Of the packed code without the padding; 0 where it is not packed.
    pub packed_bytes: U32,
    _options_offset: U32,
    _code_version: [U16; 2],
    /// 90 for sm_90 and compute_90.
    pub architecture: U32,
    _name_offset: U32,
    _name_bytes: U32,
    pub flags: U64,
    _reserved: U64,
    /// Of the code; 0 where it is not packed.
    pub unpacked_bytes: U64,
}

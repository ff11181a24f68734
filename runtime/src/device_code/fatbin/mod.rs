//! The container of code for several architectures, in which nvcc stores it.
//!
//! A header of 16 bytes, then entries: a header each (64 bytes, or more where options follow) and its code, padded to 8
//! bytes. Flags say how the code is packed. The driver takes the entry that suits its device, which is not known here,
//! so the variables of all entries are found; an entry of a kind not known here could be the one, and is refused.
//! NVIDIA documents none of this: the layout is the one that cuda-fatbin-decompression and ZLUDA have published, and
//! each field that is used has been compared with what `fatbinary` of CUDA 13.0 writes.

mod entry;
mod unpacking;

use std::borrow::Cow;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{Defect, Found, cubin, ptx};
use crate::error::{Error, Result};
use entry::Entry;

/// The first bytes of a fatbin.
pub(super) const MAGIC: [u8; 4] = 0xBA55_ED50_u32.to_le_bytes();
/// The first bytes of the wrapper that the compiler puts around one.
pub(super) const WRAPPER_MAGIC: [u8; 4] = 0x4662_43B1_u32.to_le_bytes();
/// Size of the wrapper: a magic number, a version, two addresses.
pub(super) const WRAPPER_BYTES: u64 = 24;

/// The only version of the container there has been.
const VERSION: u16 = 1;
/// Kinds of entries. (8 is code for link-time optimisation, which only a linker takes.)
const KIND_PTX: u16 = 1;
const KIND_CUBIN: u16 = 2;

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    version: U16,
    /// Of this header.
    header_bytes: U16,
    /// Of all entries.
    entries_bytes: U64,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Wrapper {
    _magic: [u8; 4],
    _version: U32,
    address: U64,
}

/// Bytes of the fatbin that begins with `head`, if `head` has its header.
pub(super) fn length(head: &[u8]) -> Option<u64> {
    let (header, _) = Header::ref_from_prefix(head).ok()?;
    header.entries_bytes.get().checked_add(u64::from(header.header_bytes))
}

/// The address in a wrapper.
pub(super) fn wrapped(head: &[u8]) -> Option<u64> {
    Wrapper::ref_from_prefix(head).ok().map(|(wrapper, _)| wrapper.address.get())
}

/// Adds the variables of all entries of the fatbin that `container` begins with.
pub(super) fn variables(container: &[u8], unpacked_bytes_max: u64, found: &mut Found) -> Result<()> {
    let mut rest = entries(container).map_err(|defect| defect.of("a fatbin"))?;
    let mut number = 0;
    while !rest.is_empty() {
        let offset = container.len() - rest.len();
        let (entry, stored, next) = first(rest).map_err(|why| Defect::at(offset, why).of("a fatbin"))?;
        number += 1;
        of_entry(entry, stored, number, unpacked_bytes_max, found)?;
        rest = next;
    }
    Ok(())
}

/// The entries, one behind the other, up to the end of `container`, which is cut where they end.
fn entries(container: &[u8]) -> Result<&[u8], Defect> {
    let short = || Defect::at(container.len(), "it is cut short");
    let (header, _) = Header::ref_from_prefix(container).map_err(|_| short())?;
    if header.version != VERSION {
        return Err(Defect::at(4, format!("version {} of the container is not known", header.version)));
    }
    if usize::from(header.header_bytes) < size_of::<Header>() {
        return Err(Defect::at(6, "its header is too short"));
    }
    let end = length(container).and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(short)?;
    container.get(usize::from(header.header_bytes)..end).ok_or_else(short)
}

/// The first entry, its code as stored, and the entries behind it.
fn first(entries: &[u8]) -> Result<(&Entry, &[u8], &[u8]), &'static str> {
    const SHORT: &str = "an entry is longer than the container";
    let (entry, _) = Entry::ref_from_prefix(entries).map_err(|_| SHORT)?;
    let header_bytes = entry.header_bytes.get() as usize;
    if header_bytes < size_of::<Entry>() {
        return Err("the header of an entry is too short");
    }
    let code = entries.get(header_bytes..).ok_or(SHORT)?;
    let stored_bytes = usize::try_from(entry.stored_bytes.get()).map_err(|_| SHORT)?;
    let (stored, next) = code.split_at_checked(stored_bytes).ok_or(SHORT)?;
    Ok((entry, stored, next))
}

/// Adds the variables of one entry.
fn of_entry(entry: &Entry, stored: &[u8], number: u32, unpacked_bytes_max: u64, found: &mut Found) -> Result<()> {
    let form = match entry.kind.get() {
        KIND_PTX => "PTX",
        KIND_CUBIN => "a cubin",
        kind => {
            return Err(Error::unsupported(
                format!("entry {number} of a fatbin, of kind {kind}"),
                "only PTX and cubins can be searched for variables",
                "build the program without link-time optimisation of device code",
            ));
        }
    };
    let add = |code: Cow<[u8]>| match entry.kind.get() {
        KIND_PTX => ptx::variables(before_zeros(&code), found),
        _ => cubin::variables(&code, found),
    };
    unpacking::unpack(entry, stored, unpacked_bytes_max).map_err(|why| Defect::at(0, why)).and_then(add).map_err(
        |defect| defect.of(format!("{form} for architecture {} (entry {number} of a fatbin)", entry.architecture)),
    )
}

/// The text before its terminator, or its padding.
fn before_zeros(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|&byte| byte == 0);
    &text[..end.unwrap_or(text.len())]
}

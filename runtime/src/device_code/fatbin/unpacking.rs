//! Code as it was before `fatbinary` packed it.
//!
//! `--compress-mode=speed` packs with LZ4, the other modes with Zstandard; LZ4 frames come where a piece is too long for
//! the mode asked for. The entry says how long the code is: no other length is accepted, and no memory is taken beyond
//! it.

use std::borrow::Cow;
use std::io::Read;

use super::entry::Entry;

/// Flags of an entry. (0x1000 would be zlib, which no mode of nvcc writes.)
const LZ4: u64 = 0x2000;
const LZ4_FRAME: u64 = 0x4000;
const ZSTD: u64 = 0x8000;
const PACKED: u64 = 0x1000 | LZ4 | LZ4_FRAME | ZSTD;

/// A byte of LZ4 stands for at most this many.
const LZ4_RATIO_MAX: usize = 256;

/// The code of `entry`, which is stored as `stored`; says what is wrong with it otherwise.
pub(super) fn unpack<'a>(entry: &Entry, stored: &'a [u8], bytes_max: u64) -> Result<Cow<'a, [u8]>, String> {
    let packing = entry.flags.get() & PACKED;
    if packing == 0 {
        return Ok(Cow::Borrowed(stored));
    }
    let packed = stored.get(..entry.packed_bytes.get() as usize).ok_or("it is longer packed than stored")?;
    let bytes = entry.unpacked_bytes.get();
    if bytes > bytes_max {
        return Err(format!("it has {bytes} bytes unpacked; {bytes_max} are the most that are unpacked here"));
    }
    let unpacked = match packing {
        LZ4 => unpack_lz4(packed, bytes as usize)?,
        LZ4_FRAME => unpack_lz4_frame(packed, bytes as usize)?,
        ZSTD => unpack_zstd(packed, bytes as usize)?,
        _ => return Err(format!("it is packed in a way that is not known (flags {:#x})", entry.flags)),
    };
    if unpacked.len() as u64 != bytes {
        return Err(format!("it has {} bytes unpacked instead of {bytes}", unpacked.len()));
    }
    Ok(Cow::Owned(unpacked))
}

fn unpack_lz4(packed: &[u8], bytes: usize) -> Result<Vec<u8>, String> {
    if bytes / LZ4_RATIO_MAX > packed.len() {
        return Err(format!("{} bytes of LZ4 cannot stand for {bytes}", packed.len()));
    }
    lz4_flex::block::decompress(packed, bytes).map_err(|error| error.to_string())
}

fn unpack_lz4_frame(packed: &[u8], bytes: usize) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    let one_more = bytes as u64 + 1;
    lz4_flex::frame::FrameDecoder::new(packed)
        .take(one_more)
        .read_to_end(&mut unpacked)
        .map_err(|error| error.to_string())?;
    Ok(unpacked)
}

/// Not as a stream: its window may be as long as the code, and streams have a limit for that.
fn unpack_zstd(packed: &[u8], bytes: usize) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    unpacked.try_reserve_exact(bytes).map_err(|error| error.to_string())?;
    let mut unpacker = zstd::bulk::Decompressor::new().map_err(|error| error.to_string())?;
    unpacker.decompress_to_buffer(packed, &mut unpacked).map_err(|error| error.to_string())?;
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use zerocopy::FromZeros;

    use super::*;

    const LONG: u64 = 1 << 20;

    /// `code`, packed in each way, with its flag.
    fn packed(code: &[u8]) -> [(u64, Vec<u8>); 3] {
        let mut frame = lz4_flex::frame::FrameEncoder::new(Vec::new());
        frame.write_all(code).unwrap();
        let zstd = zstd::bulk::compress(code, 1).unwrap();
        [(LZ4, lz4_flex::block::compress(code)), (LZ4_FRAME, frame.finish().unwrap()), (ZSTD, zstd)]
    }

    fn entry(flags: u64, packed: &[u8], unpacked_bytes: u64) -> Entry {
        let mut entry = Entry::new_zeroed();
        entry.flags.set(0x11 | flags);
        entry.packed_bytes.set(packed.len() as u32);
        entry.unpacked_bytes.set(unpacked_bytes);
        entry
    }

    #[test]
    fn code_comes_back_from_each_way_of_packing_with_its_padding_behind_it() {
        let code: Vec<u8> = (0..100_000_u32).map(|n| (n / 9 % 60) as u8).collect();
        for (flags, mut stored) in packed(&code) {
            let entry = entry(flags, &stored, code.len() as u64);
            stored.extend([0; 7]);
            assert!(*unpack(&entry, &stored, LONG).unwrap() == *code, "flags {flags:#x}");
        }
    }

    #[test]
    fn code_that_unpacks_to_another_length_than_said_is_refused() {
        let code = vec![7; LONG as usize];
        for (flags, stored) in packed(&code) {
            for said in [0, 1, LONG / 2, LONG - 1, LONG + 1, 2 * LONG, 1 << 40, u64::MAX] {
                let entry = entry(flags, &stored, said);
                assert!(unpack(&entry, &stored, 1 << 30).is_err(), "flags {flags:#x}, {said} bytes");
            }
            unpack(&entry(flags, &stored, LONG), &stored, LONG - 1).unwrap_err();
        }
    }

    #[test]
    fn packing_that_is_not_known_is_refused() {
        for flags in [0x1000, LZ4 | ZSTD] {
            unpack(&entry(flags, &[0; 8], 8), &[0; 8], LONG).unwrap_err();
        }
    }
}

//! Sixteen lanes with AVX-512: rotation and every three-input boolean function are single instructions.

use std::arch::x86_64::*;

use super::{
    Digest, Implementation, Page,
    constants::{BLOCK_BYTES, INITIAL, PADDING, ROUND},
};
use crate::page_digest::PAGE_BYTES;

/// Pages hashed at once.
const LANES: usize = 16;

/// One 32-bit word per lane.
type Vector = __m512i;

sha1_lanes!("avx512f,avx512bw");

/// SHA-1 of one page per lane, on a CPU that has AVX-512 F and BW.
///
/// # Panics
/// On any other CPU.
pub(super) fn digests(pages: &[&Page; LANES]) -> [Digest; LANES] {
    assert!(Implementation::Avx512.is_available(), "no AVX-512 here");
    // SAFETY: the CPU must have avx512f and avx512bw; the line before checks that.
    unsafe { digest_lanes(pages) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn splat(word: u32) -> Vector {
    _mm512_set1_epi32(word.cast_signed())
}

#[inline]
#[target_feature(enable = "avx512f")]
fn add(a: Vector, b: Vector) -> Vector {
    _mm512_add_epi32(a, b)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn rotate_left<const BITS: i32>(a: Vector) -> Vector {
    _mm512_rol_epi32::<BITS>(a)
}

/// Bits of `c` where `b` is set, else those of `d`.
#[inline]
#[target_feature(enable = "avx512f")]
fn choose(b: Vector, c: Vector, d: Vector) -> Vector {
    _mm512_ternarylogic_epi32::<0xca>(b, c, d)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn parity(b: Vector, c: Vector, d: Vector) -> Vector {
    _mm512_ternarylogic_epi32::<0x96>(b, c, d)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn majority(b: Vector, c: Vector, d: Vector) -> Vector {
    _mm512_ternarylogic_epi32::<0xe8>(b, c, d)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn xor4(a: Vector, b: Vector, c: Vector, d: Vector) -> Vector {
    _mm512_xor_si512(parity(b, c, d), a)
}

/// Bytes `at..at + 16` of pages `row`, `row + 4`, `row + 8` and `row + 12`.
#[inline]
#[target_feature(enable = "avx512f")]
fn quarter(pages: &[&Page; LANES], row: usize, at: usize) -> Vector {
    let low = _mm512_castsi128_si512(load(pages[row], at));
    let two = _mm512_inserti32x4::<1>(low, load(pages[row + 4], at));
    let three = _mm512_inserti32x4::<2>(two, load(pages[row + 8], at));
    _mm512_inserti32x4::<3>(three, load(pages[row + 12], at))
}

/// Four words of every page, from four quarters: big-endian words, turned so that a vector has the same word of each.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transpose4(rows: [Vector; 4]) -> [Vector; 4] {
    let [a, b, c, d] = rows;
    let (a, b, c, d) = (swap_bytes(a), swap_bytes(b), swap_bytes(c), swap_bytes(d));
    let (ab_low, ab_high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (cd_low, cd_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    [
        _mm512_unpacklo_epi64(ab_low, cd_low),
        _mm512_unpackhi_epi64(ab_low, cd_low),
        _mm512_unpacklo_epi64(ab_high, cd_high),
        _mm512_unpackhi_epi64(ab_high, cd_high),
    ]
}

/// Big-endian words to numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn swap_bytes(words: Vector) -> Vector {
    let order = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(order))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(page: &Page, at: usize) -> __m128i {
    let bytes: &[u8] = &page[at..at + 16];
    // SAFETY: 16 bytes at the address must be readable, at any alignment; `bytes` is a slice of 16.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn to_words(vector: Vector) -> [u32; LANES] {
    let mut words = [0; LANES];
    // SAFETY: 64 bytes at the address must be writable, at any alignment; `words` is that long.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), vector) };
    words
}

//! Eight lanes with AVX2, where a rotation is two shifts and an OR, and mixing takes two to four instructions.

use std::arch::x86_64::*;

use super::{
    Digest, Implementation, Page,
    constants::{BLOCK_BYTES, INITIAL, PADDING, ROUND},
};
use crate::page_digest::PAGE_BYTES;

/// Pages hashed at once.
const LANES: usize = 8;

/// One 32-bit word per lane.
type Vector = __m256i;

sha1_lanes!("avx2");

/// SHA-1 of one page per lane, on a CPU that has AVX2.
///
/// # Panics
/// On any other CPU.
pub(super) fn digests(pages: &[&Page; LANES]) -> [Digest; LANES] {
    assert!(Implementation::Avx2.is_available(), "no AVX2 here");
    // SAFETY: the CPU must have avx2; the line before checks that.
    unsafe { digest_lanes(pages) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn splat(word: u32) -> Vector {
    _mm256_set1_epi32(word.cast_signed())
}

#[inline]
#[target_feature(enable = "avx2")]
fn add(a: Vector, b: Vector) -> Vector {
    _mm256_add_epi32(a, b)
}

#[inline]
#[target_feature(enable = "avx2")]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm256_xor_si256(a, b)
}

#[inline]
#[target_feature(enable = "avx2")]
fn and(a: Vector, b: Vector) -> Vector {
    _mm256_and_si256(a, b)
}

#[inline]
#[target_feature(enable = "avx2")]
fn rotate_left<const BITS: i32>(a: Vector) -> Vector {
    let right = match BITS {
        1 => _mm256_srli_epi32::<31>(a),
        5 => _mm256_srli_epi32::<27>(a),
        _ => _mm256_srli_epi32::<2>(a),
    };
    _mm256_or_si256(_mm256_slli_epi32::<BITS>(a), right)
}

/// Bits of `c` where `b` is set, else those of `d`.
#[inline]
#[target_feature(enable = "avx2")]
fn choose(b: Vector, c: Vector, d: Vector) -> Vector {
    xor(d, and(b, xor(c, d)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn parity(b: Vector, c: Vector, d: Vector) -> Vector {
    xor(b, xor(c, d))
}

#[inline]
#[target_feature(enable = "avx2")]
fn majority(b: Vector, c: Vector, d: Vector) -> Vector {
    xor(c, and(xor(b, c), xor(c, d)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn xor4(a: Vector, b: Vector, c: Vector, d: Vector) -> Vector {
    xor(xor(b, xor(c, d)), a)
}

/// Bytes `at..at + 16` of pages `row` and `row + 4`.
#[inline]
#[target_feature(enable = "avx2")]
fn quarter(pages: &[&Page; LANES], row: usize, at: usize) -> Vector {
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(load(pages[row], at)), load(pages[row + 4], at))
}

/// Four words of every page, from four quarters: big-endian words, turned so that a vector has the same word of each.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose4(rows: [Vector; 4]) -> [Vector; 4] {
    let [a, b, c, d] = rows;
    let (a, b, c, d) = (swap_bytes(a), swap_bytes(b), swap_bytes(c), swap_bytes(d));
    let (ab_low, ab_high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (cd_low, cd_high) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    [
        _mm256_unpacklo_epi64(ab_low, cd_low),
        _mm256_unpackhi_epi64(ab_low, cd_low),
        _mm256_unpacklo_epi64(ab_high, cd_high),
        _mm256_unpackhi_epi64(ab_high, cd_high),
    ]
}

/// Big-endian words to numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn swap_bytes(words: Vector) -> Vector {
    let order = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(order))
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(page: &Page, at: usize) -> __m128i {
    let bytes: &[u8] = &page[at..at + 16];
    // SAFETY: 16 bytes at the address must be readable, at any alignment; `bytes` is a slice of 16.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn to_words(vector: Vector) -> [u32; LANES] {
    let mut words = [0; LANES];
    // SAFETY: 32 bytes at the address must be writable, at any alignment; `words` is that long.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), vector) };
    words
}

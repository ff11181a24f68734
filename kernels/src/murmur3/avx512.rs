//! Eight chunks at once with AVX-512, which multiplies words of 64 bits and rotates them.

use std::arch::x86_64::*;

use super::{
    Digest, Implementation,
    portable::{ADD_1, ADD_2, AVALANCHE_1, AVALANCHE_2, C1, C2},
    steps::steps,
};

/// Chunks hashed at once.
const LANES: usize = 8;
/// The chunk of each lane: as loads of two blocks and their unpacking put them.
const CHUNK_OF_LANE: [usize; LANES] = [0, 4, 1, 5, 2, 6, 3, 7];

/// One 64-bit word per lane.
type Vector = __m512i;

steps!("avx512f,avx512dq");

/// Hashes the chunks that fill all lanes, and returns how many those are.
///
/// # Panics
/// On a CPU that lacks AVX-512 F or DQ.
pub(super) fn whole_groups(bytes: &[u8], chunk_bytes: usize, seed: u32, digests: &mut [Digest]) -> usize {
    assert!(Implementation::Avx512.is_available(), "no AVX-512 here");
    let (groups, _) = digests[..bytes.len() / chunk_bytes].as_chunks_mut();
    let done = groups.len() * LANES;
    let (pairs, last) = groups.as_chunks_mut();
    let (paired, rest) = bytes.split_at(pairs.len() * 2 * LANES * chunk_bytes);
    for (bytes, digests) in paired.chunks(2 * LANES * chunk_bytes).zip(pairs) {
        // SAFETY: the CPU must have avx512f and avx512dq; the first line checks that.
        unsafe { digest_groups::<2>(bytes, chunk_bytes, seed, digests) };
    }
    if let Ok(last) = last.try_into() {
        // SAFETY: as above.
        unsafe { digest_groups::<1>(&rest[..LANES * chunk_bytes], chunk_bytes, seed, last) };
    }
    done
}

/// The digests of `GROUPS` times 8 chunks that lie side by side. Two groups at once: while a multiplication of one is under
/// way, there is work of the other.
#[target_feature(enable = "avx512f,avx512dq")]
fn digest_groups<const GROUPS: usize>(
    bytes: &[u8],
    chunk_bytes: usize,
    seed: u32,
    digests: &mut [[Digest; LANES]; GROUPS],
) {
    assert_eq!(bytes.len(), GROUPS * LANES * chunk_bytes, "whole groups");
    let groups: [&[u8]; GROUPS] =
        std::array::from_fn(|group| &bytes[group * LANES * chunk_bytes..][..LANES * chunk_bytes]);
    let mut h1 = [splat(seed.into()); GROUPS];
    let mut h2 = h1;
    let mut at = 0;
    while at + 16 <= chunk_bytes {
        for group in 0..GROUPS {
            let (k1, k2) = words(groups[group], chunk_bytes, at);
            (h1[group], h2[group]) = after_block(h1[group], h2[group], k1, k2);
        }
        at += 16;
    }
    for group in 0..GROUPS {
        if at < chunk_bytes {
            let mut tails = [0; 16 * LANES];
            for (tail, chunk) in tails.chunks_mut(16).zip(groups[group].chunks(chunk_bytes)) {
                tail[..chunk_bytes - at].copy_from_slice(&chunk[at..]);
            }
            let (k1, k2) = words(&tails, 16, 0);
            (h1[group], h2[group]) = after_tail(h1[group], h2[group], k1, k2);
        }
        let (h1, h2) = finished(h1[group], h2[group], chunk_bytes as u64);
        let (h1, h2) = (to_words(h1), to_words(h2));
        for (lane, chunk) in CHUNK_OF_LANE.into_iter().enumerate() {
            digests[group][chunk] = (u128::from(h1[lane]) | u128::from(h2[lane]) << 64).to_le_bytes();
        }
    }
}

/// The first words of the blocks of 8 chunks at an offset, and the second ones. Chunks n and n + 4 become neighbours.
///
/// The loads stand one by one: a closure that another function calls is no part of this one, and would be called.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn words(group: &[u8], chunk_bytes: usize, at: usize) -> (Vector, Vector) {
    assert!(at + 16 <= chunk_bytes && group.len() == LANES * chunk_bytes, "a block of each chunk");
    let block = group[at..].as_ptr();
    let [a, b, c, d, e, f, g, h] = [0, 1, 2, 3, 4, 5, 6, 7].map(|chunk| chunk * chunk_bytes);
    // SAFETY: 16 bytes behind each offset must be readable. The largest is that of the last of 8 chunks, of which the
    // group consists, and the 16 bytes from `at` on lie within a chunk: the assertion says both.
    let (first, second) = unsafe {
        (
            four(load(block.add(a)), load(block.add(b)), load(block.add(c)), load(block.add(d))),
            four(load(block.add(e)), load(block.add(f)), load(block.add(g)), load(block.add(h))),
        )
    };
    (_mm512_unpacklo_epi64(first, second), _mm512_unpackhi_epi64(first, second))
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn four(a: __m128i, b: __m128i, c: __m128i, d: __m128i) -> Vector {
    let two = _mm512_inserti64x2::<1>(_mm512_castsi128_si512(a), b);
    _mm512_inserti64x2::<3>(_mm512_inserti64x2::<2>(two, c), d)
}

/// Rotated to the left; the other way it is 64 less that.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn rotated<const LEFT: i32, const RIGHT: i32>(word: Vector) -> Vector {
    const { assert!(LEFT + RIGHT == 64) };
    _mm512_rol_epi64::<LEFT>(word)
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn quadrupled(word: Vector) -> Vector {
    _mm512_slli_epi64::<2>(word)
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn shifted_by_33(word: Vector) -> Vector {
    _mm512_srli_epi64::<33>(word)
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm512_xor_si512(a, b)
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn multiply(a: Vector, factor: u64) -> Vector {
    _mm512_mullo_epi64(a, splat(factor))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn add(a: Vector, b: Vector) -> Vector {
    _mm512_add_epi64(a, b)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn splat(word: u64) -> Vector {
    _mm512_set1_epi64(word.cast_signed())
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load(block: *const u8) -> __m128i {
    // SAFETY: 16 bytes at the address must be readable, at any alignment: the caller's duty.
    unsafe { _mm_loadu_si128(block.cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn to_words(vector: Vector) -> [u64; LANES] {
    let mut words = [0; LANES];
    // SAFETY: 64 bytes at the address must be writable, at any alignment; `words` is that long.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), vector) };
    words
}

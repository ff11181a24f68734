//! Four chunks at once with AVX2, which multiplies words of 32 bits to 64: three such multiplications are one of 64 bits.

use std::arch::x86_64::*;

use super::{
    Digest, Implementation,
    portable::{ADD_1, ADD_2, AVALANCHE_1, AVALANCHE_2, C1, C2},
    steps::steps,
};

/// Chunks hashed at once.
const LANES: usize = 4;
/// The chunk of each lane: as loads of two blocks and their unpacking put them.
const CHUNK_OF_LANE: [usize; LANES] = [0, 2, 1, 3];

/// One 64-bit word per lane.
type Vector = __m256i;

steps!("avx2");

/// Hashes the chunks that fill all lanes, and returns how many those are.
///
/// # Panics
/// On a CPU that lacks AVX2.
pub(super) fn whole_groups(bytes: &[u8], chunk_bytes: usize, seed: u32, digests: &mut [Digest]) -> usize {
    assert!(Implementation::Avx2.is_available(), "no AVX2 here");
    let (groups, _) = digests[..bytes.len() / chunk_bytes].as_chunks_mut();
    for (bytes, digests) in bytes.chunks(LANES * chunk_bytes).zip(&mut *groups) {
        // SAFETY: the CPU must have avx2; the first line checks that.
        unsafe { digest_group(bytes, chunk_bytes, seed, digests) };
    }
    groups.len() * LANES
}

/// The digests of 4 chunks that lie side by side.
#[target_feature(enable = "avx2")]
fn digest_group(bytes: &[u8], chunk_bytes: usize, seed: u32, digests: &mut [Digest; LANES]) {
    assert_eq!(bytes.len(), LANES * chunk_bytes, "a whole group");
    let (mut h1, mut h2) = (splat(seed.into()), splat(seed.into()));
    let mut at = 0;
    while at + 16 <= chunk_bytes {
        let (k1, k2) = words(bytes, chunk_bytes, at);
        (h1, h2) = after_block(h1, h2, k1, k2);
        at += 16;
    }
    if at < chunk_bytes {
        let mut tails = [0; 16 * LANES];
        for (tail, chunk) in tails.chunks_mut(16).zip(bytes.chunks(chunk_bytes)) {
            tail[..chunk_bytes - at].copy_from_slice(&chunk[at..]);
        }
        let (k1, k2) = words(&tails, 16, 0);
        (h1, h2) = after_tail(h1, h2, k1, k2);
    }
    let (h1, h2) = finished(h1, h2, chunk_bytes as u64);
    let (h1, h2) = (to_words(h1), to_words(h2));
    for (lane, chunk) in CHUNK_OF_LANE.into_iter().enumerate() {
        digests[chunk] = (u128::from(h1[lane]) | u128::from(h2[lane]) << 64).to_le_bytes();
    }
}

/// The first words of the blocks of 4 chunks at an offset, and the second ones. Chunks n and n + 2 become neighbours.
#[inline]
#[target_feature(enable = "avx2")]
fn words(group: &[u8], chunk_bytes: usize, at: usize) -> (Vector, Vector) {
    assert!(at + 16 <= chunk_bytes && group.len() == LANES * chunk_bytes, "a block of each chunk");
    let block = group[at..].as_ptr();
    // SAFETY: 16 bytes behind each offset must be readable. The largest is that of the last of 4 chunks, of which the
    // group consists, and the 16 bytes from `at` on lie within a chunk: the assertion says both.
    let (first, second) = unsafe {
        (
            _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(load(block)), load(block.add(chunk_bytes))),
            _mm256_inserti128_si256::<1>(
                _mm256_castsi128_si256(load(block.add(2 * chunk_bytes))),
                load(block.add(3 * chunk_bytes)),
            ),
        )
    };
    (_mm256_unpacklo_epi64(first, second), _mm256_unpackhi_epi64(first, second))
}

/// Rotated to the left; the other way it is 64 less that.
#[inline]
#[target_feature(enable = "avx2")]
fn rotated<const LEFT: i32, const RIGHT: i32>(word: Vector) -> Vector {
    const { assert!(LEFT + RIGHT == 64) };
    _mm256_or_si256(_mm256_slli_epi64::<LEFT>(word), _mm256_srli_epi64::<RIGHT>(word))
}

#[inline]
#[target_feature(enable = "avx2")]
fn quadrupled(word: Vector) -> Vector {
    _mm256_slli_epi64::<2>(word)
}

#[inline]
#[target_feature(enable = "avx2")]
fn shifted_by_33(word: Vector) -> Vector {
    _mm256_srli_epi64::<33>(word)
}

#[inline]
#[target_feature(enable = "avx2")]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm256_xor_si256(a, b)
}

/// The low halves' product, and the two products of a low and a high half, of which the low 32 bits count.
#[inline]
#[target_feature(enable = "avx2")]
fn multiply(a: Vector, factor: u64) -> Vector {
    let (low, high) = (splat(factor & 0xffff_ffff), splat(factor >> 32));
    let crossed = add(_mm256_mul_epu32(a, high), _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), low));
    add(_mm256_mul_epu32(a, low), _mm256_slli_epi64::<32>(crossed))
}

#[inline]
#[target_feature(enable = "avx2")]
fn add(a: Vector, b: Vector) -> Vector {
    _mm256_add_epi64(a, b)
}

#[inline]
#[target_feature(enable = "avx2")]
fn splat(word: u64) -> Vector {
    _mm256_set1_epi64x(word.cast_signed())
}

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load(block: *const u8) -> __m128i {
    // SAFETY: 16 bytes at the address must be readable, at any alignment: the caller's duty.
    unsafe { _mm_loadu_si128(block.cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn to_words(vector: Vector) -> [u64; LANES] {
    let mut words = [0; LANES];
    // SAFETY: 32 bytes at the address must be writable, at any alignment; `words` is that long.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), vector) };
    words
}

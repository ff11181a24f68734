//! Murmur3-x64-128 (Austin Appleby, public domain) of chunks and of pairs of digests.
//!
//! It names chunks of device memory, of tens of bytes to some ten thousand, so it must be fast; it is no cryptographic
//! hash, and who fears collisions compares what a difference restores with what was there. The seed keeps the levels of a
//! tree apart: 32 bytes of data never have the digest of a node over two others.
//!
//! One digest is a chain of dependent steps, but chunks are independent: with AVX-512 eight of them are hashed at once, a
//! chunk to a lane, and with AVX2 four. AVX2 cannot multiply words of 64 bits, but even with three multiplications for each
//! of the four of a block it is a sixth faster than portable code for long chunks, and twice as fast for the shortest.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "loads and stores of vectors, and entering code compiled for a CPU feature")]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "loads and stores of vectors, and entering code compiled for a CPU feature")]
mod avx512;
mod portable;
#[cfg(target_arch = "x86_64")]
mod steps;

/// A digest: the two words of the algorithm, little-endian.
pub type Digest = [u8; 16];

/// A way to hash many chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// 8 chunks at once; needs AVX-512 F and DQ.
    Avx512,
    /// 4 chunks at once; needs AVX2.
    Avx2,
    /// Chunk after chunk.
    Portable,
}

impl Implementation {
    /// Every implementation, available here or not, the fastest first.
    pub const ALL: [Self; 3] = [Self::Avx512, Self::Avx2, Self::Portable];

    /// Whether this CPU can run it.
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx512 | Self::Avx2 => false,
            Self::Portable => true,
        }
    }

    /// The one to use on this CPU.
    pub fn best() -> Self {
        Self::ALL.into_iter().find(|implementation| implementation.is_available()).unwrap_or(Self::Portable)
    }
}

/// The digest of `bytes` with a seed.
pub fn murmur3(bytes: &[u8], seed: u32) -> Digest {
    portable::digest(bytes, seed)
}

/// The digest of each chunk of `chunk_bytes` bytes, in order; the last chunk may be shorter.
///
/// # Panics
/// When `chunk_bytes` is 0, or there is not one digest for each chunk.
pub fn murmur3_chunks(bytes: &[u8], chunk_bytes: usize, seed: u32, digests: &mut [Digest]) {
    murmur3_chunks_with(Implementation::best(), bytes, chunk_bytes, seed, digests);
}

/// [`murmur3_chunks`] with a given implementation, for comparing them.
///
/// # Panics
/// Like [`murmur3_chunks`], and when the CPU cannot run `implementation`.
pub fn murmur3_chunks_with(
    implementation: Implementation,
    bytes: &[u8],
    chunk_bytes: usize,
    seed: u32,
    digests: &mut [Digest],
) {
    assert_eq!(bytes.len().div_ceil(chunk_bytes), digests.len(), "one digest per chunk");
    assert!(implementation.is_available(), "this CPU cannot run {implementation:?}");
    let done = match implementation {
        #[cfg(target_arch = "x86_64")]
        Implementation::Avx512 => avx512::whole_groups(bytes, chunk_bytes, seed, digests),
        #[cfg(target_arch = "x86_64")]
        Implementation::Avx2 => avx2::whole_groups(bytes, chunk_bytes, seed, digests),
        _ => 0,
    };
    for (chunk, digest) in bytes.chunks(chunk_bytes).zip(digests).skip(done) {
        *digest = portable::digest(chunk, seed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn every_implementation_gives_the_same_digests_for_every_length_of_chunks() {
        let bytes: Vec<u8> = (0..40_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for implementation in Implementation::ALL {
            if !implementation.is_available() {
                // Not println!, which a passing test keeps to itself.
                writeln!(std::io::stderr(), "skipped: this CPU cannot run {implementation:?}").unwrap();
                continue;
            }
            for chunk_bytes in (1..300).chain([511, 512, 1_000, 4_096, 5_000]) {
                for length in [0, 1, 7, 8, 16, 17, 24]
                    .into_iter()
                    .flat_map(|n| [n * chunk_bytes, n * chunk_bytes + chunk_bytes / 2])
                {
                    let bytes = &bytes[1..][..length.min(39_999)];
                    let mut digests = vec![Digest::default(); bytes.len().div_ceil(chunk_bytes)];
                    murmur3_chunks_with(implementation, bytes, chunk_bytes, 3, &mut digests);
                    let expected: Vec<_> = bytes.chunks(chunk_bytes).map(|chunk| murmur3(chunk, 3)).collect();
                    assert_eq!(digests, expected, "{implementation:?}, {length} bytes in chunks of {chunk_bytes}");
                }
            }
        }
    }
}

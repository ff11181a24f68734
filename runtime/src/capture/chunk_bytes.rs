//! How long the chunks are that memory is cut into.

use std::ops::RangeInclusive;

/// Bytes of digests for each chunk: its own, and what the history may come to.
const DIGEST_BYTES: u64 = 64;

/// The shortest chunks, of these lengths, whose digests find room: `bytes` of memory are cut into them.
pub fn chunk_bytes(bytes: u64, lengths: RangeInclusive<u32>, room: u64) -> u32 {
    let finds_room = |chunk: &u32| bytes / u64::from(*chunk) * DIGEST_BYTES <= room;
    let doubled = std::iter::successors(Some(*lengths.start()), |chunk| chunk.checked_mul(2));
    doubled.take_while(|chunk| chunk <= lengths.end()).find(finds_room).unwrap_or(*lengths.end())
}

#[cfg(test)]
mod tests {
    use super::chunk_bytes;

    #[test]
    fn chunks_are_as_short_as_their_digests_find_room_for() {
        let of = |bytes| chunk_bytes(bytes, 128..=4096, 64 << 20);
        let lengths = [1 << 20, 128 << 20, (128 << 20) + 256, 1 << 30, 1 << 40].map(of);
        assert_eq!(lengths, [128, 128, 256, 1024, 4096]);
        assert_eq!(chunk_bytes(128 << 20, 100..=4096, 64 << 20), 200);
    }
}

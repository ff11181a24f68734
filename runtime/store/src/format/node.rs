//! A node of a stored page list: a bitmap of what it has, and the keys of that, in order.
//!
//! A leaf (level 0) has up to 512 pages; an inner node has up to 64 nodes of the level below. A region of nothing has
//! no node. Nodes are found by the digest of their bytes, as pages are, so equal subtrees are stored once.

use super::fields::Fields;
use crate::{PageKey, page_key::KEY_BYTES};

/// Pages that a leaf covers: 2 MiB of memory.
pub(crate) const LEAF_PAGES: u64 = 512;
/// Nodes below an inner node.
pub(crate) const FAN_OUT: u64 = 64;
/// A node of this level covers every page number there is.
pub(crate) const LEVEL_MAX: u8 = 10;
/// Children that a node of the highest level has, at most: together they cover 2^64 pages.
const TOP_CHILDREN: u16 = 2;
const _: () =
    assert!(LEAF_PAGES as u128 * (FAN_OUT as u128).pow(LEVEL_MAX as u32 - 1) * TOP_CHILDREN as u128 == 1 << 64);
/// An encoded node, at least: that of one child.
pub(crate) const NODE_BYTES_MIN: u64 = HEAD_BYTES as u64 + FAN_OUT / 8 + KEY_BYTES as u64;

const HEAD_BYTES: usize = 8;

fn bitmap_words(level: u8) -> usize {
    if level == 0 { (LEAF_PAGES / 64) as usize } else { (FAN_OUT / 64) as usize }
}

/// Encodes a node of the children `(position, key)`, in order of position.
pub(crate) fn encode(level: u8, children: impl Iterator<Item = (u16, PageKey)>) -> Vec<u8> {
    let bitmap_at = HEAD_BYTES;
    let keys_at = bitmap_at + bitmap_words(level) * 8;
    let mut bytes = vec![0; keys_at];
    let mut count: u16 = 0;
    for (position, key) in children {
        bytes[bitmap_at + position as usize / 8] |= 1 << (position % 8);
        bytes.extend_from_slice(&key.to_bytes());
        count += 1;
    }
    bytes[0] = level;
    bytes[2..4].copy_from_slice(&count.to_le_bytes());
    bytes
}

/// The children of a node that must be of `level`; says what is wrong with it otherwise.
pub(crate) fn decode(level: u8, bytes: &[u8]) -> Result<Vec<(u16, PageKey)>, &'static str> {
    let mut fields = Fields(bytes);
    let (found_level, _reserved, count) = (fields.u8(), fields.u8(), fields.u16());
    let _reserved = fields.u32();
    if found_level != level {
        return Err("a node of another level");
    }
    if bytes.len() != HEAD_BYTES + bitmap_words(level) * 8 + usize::from(count) * KEY_BYTES {
        return Err("a node of another length");
    }
    let bitmap: Vec<u64> = (0..bitmap_words(level)).map(|_| fields.u64()).collect();
    if bitmap.iter().map(|word| word.count_ones()).sum::<u32>() != u32::from(count) {
        return Err("a bitmap of another number of children");
    }
    let positions = (0..bitmap.len() as u16 * 64).filter(|at| bitmap[*at as usize / 64] >> (at % 64) & 1 == 1);
    if count == 0 {
        return Err("a node without children");
    }
    let children: Vec<_> = positions.map(|at| (at, PageKey::from_bytes(fields.take()))).collect();
    if children.iter().any(|(_, key)| key.is_zero()) {
        return Err("a child that is zero");
    }
    if level == LEVEL_MAX && children.iter().any(|(at, _)| *at >= TOP_CHILDREN) {
        return Err("a child behind the last page number there is");
    }
    Ok(children)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_comes_back_and_no_other_bytes_are_one() {
        let key = PageKey::from_bytes([1; KEY_BYTES]);
        for (level, last) in [(0, 511), (3, 63)] {
            let children = vec![(0, key), (17, key), (last, key)];
            let bytes = encode(level, children.iter().copied());
            assert_eq!(decode(level, &bytes), Ok(children));
            assert!(decode(level + 1, &bytes).is_err());
            for length in 0..bytes.len() {
                assert!(decode(level, &bytes[..length]).is_err());
            }
        }
    }

    #[test]
    fn a_node_without_children_and_one_beyond_the_last_page_number_are_refused() {
        let key = crate::Digest::Sha1.key_of(&[1; 4096]);
        assert!(decode(0, &encode(0, [].into_iter())).is_err());
        let top = |at| decode(LEVEL_MAX, &encode(LEVEL_MAX, [(at, key)].into_iter()));
        assert_eq!((top(1).is_ok(), top(2).is_ok()), (true, false));
    }
}

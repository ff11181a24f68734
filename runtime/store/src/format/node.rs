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
    let children: Vec<_> = positions.map(|at| (at, PageKey::from_bytes(fields.take()))).collect();
    if children.iter().any(|(_, key)| key.is_zero()) {
        return Err("a child that is zero");
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
}

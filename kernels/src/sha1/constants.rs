//! The constants of SHA-1 and the padding block of a page.
//!
//! A message of 4096 bytes is followed by one block that depends on the length alone: a 1 bit, zeros, and the length in
//! bits. Its 80 schedule words are therefore known, and so are their sums with the round constants.

use crate::page_digest::PAGE_BYTES;

/// Bytes of a block of the message.
pub(super) const BLOCK_BYTES: usize = 64;

/// The state before the first block.
pub(super) const INITIAL: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];

/// The round constant of each group of 20 rounds.
pub(super) const ROUND: [u32; 4] = [0x5a82_7999, 0x6ed9_eba1, 0x8f1b_bcdc, 0xca62_c1d6];

/// Schedule word plus round constant of each round of the padding block.
pub(super) static PADDING: [u32; 80] = padding();

const fn padding() -> [u32; 80] {
    let mut words = [0_u32; 80];
    words[0] = 1 << 31;
    words[15] = PAGE_BYTES as u32 * 8;
    let mut t = 16;
    while t < 80 {
        words[t] = (words[t - 3] ^ words[t - 8] ^ words[t - 14] ^ words[t - 16]).rotate_left(1);
        t += 1;
    }
    t = 0;
    while t < 80 {
        words[t] = words[t].wrapping_add(ROUND[t / 20]);
        t += 1;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_padding_block_is_a_one_bit_zeros_and_the_length_of_a_page_in_bits() {
        let words: Vec<u32> = PADDING[..16].iter().map(|term| term.wrapping_sub(ROUND[0])).collect();
        assert_eq!((words[0], words[15]), (0x8000_0000, 4096 * 8));
        assert!(words[1..15].iter().all(|&word| word == 0));
    }
}

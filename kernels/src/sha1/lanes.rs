//! SHA-1 over vectors of 32-bit words, one page per lane: the part that is the same for every width.
//!
//! `sha1_lanes!` writes the functions out in the module that uses it. That module provides `LANES`, `Vector` and the
//! operations on it as functions: `splat`, `add`, `rotate_left`, `choose`, `parity`, `majority`, `xor4`, `quarter`,
//! `transpose4` and `to_words`. It is a macro and not a trait so that every function is compiled for the same CPU
//! features: they are then safe to call from each other, and all of them are inlined.
//!
//! The rounds are written out, not looped over: the five state words change roles by name instead of by copies, and the
//! 16 words of the message that are still needed have fixed places.

/// One round: `e` becomes the new first state word, and `b` is rotated.
macro_rules! round {
    ($mix:ident, $term:expr, $a:ident $b:ident $c:ident $d:ident $e:ident) => {
        $e = add(add(add($e, $term), $mix($b, $c, $d)), rotate_left::<5>($a));
        $b = rotate_left::<30>($b);
    };
}

/// Rounds `t` to `t + 4`, after which each name has its first role again.
macro_rules! five_rounds {
    ($mix:ident, $term:ident($words:expr), $t:expr, $a:ident $b:ident $c:ident $d:ident $e:ident) => {
        round!($mix, $term::<{ $t }>($words), $a $b $c $d $e);
        round!($mix, $term::<{ $t + 1 }>($words), $e $a $b $c $d);
        round!($mix, $term::<{ $t + 2 }>($words), $d $e $a $b $c);
        round!($mix, $term::<{ $t + 3 }>($words), $c $d $e $a $b);
        round!($mix, $term::<{ $t + 4 }>($words), $b $c $d $e $a);
    };
}

/// Rounds `t` to `t + 19`, which mix alike.
macro_rules! twenty_rounds {
    ($mix:ident, $term:ident($words:expr), $t:expr, $($state:ident)*) => {
        five_rounds!($mix, $term($words), $t, $($state)*);
        five_rounds!($mix, $term($words), $t + 5, $($state)*);
        five_rounds!($mix, $term($words), $t + 10, $($state)*);
        five_rounds!($mix, $term($words), $t + 15, $($state)*);
    };
}

/// The state after a block whose terms (schedule word plus round constant) `term` gives.
macro_rules! block {
    ($state:ident, $term:ident($words:expr)) => {{
        let [mut a, mut b, mut c, mut d, mut e] = $state;
        twenty_rounds!(choose, $term($words), 0, a b c d e);
        twenty_rounds!(parity, $term($words), 20, a b c d e);
        twenty_rounds!(majority, $term($words), 40, a b c d e);
        twenty_rounds!(parity, $term($words), 60, a b c d e);
        [add($state[0], a), add($state[1], b), add($state[2], c), add($state[3], d), add($state[4], e)]
    }};
}

macro_rules! sha1_lanes {
    ($features:literal) => {
        /// A block of each page, and the words of its schedule that are still needed.
        struct Block<'a> {
            pages: &'a [&'a Page; LANES],
            /// Where in the pages the block begins.
            at: usize,
            /// Vector `t % 16` has word `t`, one page per lane.
            words: [Vector; 16],
        }

        /// SHA-1 of one page per lane.
        #[target_feature(enable = $features)]
        fn digest_lanes(pages: &[&Page; LANES]) -> [Digest; LANES] {
            let [a, b, c, d, e] = INITIAL;
            let mut state = [splat(a), splat(b), splat(c), splat(d), splat(e)];
            for at in (0..PAGE_BYTES).step_by(BLOCK_BYTES) {
                let mut block = Block { pages, at, words: [splat(0); 16] };
                state = block!(state, message_term(&mut block));
            }
            state = block!(state, padding_term(()));
            let mut digests = [[0; 20]; LANES];
            for (i, vector) in state.into_iter().enumerate() {
                for (digest, word) in digests.iter_mut().zip(to_words(vector)) {
                    digest[i * 4..i * 4 + 4].copy_from_slice(&word.to_be_bytes());
                }
            }
            digests
        }

        /// Word `T` of the schedule plus its round constant.
        ///
        /// The first 16 words are loaded four at a time when their round comes, so that loading and turning them is
        /// spread between rounds. From 16 on, a word takes the place of word `T - 16`.
        #[inline]
        #[target_feature(enable = $features)]
        fn message_term<const T: usize>(block: &mut Block) -> Vector {
            let words = &mut block.words;
            if T >= 16 {
                let mixed = xor4(words[(T + 13) % 16], words[(T + 8) % 16], words[(T + 2) % 16], words[T % 16]);
                words[T % 16] = rotate_left::<1>(mixed);
            } else if T % 4 == 0 {
                let row = |row| quarter(block.pages, row, block.at + T * 4);
                words[T..T + 4].copy_from_slice(&transpose4([row(0), row(1), row(2), row(3)]));
            }
            add(words[T % 16], splat(ROUND[T / 20]))
        }

        /// The same sum for the padding block, where it is known beforehand.
        #[inline]
        #[target_feature(enable = $features)]
        fn padding_term<const T: usize>((): ()) -> Vector {
            splat(PADDING[T])
        }
    };
}

//! The steps of Murmur3-x64-128 on vectors of words, for any length of vectors.

/// Defines them in a module that has a type `Vector`, and for it `splat`, `xor`, `add`, `multiply`, `rotated`, `quadrupled` and
/// `shifted_by_33`. Functions cannot be generic over the CPU features that they are compiled for.
macro_rules! steps {
    ($features:literal) => {
        /// The state after a block.
        #[inline]
        #[target_feature(enable = $features)]
        fn after_block(h1: Vector, h2: Vector, k1: Vector, k2: Vector) -> (Vector, Vector) {
            let (a, b) = after_tail(h1, h2, k1, k2);
            let h1 = times_5_plus(add(rotated::<27, 37>(a), h2), ADD_1);
            (h1, times_5_plus(add(rotated::<31, 33>(b), h1), ADD_2))
        }

        /// The state after what is behind the last block.
        #[inline]
        #[target_feature(enable = $features)]
        fn after_tail(h1: Vector, h2: Vector, k1: Vector, k2: Vector) -> (Vector, Vector) {
            let k1 = multiply(rotated::<31, 33>(multiply(k1, C1)), C2);
            let k2 = multiply(rotated::<33, 31>(multiply(k2, C2)), C1);
            (xor(h1, k1), xor(h2, k2))
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn finished(h1: Vector, h2: Vector, length: u64) -> (Vector, Vector) {
            let (h1, h2) = (xor(h1, splat(length)), xor(h2, splat(length)));
            let h1 = add(h1, h2);
            let h2 = add(h2, h1);
            let (h1, h2) = (avalanche(h1), avalanche(h2));
            let h1 = add(h1, h2);
            (h1, add(h2, h1))
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn avalanche(word: Vector) -> Vector {
            let word = multiply(folded(word), AVALANCHE_1);
            folded(multiply(folded(word), AVALANCHE_2))
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn folded(word: Vector) -> Vector {
            xor(word, shifted_by_33(word))
        }

        /// A shift and two additions: a multiplication takes at least three times as long.
        #[inline]
        #[target_feature(enable = $features)]
        fn times_5_plus(word: Vector, addend: u64) -> Vector {
            add(add(quadrupled(word), splat(addend)), word)
        }
    };
}

pub(super) use steps;

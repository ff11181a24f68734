//! Random histories of regions against plain copies of them: every checkpoint of a lineage is restored as it was.
//!
//! Regions appear, vanish, come back, grow, shrink and move; bytes change, are copied within and between regions, and
//! return to what they were some checkpoints ago. Each checkpoint takes any method; checkpoints are dropped and flattened.
//! Some cannot be written, or are abandoned after they were; some engines have little room for digests.
#![allow(clippy::unwrap_used, reason = "a test")]

mod steps;

use std::{
    collections::BTreeMap,
    io::{self, Cursor, Write},
};

use ckpt_kernels::merkle::{Difference, Encoder, Engine, Error, Lineage, Method, Region};
use steps::{Random, State, change};

const CHUNK_BYTES: u32 = 32;

/// The next difference as it would lie in a file; none when it does not become one.
fn written(random: &mut Random, engine: &mut Engine, number: u32, method: Method, now: &State) -> Option<Vec<u8>> {
    let regions: Vec<_> = now.iter().map(|(id, bytes)| Region { id: *id, bytes }).collect();
    while random.below(5) == 0 {
        let room = random.below(2_000);
        let mut full = Encoder::new(Cursor::new(vec![0; room].into_boxed_slice()));
        let taken = engine.difference(number, method, &regions, &mut full);
        let Ok(taken) = taken else {
            assert!(matches!(taken, Err(Error::Sink { checkpoint, .. }) if checkpoint == number));
            if random.below(2) == 0 {
                return None;
            }
            continue;
        };
        // Now the trailer may still find no room.
        if let Ok(whole) = full.finish().and_then(|file| ended(file, taken.head.data_bytes)) {
            return Some(whole);
        }
        engine.abandon(number);
    }
    let mut file = Encoder::new(Vec::new());
    engine.difference(number, method, &regions, &mut file).unwrap();
    if random.below(8) == 0 {
        engine.abandon(number);
        return None;
    }
    Some(file.finish().unwrap())
}

/// What was written to a file.
fn ended(mut file: Cursor<Box<[u8]>>, data_bytes: u64) -> io::Result<Vec<u8>> {
    file.flush()?;
    let length = file.position() as usize;
    assert!(length as u64 >= 64 + data_bytes + 4);
    Ok(file.into_inner()[..length].to_vec())
}

/// Goes through a history, and restores everything that is kept after each step.
fn history(seed: u64) {
    let mut random = Random::new(seed);
    let most = [300, 3_000, 30_000][random.below(3)];
    let bound = (random.below(2) == 0).then(|| random.below(most) as u64);
    let mut engine = Engine::new(CHUNK_BYTES, bound).unwrap();
    let (mut lineage, mut known, mut now) = (Lineage::default(), BTreeMap::new(), State::new());
    let favourite = Method::EVERY[random.below(4)];
    let (mut number, mut is_lost) = (0, false);
    for _ in 0..3 + random.below(8) {
        (0..random.below(6)).for_each(|_| change(&mut random, &mut now, &known, 1));
        // The number of a lost checkpoint may be taken again.
        number += u32::from(!is_lost) + random.below(2) as u32;
        let method = if random.below(4) == 0 { Method::EVERY[random.below(4)] } else { favourite };
        let encoded = written(&mut random, &mut engine, number, method, &now);
        assert!(bound.is_none_or(|bound| engine.held_bytes() <= bound), "seed {seed}: more is held than may be");
        is_lost = encoded.is_none();
        let Some(encoded) = encoded else { continue };
        let difference = Difference::decode(&encoded).unwrap();
        assert!(difference.encode() == encoded, "seed {seed}");
        lineage.add(difference).unwrap_or_else(|error| panic!("seed {seed}, checkpoint {number}: {error}"));
        let regions: Vec<_> = now.iter().map(|(id, bytes)| Region { id: *id, bytes }).collect();
        assert_eq!(lineage.mismatch(number, &regions).unwrap(), None, "seed {seed}, checkpoint {number}");
        known.insert(number, now.clone());
        let numbers: Vec<u32> = known.keys().copied().collect();
        match random.below(6) {
            0 => lineage.flatten(numbers[random.below(numbers.len())]).unwrap(),
            1 => {
                let kept: Vec<u32> = numbers.into_iter().filter(|_| random.below(2) == 0).collect();
                let gone = lineage.keep(&kept).unwrap();
                engine.forget(|number| !gone.contains(&number));
                known.retain(|number, _| kept.contains(number));
            }
            _ => {}
        }
        assert!(lineage.checkpoints().eq(known.keys().copied()));
        for (number, state) in &known {
            let restored = lineage.restore(*number).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert!(restored == *state, "seed {seed}: checkpoint {number} is not what it was");
        }
    }
}

#[test]
fn every_checkpoint_of_random_histories_is_restored_as_it_was() {
    let count = std::env::var("CKPT_TEST_HISTORIES").map_or(10_000, |count| count.parse().unwrap());
    (0..count).for_each(history);
}

//! Random histories of regions against plain copies of them: every checkpoint of a lineage is restored as it was.
//!
//! Regions appear, vanish, come back, grow, shrink and move; bytes change, are copied within and between regions, and
//! return to what they were some checkpoints ago. Each checkpoint takes any method; checkpoints are dropped and flattened.
//! Some cannot be written, or are abandoned after they were; some engines have little room for digests. Some are found in
//! regions that are read in pieces, and of which only what has changed may be read.
#![allow(clippy::unwrap_used, reason = "a test")]

mod steps;

use std::{
    collections::BTreeMap,
    io::{self, Cursor, Write},
    ops::Range,
};

use ckpt_kernels::merkle::{
    Difference, Encoder, Engine, Error, Lineage, Live, Memory, Method, Region, Result, Sink, Taken,
};

use steps::{Random, State, change};

const CHUNK_BYTES: u32 = 32;

/// Bytes in another place.
struct Elsewhere<'a>(&'a [u8]);

impl Memory for Elsewhere<'_> {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, ranges: &[Range<u64>], to: &mut Vec<u8>) -> io::Result<()> {
        self.0.read(ranges, to)
    }
}

/// Ranges outside of which nothing has changed, and some more.
fn changed(random: &mut Random, before: &[u8], now: &[u8]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let is_other = |at: usize| before.get(at) != now.get(at);
    for at in (0..now.len()).filter(|at| *at < before.len() && is_other(*at)) {
        let (start, end) = (at as u64, (at + 1 + random.below(20)) as u64);
        match ranges.last_mut() {
            Some(last) if start <= last.end => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    ranges
}

/// Finds a difference in slices, or in regions that are read in pieces. `last` is what the engine saw last.
fn find(
    random: &mut Random,
    engine: &mut Engine,
    (number, method): (u32, Method),
    now: &State,
    last: Option<&State>,
    sink: &mut dyn Sink,
) -> Result<Taken> {
    if random.below(2) == 0 {
        let regions: Vec<_> = now.iter().map(|(id, bytes)| Region { id: *id, bytes }).collect();
        return engine.difference(number, method, &regions, sink);
    }
    let memories: Vec<_> = now.iter().map(|(_, bytes)| Elsewhere(bytes)).collect();
    let ranges: Vec<_> = now
        .iter()
        .map(|(id, bytes)| {
            let before = last?.iter().find(|(known, _)| known == id).filter(|_| random.below(4) > 0);
            before.map(|(_, before)| changed(random, before, bytes))
        })
        .collect();
    let live = |((id, _), (memory, changed))| Live { id, memory, changed };
    let parts = memories.iter().map(|memory| memory as &dyn Memory).zip(ranges.iter().map(Option::as_deref));
    let regions: Vec<_> = now.iter().map(|(id, bytes)| (*id, bytes)).zip(parts).map(live).collect();
    engine.difference_of(number, method, &regions, sink)
}

/// The next difference as it would lie in a file; none when it does not become one.
fn written(
    random: &mut Random,
    engine: &mut Engine,
    number: u32,
    method: Method,
    now: &State,
    last: &mut Option<State>,
) -> Option<Vec<u8>> {
    while random.below(5) == 0 {
        let room = random.below(2_000);
        let mut full = Encoder::new(Cursor::new(vec![0; room].into_boxed_slice()));
        let taken = find(random, engine, (number, method), now, last.as_ref(), &mut full);
        let Ok(taken) = taken else {
            assert!(matches!(taken, Err(Error::Sink { checkpoint, .. }) if checkpoint == number));
            if random.below(2) == 0 {
                return None;
            }
            continue;
        };
        // Now the trailer may still find no room.
        if let Ok(whole) = full.finish().and_then(|file| ended(file, taken.head.data_bytes)) {
            *last = Some(now.clone());
            return Some(whole);
        }
        engine.abandon(number);
        *last = None;
    }
    let mut file = Encoder::new(Vec::new());
    find(random, engine, (number, method), now, last.as_ref(), &mut file).unwrap();
    *last = Some(now.clone());
    if random.below(8) == 0 {
        engine.abandon(number);
        *last = None;
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
    let (mut number, mut is_lost, mut last) = (0, false, None);
    for _ in 0..3 + random.below(8) {
        (0..random.below(6)).for_each(|_| change(&mut random, &mut now, &known, 1));
        // The number of a lost checkpoint may be taken again.
        number += u32::from(!is_lost) + random.below(2) as u32;
        let method = if random.below(4) == 0 { Method::EVERY[random.below(4)] } else { favourite };
        let encoded = written(&mut random, &mut engine, number, method, &now, &mut last);
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

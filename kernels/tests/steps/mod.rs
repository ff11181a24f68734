//! Random steps of a history of regions: they appear, vanish, come back, grow, shrink and move; bytes change, are copied within
//! and between regions, and return to what they were some checkpoints ago.

use std::collections::BTreeMap;

/// xorshift64
pub struct Random(u64);

impl Random {
    /// With a seed of less than 2^40.
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed | 1 << 40);
        (0..20).for_each(|_| _ = random.below(2));
        random
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Regions by their ids.
pub type State = Vec<(u64, Vec<u8>)>;

/// Few values, so that chunks of one value are often equal.
fn bytes(random: &mut Random, length: usize) -> Vec<u8> {
    let values = [1, 2, 200][random.below(3)];
    let mut bytes: Vec<u8> = (0..length).map(|_| random.below(values) as u8).collect();
    if random.below(3) == 0 {
        bytes.chunks_mut(32).for_each(|chunk| chunk.fill(random.below(5) as u8));
    }
    bytes
}

fn length(random: &mut Random, scale: usize) -> usize {
    match random.below(4) {
        0 => random.below(70),
        1 => 32 * random.below(40 * scale),
        _ => random.below(1_300 * scale),
    }
}

/// The next step: one thing changes. Regions have up to 1,300 bytes, or so many times more.
pub fn change(random: &mut Random, now: &mut State, known: &BTreeMap<u32, State>, scale: usize) {
    let new_bytes = |random: &mut Random| {
        let length = length(random, scale);
        bytes(random, length)
    };
    if now.is_empty() || random.below(8) == 0 {
        let id = random.below(6) as u64;
        if now.iter().all(|(known, _)| *known != id) {
            let at = random.below(now.len() + 1);
            now.insert(at, (id, new_bytes(random)));
        }
        return;
    }
    let (at, other) = (random.below(now.len()), random.below(now.len()));
    match random.below(8) {
        0 => drop(now.remove(at)),
        1 => now.swap(at, other),
        2 => {
            let length = length(random, scale);
            let filler = random.below(256) as u8;
            now[at].1.resize(length, filler);
        }
        3 => {
            // A state of before, of one region or of all.
            let Some(old) = known.values().nth(random.below(known.len().max(1))) else { return };
            if random.below(2) == 0 {
                *now = old.clone();
            } else if let Some((_, old)) = old.iter().find(|(id, _)| *id == now[at].0) {
                now[at].1.clone_from(old);
            }
        }
        4 => {
            // Chunks of one region to another place, mostly at a chunk's beginning.
            let from = now[other].1.clone();
            let unit = if random.below(3) == 0 { 1 } else { 32 };
            let (start, to) =
                (random.below(from.len() / unit + 1) * unit, random.below(now[at].1.len() / unit + 1) * unit);
            let count = random.below(400 * scale).min(from.len() - start).min(now[at].1.len() - to);
            now[at].1[to..to + count].copy_from_slice(&from[start..start + count]);
        }
        _ => {
            for _ in 0..1 + random.below(4) {
                let length = now[at].1.len();
                if length > 0 {
                    let position = random.below(length);
                    now[at].1[position] = random.below(256) as u8;
                }
            }
        }
    }
}

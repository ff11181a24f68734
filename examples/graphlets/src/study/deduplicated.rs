//! Series of differences, found by the engine of kernels/src/merkle. Everything that knows the engine is here.

use std::{io, time::Instant};

use ckpt_kernels::merkle::{Difference, Engine, Head, Lineage, Method, Region, Sink};
use zerocopy::IntoBytes;

use super::{
    Cost, Result, Series,
    series::{compare, restored},
};

/// For series whose method does not look at chunks.
const ANY_CHUNK_BYTES: u32 = 4096;

/// Takes differences into memory that is there before the clock starts.
struct Staging {
    head: Head,
    data: Vec<u8>,
}

/// The costs of checkpoints of these states; two of them are restored.
pub fn series(method: Method, chunk_bytes: Option<u32>, states: &[&[u32]]) -> Result<Series> {
    let mut lineage = Lineage::default();
    let add = |staging: &Staging| {
        let difference = Difference { head: staging.head.clone(), data: staging.data.clone() };
        Ok(lineage.add(difference)?)
    };
    let series = take(method, chunk_bytes, states, add)?;
    for number in restored(states.len()) {
        let regions = lineage.restore(number as u32)?;
        let bytes = regions.first().map(|(_, bytes)| &bytes[..]).unwrap_or_default();
        compare(number, &format!("{method:?}"), bytes, states[number].as_bytes())?;
    }
    Ok(series)
}

/// The same again, without keeping or restoring anything.
pub fn again(method: Method, chunk_bytes: Option<u32>, states: &[&[u32]]) -> Result<Series> {
    take(method, chunk_bytes, states, |_| Ok(()))
}

fn take(
    method: Method,
    chunk_bytes: Option<u32>,
    states: &[&[u32]],
    mut taken: impl FnMut(&Staging) -> Result<()>,
) -> Result<Series> {
    let mut engine = Engine::new(chunk_bytes.unwrap_or(ANY_CHUNK_BYTES), None)?;
    let mut staging = Staging::for_states(states);
    let mut costs = Vec::new();
    for (number, state) in (0..).zip(states) {
        let begun = Instant::now();
        engine.difference(number, method, &[Region { id: 0, bytes: state.as_bytes() }], &mut staging)?;
        let seconds = begun.elapsed().as_secs_f64();
        costs.push(Cost { seconds, ..staging.cost(state) });
        taken(&staging)?;
    }
    Ok(Series::new(costs))
}

impl Staging {
    fn for_states(states: &[&[u32]]) -> Self {
        let bytes = states.iter().map(|state| size_of_val(*state)).max().unwrap_or(0);
        // Not zeros: those would be given no memory before they are written.
        Self { head: Head::default(), data: vec![1; bytes] }
    }

    fn cost(&self, state: &[u32]) -> Cost {
        Cost {
            original_bytes: size_of_val(state) as u64,
            data_bytes: self.data.len() as u64,
            metadata_bytes: self.head.metadata_bytes() as u64,
            seconds: 0.0,
        }
    }
}

impl Sink for Staging {
    fn head(&mut self, head: &Head) -> io::Result<()> {
        self.head = head.clone();
        self.data.clear();
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.data.extend_from_slice(bytes);
        Ok(())
    }
}

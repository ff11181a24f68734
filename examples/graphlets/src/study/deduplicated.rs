//! Series of differences, as the engine finds them, on the cores or on a device (finder.rs).

use std::io;

use ckpt_kernels::merkle::{Difference, Head, Lineage, Method, Sink, Taken};
use zerocopy::IntoBytes;

use super::{
    Cost, Result, Series,
    finder::Finder,
    series::{compare, restored},
};
use crate::machinery::Machinery;

/// For series whose method does not look at chunks.
const ANY_CHUNK_BYTES: u32 = 4096;

/// Takes differences into memory that is there before the clock starts.
struct Staging {
    head: Head,
    data: Vec<u8>,
}

/// The costs of checkpoints of these states; two of them are restored.
pub fn series(machinery: &Machinery, method: Method, chunk_bytes: Option<u32>, states: &[&[u32]]) -> Result<Series> {
    let mut lineage = Lineage::default();
    let add = |staging: &Staging| {
        let difference = Difference { head: staging.head.clone(), data: staging.data.clone() };
        Ok(lineage.add(difference)?)
    };
    let series = take(machinery, method, chunk_bytes, states, add)?;
    for number in restored(states.len()) {
        let regions = lineage.restore(number as u32)?;
        let bytes = regions.first().map(|(_, bytes)| &bytes[..]).unwrap_or_default();
        compare(number, &format!("{method:?}"), bytes, states[number].as_bytes())?;
    }
    Ok(series)
}

/// The same again, without keeping or restoring anything.
pub fn again(machinery: &Machinery, method: Method, chunk_bytes: Option<u32>, states: &[&[u32]]) -> Result<Series> {
    take(machinery, method, chunk_bytes, states, |_| Ok(()))
}

fn take(
    machinery: &Machinery,
    method: Method,
    chunk_bytes: Option<u32>,
    states: &[&[u32]],
    mut taken: impl FnMut(&Staging) -> Result<()>,
) -> Result<Series> {
    let mut staging = Staging::for_states(states);
    let mut finder = Finder::new(machinery, chunk_bytes.unwrap_or(ANY_CHUNK_BYTES), staging.data.len() as u64)?;
    let mut costs = Vec::new();
    for (number, state) in (0..).zip(states) {
        let (found, seconds) = finder.timed(number, method, state, &mut staging)?;
        say_what_was_short(&found);
        costs.push(Cost { seconds, ..staging.cost(state) });
        taken(&staging)?;
    }
    Ok(Series::new(costs, finder.peak()))
}

/// A series that was not made by its method is not what its line of the table says.
fn say_what_was_short(taken: &Taken) {
    if let Some(shortage) = taken.shortage {
        let Head { checkpoint, chunk_bytes, .. } = taken.head;
        eprintln!("chunks of {chunk_bytes} B, checkpoint {checkpoint}: taken by {:?}: {shortage}", taken.method);
    }
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

//! Finding differences on a GPU.
//!
//! What comes out is what the engine for the CPU finds, byte for byte, unless memory runs short: then it says which method it
//! fell back to. Kernels are queued one behind the other; the host waits three times in a checkpoint: for how much has
//! changed (the history must have room), for how much there is of what, and for the bytes.
//!
//! Digests of chunks are compared and replaced in one pass, so a checkpoint that fails has spoilt those of the one before:
//! the next one then differs from none, and still finds all that was seen before.

use std::{sync::Arc, time::Instant};

use super::{
    amounts::{Amounts, Data, Entries},
    context::Context,
    entries::{Collected, changed},
    error::{Error, Result},
    finder::Finder,
    layout::{self, FIRST_BYTES},
    pass::Pass,
    ring::Ring,
    short::Short,
};
use crate::merkle::{self, Body, Head, Lineage, Method, Mismatch, RegionShape, Sink, Taken, forest::Forest};

/// Bytes that leave the device at a time, unless said otherwise.
pub const SLOT_BYTES: usize = 16 << 20;
/// The least: a slot must have room for the entries of a tile.
pub const SLOT_BYTES_MIN: usize = 16 << 10;

/// A region of device memory, which nobody writes while a checkpoint is taken.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Stays with the region when it moves or changes its length.
    pub id: u64,
    /// Where it is.
    pub address: u64,
    /// How many bytes it has.
    pub bytes: u64,
}

/// Finds what each checkpoint of a lineage adds to it.
pub struct Engine {
    context: Arc<Context>,
    chunk_bytes: u32,
    last: Option<u32>,
    finder: Finder,
    ring: Ring,
    times: Times,
}

/// How long the parts of a checkpoint took.
#[derive(Clone, Copy, Default, Debug)]
pub struct Times {
    /// The digests of all chunks, on the device.
    pub hash_s: f64,
    /// Until it is known how much is written down and stored, the digests included.
    pub find_s: f64,
    /// Until all entries are on the host.
    pub entries_s: f64,
    /// Until the sink has all data.
    pub data_s: f64,
}

impl Engine {
    /// For chunks of so many bytes, which leave the device `slot_bytes` at a time.
    ///
    /// # Errors
    /// For a length of chunks that no engine takes, and when the device has not even memory for the ring.
    ///
    /// # Panics
    /// For slots of less than [`SLOT_BYTES_MIN`] or no multiple of 16.
    pub fn new(context: &Arc<Context>, chunk_bytes: u32, slot_bytes: usize) -> Result<Self> {
        assert!(slot_bytes >= SLOT_BYTES_MIN && slot_bytes.is_multiple_of(16), "slots of {slot_bytes} bytes");
        merkle::check_chunk_bytes(chunk_bytes)?;
        let _entered = context.enter()?;
        let finder = Finder::new(context, chunk_bytes)?;
        let ring = Ring::new(context, finder.stream(), slot_bytes)?;
        let times = Times::default();
        Ok(Self { context: context.clone(), chunk_bytes, last: None, finder, ring, times })
    }

    /// How long the parts of the last checkpoint took.
    pub fn times(&self) -> Times {
        self.times
    }

    /// Entries that the history uses, those of forgotten digests too.
    pub fn history_len(&self) -> u64 {
        self.finder.history_len()
    }

    /// Forgets what was seen first in checkpoints that `stays` says no to: their differences may be removed when none that
    /// stays needs them.
    ///
    /// # Errors
    /// When the device fails; then everything is forgotten.
    pub fn forget(&mut self, stays: impl Fn(u32) -> bool) -> Result<()> {
        let context = self.context.clone();
        let _entered = context.enter()?;
        self.finder.forget(stays)
    }

    /// Forgets a checkpoint and all after it, as if they had never been taken: for who could not make the difference of one
    /// durable. The next one may have its number. It differs from none, since what was there before is not known any more.
    ///
    /// # Errors
    /// As [`Self::forget`].
    pub fn abandon(&mut self, checkpoint: u32) -> Result<()> {
        if self.last.is_some_and(|last| last >= checkpoint) {
            self.last = checkpoint.checked_sub(1);
            self.finder.forget_chunks();
            self.forget(|seen| seen < checkpoint)?;
        }
        Ok(())
    }

    /// Finds what checkpoint `checkpoint` of these regions adds, and hands it to `sink`.
    ///
    /// # Errors
    /// When a number or an id is taken, there are too many chunks, the device or the sink fails. Then the checkpoint has not
    /// been taken.
    ///
    /// # Safety
    /// Each region is device memory, or managed or pinned memory that the device can read; nobody writes it or frees it
    /// before this returns.
    pub unsafe fn difference(
        &mut self,
        checkpoint: u32,
        method: Method,
        regions: &[Region],
        sink: &mut dyn Sink,
    ) -> Result<Taken> {
        let shapes = regions.iter().map(|region| RegionShape { id: region.id, bytes: region.bytes });
        let forest = merkle::accepted(self.chunk_bytes, self.last, checkpoint, shapes)?;
        let context = self.context.clone();
        let _entered = context.enter()?;
        let taken = self.take(checkpoint, method, forest, regions, sink);
        match taken {
            Ok(_) => self.last = Some(checkpoint),
            Err(_) => self.finder.undo(checkpoint),
        }
        taken
    }

    fn take(
        &mut self,
        checkpoint: u32,
        wanted: Method,
        forest: Forest,
        regions: &[Region],
        sink: &mut dyn Sink,
    ) -> Result<Taken> {
        let mut head = Head {
            checkpoint,
            previous: None,
            chunk_bytes: self.chunk_bytes,
            regions: forest.trees.iter().map(|tree| tree.region).collect(),
            body: Body::Full,
            data_bytes: regions.iter().map(|region| region.bytes).sum(),
        };
        let mut short = Short::of(wanted);
        let begun = Instant::now();
        let Some(mut pass) = self.finder.prepare_or_forget(checkpoint, wanted, forest, regions, &mut short)? else {
            self.finder.drop_chunks();
            self.send_regions(&head, regions, sink)?;
            self.times = Times { data_s: begun.elapsed().as_secs_f64(), ..Times::default() };
            return Ok(Taken { head, method: Method::Full, shortage: short.shortage(&self.context) });
        };
        let method = self.finder.find(&mut pass, wanted, &mut short)?;
        let amounts = self.finder.amounts(&pass)?;
        let (find_s, hash_s) = (begun.elapsed().as_secs_f64(), self.finder.hash_s(&pass)?);
        head.previous = self.finder.previous();
        head.body = match method {
            Method::Full | Method::Basic => changed(&pass.regions, &self.finder.changed(&pass)?),
            Method::List | Method::Tree => self.entries(&pass, &amounts)?,
        };
        let entries_s = begun.elapsed().as_secs_f64() - find_s;
        head.data_bytes = amounts.total().bytes;
        self.send_stored(&pass, &head, &amounts, sink)?;
        let data_s = begun.elapsed().as_secs_f64() - find_s - entries_s;
        self.times = Times { hash_s, find_s, entries_s, data_s };
        self.finder.remember(checkpoint, method, &pass);
        Ok(Taken { head, method, shortage: short.shortage(&self.context) })
    }

    fn entries(&mut self, pass: &Pass, amounts: &Amounts) -> Result<Body> {
        let mut collected = Collected::new(amounts.total());
        let Self { ring, finder, .. } = self;
        let gather = |entries: &Entries, slot| {
            let window = layout::EntryWindow {
                first_tile: entries.tiles.start,
                firsts_before: entries.before.firsts,
                shifts_before: entries.before.shifts,
                firsts: slot,
                shifts: slot + u64::from(entries.firsts) * FIRST_BYTES,
            };
            // SAFETY: the window was made for a slot; the rest is as in `Finder::find`.
            unsafe {
                let tiles = entries.tiles.len() as u32;
                finder.kernels().write_entries(&pass.parameter, &window, tiles, finder.stream())?;
            }
            Ok((slot, entries.bytes() as usize))
        };
        let take = |entries: &Entries, bytes: &[u8]| {
            collected.add(entries.firsts, bytes);
            Ok(())
        };
        // SAFETY: what is gathered is in the slot.
        unsafe { ring.send(amounts.entries(ring.slot_bytes()), gather, take)? };
        Ok(collected.into_body())
    }

    fn send_stored(&mut self, pass: &Pass, head: &Head, amounts: &Amounts, sink: &mut dyn Sink) -> Result<()> {
        let failed = Error::sink(head.checkpoint);
        sink.head(head).map_err(&failed)?;
        let Self { ring, finder, .. } = self;
        let gather = |data: &Data, slot| {
            let window = layout::Window {
                from: data.bytes.start,
                to: data.bytes.end,
                bytes: slot,
                first_tile: data.tiles.start,
                unused: 0,
            };
            // SAFETY: the window is as long as a slot; the rest is as in `Finder::find`.
            unsafe {
                let tiles = data.tiles.len() as u32;
                finder.kernels().gather(&pass.parameter, &window, tiles, finder.stream())?;
            }
            Ok((slot, (data.bytes.end - data.bytes.start) as usize))
        };
        let take = |_: &Data, bytes: &[u8]| sink.data(bytes).map_err(&failed);
        // SAFETY: what is gathered is in the slot.
        unsafe { ring.send(amounts.data(ring.slot_bytes()), gather, take) }
    }

    /// Sends all bytes as they are.
    fn send_regions(&mut self, head: &Head, regions: &[Region], sink: &mut dyn Sink) -> Result<()> {
        let failed = Error::sink(head.checkpoint);
        sink.head(head).map_err(&failed)?;
        self.send_all(regions, |_, _, bytes| sink.data(bytes).map_err(&failed))
    }

    /// Compares regions with what a lineage would restore, as [`Lineage::mismatch`] does. All of them leave the device.
    ///
    /// # Errors
    /// When there is no such checkpoint, or the device fails.
    ///
    /// # Safety
    /// As of [`Self::difference`].
    pub unsafe fn mismatch(
        &mut self,
        lineage: &Lineage,
        checkpoint: u32,
        regions: &[Region],
    ) -> Result<Option<Mismatch>> {
        let context = self.context.clone();
        let _entered = context.enter()?;
        let (mut expected, mut first) = (Vec::new(), None);
        self.send_all(regions, |region, offset, bytes| {
            expected.resize(bytes.len(), 0);
            lineage.restore_part(checkpoint, region.id, offset, &mut expected)?;
            if first.is_none() && expected != bytes {
                let at = expected.iter().zip(bytes).position(|(expected, byte)| expected != byte).unwrap_or(0);
                first = Some(Mismatch { region: region.id, offset: offset + at as u64 });
            }
            Ok(())
        })?;
        Ok(first)
    }

    /// Sends all bytes of regions through the ring: `take` gets them with their region and their offset there.
    fn send_all(&mut self, regions: &[Region], mut take: impl FnMut(&Region, u64, &[u8]) -> Result<()>) -> Result<()> {
        let slot_bytes = self.ring.slot_bytes();
        let pieces = regions.iter().flat_map(|region| {
            let offsets = (0..region.bytes).step_by(slot_bytes);
            offsets.map(|offset| (*region, offset, (region.bytes - offset).min(slot_bytes as u64) as usize))
        });
        let gather = |(region, offset, bytes): &(Region, u64, usize), _| Ok((region.address + offset, *bytes));
        let take = |(region, offset, _): &(Region, u64, usize), bytes: &[u8]| take(region, *offset, bytes);
        // SAFETY: the regions are the caller's.
        unsafe { self.ring.send(pieces, gather, take) }
    }
}

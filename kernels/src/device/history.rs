//! The history of digests in device memory, seen from the host: which segments there are, and how full the last one is.

use std::sync::Arc;

use super::{
    context::Context,
    entry_points::Address,
    error::Result,
    kernels::Kernels,
    layout::{self, ENTRY_BYTES, Gone, SEGMENTS_MAX, bytes_of},
    memory::Buffer,
    stream::Stream,
};

/// The fewest entries of a segment.
const ENTRIES_MIN: u64 = 4096;
/// And the most: kernels find places by multiplication of 32 bits.
const ENTRIES_MAX: u64 = u32::MAX as u64;
/// Of a segment's entries so many hundredths are used at most: beyond, searches become long.
const FULL_PERCENT: u64 = 85;

/// Segments of entries.
pub struct History {
    context: Arc<Context>,
    segments: Vec<Segment>,
    /// The checkpoints that own entries.
    seen: Vec<u32>,
}

struct Segment {
    entries: Buffer,
    capacity: u64,
    used: u64,
}

impl Segment {
    fn new(context: &Arc<Context>, capacity: u64, stream: &Stream) -> Result<Self> {
        let entries = Buffer::new(context, capacity * ENTRY_BYTES)?;
        stream.fill(&entries, 0, entries.bytes())?;
        Ok(Self { entries, capacity, used: 0 })
    }

    fn limit(&self) -> u64 {
        (self.capacity * FULL_PERCENT / 100).min(u64::from(u32::MAX))
    }

    fn parameter(&self) -> layout::Segment {
        layout::Segment { entries: self.entries.address(), capacity: self.capacity }
    }
}

impl History {
    pub fn new(context: &Arc<Context>) -> Self {
        Self { context: context.clone(), segments: Vec::new(), seen: Vec::new() }
    }

    /// Entries that are used, also those of digests that nobody owns any more.
    pub fn used(&self) -> u64 {
        self.segments.iter().map(|segment| segment.used).sum()
    }

    /// Entries used in the last segment.
    pub fn used_of_last(&self) -> u64 {
        self.segments.last().map_or(0, |last| last.used)
    }

    pub fn set_used_of_last(&mut self, used: u64) {
        if let Some(last) = self.segments.last_mut() {
            last.used = used;
        }
    }

    /// Makes room for so many entries more.
    ///
    /// # Errors
    /// When there is not as much memory; then nothing has changed.
    pub fn reserve(&mut self, entries: u64, kernels: &Kernels, totals: &Buffer, stream: &Stream) -> Result<()> {
        if self.segments.last().is_some_and(|last| last.limit() - last.used.min(last.limit()) >= entries) {
            return Ok(());
        }
        let all: u64 = self.segments.iter().map(|segment| segment.capacity).sum();
        if self.segments.len() == SEGMENTS_MAX {
            return self.merge(entries, kernels, totals, stream);
        }
        let capacity = (entries * 100 / FULL_PERCENT + 1).max(all / 8).max(ENTRIES_MIN);
        self.segments.push(Segment::new(&self.context, capacity.min(ENTRIES_MAX), stream)?);
        Ok(())
    }

    /// Makes one segment of all, with room for so many entries more. What nobody owns any more is left behind.
    fn merge(&mut self, entries: u64, kernels: &Kernels, totals: &Buffer, stream: &Stream) -> Result<()> {
        let capacity = (self.used() + entries) * 100 / FULL_PERCENT + 1;
        let mut merged = Self {
            context: self.context.clone(),
            segments: vec![Segment::new(&self.context, capacity.clamp(ENTRIES_MIN, ENTRIES_MAX), stream)?],
            seen: self.seen.clone(),
        };
        stream.write(totals, bytes_of(&[layout::Totals::default()]))?;
        for segment in &self.segments {
            // SAFETY: both are as long as they say, and stay until the stream has been waited for.
            unsafe { kernels.move_entries(&segment.parameter(), &merged.parameter(totals), stream)? };
        }
        let mut moved = [layout::Totals::default()];
        stream.read(totals, layout::bytes_of_mut(&mut moved))?;
        merged.set_used_of_last(u64::from(moved[0].used));
        *self = merged;
        Ok(())
    }

    /// A checkpoint that owns entries has been taken.
    pub fn note(&mut self, checkpoint: u32) {
        self.seen.push(checkpoint);
    }

    /// Forgets who owns the digests of checkpoints that `stays` says no to.
    ///
    /// # Errors
    /// When the device fails; then everything is forgotten.
    pub fn retain(
        &mut self,
        stays: impl Fn(u32) -> bool,
        kernels: &Kernels,
        scratch: &Buffer,
        stream: &Stream,
    ) -> Result<()> {
        let gone: Vec<u32> = self.seen.iter().copied().filter(|seen| !stays(*seen)).collect();
        self.seen.retain(|seen| stays(*seen));
        self.forget(&gone, kernels, scratch, stream)
    }

    /// Forgets who owns the digests of these checkpoints, given in order. Takes no memory, but `scratch` for a while.
    ///
    /// # Errors
    /// As of [`Self::retain`].
    pub fn forget(&mut self, gone: &[u32], kernels: &Kernels, scratch: &Buffer, stream: &Stream) -> Result<()> {
        let forget = |numbers: &[u32]| {
            stream.write(scratch, bytes_of(numbers))?;
            let gone = Gone { numbers: scratch.address(), count: numbers.len() as u64 };
            for segment in &self.segments {
                // SAFETY: both are as long as they say, and stay until the stream has been waited for.
                unsafe { kernels.forget(&segment.parameter(), &gone, stream)? };
            }
            stream.wait()
        };
        let forgotten = gone.chunks(scratch.bytes() as usize / size_of::<u32>()).try_for_each(forget);
        forgotten.inspect_err(|_| self.clear())
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.seen.clear();
    }

    /// For kernels. Entries are counted, and whether there were too few, in `totals`.
    pub fn parameter(&self, totals: &Buffer) -> layout::History {
        let mut segments = [layout::Segment::default(); SEGMENTS_MAX];
        segments.iter_mut().zip(&self.segments).for_each(|(to, segment)| *to = segment.parameter());
        let counter = |offset: usize| -> Address { totals.address() + offset as Address };
        layout::History {
            segments,
            count: self.segments.len() as u32,
            limit: self.segments.last().map_or(0, Segment::limit) as u32,
            used: counter(std::mem::offset_of!(layout::Totals, used)),
            overflow: counter(std::mem::offset_of!(layout::Totals, overflow)),
        }
    }
}

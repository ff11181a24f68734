//! Restoring regions of device memory, through pinned buffers.

use std::sync::Arc;

use super::{
    context::Context,
    engine::Region,
    error::Result,
    memory::PinnedBuffer,
    stream::{Event, Stream},
};
use crate::merkle::Lineage;

const SLOTS: usize = 4;

/// Pinned buffers from which bytes go to the device while the next ones are being put together.
pub struct Refill {
    context: Arc<Context>,
    stream: Stream,
    slots: Vec<(PinnedBuffer, Event)>,
}

impl Refill {
    /// With buffers of so many bytes.
    ///
    /// # Errors
    /// When the device is not to be used.
    pub fn new(context: &Arc<Context>, slot_bytes: usize) -> Result<Self> {
        let _entered = context.enter()?;
        let slot = |_| Ok((PinnedBuffer::new(context, slot_bytes)?, Event::new(context)?));
        let slots = (0..SLOTS).map(slot).collect::<Result<_>>()?;
        Ok(Self { stream: Stream::new(context)?, context: context.clone(), slots })
    }

    /// Makes these regions what they were at a checkpoint.
    ///
    /// # Errors
    /// When the checkpoint has no region of such an id and length, or the device fails. Regions may then hold anything.
    ///
    /// # Safety
    /// The regions are device memory, which nobody else uses before this returns.
    pub unsafe fn restore(&mut self, lineage: &Lineage, checkpoint: u32, regions: &[Region]) -> Result<()> {
        let context = self.context.clone();
        let _entered = context.enter()?;
        let restored = self.start_all(lineage, checkpoint, regions);
        // Also after a failure nothing may be on its way any more.
        let arrived = self.stream.wait();
        restored.and(arrived)
    }

    fn start_all(&mut self, lineage: &Lineage, checkpoint: u32, regions: &[Region]) -> Result<()> {
        let slot_bytes = self.slots[0].0.len();
        let pieces = regions.iter().flat_map(|region| {
            let from = (0..region.bytes).step_by(slot_bytes);
            from.map(|from| (*region, from, (region.bytes - from).min(slot_bytes as u64) as usize))
        });
        for (number, (region, offset, bytes)) in pieces.enumerate() {
            let (slot, sent) = &mut self.slots[number % SLOTS];
            if number >= SLOTS {
                sent.wait()?;
            }
            lineage.restore_part(checkpoint, region.id, offset, &mut slot[..bytes])?;
            // SAFETY: the slot is not touched before it has been sent; the region is the caller's.
            unsafe { self.stream.start_copy_in(region.address + offset, slot, bytes)? };
            self.stream.record(sent)?;
        }
        Ok(())
    }
}

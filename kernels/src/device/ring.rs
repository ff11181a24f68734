//! A ring of pinned buffers through which bytes leave the device while the next ones are being gathered.
//!
//! Each slot has a buffer on the device, where the compute stream gathers, and a pinned one, where the copy stream puts it.
//! The host takes the oldest slot while the others are on their way.

use std::sync::Arc;

use super::{
    context::Context,
    entry_points::Address,
    error::Result,
    memory::{Buffer, PinnedBuffer},
    stream::{Event, Stream},
};

const SLOTS: usize = 4;

/// The buffers.
pub struct Ring {
    compute: Arc<Stream>,
    copy: Stream,
    slots: Vec<Slot>,
}

struct Slot {
    device: Buffer,
    host: PinnedBuffer,
    gathered: Event,
    copied: Event,
}

impl Ring {
    /// Of slots of so many bytes.
    pub fn new(context: &Arc<Context>, compute: &Arc<Stream>, slot_bytes: usize) -> Result<Self> {
        let slot = |_| {
            Ok(Slot {
                device: Buffer::new(context, slot_bytes as u64)?,
                host: PinnedBuffer::new(context, slot_bytes)?,
                gathered: Event::new(context)?,
                copied: Event::new(context)?,
            })
        };
        let slots = (0..SLOTS).map(slot).collect::<Result<_>>()?;
        Ok(Self { compute: compute.clone(), copy: Stream::new(context)?, slots })
    }

    pub fn slot_bytes(&self) -> usize {
        self.slots[0].host.len()
    }

    /// Sends pieces through the ring, in order. `gather` is told a piece and the address of a slot's buffer; it starts what
    /// fills the buffer, and says how many bytes there will be and from where: from there, or elsewhere in device memory.
    /// `take` gets the bytes.
    ///
    /// # Safety
    /// What `gather` answers is in device memory, has so many bytes, and stays.
    pub unsafe fn send<P>(
        &mut self,
        pieces: impl IntoIterator<Item = P>,
        mut gather: impl FnMut(&P, Address) -> Result<(Address, usize)>,
        mut take: impl FnMut(&P, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut on_their_way = std::collections::VecDeque::with_capacity(SLOTS);
        let send_all = || {
            for (number, piece) in pieces.into_iter().enumerate() {
                if on_their_way.len() == SLOTS {
                    Self::arrive(&self.slots, &mut on_their_way, &mut take)?;
                }
                let at = number % SLOTS;
                let slot = &mut self.slots[at];
                let (from, bytes) = gather(&piece, slot.device.address())?;
                self.compute.record(&slot.gathered)?;
                self.copy.wait_for(&slot.gathered)?;
                // SAFETY: the caller's; the slot is not used before its copy has come (`arrive`, or the end).
                unsafe { self.copy.start_copy_out(&mut slot.host, from, bytes)? };
                self.copy.record(&slot.copied)?;
                on_their_way.push_back((at, piece, bytes));
            }
            while !on_their_way.is_empty() {
                Self::arrive(&self.slots, &mut on_their_way, &mut take)?;
            }
            Ok(())
        };
        let sent = send_all();
        // Also after a failure nothing may be on its way any more.
        let (computed, copied) = (self.compute.wait(), self.copy.wait());
        sent.and(computed).and(copied)
    }

    fn arrive<P>(
        slots: &[Slot],
        on_their_way: &mut std::collections::VecDeque<(usize, P, usize)>,
        take: &mut impl FnMut(&P, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let Some((at, piece, bytes)) = on_their_way.pop_front() else { return Ok(()) };
        slots[at].copied.wait()?;
        take(&piece, &slots[at].host[..bytes])
    }
}

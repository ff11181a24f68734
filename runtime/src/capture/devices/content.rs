//! The content of pieces, which does not take the way of the driver's own copy: what has changed of it is found on the device.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ckpt_kernels::device::Context;
use ckpt_store::Attempt;
use ckpt_wire::Control;

use crate::capture::device_pieces::{self, Piece};
use crate::capture::device_series::{DeviceSeries, Mapped, Uuid};
use crate::capture::hold::Hold;
use crate::capture::tree::Options as TreeOptions;
use crate::error::Result;
use crate::image::{Allocation, PieceImage, StoredPieces};

/// What is remembered of the device memory of the processes of a job, by the instances of libckpt.so in them.
#[derive(Default)]
pub struct Contents {
    of: BTreeMap<(u64, Uuid), DeviceSeries>,
    /// Those that have a part in the attempt that is going on.
    stored: BTreeSet<(u64, Uuid)>,
}

/// Pieces whose content is stored.
#[derive(Default)]
pub struct Content {
    /// What a restart has to know of them.
    pub image: Vec<StoredPieces>,
    /// Addresses of what libckpt.so shows of each, and a descriptor of its memory.
    pub memory: Vec<(u64, OwnedFd)>,
}

impl Content {
    fn pieces(&self) -> impl Iterator<Item = (i32, &PieceImage)> {
        self.image.iter().flat_map(|stored| stored.pieces.iter().map(|piece| (stored.device, piece)))
    }

    /// Bytes of pieces on a device.
    pub fn bytes_on(&self, device: i32) -> u64 {
        self.pieces().filter(|(on, _)| *on == device).map(|(_, piece)| piece.bytes).sum()
    }

    /// Whether an allocation lies in one of them.
    pub fn has(&self, allocation: &Allocation) -> bool {
        let Range { start, end } = allocation.addresses();
        self.pieces().any(|(_, piece)| piece.address <= start && end <= piece.address + piece.bytes)
    }
}

impl Contents {
    /// Stores what pieces of a process add to the checkpoints before.
    ///
    /// # Errors
    /// When its devices cannot be looked at, or the store refuses.
    pub fn store(
        &mut self,
        hold: &Hold<'_>,
        control: &Control,
        options: &TreeOptions,
        attempt: &mut Attempt,
    ) -> Result<Content> {
        let mut on_devices: BTreeMap<i32, Vec<Piece>> = BTreeMap::new();
        for piece in device_pieces::pieces(hold.pid(), control.hold)? {
            on_devices.entry(piece.device).or_default().push(piece);
        }
        let mut wanted = Vec::new();
        for (number, pieces) in on_devices {
            let place = (control.job, hold.identify(number)?);
            if let Entry::Vacant(new) = self.of.entry(place) {
                match DeviceSeries::open(&hold.driver()?, place.1) {
                    Ok(series) => drop(new.insert(series)),
                    Err(error) => {
                        log::warn!(
                            "the CUDA driver moves all device memory to the host, for it cannot be looked at: {error}"
                        );
                        return Ok(Content::default());
                    }
                }
            }
            wanted.push((place, number, pieces));
        }
        let mut content = Content::default();
        for (place, number, pieces) in wanted {
            if let Some(series) = self.of.get_mut(&place) {
                content.add(hold, series, (number, &pieces), options, attempt)?;
                self.stored.insert(place);
            }
        }
        Ok(content)
    }

    /// The contexts that the agent has on devices.
    pub fn contexts(&self) -> impl Iterator<Item = (Uuid, &Arc<Context>)> {
        self.of.iter().map(|((_, device), series)| (*device, series.context()))
    }

    /// An attempt begins.
    pub fn begin(&mut self) {
        self.stored.clear();
    }

    /// The attempt has become a checkpoint. Of memory that had no part in it nothing is remembered.
    pub fn sealed(&mut self) {
        let stored = std::mem::take(&mut self.stored);
        self.of.retain(|place, _| stored.contains(place));
        self.of.values_mut().for_each(DeviceSeries::sealed);
    }

    /// Forgets the checkpoints before.
    pub fn forget(&mut self) {
        self.of.values_mut().for_each(DeviceSeries::forget);
    }
}

impl Content {
    fn add(
        &mut self,
        hold: &Hold<'_>,
        series: &mut DeviceSeries,
        (device, pieces): (i32, &[Piece]),
        options: &TreeOptions,
        attempt: &mut Attempt,
    ) -> Result<()> {
        let mut mapped = Mapped::default();
        {
            let _entered = series.enter()?;
            for piece in pieces {
                let descriptor = hold.export(piece.address)?;
                let address = mapped.map(series.context(), descriptor.as_fd(), piece.bytes)?;
                mapped.add(piece.id, address, piece.bytes);
                self.memory.push((piece.entry, descriptor));
            }
        }
        let (differences, _) = series.take(&mapped, options, attempt, &mut |_, _| {})?;
        let images = pieces.iter().map(|&Piece { id, address, bytes, .. }| PieceImage { id, address, bytes });
        self.image.push(StoredPieces { device, pieces: images.collect(), differences });
        Ok(())
    }
}

//! The content of a checkpoint's allocations, of either depth.

use std::collections::HashMap;
use std::ops::Range;

use ckpt_store::{PageKey, Store};
use ckpt_wire::allocations::{CUDA_DEVICE, CUDA_MANAGED_EVACUATED, CUDA_MANAGED_PINNED, CUDA_PINNED, CUDA_REGISTERED};

use crate::differences::Differences;
use crate::error::{Error, Result};
use crate::image::{Allocation, AllocationKind, DataImage, Image, PieceImage, ProcessImage};
use crate::stored_memory::StoredMemory;

/// Where the content of allocations is.
pub enum StoredContent<'a> {
    /// In the memory of a whole process, and in what was stored of its devices.
    Full(StoredMemory<'a>, StoredPieces<'a>),
    /// In differences of their own.
    Data(StoredData<'a>),
}

/// What was stored of the devices of a process.
pub struct StoredPieces<'a> {
    store: &'a Store,
    process: &'a ProcessImage,
    /// As in the image.
    series: Vec<Differences>,
}

/// The content of a checkpoint of data.
pub struct StoredData<'a> {
    store: &'a Store,
    series: Vec<Differences>,
    /// Which of the series has an allocation, by its number, and how many bytes.
    places: HashMap<u64, (usize, u64)>,
    /// Why others are in none.
    left_out: HashMap<u64, &'a str>,
}

impl<'a> StoredContent<'a> {
    /// That of an image, in its store.
    ///
    /// # Errors
    /// The store's, and what is wrong with differences.
    pub fn of(image: &'a Image, store: &'a Store) -> Result<StoredContent<'a>> {
        Ok(match image {
            Image::Job(image) => {
                let process = image.root();
                StoredContent::Full(StoredMemory::of(process, store)?, StoredPieces::of(process, store)?)
            }
            Image::Data(image) => StoredContent::Data(StoredData::of(image, store)?),
        })
    }

    /// Why an allocation's content is not there, if it is not.
    pub fn why_missing(&self, allocation: &Allocation) -> Option<&str> {
        match self {
            StoredContent::Full(memory, pieces) => match place_in_full(pieces.process, allocation) {
                Ok(Place::Host) if !memory.covers(allocation.addresses()) => {
                    Some("it was not all mapped at the checkpoint")
                }
                Ok(_) => None,
                Err(why) => Some(why),
            },
            StoredContent::Data(data) => data.why_missing(allocation),
        }
    }

    /// Fills `to` with bytes of an allocation, from an offset on.
    ///
    /// # Errors
    /// The store's; when they are not there.
    pub fn read(&self, allocation: &Allocation, offset: u64, to: &mut [u8]) -> Result<()> {
        match self {
            StoredContent::Full(memory, pieces) => match place_in_full(pieces.process, allocation) {
                Ok(Place::Piece(series, piece)) => {
                    let offset = (allocation.address - piece.address).saturating_add(offset);
                    pieces.series[series].read(pieces.store, piece.id, offset, to, None)
                }
                _ => memory.read(allocation.address.saturating_add(offset), to),
            },
            StoredContent::Data(data) => data.read(allocation, offset, to),
        }
    }

    /// The keys of the pages that these bytes of an allocation lie on, where they are stored as pages.
    ///
    /// # Errors
    /// The store's.
    pub fn keys(&self, allocation: &Allocation, bytes: Range<u64>) -> Result<Option<Vec<PageKey>>> {
        match self {
            StoredContent::Full(memory, pieces) => match place_in_full(pieces.process, allocation) {
                Ok(Place::Host) => memory.keys(allocation.address + bytes.start..allocation.address + bytes.end),
                _ => Ok(None),
            },
            StoredContent::Data(_) => Ok(None),
        }
    }
}

/// Where a full checkpoint has the content of an allocation.
enum Place {
    /// In memory of the host.
    Host,
    /// In a piece, of the series with this number.
    Piece(usize, PieceImage),
}

fn place_in_full(process: &ProcessImage, allocation: &Allocation) -> std::result::Result<Place, &'static str> {
    let in_piece = || process.devices.as_ref()?.piece_of(allocation);
    match allocation.kind {
        AllocationKind::Heap
        | AllocationKind::Cuda(CUDA_PINNED | CUDA_REGISTERED | CUDA_MANAGED_PINNED | CUDA_MANAGED_EVACUATED, _) => {
            Ok(Place::Host)
        }
        AllocationKind::Cuda(CUDA_DEVICE, _) if let Some((series, piece)) = in_piece() => {
            Ok(Place::Piece(series, piece))
        }
        AllocationKind::Cuda(..) => {
            Err("the CUDA driver has put it where only it finds it: see checkpoints of data (--data)")
        }
    }
}

/// Why a full checkpoint has an allocation's content nowhere that can be looked at, if it is so.
pub fn why_missing_in_full(process: &ProcessImage, allocation: &Allocation) -> Option<&'static str> {
    place_in_full(process, allocation).err()
}

impl<'a> StoredPieces<'a> {
    fn of(process: &'a ProcessImage, store: &'a Store) -> Result<StoredPieces<'a>> {
        let all = process.devices.iter().flat_map(|devices| &devices.pieces);
        let series = all.map(|stored| Differences::read_all(&stored.differences, store)).collect::<Result<_>>()?;
        Ok(StoredPieces { store, process, series })
    }
}

impl<'a> StoredData<'a> {
    /// That of an image, in its store.
    ///
    /// # Errors
    /// The store's; when differences contradict themselves, each other or the image.
    pub fn of(image: &'a DataImage, store: &'a Store) -> Result<StoredData<'a>> {
        let mut data = StoredData {
            store,
            series: Vec::new(),
            places: HashMap::new(),
            left_out: image.left_out.iter().map(|left_out| (left_out.id, left_out.why.as_str())).collect(),
        };
        for stored in &image.series {
            let differences = Differences::read_all(stored, store)?;
            let regions = differences.regions()?;
            data.places.extend(regions.into_iter().map(|region| (region.id, (data.series.len(), region.bytes))));
            data.series.push(differences);
        }
        Ok(data)
    }

    fn why_missing(&self, allocation: &Allocation) -> Option<&str> {
        match self.places.get(&allocation.id) {
            Some((_, bytes)) if *bytes >= allocation.bytes => None,
            _ => Some(self.left_out.get(&allocation.id).copied().unwrap_or("the checkpoint does not say why")),
        }
    }

    fn read(&self, allocation: &Allocation, offset: u64, to: &mut [u8]) -> Result<()> {
        let Some((series, _)) = self.places.get(&allocation.id) else {
            return Err(Error::environment(
                format!("reading allocation {}", allocation.id),
                "its content is not in the checkpoint",
                "ckpt show lists what is",
            ));
        };
        self.series[*series].read(self.store, allocation.id, offset, to, None)
    }
}

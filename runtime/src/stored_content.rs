//! The content of a checkpoint's allocations, of either depth.

use std::collections::HashMap;
use std::ops::Range;

use ckpt_store::{PageKey, Store};

use crate::differences::Differences;
use crate::error::{Error, Result};
use crate::image::{Allocation, AllocationKind, DataImage, Image};
use crate::stored_memory::StoredMemory;

/// Where the content of allocations is.
pub enum StoredContent<'a> {
    /// In the memory of a whole process.
    Memory(StoredMemory<'a>),
    /// In differences of their own.
    Data(StoredData<'a>),
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
            Image::Job(image) => StoredContent::Memory(StoredMemory::of(image.root(), store)?),
            Image::Data(image) => StoredContent::Data(StoredData::of(image, store)?),
        })
    }

    /// Why an allocation's content is not there, if it is not.
    pub fn why_missing(&self, allocation: &Allocation) -> Option<&str> {
        match self {
            StoredContent::Memory(_) if allocation.kind != AllocationKind::Heap => {
                Some("memory of the CUDA driver is in checkpoints of data (--data)")
            }
            StoredContent::Memory(memory) => {
                (!memory.covers(allocation.addresses())).then_some("it was not all mapped at the checkpoint")
            }
            StoredContent::Data(data) => data.why_missing(allocation),
        }
    }

    /// Fills `to` with bytes of an allocation, from an offset on.
    ///
    /// # Errors
    /// The store's; when they are not there.
    pub fn read(&self, allocation: &Allocation, offset: u64, to: &mut [u8]) -> Result<()> {
        match self {
            StoredContent::Memory(memory) => memory.read(allocation.address.saturating_add(offset), to),
            StoredContent::Data(data) => data.read(allocation, offset, to),
        }
    }

    /// The keys of the pages that these bytes of an allocation lie on, where they are stored as pages.
    ///
    /// # Errors
    /// The store's.
    pub fn keys(&self, allocation: &Allocation, bytes: Range<u64>) -> Result<Option<Vec<PageKey>>> {
        match self {
            StoredContent::Memory(memory) => {
                memory.keys(allocation.address + bytes.start..allocation.address + bytes.end)
            }
            StoredContent::Data(_) => Ok(None),
        }
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

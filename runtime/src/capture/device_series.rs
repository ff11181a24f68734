//! Differences of memory on a device, found there, in a context of ours.
//!
//! Physical memory of a program's that another process may have is mapped in that context as well: so a fault of ours is never the
//! program's, and nothing but what is new crosses the bus.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use ckpt_kernels::device::{Context, Engine, Entered, Region, SLOT_BYTES, SharedMemory, bound_from_environment};
use ckpt_kernels::merkle::Method;
use ckpt_store::Attempt;

use super::chunk_bytes::chunk_bytes;
use super::stored_series::{PageSink, StoredSeries};
use super::tree::Options as TreeOptions;
use crate::error::Result;
use crate::image::{Moved, StoredDifference};

/// Digests of an engine take at most so many bytes, if the user says nothing.
const DIGEST_BYTES: u64 = 4 << 30;
/// The longest chunk.
const CHUNK_BYTES_MAX: u32 = 64 << 10;

/// How the driver names a device in every process.
pub type Uuid = [u8; 16];

/// A device, as the agent uses it, and the differences of memory there.
pub struct DeviceSeries {
    context: Arc<Context>,
    series: Option<StoredSeries<Engine>>,
}

/// Regions of device memory that can be read here, while the program that could write them is held.
#[derive(Default)]
pub struct Mapped {
    regions: Vec<Region>,
    /// Kept mapped for as long as it is read.
    memory: Vec<SharedMemory>,
}

impl DeviceSeries {
    /// Of a device that a program uses by this driver.
    ///
    /// # Errors
    /// When it is not to be used here.
    pub fn open(driver: &Path, uuid: Uuid) -> Result<DeviceSeries> {
        let context = Context::of(driver, uuid, bound_from_environment()?)?;
        let (name, version) = context.description()?;
        log::info!("device memory is looked at on {name}, driver {version}");
        Ok(DeviceSeries { context, series: None })
    }

    /// The context, for mapping memory.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Makes it the calling thread's.
    ///
    /// # Errors
    /// When it is broken.
    pub fn enter(&self) -> Result<Entered<'_>> {
        Ok(self.context.enter()?)
    }

    /// Finds what these regions add to the checkpoints before, and writes it.
    ///
    /// # Errors
    /// The device's and the store's.
    pub fn take(
        &mut self,
        mapped: &Mapped,
        options: &TreeOptions,
        attempt: &mut Attempt,
        written: &mut dyn FnMut(u64, u64),
    ) -> Result<(Vec<StoredDifference>, Moved)> {
        let context = self.context.clone();
        let (out, into) = (context.copied_out_bytes(), context.copied_in_bytes());
        // Whoever fears that two chunks have one digest has everything stored: then nothing depends on digests.
        let method = if options.verify_all { Method::Full } else { Method::Tree };
        let series = self.begin(mapped.bytes(), options)?;
        series.take(attempt, written, |engine, number, sink: &mut PageSink<'_>| {
            // SAFETY: the regions are mapped here as long as `mapped` is there, and the program that could write them is held.
            unsafe { engine.difference(number, method, &mapped.regions, sink) }
        })?;
        let differences = series.write_lists(attempt)?;
        let moved = Moved {
            device_to_host_bytes: context.copied_out_bytes() - out,
            host_to_device_bytes: context.copied_in_bytes() - into,
            ..Moved::default()
        };
        Ok((differences, moved))
    }

    /// The series that the next difference belongs to.
    fn begin(&mut self, bytes: u64, options: &TreeOptions) -> Result<&mut StoredSeries<Engine>> {
        let goes_on = self.series.take().filter(|series| !series.is_long(bytes));
        let mut series = match goes_on {
            Some(series) => series,
            None => {
                let room = self.context.bytes_max().map_or(DIGEST_BYTES, |max| max / 2);
                let chunk_bytes = chunk_bytes(bytes, options.chunk_bytes..=CHUNK_BYTES_MAX, room);
                StoredSeries::new(Engine::new(&self.context, chunk_bytes, SLOT_BYTES)?, false)
            }
        };
        series.forget_unsealed(Engine::abandon)?;
        let series = self.series.insert(series);
        series.begin();
        Ok(series)
    }

    /// The attempt has become a checkpoint.
    pub fn sealed(&mut self) {
        if let Some(series) = &mut self.series {
            series.sealed();
        }
    }

    /// Forgets the checkpoints before, with the memory that this took.
    pub fn forget(&mut self) {
        self.series = None;
    }
}

impl Mapped {
    /// Maps the physical memory that this descriptor is of: its address here.
    ///
    /// # Errors
    /// The driver's.
    pub fn map(&mut self, context: &Arc<Context>, descriptor: BorrowedFd<'_>, bytes: u64) -> Result<u64> {
        let memory = SharedMemory::map(context, descriptor, bytes)?;
        let address = memory.address();
        self.memory.push(memory);
        Ok(address)
    }

    /// A region in what is mapped.
    pub fn add(&mut self, id: u64, address: u64, bytes: u64) {
        self.regions.push(Region { id, address, bytes });
    }

    /// Bytes of all regions.
    pub fn bytes(&self) -> u64 {
        self.regions.iter().map(|region| region.bytes).sum()
    }

    /// Nothing is mapped here any more.
    pub fn unmap(&mut self) {
        self.memory.clear();
    }
}

//! Differences of the allocations on devices, found there.
//!
//! The program's devices are held still ([`crate::capture::hold`]) while the agent, in a context of its own, looks at the same memory: what
//! libckpt.so has backed by exportable memory is mapped here as it is ([`places`]), and of other kinds the program's keeper
//! makes a copy on the device. So a fault of ours is never the program's, and nothing but what is new crosses the bus.
//!
//! Before anything is read, the program records those variables of its device code that it has never asked for ([`variables`]).
//!
//! What is mapped here is given back before the program goes on: as long as anybody maps memory, its device has it less.

mod places;
mod variables;

use std::collections::btree_map::{BTreeMap, Entry};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use ckpt_kernels::device::{Context, Engine, Region, SLOT_BYTES, SharedMemory, bound_from_environment};
use ckpt_kernels::merkle::Method;
use ckpt_store::Attempt;

use super::chunk_bytes;
use crate::capture::TreeOptions;
use crate::capture::hold::Hold;
use crate::capture::stored_series::{PageSink, StoredSeries};
use crate::error::Result;
use crate::image::{Allocation, LeftOut, Moved, StoredDifference};
use places::{Piece, Place};
pub use variables::Variables;

/// Digests of an engine take at most so many bytes, if the user says nothing.
const DIGEST_BYTES: u64 = 4 << 30;
/// The longest chunk.
const CHUNK_BYTES_MAX: u32 = 64 << 10;
/// Where allocations begin in memory for copies.
const ALIGNMENT: u64 = 512;

/// How the driver names a device in every process.
type Uuid = [u8; 16];

/// What is remembered of the devices from one checkpoint of data to the next.
#[derive(Default)]
pub struct Devices {
    known: BTreeMap<Uuid, Device>,
}

/// A device, as the agent uses it.
struct Device {
    context: Arc<Context>,
    series: Option<StoredSeries<Engine>>,
    /// Whether it had anything to store the last time.
    is_used: bool,
}

/// What has been stored of all devices.
#[derive(Default)]
pub struct StoredDevices {
    /// A series for each.
    pub series: Vec<Vec<StoredDifference>>,
    /// Allocations whose content is in none.
    pub left_out: Vec<LeftOut>,
    /// Bytes of the others.
    pub bytes: u64,
    /// Bytes that had to be moved.
    pub moved: Moved,
}

/// Memory of the program that can be read here.
#[derive(Default)]
struct Shown {
    regions: Vec<Region>,
    left_out: Vec<LeftOut>,
    /// Kept mapped for as long as it is read.
    mapped: Vec<SharedMemory>,
    /// Pieces that are mapped, by their addresses in the program, and where they are here.
    places: BTreeMap<u64, u64>,
    /// Memory for copies, which is to be given back.
    staged: Option<u64>,
    copied_bytes: u64,
}

impl Devices {
    /// Finds what the allocations on devices add to the checkpoints before, and writes it. The program is held; its table
    /// of pieces is at `hold_address`.
    ///
    /// # Errors
    /// When the program's devices cannot be looked at, or the store refuses.
    pub fn store(
        &mut self,
        (hold, pid, hold_address): (&Hold<'_>, i32, u64),
        allocations: &[Allocation],
        options: &TreeOptions,
        attempt: &mut Attempt,
        written: &mut dyn FnMut(u64, u64),
    ) -> Result<StoredDevices> {
        let pieces = places::pieces(pid, hold_address)?;
        let mut stored = StoredDevices::default();
        let mut wanted: BTreeMap<i32, Vec<(Allocation, Place)>> = BTreeMap::new();
        for allocation in allocations.iter().filter(|allocation| allocation.bytes > 0) {
            match places::place(allocation, &pieces) {
                Some(Ok(place)) => wanted.entry(allocation.device().max(0)).or_default().push((*allocation, place)),
                Some(Err(left_out)) => stored.left_out.push(left_out),
                None => {}
            }
        }
        self.known.values_mut().for_each(|device| device.is_used = false);
        for (number, wanted) in wanted {
            let device = self.device(hold, number)?;
            device.is_used = true;
            let mut shown = device.show(hold, number, &wanted)?;
            let taken = device.take(&shown, options, attempt, written);
            let given_back = shown.end(hold);
            let (differences, moved) = taken?;
            given_back?;
            stored.series.push(differences);
            stored.bytes += shown.regions.iter().map(|region| region.bytes).sum::<u64>();
            stored.left_out.append(&mut shown.left_out);
            stored.moved.device_to_host_bytes += moved.device_to_host_bytes;
            stored.moved.host_to_device_bytes += moved.host_to_device_bytes;
            stored.moved.within_device_bytes += shown.copied_bytes;
        }
        // What nothing is left of is forgotten, with the memory that it took.
        self.known.values_mut().filter(|device| !device.is_used).for_each(|device| device.series = None);
        Ok(stored)
    }

    /// The attempt has become a checkpoint.
    pub fn sealed(&mut self) {
        self.known.values_mut().filter_map(|device| device.series.as_mut()).for_each(StoredSeries::sealed);
    }

    /// The device that has this number in the program.
    fn device(&mut self, hold: &Hold<'_>, number: i32) -> Result<&mut Device> {
        Ok(match self.known.entry(hold.identify(number)?) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let context = open(&hold.driver()?, *new.key())?;
                new.insert(Device { context, series: None, is_used: false })
            }
        })
    }
}

fn open(driver: &Path, uuid: Uuid) -> Result<Arc<Context>> {
    let context = Context::of(driver, uuid, bound_from_environment()?)?;
    let (name, version) = context.description()?;
    log::info!("device memory is looked at on {name}, driver {version}");
    Ok(context)
}

impl Device {
    /// Makes memory of the program's readable here.
    fn show(&self, hold: &Hold<'_>, number: i32, wanted: &[(Allocation, Place)]) -> Result<Shown> {
        let _entered = self.context.enter()?;
        let mut shown = Shown::default();
        let mut others = Vec::new();
        for (allocation, place) in wanted {
            match place {
                Place::In(piece) => shown.add_in(&self.context, hold, allocation, piece)?,
                Place::Perhaps(piece) => {
                    if shown.add_in(&self.context, hold, allocation, piece).is_err() {
                        others.push(*allocation);
                    }
                }
                Place::Program => others.push(*allocation),
            }
        }
        shown.add_copies(&self.context, hold, number, &others)?;
        Ok(shown)
    }

    /// Finds the difference of what is shown, and writes it.
    fn take(
        &mut self,
        shown: &Shown,
        options: &TreeOptions,
        attempt: &mut Attempt,
        written: &mut dyn FnMut(u64, u64),
    ) -> Result<(Vec<StoredDifference>, Moved)> {
        let context = self.context.clone();
        let (out, into) = (context.copied_out_bytes(), context.copied_in_bytes());
        let bytes = shown.regions.iter().map(|region| region.bytes).sum();
        // Whoever fears that two chunks have one digest has everything stored: then nothing depends on digests.
        let method = if options.verify_matches { Method::Full } else { Method::Tree };
        let series = self.begin(bytes, options)?;
        series.take(attempt, written, |engine, number, sink: &mut PageSink<'_>| {
            // SAFETY: the regions are mapped here as long as `shown` is, and the program that could write them is held.
            unsafe { engine.difference(number, method, &shown.regions, sink) }
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
}

impl Shown {
    /// An allocation in a piece, which is mapped if it is not yet.
    fn add_in(
        &mut self,
        context: &Arc<Context>,
        hold: &Hold<'_>,
        allocation: &Allocation,
        piece: &Piece,
    ) -> Result<()> {
        let address = match self.places.get(&piece.address) {
            Some(address) => *address,
            None => {
                let descriptor = hold.export(piece.address)?;
                let mapped = SharedMemory::map(context, descriptor.as_fd(), piece.bytes)?;
                let address = mapped.address();
                self.places.insert(piece.address, address);
                self.mapped.push(mapped);
                address
            }
        };
        self.add(allocation, address + (allocation.address - piece.address));
        Ok(())
    }

    fn add(&mut self, allocation: &Allocation, address: u64) {
        self.regions.push(Region { id: allocation.id, address, bytes: allocation.bytes });
    }

    /// Allocations that only the program can read: as copies, if the device has room for them.
    fn add_copies(
        &mut self,
        context: &Arc<Context>,
        hold: &Hold<'_>,
        number: i32,
        others: &[Allocation],
    ) -> Result<()> {
        let bytes: u64 = others.iter().map(|allocation| allocation.bytes.next_multiple_of(ALIGNMENT)).sum();
        if bytes == 0 {
            return Ok(());
        }
        let Some((staged, staged_bytes)) = hold.stage(number, bytes)? else {
            let why = "it can only be read as a copy, and the device has no room for one";
            self.left_out.extend(others.iter().map(|other| LeftOut { id: other.id, why: why.to_owned() }));
            return Ok(());
        };
        self.staged = Some(staged);
        let descriptor = hold.export(staged)?;
        let mapped = SharedMemory::map(context, descriptor.as_fd(), staged_bytes)?;
        let mut offset = 0;
        for allocation in others {
            hold.copy(number, allocation.address, staged + offset, allocation.bytes)?;
            self.copied_bytes += allocation.bytes;
            self.add(allocation, mapped.address() + offset);
            offset += allocation.bytes.next_multiple_of(ALIGNMENT);
        }
        self.mapped.push(mapped);
        Ok(())
    }

    /// Gives back what is mapped here, and what was made for copies.
    fn end(&mut self, hold: &Hold<'_>) -> Result<()> {
        self.mapped.clear();
        self.staged.take().map_or(Ok(()), |staged| hold.unstage(staged))
    }
}

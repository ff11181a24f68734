//! Differences of the allocations on devices, found there.
//!
//! The program's devices are held still ([`crate::capture::hold`]) while the agent, in a context of its own, looks at the same memory: what
//! libckpt.so has backed by exportable memory is mapped here as it is ([`places`]), and of other kinds the program's keeper
//! makes a copy on the device. So a fault of ours is never the program's, and nothing but what is new crosses the bus.
//!
//! Before anything is read, the program records those variables of its device code that it has never asked for ([`super::super::device_variables`]).
//!
//! What is mapped here is given back before the program goes on: as long as anybody maps memory, its device has it less.

mod places;

use std::collections::btree_map::{BTreeMap, Entry};
use std::os::fd::AsFd;

use ckpt_store::Attempt;

use crate::capture::device_pieces::{self, Piece};
use crate::capture::device_series::{DeviceSeries, Mapped, Uuid};
use crate::capture::hold::Hold;
use crate::capture::tree::Options as TreeOptions;
use crate::error::Result;
use crate::image::{Allocation, LeftOut, Moved, StoredDifference};
use places::Place;

/// Where allocations begin in memory for copies.
const ALIGNMENT: u64 = 512;

/// What is remembered of the devices from one checkpoint of data to the next.
#[derive(Default)]
pub struct Devices {
    known: BTreeMap<Uuid, Device>,
}

/// A device, as the agent uses it.
struct Device {
    series: DeviceSeries,
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
    mapped: Mapped,
    left_out: Vec<LeftOut>,
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
        let pieces = device_pieces::pieces(pid, hold_address)?;
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
            let taken = device.series.take(&shown.mapped, options, attempt, written);
            let given_back = shown.end(hold);
            let (differences, moved) = taken?;
            given_back?;
            stored.series.push(differences);
            stored.bytes += shown.mapped.bytes();
            stored.left_out.append(&mut shown.left_out);
            stored.moved.device_to_host_bytes += moved.device_to_host_bytes;
            stored.moved.host_to_device_bytes += moved.host_to_device_bytes;
            stored.moved.within_device_bytes += shown.copied_bytes;
        }
        // What nothing is left of is forgotten, with the memory that it took.
        self.known.values_mut().filter(|device| !device.is_used).for_each(|device| device.series.forget());
        Ok(stored)
    }

    /// The attempt has become a checkpoint.
    pub fn sealed(&mut self) {
        self.known.values_mut().for_each(|device| device.series.sealed());
    }

    /// The device that has this number in the program.
    fn device(&mut self, hold: &Hold<'_>, number: i32) -> Result<&mut Device> {
        Ok(match self.known.entry(hold.identify(number)?) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let series = DeviceSeries::open(&hold.driver()?, *new.key())?;
                new.insert(Device { series, is_used: false })
            }
        })
    }
}

impl Device {
    /// Makes memory of the program's readable here.
    fn show(&self, hold: &Hold<'_>, number: i32, wanted: &[(Allocation, Place)]) -> Result<Shown> {
        let _entered = self.series.enter()?;
        let mut shown = Shown::default();
        let (mut copied, mut exportable) = (Vec::new(), Vec::new());
        for (allocation, place) in wanted {
            match place {
                Place::In(piece) => shown.add_in(&self.series, hold, allocation, piece)?,
                Place::Perhaps(piece) => exportable.push((*allocation, piece)),
                Place::Program => copied.push(*allocation),
            }
        }
        let all: Vec<Allocation> = copied.iter().copied().chain(exportable.iter().map(|(one, _)| *one)).collect();
        if shown.add_copies(&self.series, hold, number, &all)? {
            return Ok(shown);
        }
        // There is no room for copies of all. What is exported once cannot be in a full checkpoint any more.
        for (allocation, piece) in exportable {
            if shown.add_in(&self.series, hold, &allocation, piece).is_err() {
                copied.push(allocation);
            }
        }
        if !shown.add_copies(&self.series, hold, number, &copied)? {
            let why = "it can only be read as a copy, and the device has no room for one";
            shown.left_out.extend(copied.iter().map(|one| LeftOut { id: one.id, why: why.to_owned() }));
        }
        Ok(shown)
    }
}

impl Shown {
    /// An allocation in a piece, which is mapped if it is not yet.
    fn add_in(&mut self, series: &DeviceSeries, hold: &Hold<'_>, allocation: &Allocation, piece: &Piece) -> Result<()> {
        let address = match self.places.get(&piece.address) {
            Some(address) => *address,
            None => {
                let descriptor = hold.export(piece.address)?;
                let address = self.mapped.map(series.context(), descriptor.as_fd(), piece.bytes)?;
                self.places.insert(piece.address, address);
                address
            }
        };
        self.mapped.add(allocation.id, address + (allocation.address - piece.address), allocation.bytes);
        Ok(())
    }

    /// Allocations that only the program can read: as copies. Whether the device has room for them.
    fn add_copies(
        &mut self,
        series: &DeviceSeries,
        hold: &Hold<'_>,
        number: i32,
        others: &[Allocation],
    ) -> Result<bool> {
        let bytes: u64 = others.iter().map(|allocation| allocation.bytes.next_multiple_of(ALIGNMENT)).sum();
        if bytes == 0 {
            return Ok(true);
        }
        let Some((staged, staged_bytes)) = hold.stage(number, bytes)? else { return Ok(false) };
        self.staged = Some(staged);
        let descriptor = hold.export(staged)?;
        let address = self.mapped.map(series.context(), descriptor.as_fd(), staged_bytes)?;
        let mut offset = 0;
        for allocation in others {
            hold.copy(number, allocation.address, staged + offset, allocation.bytes)?;
            self.copied_bytes += allocation.bytes;
            self.mapped.add(allocation.id, address + offset, allocation.bytes);
            offset += allocation.bytes.next_multiple_of(ALIGNMENT);
        }
        Ok(true)
    }

    /// Gives back what is mapped here, and what was made for copies.
    fn end(&mut self, hold: &Hold<'_>) -> Result<()> {
        self.mapped.unmap();
        self.staged.take().map_or(Ok(()), |staged| hold.unstage(staged))
    }
}

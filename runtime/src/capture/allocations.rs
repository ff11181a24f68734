//! What a program has allocated, as libckpt.so has recorded it ([`ckpt_wire::allocations`]).
//!
//! They are read from outside, of a program that runs or of a twin that holds still. Of a running one everything is
//! read twice, and an entry counts that was the same both times. An allocation that was freed in a way that libckpt.so
//! does not see leaves a wrong entry behind: what does not lie in mapped memory is left out.

use std::ops::Range;

use ckpt_wire::Control;
use ckpt_wire::allocations::{self as wire, AREA_BYTES, AREA_GRANULES, Area, CudaBlock, GRANULE_BYTES};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::list::Walk;
use crate::error::Result;
use crate::image::{Allocation, AllocationKind};
use crate::proc::maps;
use crate::ptrace::read_memory;

/// More areas than a program has, 16 TiB, and more blocks of what the CUDA driver has allocated.
const AREAS_MAX: usize = 1 << 12;
/// More allocations than a program has that are worth an entry.
const ALLOCATIONS_MAX: usize = 1 << 20;
/// Entries that lie on one page of starts, or nearly so: read in one piece where one of them is in use.
const BATCH: usize = 512;

/// What is known about a program's allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// The allocations, by address.
    pub known: Vec<Allocation>,
    /// Ids of those among them that other processes may have.
    pub exported: Vec<u64>,
    /// Ids of managed memory among them that is from a pool.
    pub pooled: Vec<u64>,
    /// How many more there may be, that could not be recorded.
    pub lost: u64,
    /// How many functions of the CUDA driver the program has looked up that libckpt.so does not know.
    pub unknown_entry_points: u64,
}

/// Reads the table at `control.allocations` in the memory of `pid`: the program, or a clone of it.
pub fn allocations(pid: i32, control: &Control) -> Result<Allocations> {
    if control.allocations == 0 {
        return Ok(Allocations::default());
    }
    let mut table = wire::Allocations::new_zeroed();
    read_memory(pid, control.allocations, table.as_mut_bytes())?;
    let mut allocations = Vec::new();
    let (mut next, mut walk) = (table.areas, Walk::new::<Area>(AREAS_MAX));
    while allocations.len() < ALLOCATIONS_MAX && walk.goes_on(next) {
        next = read_area(pid, next, &mut allocations)?;
    }
    let is_cut = next != 0;
    allocations.sort_unstable_by_key(|allocation| allocation.address);
    allocations.dedup_by_key(|allocation| allocation.address);
    keep_mapped(&mut allocations, &maps::outline(pid)?);
    let mut all = Allocations {
        known: allocations,
        lost: table.lost,
        unknown_entry_points: table.cuda_unknown,
        ..Allocations::default()
    };
    let (mut next, mut walk) = (table.cuda_blocks, Walk::new::<CudaBlock>(AREAS_MAX));
    while walk.goes_on(next) {
        next = read_cuda_block(pid, next, &mut all)?;
    }
    all.lost = all.lost.saturating_add(u64::from(is_cut || next != 0));
    all.known.sort_by_key(|allocation| allocation.address);
    Ok(all)
}

/// Reads the entries of the area at `area`, and gives the address of the next one.
fn read_area(pid: i32, area: u64, into: &mut Vec<Allocation>) -> Result<u64> {
    let mut head = [0_u64; 2];
    read_memory(pid, area, head.as_mut_bytes())?;
    let [address, next] = head;
    if address.checked_add(AREA_BYTES).is_none() {
        return Ok(next);
    }
    let mut starts = vec![0_u64; AREA_GRANULES];
    read_memory(pid, area + std::mem::offset_of!(Area, starts) as u64, starts.as_mut_bytes())?;
    for (batch, starts) in starts.chunks(BATCH).enumerate() {
        if starts.iter().all(|&start| start == 0) {
            continue;
        }
        let first = batch * BATCH;
        let (before, after) = (Batch::read(pid, area, first)?, Batch::read(pid, area, first)?);
        let stable = starts.iter().zip(before.entries()).zip(after.entries()).enumerate();
        into.extend(stable.filter_map(|(entry, ((&start, before), after))| {
            let granule = address + (first + entry) as u64 * GRANULE_BYTES;
            let is_one = start >= granule && start - granule < GRANULE_BYTES && granule - address < AREA_BYTES;
            let (_, allocation) = before;
            (is_one && before == after && before.0 == start).then_some(Allocation {
                id: allocation.id,
                address: start,
                bytes: allocation.bytes,
                call_site: allocation.call_site,
                kind: AllocationKind::Heap,
            })
        }));
    }
    Ok(next)
}

/// Reads the CUDA driver's allocations in the block at `block`, and gives the address of the next one.
fn read_cuda_block(pid: i32, block: u64, into: &mut Allocations) -> Result<u64> {
    let read = || {
        let mut bytes = vec![0_u64; size_of::<CudaBlock>() / 8];
        read_memory(pid, block, bytes.as_mut_bytes()).map(|()| bytes)
    };
    let (before, after) = (read()?, read()?);
    // Its length and its alignment are the type's: it always fits.
    let parsed = |bytes| CudaBlock::ref_from_bytes(bytes).ok();
    let (Some(before), Some(after)) = (parsed(before.as_bytes()), parsed(after.as_bytes())) else { return Ok(0) };
    let stable = before.allocations.iter().zip(&after.allocations).filter(|(before, after)| before == after);
    for (allocation, _) in stable.filter(|(allocation, _)| allocation.id != 0) {
        into.exported.extend(allocation.is_exported().then_some(allocation.id));
        let is_pooled = allocation.what() == wire::CUDA_MANAGED && !allocation.can_be_evacuated();
        into.pooled.extend(is_pooled.then_some(allocation.id));
        into.known.push(Allocation {
            id: allocation.id,
            address: allocation.address,
            bytes: allocation.bytes,
            call_site: allocation.call_site,
            kind: AllocationKind::Cuda(allocation.what(), allocation.device),
        });
    }
    Ok(before.next)
}

/// Some entries of an area.
struct Batch {
    starts: Vec<u64>,
    allocations: Vec<u8>,
}

impl Batch {
    fn read(pid: i32, area: u64, first: usize) -> Result<Batch> {
        const EACH: usize = size_of::<wire::Allocation>();
        let mut batch = Batch { starts: vec![0; BATCH], allocations: vec![0; BATCH * EACH] };
        let allocations = std::mem::offset_of!(Area, allocations) + first * EACH;
        read_memory(pid, area + allocations as u64, &mut batch.allocations)?;
        let starts = std::mem::offset_of!(Area, starts) + first * 8;
        read_memory(pid, area + starts as u64, batch.starts.as_mut_bytes())?;
        Ok(batch)
    }

    fn entries(&self) -> impl Iterator<Item = (u64, wire::Allocation)> {
        let each = self.allocations.chunks_exact(size_of::<wire::Allocation>());
        self.starts.iter().copied().zip(each.map(|bytes| FromBytes::read_from_bytes(bytes).unwrap_or_default()))
    }
}

/// Leaves out what is not mapped.
fn keep_mapped(allocations: &mut Vec<Allocation>, mappings: &[maps::Mapping]) {
    // In one piece each: it is looked at once, however many mappings there are.
    let mut pieces: Vec<maps::Mapping> = Vec::new();
    for &maps::Mapping { start, end, .. } in mappings {
        match pieces.last_mut().filter(|piece| piece.end == start) {
            Some(piece) => piece.end = end,
            None => pieces.push(maps::Mapping { start, end, ..maps::Mapping::default() }),
        }
    }
    let has_an_end = |allocation: &Allocation| allocation.address.checked_add(allocation.bytes).is_some();
    allocations.retain(|allocation| has_an_end(allocation) && is_mapped(allocation.addresses(), &pieces));
}

/// Whether all of these addresses are mapped, in one piece or several; the mappings ascend.
pub fn is_mapped(addresses: Range<u64>, mappings: &[maps::Mapping]) -> bool {
    let mut at = addresses.start;
    let first = mappings.partition_point(|mapping| mapping.end <= at);
    for mapping in &mappings[first..] {
        if mapping.start > at || at >= addresses.end {
            break;
        }
        at = mapping.end;
    }
    at >= addresses.end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(address: u64, bytes: u64) -> Allocation {
        Allocation { id: 1, address, bytes, call_site: 0, kind: AllocationKind::Heap }
    }

    #[test]
    fn what_does_not_lie_in_mapped_memory_is_left_out() {
        let mapping = |start, end| maps::Mapping { start, end, ..maps::Mapping::default() };
        let mappings = [mapping(10, 20), mapping(20, 30), mapping(40, 50)];
        let mut allocations =
            vec![allocation(5, 6), allocation(10, 20), allocation(15, 10), allocation(25, 16), allocation(45, 6)];
        keep_mapped(&mut allocations, &mappings);
        assert_eq!(allocations, [allocation(10, 20), allocation(15, 10)]);
    }

    #[test]
    fn a_list_of_areas_that_leads_to_itself_is_read_once() {
        let mut table = vec![0_u64; size_of::<Area>() / 8];
        let area = Area::mut_from_bytes(table.as_mut_bytes()).unwrap();
        let memory = vec![1_u8; 3 * GRANULE_BYTES as usize];
        let start = memory.as_ptr() as u64;
        let granule = (start % AREA_BYTES / GRANULE_BYTES) as usize;
        (area.address, area.next) = (start / AREA_BYTES * AREA_BYTES, (&raw const *area) as u64);
        area.starts[granule] = start;
        area.allocations[granule] = wire::Allocation { id: 3, bytes: GRANULE_BYTES, call_site: 7 };
        let head = wire::Allocations { areas: area.next, ..wire::Allocations::default() };
        let mut control = Box::new(Control::new_zeroed());
        control.allocations = head.as_bytes().as_ptr() as u64;
        let found = allocations(std::process::id() as i32, &control).unwrap();
        assert_eq!((found.known.len(), found.lost), (1, 1), "and the rest may be missing");
    }

    #[test]
    fn lengths_beyond_all_addresses_are_not_believed() {
        let mapping = |start, end| maps::Mapping { start, end, ..maps::Mapping::default() };
        let mut allocations = vec![allocation(10, u64::MAX), allocation(u64::MAX - 1, 5), allocation(10, 10)];
        keep_mapped(&mut allocations, &[mapping(10, 20)]);
        assert_eq!(allocations, [allocation(10, 10)]);
    }

    /// A table in this process, laid out as libckpt.so does it.
    #[test]
    fn entries_are_found_through_the_list_of_areas_and_strange_ones_are_not_believed() {
        // Too large for a stack.
        let mut tables = [(); 2].map(|()| vec![0_u64; size_of::<Area>() / 8]);
        let areas = tables.each_mut().map(|table| Area::mut_from_bytes(table.as_mut_bytes()).unwrap());
        let memory = vec![1_u8; 3 * GRANULE_BYTES as usize];
        let start = memory.as_ptr() as u64;
        let granule = |address: u64| (address % AREA_BYTES / GRANULE_BYTES) as usize;
        let record = |id| wire::Allocation { id, bytes: GRANULE_BYTES, call_site: 7 };
        areas[0].address = start / AREA_BYTES * AREA_BYTES;
        areas[0].next = areas[1].as_bytes().as_ptr() as u64;
        areas[0].starts[granule(start)] = start;
        areas[0].allocations[granule(start)] = record(3);
        // An address that does not belong where it stands, and one that nothing is mapped at.
        areas[0].starts[granule(start) + 1] = start;
        areas[1].address = 5 * AREA_BYTES;
        areas[1].starts[9] = 5 * AREA_BYTES + 9 * GRANULE_BYTES;
        areas[1].allocations[9] = record(4);
        let table =
            wire::Allocations { areas: areas[0].as_bytes().as_ptr() as u64, lost: 2, ..wire::Allocations::default() };
        let mut control = Box::new(Control::new_zeroed());
        control.allocations = table.as_bytes().as_ptr() as u64;
        let found = allocations(std::process::id() as i32, &control).unwrap();
        let kind = AllocationKind::Heap;
        let expected = Allocation { id: 3, address: start, bytes: GRANULE_BYTES, call_site: 7, kind };
        assert_eq!(found, Allocations { known: vec![expected], lost: 2, ..Allocations::default() });
        let none = allocations(std::process::id() as i32, &Control::new_zeroed()).unwrap();
        assert_eq!(none, Allocations::default());
    }
}

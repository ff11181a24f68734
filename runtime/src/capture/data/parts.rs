//! Which allocations lie in memory of the host, and where each may have changed.

use std::ops::Range;

use ckpt_store::PAGE_BYTES;
use ckpt_wire::allocations::{CUDA_MANAGED_PINNED, CUDA_MANAGED_REGISTERED, CUDA_PINNED, CUDA_REGISTERED};

use super::extent::Copied;
use super::seen_pages::SeenPages;
use crate::capture::allocations::is_mapped;
use crate::capture::pages::PageSource;
use crate::error::Result;
use crate::image::{Allocation, AllocationKind, LeftOut};
use crate::page_set::PageSet;
use crate::proc::maps::Mapping;

const PAGE: u64 = PAGE_BYTES as u64;

/// An allocation in memory of the host.
pub struct Part {
    /// Its number.
    pub id: u64,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes, counted from its start, that may not be as they were at the last checkpoint of data, if that is known.
    pub changed: Option<Vec<Range<u64>>>,
    /// Whether some of it is shared memory, which no clone freezes.
    is_shared: bool,
    /// What was copied of it while the program stood still: all that will be asked for.
    pub copied: Option<Copied>,
}

impl Part {
    /// First address behind it.
    pub fn end(&self) -> u64 {
        self.address + self.bytes
    }

    /// Whether a clone with these mappings has it, or need not.
    pub fn is_in(&self, mappings: &[Mapping]) -> bool {
        self.copied.is_some() || is_mapped(self.address..self.end(), mappings)
    }

    fn pages(&self) -> Range<u64> {
        self.address / PAGE..self.end().div_ceil(PAGE)
    }

    /// The bytes of it that lie on pages of a set.
    fn bytes_on(&self, pages: &PageSet) -> Vec<Range<u64>> {
        let runs = pages.runs_in(self.pages());
        let within = |address: u64| address.clamp(self.address, self.end()) - self.address;
        runs.map(|run| within(run.start * PAGE)..within(run.end * PAGE)).collect()
    }

    /// Where it may have changed: on pages that have been written, or are gone and so zero. `before` are the pages that
    /// were there. Where the kernel has not watched all of it, that is not known.
    pub fn changes(&self, look: &SeenPages, before: &PageSet) -> Option<Vec<Range<u64>>> {
        let all = PageSet::of(self.pages());
        if !all.difference(&look.watched).is_empty() {
            return None;
        }
        let gone = before.intersection(&all).difference(&look.present);
        Some(self.bytes_on(&look.written.intersection(&all).union(&gone)))
    }
}

/// Those of `allocations` that lie in memory of the host; both ascend. What lies within another (a heap's block that is
/// registered with the CUDA driver, say) is part of that one.
pub fn of(allocations: &[Allocation], mappings: &[Mapping]) -> (Vec<Part>, Vec<LeftOut>) {
    let (mut parts, mut left_out): (Vec<Part>, Vec<LeftOut>) = (Vec::new(), Vec::new());
    for allocation in allocations.iter().filter(|allocation| is_of_host(allocation)) {
        let mut leave_out = |why: &str| left_out.push(LeftOut { id: allocation.id, why: why.to_owned() });
        let end = allocation.addresses().end;
        let first = mappings.partition_point(|mapping| mapping.end <= allocation.address);
        let beneath: Vec<_> = mappings[first..].iter().take_while(|mapping| mapping.start < end).collect();
        if parts.last().is_some_and(|before| allocation.address < before.end()) {
            leave_out("it lies within another");
        } else if !is_mapped(allocation.addresses(), mappings) {
            leave_out("it is not mapped");
        } else if !beneath.iter().all(|mapping| mapping.protection & libc::PROT_READ != 0) {
            leave_out("it is protected against reading");
        } else {
            parts.push(Part {
                id: allocation.id,
                address: allocation.address,
                bytes: allocation.bytes,
                changed: None,
                is_shared: beneath.iter().any(|mapping| mapping.shared),
                copied: None,
            });
        }
    }
    (parts, left_out)
}

fn is_of_host(allocation: &Allocation) -> bool {
    matches!(
        allocation.kind,
        AllocationKind::Heap
            | AllocationKind::Cuda(CUDA_PINNED | CUDA_REGISTERED | CUDA_MANAGED_PINNED | CUDA_MANAGED_REGISTERED, _)
    )
}

/// Copies those that are shared memory, while the program stands still.
///
/// # Errors
/// When the process has gone.
pub fn copy_shared(pid: i32, parts: &mut Vec<Part>, left_out: &mut Vec<LeftOut>) -> Result<()> {
    let source = PageSource::open(pid)?;
    parts.retain_mut(|part| {
        if !part.is_shared {
            return true;
        }
        let all = std::iter::once(0..part.bytes).collect();
        match Copied::of(part.address, part.bytes, all, &source) {
            Ok(copied) => part.copied = Some(copied),
            Err(error) => left_out.push(LeftOut { id: part.id, why: format!("it cannot be read: {error}") }),
        }
        part.copied.is_some()
    });
    Ok(())
}

/// Copies of each part what will be read of it, while the program stands still. False if that cannot be done: then a clone
/// is needed.
pub fn copy(pid: i32, parts: &mut [Part], wanted: Vec<Vec<Range<u64>>>) -> Result<bool> {
    let source = PageSource::open(pid)?;
    for (part, ranges) in parts.iter_mut().zip(wanted).filter(|(part, _)| part.copied.is_none()) {
        match Copied::of(part.address, part.bytes, ranges, &source) {
            Ok(copied) => part.copied = Some(copied),
            Err(error) => {
                log::debug!("allocation {} cannot be copied: {error}", part.id);
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Leaves out what no clone has; the numbers of those.
pub fn leave_out_kept_back(
    parts: &mut Vec<Part>,
    left_out: &mut Vec<LeftOut>,
    is_kept_back: impl Fn(&Part) -> bool,
) -> Vec<u64> {
    let kept_back: Vec<u64> = parts.iter().filter(|part| is_kept_back(part)).map(|part| part.id).collect();
    parts.retain(|part| !is_kept_back(part));
    let why = "the program keeps it from clones (MADV_DONTFORK)";
    left_out.extend(kept_back.iter().map(|&id| LeftOut { id, why: why.to_owned() }));
    kept_back
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHTS: i32 = libc::PROT_READ | libc::PROT_WRITE;

    fn mapping(pages: Range<u64>, protection: i32, shared: bool) -> Mapping {
        Mapping { start: pages.start * PAGE, end: pages.end * PAGE, protection, shared, ..Mapping::default() }
    }

    fn allocation(id: u64, address: u64, bytes: u64, kind: AllocationKind) -> Allocation {
        Allocation { id, address, bytes, call_site: 0, kind }
    }

    #[test]
    fn allocations_in_readable_memory_of_the_host_are_parts_and_of_others_it_is_said_why_not() {
        let mappings = [mapping(0..10, RIGHTS, false), mapping(10..20, 0, false), mapping(20..30, RIGHTS, true)];
        let heap = AllocationKind::Heap;
        let allocations = [
            allocation(1, 16, 3 * PAGE, heap),
            allocation(2, PAGE, PAGE, AllocationKind::Cuda(CUDA_REGISTERED, -1)),
            allocation(3, 5 * PAGE, PAGE, AllocationKind::Cuda(1, 0)),
            allocation(4, 9 * PAGE, 2 * PAGE, heap),
            allocation(5, 20 * PAGE, 9 * PAGE, AllocationKind::Cuda(CUDA_PINNED, -1)),
            allocation(6, 29 * PAGE + 5, PAGE, heap),
        ];
        let (parts, left_out) = of(&allocations, &mappings);
        assert_eq!(parts.iter().map(|part| (part.id, part.is_shared)).collect::<Vec<_>>(), [(1, false), (5, true)]);
        let why: Vec<_> = left_out.iter().map(|left_out| (left_out.id, left_out.why.as_str())).collect();
        assert_eq!(
            why,
            [(2, "it lies within another"), (4, "it is protected against reading"), (6, "it is not mapped")]
        );
    }

    fn part(address: u64, bytes: u64) -> Part {
        Part { id: 1, address, bytes, changed: None, is_shared: false, copied: None }
    }

    #[test]
    fn what_was_written_or_is_gone_may_have_changed_where_the_kernel_has_watched() {
        let mut written = PageSet::of(1..2);
        written.push(5..6);
        let look = SeenPages { watched: PageSet::of(0..8), written, present: PageSet::of(0..3) };
        let changes = part(PAGE + 100, 3 * PAGE).changes(&look, &PageSet::of(0..5));
        assert_eq!(changes, Some(vec![0..PAGE - 100, 2 * PAGE - 100..3 * PAGE]));
        assert_eq!(part(4 * PAGE, 5 * PAGE).changes(&look, &PageSet::default()), None);
        assert_eq!(part(6 * PAGE, PAGE).changes(&look, &PageSet::default()), Some(Vec::new()));
    }

    #[test]
    fn what_the_clone_does_not_have_is_left_out_unless_it_was_copied() {
        let mut parts = vec![part(0, PAGE), part(PAGE, PAGE), part(2 * PAGE, PAGE)];
        parts[2].copied = Some(Copied { bytes: PAGE, ranges: Vec::new(), content: Vec::new() });
        let mut left_out = Vec::new();
        let cloned = [mapping(0..1, RIGHTS, false)];
        assert_eq!(leave_out_kept_back(&mut parts, &mut left_out, |part| !part.is_in(&cloned)), [1]);
        assert_eq!(parts.iter().map(|part| part.address).collect::<Vec<_>>(), [0, 2 * PAGE]);
        assert!(left_out.len() == 1 && left_out[0].why.contains("MADV_DONTFORK"));
    }
}

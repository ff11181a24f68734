//! What a program has allocated, with what asked for it.

use std::collections::BTreeMap;

use ckpt_wire::allocations as wire;
use serde::Serialize;

use super::call_site::{CallSite, CallSites, Code};
use crate::commands::table::{Align, Table};
use crate::image::{Allocation, AllocationKind, Backing, CodeMapping, Image, Region};
use crate::proc::maps::Mapping;
use crate::units;

/// Rows of the table for people; scripts get all.
const ROWS_MAX: usize = 40;

/// An allocation.
#[derive(Serialize)]
pub struct AllocationView {
    /// Its number in the program, which stays when it is resized or moved.
    pub id: u64,
    /// Hexadecimal, with 0x.
    pub address: String,
    pub bytes: u64,
    /// Where its memory is: `host`, `pinned`, `registered`, `managed`, `device 0`; or what else it is: see [`kind`].
    pub kind: String,
    pub call_site: CallSite,
    /// Why its content is not in the checkpoint; null where it is, and for a running program.
    pub left_out: Option<String>,
}

/// The views of `allocations`, in the same order; `why_missing` says of each why its content is not there, if it is not.
pub fn views(
    allocations: &[Allocation],
    code: Vec<Code>,
    why_missing: impl Fn(&Allocation) -> Option<String>,
) -> Vec<AllocationView> {
    let mut call_sites = CallSites::new(code);
    let view = |allocation: &Allocation| AllocationView {
        id: allocation.id,
        address: format!("{:#x}", allocation.address),
        bytes: allocation.bytes,
        kind: kind(allocation.kind),
        call_site: call_sites.name(allocation.call_site),
        left_out: why_missing(allocation),
    };
    allocations.iter().map(view).collect()
}

/// A kind in a word, with the device's number where it is on one.
fn kind(kind: AllocationKind) -> String {
    let AllocationKind::Cuda(kind, device) = kind else { return "host".to_owned() };
    let word = match kind {
        wire::CUDA_DEVICE => "device",
        wire::CUDA_MANAGED => return "managed".to_owned(),
        wire::CUDA_MANAGED_EVACUATED => return "managed (evacuated)".to_owned(),
        wire::CUDA_MANAGED_REGISTERED => return "managed (registered)".to_owned(),
        wire::CUDA_MANAGED_PINNED => return "managed (pinned)".to_owned(),
        wire::CUDA_PINNED => return "pinned".to_owned(),
        wire::CUDA_REGISTERED => return "registered".to_owned(),
        wire::CUDA_MAPPED => "mapped",
        wire::CUDA_ARRAY => "array",
        wire::CUDA_GLOBAL => "global",
        wire::CUDA_MANAGED_GLOBAL => return "managed global".to_owned(),
        wire::CUDA_GRAPH => "graph",
        wire::CUDA_IMPORTED => "imported",
        wire::CUDA_PHYSICAL => "physical",
        other => return format!("kind {other}"),
    };
    if device < 0 { word.to_owned() } else { format!("{word} {device}") }
}

/// Number and bytes of the allocations of each kind.
pub fn totals(allocations: &[AllocationView]) -> Vec<(&str, usize, u64)> {
    let mut totals = BTreeMap::new();
    for allocation in allocations {
        let (count, bytes) = totals.entry(allocation.kind.as_str()).or_insert((0, 0));
        *count += 1;
        *bytes += allocation.bytes;
    }
    totals.into_iter().map(|(kind, (count, bytes))| (kind, count, bytes)).collect()
}

/// The code of a running program.
pub fn code_of_mappings(mappings: &[Mapping]) -> Vec<Code> {
    let of_file = mappings.iter().filter(|mapping| mapping.inode != 0 && mapping.protection & libc::PROT_EXEC != 0);
    of_file
        .map(|mapping| Code {
            start: mapping.start,
            end: mapping.end,
            path: mapping.name.clone(),
            offset: mapping.offset,
            inode: mapping.inode,
            size: None,
        })
        .collect()
}

/// The code of a checkpoint.
fn code_of_regions(regions: &[Region]) -> Vec<Code> {
    let code = regions.iter().filter_map(|region| match &region.backing {
        Backing::PrivateFile(file) if region.protection & libc::PROT_EXEC != 0 => Some(Code {
            start: region.address,
            end: region.address.saturating_add(region.bytes),
            path: file.path.clone(),
            offset: file.offset,
            inode: file.inode,
            size: Some(file.size),
        }),
        _ => None,
    });
    code.collect()
}

/// The code of a checkpoint's program.
pub fn code_of(image: &Image) -> Vec<Code> {
    let of_mapping = |code: &CodeMapping| Code {
        start: code.address,
        end: code.address.saturating_add(code.bytes),
        path: code.path.clone(),
        offset: code.offset,
        inode: code.inode,
        size: code.size,
    };
    match image {
        Image::Job(image) => code_of_regions(&image.root().regions),
        Image::Data(image) => image.code.iter().map(of_mapping).collect(),
    }
}

/// The largest ones for people.
pub fn render(allocations: &[AllocationView]) -> String {
    let mut largest: Vec<&AllocationView> = allocations.iter().collect();
    largest.sort_by_key(|allocation| (std::cmp::Reverse(allocation.bytes), allocation.id));
    let mut table = Table::new(&[
        ("id", Align::Right),
        ("address", Align::Left),
        ("size", Align::Right),
        ("kind", Align::Left),
        ("asked for by", Align::Left),
        ("", Align::Left),
    ]);
    for allocation in largest.iter().take(ROWS_MAX) {
        table.row([
            allocation.id.to_string(),
            allocation.address.clone(),
            units::bytes(allocation.bytes),
            allocation.kind.clone(),
            allocation.call_site.text(),
            allocation.left_out.as_ref().map(|why| format!("not stored: {why}")).unwrap_or_default(),
        ]);
    }
    let mut text = table.to_string();
    if largest.len() > ROWS_MAX {
        text.push_str(&format!("and {} smaller ones (--json has all)\n", largest.len() - ROWS_MAX));
    }
    text
}

//! Fills the regions with the pages of the checkpoint.
//!
//! The store verifies every page that it hands out, so when this is done every byte that the program will see has
//! been verified. Fresh memory is zero already, so pages of zeros are written only over files.

use ckpt_store::PAGE_BYTES;

use super::copy_on_write::InCommon;
use super::fresh_memory::FreshMemory;
use super::lazy::Rest;
use super::mapping_plan::{MappingPlan, Source};
use super::page_writer::{Target, Writer};
use super::process::HalfBuilt;
use crate::differences::{Differences, WINDOW_BYTES};
use crate::error::Result;
use crate::image::{PageRange, Region};
use crate::ptrace::write_memory;

/// Bytes written at a time: 1 MiB, beyond which process_vm_writev gains nothing.
const WRITE_BYTES: usize = 1 << 20;
const PAGE: u64 = PAGE_BYTES as u64;

/// Has `writer` write the pages of a region into `process` but for those that are there in common with others, or those that have to be
/// there first.
pub fn fill<'a>(
    writer: &mut Writer<'a>,
    (process, fresh): (&'a HalfBuilt, Option<&'a FreshMemory>),
    (number, region, common): (usize, &Region, InCommon<'_>),
    (source, rest): (Source, Option<&Rest>),
    plan: &'a MappingPlan,
    differences: &Differences,
) -> Result<()> {
    if region.in_differences {
        return fill_finer((process, fresh), region, writer, differences);
    }
    let bytes = bytes_to_fill(region, source);
    if region.advice.droppable {
        writer.pass_by(bytes); // the kernel may drop it at any time; the program has to expect zeros
        return Ok(());
    }
    let begun = writer.begin(match (source, fresh) {
        (Source::Object { file, offset }, _) => match plan.of_huge_pages.get(&file) {
            Some(mapped) => Target::Window(mapped, offset),
            None => Target::Object(&plan.files[file], offset),
        },
        (Source::Sysv { segment, offset }, _) => Target::Window(&plan.segments[segment], offset),
        (_, Some(fresh)) => Target::Fresh(fresh, region.address),
        _ if region.protection & libc::PROT_WRITE != 0 => Target::Writable(process.pid(), region.address),
        _ => Target::Protected(process.memory(), region.address),
    });
    match source {
        _ if let Some(rest) = rest => rest.iter().try_for_each(|&(page, key)| writer.add(page, key))?,
        Source::SharedFile { .. } => {} // the file has them, or gets them at the end
        Source::PrivateFile { .. } => {
            let list = writer.store.page_list(&region.pages)?;
            for &PageRange { first, count } in &region.own_pages {
                for page in first..first + count {
                    writer.add(page, list.get(page))?;
                }
            }
        }
        Source::Memory | Source::SharedMemory | Source::Object { .. } | Source::Ring { .. } | Source::Sysv { .. } => {
            let list = writer.store.page_list(&region.pages)?;
            for (page, key) in list.iter().take_while(|(page, _)| *page < region.bytes / PAGE) {
                if !key.is_zero() && key != common.page(number, page) {
                    writer.add(page, key)?;
                }
            }
        }
    }
    writer.pass_by(bytes.saturating_sub(writer.added_since(begun)));
    Ok(())
}

/// Writes a region whose content is in differences. Pages of zeros are passed by: fresh memory has them without taking any.
fn fill_finer(
    (process, fresh): (&HalfBuilt, Option<&FreshMemory>),
    region: &Region,
    writer: &mut Writer<'_>,
    differences: &Differences,
) -> Result<()> {
    let mut window = vec![0; WINDOW_BYTES];
    for block in region.blocks() {
        for address in block.clone().step_by(WINDOW_BYTES) {
            let bytes = &mut window[..(block.end - address).min(WINDOW_BYTES as u64) as usize];
            differences.read(writer.store, block.start, address - block.start, bytes, None)?;
            let (pages, _) = bytes.as_chunks::<PAGE_BYTES>();
            let is_zero = |page: &[u8; PAGE_BYTES]| page.iter().all(|byte| *byte == 0);
            let mut at = address;
            for run in pages.chunk_by(|page, next| is_zero(page) == is_zero(next)) {
                if !is_zero(&run[0]) {
                    match fresh {
                        Some(fresh) => fresh.put(at, run.as_flattened())?,
                        None => write_run(process.pid(), at, run.as_flattened())?,
                    }
                }
                at += run.as_flattened().len() as u64;
            }
            (writer.filled)(bytes.len() as u64);
        }
    }
    Ok(())
}

fn write_run(pid: i32, address: u64, bytes: &[u8]) -> Result<()> {
    let pieces = (address..).step_by(WRITE_BYTES).zip(bytes.chunks(WRITE_BYTES));
    pieces.into_iter().try_for_each(|(address, piece)| write_memory(pid, address, piece))
}

/// The bytes that [`fill`] will report for `region`, at most.
pub fn bytes_to_fill(region: &Region, source: Source) -> u64 {
    match source {
        Source::SharedFile { .. } => 0,
        Source::PrivateFile { .. } => region.own_pages.iter().map(|own| own.count * PAGE).sum(),
        Source::Memory | Source::SharedMemory => region.bytes,
        Source::Object { .. } | Source::Ring { .. } | Source::Sysv { .. } => region.bytes,
    }
}

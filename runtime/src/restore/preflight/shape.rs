//! An image must make sense by itself before anything believes its indices and addresses.

use crate::error::{Error, Result};
use crate::image::{Backing, FileKind, ProcessImage};
use crate::ptrace::Registers;
use crate::restore::ranges::HIGHEST;

/// Bytes of the extended state's legacy area and header, less than which no kernel takes.
const EXTENDED_STATE_BYTES_MIN: usize = 576;

/// Checks the relations within the image of checkpoint `id`.
pub fn check(id: u64, image: &ProcessImage) -> Result<()> {
    match flaw(image) {
        Some(why) => Err(Error::BadImage { id, why }),
        None => Ok(()),
    }
}

fn flaw(image: &ProcessImage) -> Option<String> {
    threads_flaw(image).or_else(|| descriptors_flaw(image)).or_else(|| regions_flaw(image))
}

fn threads_flaw(image: &ProcessImage) -> Option<String> {
    let Some(main) = image.threads.first() else { return Some("it has no threads".into()) };
    if main.tid != image.pid {
        return Some(format!("the first thread is {}, the process {}", main.tid, image.pid));
    }
    for thread in &image.threads {
        if thread.registers.len() != Registers::WORDS || thread.extended_state.len() < EXTENDED_STATE_BYTES_MIN {
            return Some(format!("the registers of thread {} are incomplete", thread.tid));
        }
    }
    let wrong = image.signal_actions.iter().find(|action| !(1..=64).contains(&action.signal))?;
    Some(format!("there is no signal {}", wrong.signal))
}

fn descriptors_flaw(image: &ProcessImage) -> Option<String> {
    let mut numbers: Vec<i32> = image.descriptors.iter().map(|descriptor| descriptor.number).collect();
    numbers.sort_unstable();
    if numbers.first().is_some_and(|&lowest| lowest < 0) || numbers.windows(2).any(|pair| pair[0] == pair[1]) {
        return Some("a descriptor's number is negative or occurs twice".into());
    }
    if let Some(lost) = image.descriptors.iter().find(|descriptor| descriptor.file as usize >= image.files.len()) {
        return Some(format!("descriptor {} leads nowhere", lost.number));
    }
    image.files.iter().find_map(|file| match file.kind {
        FileKind::Pipe { pipe } if pipe as usize >= image.pipes.len() => Some(format!("pipe {pipe} is missing")),
        FileKind::Standard { stream, .. } if !(0..=2).contains(&stream) => {
            Some(format!("{stream} is not a standard stream"))
        }
        _ => None,
    })
}

fn regions_flaw(image: &ProcessImage) -> Option<String> {
    let page = u64::from(image.host.page_bytes.max(1));
    let specials = image.special_mappings.iter().map(|mapping| (mapping.address, mapping.bytes));
    let mut spans: Vec<(u64, u64)> =
        image.regions.iter().map(|region| (region.address, region.bytes)).chain(specials).collect();
    spans.sort_unstable();
    let mut free_from = 0;
    for (address, bytes) in spans {
        let end = address.checked_add(bytes).filter(|&end| end <= HIGHEST);
        match end {
            Some(end) if address >= free_from && bytes > 0 && address % page == 0 && bytes % page == 0 => {
                free_from = end;
            }
            _ => return Some(format!("the mapping at {address:#x} is impossible or overlaps another")),
        }
    }
    image.regions.iter().find_map(|region| {
        let outside = region
            .own_pages
            .iter()
            .any(|own| own.first.checked_add(own.count).is_none_or(|end| end > region.bytes / page));
        match region.backing {
            Backing::SharedObject { object, .. } if object as usize >= image.shared_objects.len() => {
                Some(format!("shared object {object} is missing"))
            }
            _ if outside => Some(format!("the mapping at {:#x} owns pages outside itself", region.address)),
            _ => None,
        }
    })
}

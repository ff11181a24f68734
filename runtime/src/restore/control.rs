//! The rebuilt program's libckpt.so learns that it was restarted, through its control block.

use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;

use ckpt_wire::{CONFINEMENT_BYTES, CONTROL_MAGIC, Confinement, Control, PATH_BYTES, text};

use super::RestoreOptions;
use super::process::HalfBuilt;
use crate::error::Result;
use crate::image::ProcessImage;
use crate::proc::confinement;

/// Adds one to the generation and forgets the agent of the first life; another interval may be wanted. The store is where it is today, so that the
/// next checkpoint joins the lineage although the directory was moved.
pub fn update(process: &HalfBuilt, image: &ProcessImage, options: &RestoreOptions) -> Result<()> {
    if image.control == 0 {
        return Ok(());
    }
    let memory = process.memory();
    let at = |offset: usize| image.control + offset as u64;
    let mut magic = [0; 8];
    memory.read(at(offset_of!(Control, magic)), &mut magic)?;
    if u64::from_le_bytes(magic) != CONTROL_MAGIC {
        log::warn!("{:#x} holds no control block of libckpt.so: the generation is not counted", image.control);
        return Ok(());
    }
    let mut generation = [0; 8];
    memory.read(at(offset_of!(Control, generation)), &mut generation)?;
    let generation = u64::from_ne_bytes(generation).wrapping_add(1);
    memory.write(at(offset_of!(Control, generation)), &generation.to_ne_bytes())?;
    memory.write(at(offset_of!(Control, agent_pid)), &0i32.to_ne_bytes())?;
    enter_confinement(process, image, confinement::own())?;
    if let Some(interval_ms) = options.interval_ms {
        memory.write(at(offset_of!(Control, interval_ms)), &interval_ms.to_ne_bytes())?;
    }
    let Ok(store) = options.store_dir.canonicalize() else { return Ok(()) };
    let store = store.as_os_str().as_bytes();
    let mut known = [0; PATH_BYTES];
    memory.read(at(offset_of!(Control, dir)), &mut known)?;
    if text(&known) != store && store.len() < PATH_BYTES {
        known.fill(0);
        known[..store.len()].copy_from_slice(store);
        memory.write(at(offset_of!(Control, dir)), &known)?;
    }
    Ok(())
}

/// The program began anew, under what confines us: its control block says so, and the environment that it has for others. A
/// libckpt.so that knows nothing of it is left alone.
fn enter_confinement(process: &HalfBuilt, image: &ProcessImage, own: Option<Confinement>) -> Result<()> {
    let memory = process.memory();
    let at = |offset: usize| image.control + offset as u64;
    let number = |offset: usize| -> Result<u64> {
        let mut bytes = [0; 8];
        memory.read(at(offset), &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    };
    let mut bytes = [0; 4];
    memory.read(at(offset_of!(Control, bytes)), &mut bytes)?;
    if (u32::from_ne_bytes(bytes) as usize) < offset_of!(Control, confinement_text) + 8 {
        return Ok(());
    }
    let filters = own.map_or(0, |own| u64::from(own.filters) + 1);
    memory.write(at(offset_of!(Control, filters)), &filters.to_ne_bytes())?;
    let no_new_privs = u64::from(own.is_some_and(|own| own.no_new_privs));
    memory.write(at(offset_of!(Control, no_new_privs)), &no_new_privs.to_ne_bytes())?;
    let (text, Some(own)) = (number(offset_of!(Control, confinement_text))?, own) else { return Ok(()) };
    let mut known = [0; CONFINEMENT_BYTES];
    // The program may have put something else there since.
    if text != 0 && memory.read(text, &mut known).is_ok() && Confinement::parse(&known).is_some() {
        memory.write(text, own.to_text().as_bytes())?;
    }
    Ok(())
}

//! The rebuilt program's libckpt.so learns that it was restarted, through its control block.

use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ckpt_wire::{
    CONFINEMENT_BYTES, CONTROL_BYTES_MIN, CONTROL_MAGIC, COPY_BYTES, COPY_WITHOUT_STORE, Confinement, Control,
    PATH_BYTES, STATE_REFUSED, TEXT_BYTES, text,
};
use zerocopy::FromBytes;

use super::copy::Copied;
use super::environment::{self, Told};
use super::options::RestoreOptions;
use super::process::HalfBuilt;
use crate::error::Result;
use crate::image::ProcessImage;
use crate::proc::{confinement, task};
use crate::restore::place::Lasting;

/// Adds one to the generation and forgets the agent of the first life; another interval may be wanted. The store is where it is today, so that the
/// next checkpoint joins the lineage although the directory was moved. A copy becomes another job, of which no other process is.
/// Gives what holds for it now, if it has a control block.
pub fn update(process: &HalfBuilt, image: &ProcessImage, options: &RestoreOptions) -> Result<Option<Lasting>> {
    if image.control == 0 {
        return Ok(None);
    }
    let Some(mut control) = read(process, image.control)? else {
        log::warn!("{:#x} holds no control block of libckpt.so: the generation is not counted", image.control);
        return Ok(None);
    };
    let memory = process.memory();
    let at = |offset: usize| image.control + offset as u64;
    control.generation = control.generation.wrapping_add(1);
    memory.write(at(offset_of!(Control, generation)), &control.generation.to_ne_bytes())?;
    memory.write(at(offset_of!(Control, agent_pid)), &0i32.to_ne_bytes())?;
    enter_confinement(process, image.control, &control)?;
    enter_executable(process, image, &control)?;
    if let Some(interval_ms) = options.interval_ms {
        memory.write(at(offset_of!(Control, interval_ms)), &interval_ms.to_ne_bytes())?;
    }
    let store = options.store_dir.as_deref().and_then(|dir| dir.canonicalize().ok());
    if let Some(store) = &store {
        lead_to(process, &control, at(offset_of!(Control, dir)), store)?;
    }
    if let Some(copy) = &options.copy {
        become_copy(process, image.control, &mut control, copy, store.as_deref())?;
    }
    let copy = (control.copy[0] != 0).then(|| String::from_utf8_lossy(text(&control.copy)).into_owned());
    Ok(Some(Lasting { generation: control.generation, job: control.job_id(), copy }))
}

/// The control block at `address`; what an older libckpt.so lacks of it is zero.
fn read(process: &HalfBuilt, address: u64) -> Result<Option<Box<Control>>> {
    let mut bytes = vec![0; size_of::<Control>()];
    let parsed = |bytes: &[u8]| Control::read_from_bytes(bytes).map(Box::new).ok();
    process.memory().read(address, &mut bytes[..CONTROL_BYTES_MIN])?;
    let Some(first) = parsed(&bytes).filter(|first| first.magic == CONTROL_MAGIC) else { return Ok(None) };
    let end = (first.bytes as usize).clamp(CONTROL_BYTES_MIN, bytes.len());
    process.memory().read(address + CONTROL_BYTES_MIN as u64, &mut bytes[CONTROL_BYTES_MIN..end])?;
    Ok(parsed(&bytes))
}

fn lead_to(process: &HalfBuilt, control: &Control, field: u64, store: &Path) -> Result<()> {
    let store = store.as_os_str().as_bytes();
    if text(&control.dir) != store && store.len() < PATH_BYTES {
        let mut path = [0; PATH_BYTES];
        path[..store.len()].copy_from_slice(store);
        process.memory().write(field, &path)?;
    }
    Ok(())
}

/// Enters the path of the executable where /proc shows another one.
fn enter_executable(process: &HalfBuilt, image: &ProcessImage, control: &Control) -> Result<()> {
    if (control.bytes as usize) < offset_of!(Control, executable) + PATH_BYTES {
        return Ok(());
    }
    let is_shown = task::link(process.pid(), "exe").is_ok_and(|shown| shown == image.executable);
    let path = if is_shown { &[][..] } else { &image.executable[..] };
    if text(&control.executable) != path && path.len() < PATH_BYTES {
        let mut told = [0; PATH_BYTES];
        told[..path.len()].copy_from_slice(path);
        process.memory().write(image.control + offset_of!(Control, executable) as u64, &told)?;
    }
    Ok(())
}

/// The program began anew, under what confines us: its control block says so, and the environment that it has for others. A
/// libckpt.so that knows nothing of it is left alone.
fn enter_confinement(process: &HalfBuilt, address: u64, control: &Control) -> Result<()> {
    if (control.bytes as usize) < offset_of!(Control, confinement_text) + size_of::<u64>() {
        return Ok(());
    }
    let (memory, own) = (process.memory(), confinement::own());
    let mut now = control.clone();
    now.set_confinement(own);
    memory.write(address + offset_of!(Control, filters) as u64, &now.filters.to_ne_bytes())?;
    memory.write(address + offset_of!(Control, no_new_privs) as u64, &now.no_new_privs.to_ne_bytes())?;
    let (text, Some(own)) = (control.confinement_text, own) else { return Ok(()) };
    let mut known = [0; CONFINEMENT_BYTES];
    // The program may have put something else there since.
    if text != 0 && memory.read(text, &mut known).is_ok() && Confinement::parse(&known).is_some() {
        memory.write(text, own.to_text().as_bytes())?;
    }
    Ok(())
}

/// Makes another job of it. All that tells its processes from those of the first life, and from those of other copies, is another.
fn become_copy(
    process: &HalfBuilt,
    address: u64,
    control: &mut Control,
    copy: &Copied,
    store: Option<&Path>,
) -> Result<()> {
    let memory = process.memory();
    let at = |offset: usize| address + offset as u64;
    control.job ^= copy.other_jobs;
    memory.write(at(offset_of!(Control, job)), &control.job.to_ne_bytes())?;
    if control.mark != 0 {
        (control.mark, control.marked_job) = (copy.mark, control.marked_job ^ copy.other_jobs);
        memory.write(at(offset_of!(Control, mark)), &control.mark.to_ne_bytes())?;
        memory.write(at(offset_of!(Control, marked_job)), &control.marked_job.to_ne_bytes())?;
    }
    control.copy = [0; COPY_BYTES];
    control.copy[..copy.id.len()].copy_from_slice(copy.id.as_bytes());
    match control.bytes as usize >= offset_of!(Control, environment) + size_of::<u64>() {
        true => memory.write(at(offset_of!(Control, copy)), &control.copy)?,
        false => log::warn!("process {}: its libckpt.so is older, and has no ckpt_copy_id()", process.pid()),
    }
    if store.is_none() {
        let mut reason = [0; TEXT_BYTES];
        reason[..COPY_WITHOUT_STORE.len()].copy_from_slice(COPY_WITHOUT_STORE.as_bytes());
        memory.write(at(offset_of!(Control, reason)), &reason)?;
        memory.write(at(offset_of!(Control, state)), &STATE_REFUSED.to_ne_bytes())?;
    }
    environment::exchange(process, control, &Told { copy: &copy.id, dir: store })
}

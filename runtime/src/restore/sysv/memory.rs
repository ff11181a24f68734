//! Shared memory: made, attached in each process where it was, filled through an attachment of our own.

use std::ptr::{self, NonNull};

use ckpt_store::{PAGE_BYTES, PageKey, Store};
use nix::errno::Errno;

use super::super::process::{Call, HalfBuilt};
use super::super::window::Window;
use super::objects::{Made, failed, find, make as make_object, place_of};
use crate::error::Result;
use crate::image::{Backing, JobImage, Objects, ProcessImage, SysvMemory};
use crate::proc::sysvipc::{Kind, rows};

const MUNMAP: Call = Call("munmap", libc::SYS_munmap);
const SHMAT: Call = Call("shmat", libc::SYS_shmat);
const SHMGET: Call = Call("shmget", libc::SYS_shmget);
const SHM_LOCK: i32 = 11;
/// Everybody's rights while a segment is being filled: its owner's.
const OWNERS: u32 = 0o600;

/// Makes the segments that are gone, by their creators if these are in the job.
pub fn make(processes: &mut [HalfBuilt], job: &JobImage, made: &mut Made) -> Result<()> {
    for memory in &job.objects.sysv_memory {
        let identity = &memory.identity;
        if find(job, Kind::Memory, identity, ("size", memory.bytes))?.is_some() {
            set(memory, identity.mode | OWNERS)?;
            continue;
        }
        // One that goes with its last user has no key any more; mappings show which one it had.
        let is_taken = memory.destroyed && rows(Kind::Memory)?.iter().any(|row| row.key() == identity.key);
        let key = if is_taken { 0 } else { identity.key };
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | OWNERS as i32;
        let arguments = [key as u32 as u64, memory.bytes, flags as u64];
        let maker = place_of(processes, memory.creator);
        make_object(processes, maker, (Kind::Memory, identity), (SHMGET, &arguments), made)?;
    }
    Ok(())
}

/// Attaches all that `image` has attached, and unmaps the parts that it had not any more. Nothing else is mapped yet.
pub fn attach(process: &mut HalfBuilt, image: &ProcessImage, objects: &Objects) -> Result<()> {
    for (index, memory) in objects.sysv_memory.iter().enumerate() {
        for attachment in memory.attachments.iter().filter(|attachment| attachment.pid == image.pid) {
            let address = attachment.address;
            let flags = if attachment.read_only { libc::SHM_RDONLY } else { 0 };
            let id = memory.identity.id;
            let purpose = format_args!("{} at {address:#x}", Kind::Memory.shown(id));
            process.call(0, SHMAT, &[id as u64, address, flags as u64], purpose)?;
            for (from, to) in missing(image, objects, index, address, memory.mapped_bytes()) {
                process.call(0, MUNMAP, &[from, to - from], purpose)?;
            }
        }
    }
    Ok(())
}

/// The parts of an attachment at `address` that no region of `image` shows.
fn missing(image: &ProcessImage, objects: &Objects, segment: usize, address: u64, bytes: u64) -> Vec<(u64, u64)> {
    let is_part = |backing: &Backing| match backing {
        Backing::SharedObject { object, .. } => {
            objects.memory.get(*object as usize).is_some_and(|object| object.sysv == Some(segment as u32))
        }
        _ => false,
    };
    let end = address + bytes;
    let parts = image.regions.iter().filter(|region| is_part(&region.backing));
    let (mut gaps, mut free_from) = (Vec::new(), address);
    for region in parts.filter(|region| region.address >= address && region.address < end) {
        if region.address > free_from {
            gaps.push((free_from, region.address));
        }
        free_from = region.address + region.bytes;
    }
    if free_from < end {
        gaps.push((free_from, end));
    }
    gaps
}

/// Attaches all segments in this process, with the content that no region of the job has.
pub fn attach_here(job: &JobImage, store: &Store) -> Result<Vec<Window>> {
    let attach = |memory: &SysvMemory| {
        let id = memory.identity.id;
        // SAFETY: the kernel chooses a free place.
        let at = unsafe { libc::shmat(id, ptr::null(), 0) };
        let start = NonNull::new(at.cast::<u8>()).filter(|_| at as isize != -1);
        let start = start.ok_or_else(|| failed("attach", Kind::Memory, id)(Errno::last()))?;
        let detach = |start: NonNull<u8>, _| {
            // SAFETY: it was attached there, and nothing refers to it any more.
            unsafe { libc::shmdt(start.as_ptr().cast()) };
        };
        // SAFETY: so many bytes have just been attached, and only the window knows of them.
        let attached = unsafe { Window::new(start, memory.mapped_bytes() as usize, detach) };
        if let Some(content) = &memory.content {
            let list = store.page_list(&content.pages)?;
            let mut page = [0; PAGE_BYTES];
            for number in 0..memory.mapped_bytes() / PAGE_BYTES as u64 {
                let key: PageKey = list.get(number);
                page.fill(0);
                if !key.is_zero() {
                    store.read_pages(&[key], &mut page)?;
                }
                attached.write(number * PAGE_BYTES as u64, &page);
            }
        }
        Ok(attached)
    };
    job.objects.sysv_memory.iter().map(attach).collect()
}

/// Gives all segments their owners and rights; those go with their last user that did before.
pub fn settle(objects: &Objects) -> Result<()> {
    for memory in &objects.sysv_memory {
        let id = memory.identity.id;
        set(memory, memory.identity.mode)?;
        let control = |command: i32| {
            // SAFETY: these commands take no argument.
            Errno::result(unsafe { libc::shmctl(id, command, ptr::null_mut()) })
        };
        if memory.locked
            && let Err(error) = control(SHM_LOCK)
        {
            log::warn!("{} is not locked in memory any more: {error}", Kind::Memory.shown(id));
        }
        if memory.destroyed {
            control(libc::IPC_RMID).map_err(failed("mark", Kind::Memory, id))?;
        }
    }
    Ok(())
}

fn set(memory: &SysvMemory, mode: u32) -> Result<()> {
    let (id, identity) = (memory.identity.id, &memory.identity);
    // SAFETY: a shmid_ds is integers, for which zero is a value.
    let mut about: libc::shmid_ds = unsafe { std::mem::zeroed() };
    (about.shm_perm.uid, about.shm_perm.gid, about.shm_perm.mode) = (identity.uid, identity.gid, mode as _);
    // SAFETY: the call reads one shmid_ds.
    let set = unsafe { libc::shmctl(id, libc::IPC_SET, &raw mut about) };
    Errno::result(set).map(drop).map_err(failed("set the rights of", Kind::Memory, id))
}

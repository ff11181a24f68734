//! Pages that whoever restarts a program, or the kernel on the way back to it, uses before anything can bring them.
//!
//! Any of them may lie in an allocation: the C library puts a thread's control block, and with it the area of restartable sequences,
//! right behind what was allocated last, and the kernel makes one mapping of both.

use std::collections::BTreeSet;
use std::mem::offset_of;

use ckpt_store::{PAGE_BYTES, PageKey, PageList, Store};
use ckpt_wire::Control;

use crate::error::Result;
use crate::image::{Backing, ProcessImage, Region, ThreadImage};

const PAGE: u64 = PAGE_BYTES as u64;
/// What glibc's `struct pthread` takes behind the thread pointer; other libraries have less.
const CONTROL_BLOCK_BYTES: u64 = 4096;
/// What is near to the stack pointer: the red zone below it, and above it what a call returns to.
const BELOW_STACK_POINTER: u64 = 256;
const ABOVE_STACK_POINTER: u64 = 1024;
/// Of a robust list's head, and of what `struct rseq` points to.
const HEAD_BYTES: u64 = 24;
const SECTION_BYTES: u64 = 32;
/// `user_regs_struct`.
const RSP: usize = 19;
const FS_BASE: usize = 21;
/// Where `struct rseq` points to the active section.
const ACTIVE_OFFSET: u64 = 8;

/// Numbers of pages: addresses by the size of a page.
pub type Needed = BTreeSet<u64>;

/// Those of a process.
pub fn needed(process: &ProcessImage, store: &Store) -> Result<Needed> {
    let mut needed = Needed::new();
    add(&mut needed, process.control, size_of::<Control>() as u64);
    if let Some(devices) = &process.devices {
        add(&mut needed, devices.hold, size_of::<ckpt_wire::device::Hold>() as u64);
    }
    for thread in &process.threads {
        add_of_thread(&mut needed, thread);
        if let Some(rseq) = &thread.rseq
            && let Some(active) = word_at(process, store, rseq.address.wrapping_add(ACTIVE_OFFSET))?
        {
            add(&mut needed, active, SECTION_BYTES);
        }
    }
    // What libckpt.so has its keeper read, by an address in its control block.
    if process.devices.is_some()
        && let Some(scratch) = word_at(process, store, process.control + offset_of!(Control, scratch) as u64)?
    {
        add(&mut needed, scratch, PAGE);
    }
    Ok(needed)
}

fn add_of_thread(needed: &mut Needed, thread: &ThreadImage) {
    let register = |number: usize| thread.registers.get(number).copied().unwrap_or(0);
    add(needed, register(FS_BASE), CONTROL_BLOCK_BYTES);
    add(needed, register(RSP).saturating_sub(BELOW_STACK_POINTER), BELOW_STACK_POINTER + ABOVE_STACK_POINTER);
    add(needed, thread.clear_child_tid, 4);
    add(needed, thread.robust_list.head, HEAD_BYTES);
    if let Some(rseq) = &thread.rseq {
        add(needed, rseq.address, rseq.bytes.into());
    }
}

fn add(needed: &mut Needed, address: u64, bytes: u64) {
    if address != 0 && bytes != 0 {
        needed.extend(address / PAGE..=address.saturating_add(bytes - 1) / PAGE);
    }
}

/// A word of anonymous memory of the process, if it is not 0. Only such memory comes later.
fn word_at(process: &ProcessImage, store: &Store, address: u64) -> Result<Option<u64>> {
    let is_there = |region: &&Region| address >= region.address && address - region.address < region.bytes;
    let Some(region) = process.regions.iter().find(is_there) else { return Ok(None) };
    if region.backing != Backing::Anonymous || region.in_differences || !address.is_multiple_of(8) {
        return Ok(None);
    }
    let page = (address - region.address) / PAGE;
    let list: PageList = store.page_list(&region.pages)?;
    let keys: Vec<PageKey> = list.keys_of(page..page + 1);
    let mut content = [0; PAGE_BYTES];
    store.read_pages(&keys, &mut content)?;
    let at = (address % PAGE) as usize;
    let word = u64::from_ne_bytes(std::array::from_fn(|byte| content[at + byte]));
    Ok((word != 0).then_some(word))
}

//! AMX: the kernel lets nobody set tile data that the thread has not touched itself.
//!
//! The permission comes first (the child asks for it), then each thread that held tiles executes one tile instruction.
//! It does so at the beginning of a remote call whose `syscall` instruction has `ldtilecfg` and `tilezero` in front:
//! the first use traps, the kernel gives the thread a larger state, and the call itself is a harmless one.

use super::process::{Call, HalfBuilt};
use super::xstate;
use crate::error::Result;
use crate::image::{ProcessImage, ThreadImage};
use crate::ptrace::CallSite;

const GETPID: Call = Call("getpid", libc::SYS_getpid);
const MPROTECT: Call = Call("mprotect", libc::SYS_mprotect);
const PAGE: u64 = 4096;
/// Offset of the tile configuration behind the code.
const CONFIGURATION_OFFSET: usize = 64;

/// `ldtilecfg [rip + 55]; tilezero tmm0; syscall`.
const CODE: [u8; 16] = [0xc4, 0xe2, 0x78, 0x49, 0x05, 55, 0, 0, 0, 0xc4, 0xe2, 0x7b, 0x49, 0xc0, 0x0f, 0x05];
/// Bytes of the first instruction, from whose end its operand is counted.
const LDTILECFG_BYTES: usize = 9;
const _: () = assert!(LDTILECFG_BYTES + CODE[5] as usize == CONFIGURATION_OFFSET);

/// Whether the program may use tiles: it has asked, or a thread held some.
pub fn may_be_used(image: &ProcessImage) -> bool {
    image.permitted_components & 1 << xstate::TILE_DATA != 0 || image.threads.iter().any(are_used_by)
}

/// Whether `thread` held tiles.
pub fn are_used_by(thread: &ThreadImage) -> bool {
    xstate::uses_tiles(&thread.extended_state)
}

/// Has thread `index` use a tile, on a page at the end of the scratch area that is executable meanwhile.
pub fn touch(process: &mut HalfBuilt, index: usize) -> Result<()> {
    let page = process.scratch()?.end - PAGE;
    process.memory().write(page, &code_and_configuration())?;
    let purpose = format_args!("a page for tile instructions");
    let executable = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    process.call(index, MPROTECT, &[page, PAGE, executable], purpose)?;
    let site = CallSite { syscall: page, ..process.site()? };
    process
        .try_call_at(index, &site, GETPID, &[])?
        .map_err(|errno| process.refused(GETPID, format_args!("use of a tile by thread number {index}"), errno))?;
    let writable = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    process.call(index, MPROTECT, &[page, PAGE, writable], purpose).map(drop)
}

/// The code, and a configuration of one tile of 16 rows of 64 bytes.
fn code_and_configuration() -> Vec<u8> {
    let mut bytes = vec![0; CONFIGURATION_OFFSET + 64];
    bytes[..CODE.len()].copy_from_slice(&CODE);
    let configuration = &mut bytes[CONFIGURATION_OFFSET..];
    configuration[0] = 1; // palette
    configuration[16] = 64; // bytes per row of tile 0
    configuration[48] = 16; // rows of tile 0
    bytes
}

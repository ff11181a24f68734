//! Capturing what the program has decided for mappings that it will make.

use nix::errno::Errno;

use super::guest::Guest;
use super::regions::Draft;
use crate::error::{Error, Result};
use crate::image::{MappingDefaults, NewLocks};
use crate::proc::{pagemap, task};

const PAGE_BYTES: u64 = 4096;
const PR_GET_THP_DISABLE: u64 = 42;
const PR_GET_MEMORY_MERGE: u64 = 68;

/// Asks inside the program, whose mappings are `drafts`.
///
/// # Errors
/// When the program cannot be asked.
pub fn capture(guest: &mut Guest<'_>, drafts: &[Draft]) -> Result<MappingDefaults> {
    // A kernel that does not know one of them refuses the question.
    let mut ask = |option| guest.try_call(libc::SYS_prctl, [option, 0, 0, 0, 0, 0]);
    let huge_pages_disabled = ask(PR_GET_THP_DISABLE)?.unwrap_or(0);
    let merged = ask(PR_GET_MEMORY_MERGE)?.unwrap_or(0) == 1;
    // Who has never locked anything is not asked: it takes a mapping to find out.
    let may_lock = drafts.iter().any(|draft| draft.advice.locked);
    let locked = if may_lock { new_locks(guest)? } else { NewLocks::No };
    Ok(MappingDefaults { huge_pages_disabled, merged, locked })
}

/// The kernel shows nowhere what it does with new mappings, so one is made and looked at.
fn new_locks(guest: &mut Guest<'_>) -> Result<NewLocks> {
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let arguments = [0, PAGE_BYTES, rights as u64, flags as u64, u64::MAX, 0];
    let before = locked_memory(guest.pid())?;
    let address = match guest.try_call(libc::SYS_mmap, arguments)? {
        Ok(address) => address,
        // It would be locked, and that is more than RLIMIT_MEMLOCK allows.
        Err(Errno::EAGAIN) => return Ok(NewLocks::AtOnce),
        Err(source) => {
            let purpose = "finding out whether new mappings are locked".to_owned();
            return Err(Error::RemoteCall { pid: guest.pid(), call: "mmap", purpose, source });
        }
    };
    let found = locks_at(guest.pid(), address, &before);
    guest.call("munmap", "removing a mapping of ours", libc::SYS_munmap, [address, PAGE_BYTES, 0, 0, 0, 0])?;
    found
}

/// How the new mapping at `address` is locked, before which `before` was. A page that nobody has touched is there only if it was
/// locked at once. Its flags would tell, too, but smaps walks the page tables of the whole program.
fn locks_at(pid: i32, address: u64, before: &str) -> Result<NewLocks> {
    if locked_memory(pid)? == before {
        return Ok(NewLocks::No);
    }
    Ok(if pagemap::has_page(pid, address)? { NewLocks::AtOnce } else { NewLocks::OnFault })
}

/// How much memory of `pid` is locked, as /proc says it.
fn locked_memory(pid: i32) -> Result<String> {
    let status = task::text(pid, "status")?;
    Ok(task::status_value(&status, "VmLck").unwrap_or_default().to_owned())
}

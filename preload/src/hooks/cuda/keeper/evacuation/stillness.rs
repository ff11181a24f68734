//! Whether the program's threads stand still, as the agent has stopped them, and whether the driver can work meanwhile.

use core::ffi::{c_int, c_void};

use super::super::functions::{self, ATTACH_GLOBAL};
use crate::hooks::cuda::backing;
use crate::hooks::cuda::driver::{CuResult, SUCCESS};
use crate::hooks::cuda::records;
use crate::sys;

/// Whether the main thread is stopped by who traces it, as all others are then. (Its number may mean nothing here.)
pub fn is_there() -> bool {
    let Ok(status) = sys::of_driver::open(c"/proc/self/status") else { return false };
    // The state is its third line; the name in the first has 64 bytes at most, also where it is written with escapes.
    let mut buffer = [0; 256];
    let bytes = sys::of_driver::read(status, &mut buffer).unwrap_or(0);
    sys::of_driver::close(status);
    let lines = buffer.get(..bytes).unwrap_or_default().split(|&byte| byte == b'\n');
    lines.into_iter().any(|line| line.starts_with(b"State:\tt"))
}

/// Takes all locks that the driver is known to take, which a thread that stands still may hold: those of libc's heap and of the
/// dynamic linker, ours, and, by allocating and freeing, the driver's own. If one is held this does not come back before that
/// thread goes on.
pub fn try_locks() -> Result<(), CuResult> {
    super::enter_any_context()?;
    let _ = records::containing(0);
    let _ = backing::range_of(0);
    let _ = super::spans::take();
    // SAFETY: it counts what there is, in each of libc's heaps, under its lock; of another heap it knows nothing.
    let _ = unsafe { libc::mallinfo() };
    // SAFETY: the function takes what it is shown, and ends the walk.
    unsafe { libc::dl_iterate_phdr(Some(nothing), core::ptr::null_mut()) };
    let mut address = 0;
    // SAFETY: a place for one; what is allocated is freed, and nobody else knows it.
    match unsafe { functions::allocate_managed(&raw mut address, super::spans::PAGE, ATTACH_GLOBAL) } {
        SUCCESS => {}
        error => return Err(error),
    }
    // SAFETY: as above.
    match unsafe { functions::free(address) } {
        SUCCESS => Ok(()),
        error => Err(error),
    }
}

unsafe extern "C" fn nothing(_object: *mut libc::dl_phdr_info, _bytes: usize, _data: *mut c_void) -> c_int {
    1
}

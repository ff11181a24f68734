//! Whether the program's threads stand still, as the agent has stopped them, and whether the driver can work meanwhile.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use super::super::commands::done;
use super::super::functions::{self, ATTACH_GLOBAL, DEVICE_MAP, PORTABLE};
use crate::hooks::cuda::backing;
use crate::hooks::cuda::driver::CuResult;
use crate::hooks::cuda::records;
use crate::libc_functions::{self, DL_ITERATE_PHDR};
use crate::sys;

/// What was allocated to try it, and could not be freed; 0 for none.
static LEFT: AtomicU64 = AtomicU64::new(0);

/// Whether the main thread is stopped by who traces it, as all others are then.
pub fn is_there() -> bool {
    is_main_stopped() == Some(true)
}

/// Whether it certainly is not.
pub fn is_over() -> bool {
    is_main_stopped() == Some(false)
}

/// Nothing if that cannot be seen. (The number of who traces it may mean nothing here.)
fn is_main_stopped() -> Option<bool> {
    let status = sys::of_driver::open(c"/proc/self/status").ok()?;
    // The state is its third line; the name in the first has 64 bytes at most, also where it is written with escapes.
    let mut buffer = [0; 256];
    let bytes = sys::of_driver::read(status, &mut buffer);
    sys::of_driver::close(status);
    let mut lines = buffer.get(..bytes.ok()?)?.split(|&byte| byte == b'\n');
    lines.find_map(|line| line.strip_prefix(b"State:\t")).map(|state| state.starts_with(b"t"))
}

/// Takes locks that the driver may wait for, and that a thread that stands still may hold: those of libc's heap and of the
/// dynamic linker, ours, and, by doing once what is to be done, the driver's own. If one is held this does not come back before
/// that thread goes on.
pub fn try_locks() -> Result<(), CuResult> {
    super::enter_any_context()?;
    let _ = records::containing(0);
    let _ = backing::range_of(0);
    let _ = super::spans::take();
    count_the_heap();
    // SAFETY: the function takes what it is shown, and ends the walk.
    unsafe {
        DL_ITERATE_PHDR.get().map(|iterate| iterate(nothing, core::ptr::null_mut()));
        libc_functions::dlsym(libc::RTLD_DEFAULT, c"ckpt_nowhere");
    }
    let mut address = LEFT.load(Ordering::Relaxed);
    if address == 0 {
        // SAFETY: a place for one; what is allocated is freed, and nobody else knows it.
        done(unsafe { functions::allocate_managed(&raw mut address, super::spans::PAGE, ATTACH_GLOBAL) })?;
    }
    LEFT.store(address, Ordering::Relaxed);
    // SAFETY: as above.
    done(unsafe { functions::free(address) })?;
    LEFT.store(0, Ordering::Relaxed);
    try_to_pin()
}

/// Takes the locks of the heap that the driver allocates from: the program's own, where that counts what there is, or libc's.
fn count_the_heap() {
    type Mallinfo = unsafe extern "C" fn() -> libc::mallinfo;
    // SAFETY: RTLD_DEFAULT is no handle to keep.
    let found = unsafe { libc_functions::dlsym(libc::RTLD_DEFAULT, c"mallinfo") };
    if !found.is_null() {
        // SAFETY: whoever has a function of this name, it has this type.
        let mallinfo: Mallinfo = unsafe { core::mem::transmute(found) };
        // SAFETY: it counts what there is, in each of libc's heaps, under its lock.
        unsafe { mallinfo() };
    }
}

fn try_to_pin() -> Result<(), CuResult> {
    let page = sys::map_zeros(super::spans::PAGE).map_err(|error| -error.0)?;
    // SAFETY: a page of ours, which is there until it is not registered any more.
    let outcome = unsafe {
        done(functions::register(page.cast(), super::spans::PAGE, PORTABLE | DEVICE_MAP))
            .and_then(|()| done(functions::unregister(page.cast())))
    };
    // SAFETY: ours.
    unsafe { sys::unmap(page, super::spans::PAGE) };
    outcome
}

unsafe extern "C" fn nothing(_object: *mut libc::dl_phdr_info, _bytes: usize, _data: *mut c_void) -> c_int {
    1
}

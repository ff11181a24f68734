//! Which device code is loaded, and where its image is, so that the agent can read there what variables it has: a program
//! need not ask for those that only its kernels use.
//!
//! An image in read-only memory of a loaded object (what nvcc puts into programs and libraries) is only referred to. Any
//! other may be freed or written over as soon as it is loaded, so a copy is kept until it is unloaded, or its context ends.
//! All of that is done while code is loaded, which takes the driver far longer. What an image says of itself is believed
//! only as far as memory is there.

mod entries;
mod image;

use core::ffi::c_char;
use core::sync::atomic::AtomicI32;

use ckpt_wire::device::{CODE_COPY, CODE_FILE, CODE_IN_PLACE, CODE_LIBRARY, LoadedCode};

use super::driver::{CuResult, Handle, Real, SUCCESS};
use super::lock::Lock;
use crate::hooks::recorded;
use crate::shared::Shared;
use crate::sys;
use entries::Entries;

/// The longest image that is copied.
const COPY_BYTES_MAX: usize = 64 << 20;
/// A path and its folder take at most so much, the zero at the end included.
const PATH_BYTES: usize = 2 * libc::PATH_MAX as usize;

/// Used by whoever holds the lock.
static ENTRIES: Shared<Entries> = Shared::new(Entries::new());
static OWNER: AtomicI32 = AtomicI32::new(0);

type GetCurrent = unsafe extern "C" fn(*mut Handle) -> CuResult;
static GET_CURRENT: Real<GetCurrent> = Real::new(c"cuCtxGetCurrent");

/// The driver has loaded a module or a library from an image in memory.
///
/// # Safety
/// It has accepted the image.
pub unsafe fn loaded(kind: u32, handle: Handle, image: *const u8) {
    // SAFETY: the caller's word.
    let (image, bytes) = unsafe { image::extent(image) };
    let (address, place) = if image::is_in_place(image, bytes) {
        (image as u64, CODE_IN_PLACE)
    } else {
        (copy(image, bytes).map_or(0, |copy| copy as u64), CODE_COPY)
    };
    add(LoadedCode { image: address, bytes: bytes as u64, place, ..new(kind, handle) });
}

/// The driver has loaded one from a file.
///
/// # Safety
/// The path must be zero-terminated.
pub unsafe fn loaded_from_file(kind: u32, handle: Handle, path: *const c_char) {
    let code = LoadedCode { place: CODE_FILE, ..new(kind, handle) };
    // SAFETY: the caller's word.
    let path = unsafe { keep_path(path) };
    add(path.map_or(code, |path| LoadedCode { image: path as u64, bytes: PATH_BYTES as u64, ..code }));
}

fn new(kind: u32, handle: Handle) -> LoadedCode {
    let mut context = core::ptr::null_mut();
    if kind != CODE_LIBRARY
        && let Some(get) = GET_CURRENT.get()
    {
        // SAFETY: a place to write to.
        unsafe { get(&raw mut context) };
    }
    LoadedCode {
        id: recorded::next_id(),
        handle: handle as u64,
        context: context as u64,
        kind,
        ..LoadedCode::default()
    }
}

/// The image again, in memory of our own.
fn copy(image: *const u8, bytes: usize) -> Option<*mut u8> {
    if bytes == 0 || bytes > COPY_BYTES_MAX {
        return None;
    }
    let copy = sys::map_zeros(bytes).ok()?;
    if sys::copy_what_is_there(copy, image, bytes) == bytes {
        return Some(copy);
    }
    // SAFETY: nobody else knows it.
    unsafe { sys::unmap(copy, bytes) };
    None
}

/// The path, made absolute, in memory of our own.
///
/// # Safety
/// It must be zero-terminated.
unsafe fn keep_path(path: *const c_char) -> Option<*mut u8> {
    let kept = sys::map_zeros(PATH_BYTES).ok()?;
    // SAFETY: the caller's word: there is a first byte.
    let is_absolute = unsafe { *path } == b'/' as c_char;
    let folder_bytes = if is_absolute { 0 } else { sys::current_directory(kept, PATH_BYTES / 2).unwrap_or(0) };
    // SAFETY: a folder takes half of the room at most; of a path that the driver has opened, strnlen finds the end in the
    // other half, and a longer one is cut off.
    unsafe {
        let mut to = kept.add(folder_bytes);
        if folder_bytes != 0 {
            *to = b'/';
            to = to.add(1);
        }
        to.copy_from_nonoverlapping(path.cast(), libc::strnlen(path, PATH_BYTES / 2 - 2));
    }
    Some(kept)
}

fn add(code: LoadedCode) {
    let lock = Lock::of(&OWNER);
    // SAFETY: the lock is ours.
    let is_shown = unsafe { &mut *ENTRIES.get() }.show(code).is_some();
    drop(lock);
    if !is_shown {
        recorded::count_lost();
        forget(&code);
    }
}

/// Takes one out that is so.
fn take(is_it: impl Fn(&LoadedCode) -> bool) -> Option<LoadedCode> {
    let _lock = Lock::of(&OWNER);
    // SAFETY: the lock is ours.
    unsafe { &mut *ENTRIES.get() }.take(is_it)
}

/// The code that has this id.
pub fn with_id(id: u64) -> Option<LoadedCode> {
    let _lock = Lock::of(&OWNER);
    // SAFETY: the lock is ours.
    unsafe { &mut *ENTRIES.get() }.find(|code| code.id == id)
}

/// Has a module or a library unloaded. It is taken out before, for its handle may be another's right behind.
pub fn unload(handle: u64, unload: &mut dyn FnMut() -> CuResult) -> CuResult {
    let taken = take(|code| code.handle == handle);
    let result = unload();
    match taken {
        Some(code) if result == SUCCESS => forget(&code),
        Some(code) => add(code),
        None => {}
    }
    result
}

/// A context is gone, and its modules with it.
pub fn forget_context(context: u64) {
    while let Some(code) = take(|code| code.context == context) {
        forget(&code);
    }
}

/// Gives the memory back that is ours.
fn forget(code: &LoadedCode) {
    if code.place != CODE_IN_PLACE && code.image != 0 {
        // SAFETY: mapped with this length, and no entry has it any more.
        unsafe { sys::unmap(code.image as *mut u8, code.bytes as usize) };
    }
}

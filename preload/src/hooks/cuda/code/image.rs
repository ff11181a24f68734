//! Where an image of device code ends, and whether it stays. The agent's `device_code` knows these formats; here is no more of
//! them than what can be told by their first bytes.

use core::ffi::{c_int, c_void};

use crate::libc_functions::DL_ITERATE_PHDR;

/// Of a fatbin, and of the wrapper that has its address.
const FATBIN: u32 = 0xBA55_ED50;
const WRAPPER: u32 = 0x4662_43B1;
/// Of an ELF file.
const ELF: u32 = u32::from_le_bytes(*b"\x7fELF");
/// Longer text is not PTX.
const TEXT_BYTES_MAX: usize = 1 << 30;

/// The image itself, which may not be where the driver was sent, and its bytes: 0 if it has no form that is known.
///
/// # Safety
/// The driver must have accepted the image.
pub unsafe fn extent(image: *const u8) -> (*const u8, usize) {
    // SAFETY: an image has that much, in whatever form; these have more.
    unsafe {
        match read::<u32>(image, 0) {
            WRAPPER => {
                let wrapped = read::<*const u8>(image, 8);
                let is_fatbin = read::<u32>(wrapped, 0) == FATBIN;
                (wrapped, if is_fatbin { of_fatbin(wrapped) } else { 0 })
            }
            FATBIN => (image, of_fatbin(image)),
            ELF => (image, of_elf(image)),
            // Where the text ends, the zero belongs to it.
            start if is_text(start) => (image, libc::strnlen(image.cast(), TEXT_BYTES_MAX) + 1),
            _ => (image, 0),
        }
    }
}

/// Header and entries.
///
/// # Safety
/// A fatbin must begin there.
unsafe fn of_fatbin(image: *const u8) -> usize {
    // SAFETY: a fatbin has sixteen bytes of header.
    unsafe { usize::from(read::<u16>(image, 6)).saturating_add(read::<u64>(image, 8) as usize) }
}

/// Up to the end of its tables, which are the last that a cubin has.
///
/// # Safety
/// An ELF file must begin there.
unsafe fn of_elf(image: *const u8) -> usize {
    let end =
        |table: u64, each: u16, count: u16| (table as usize).saturating_add(usize::from(each) * usize::from(count));
    // SAFETY: an ELF file has sixty-four bytes of header.
    unsafe {
        let segments = end(read(image, 32), read(image, 54), read(image, 56));
        let sections = end(read(image, 40), read(image, 58), read(image, 60));
        segments.max(sections)
    }
}

fn is_text(start: u32) -> bool {
    start.to_le_bytes().iter().all(|&byte| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r'))
}

/// # Safety
/// There must be so many bytes; they are numbers or an address.
unsafe fn read<T>(image: *const u8, offset: usize) -> T {
    // SAFETY: the caller's word.
    unsafe { image.add(offset).cast::<T>().read_unaligned() }
}

/// Whether all of it lies in memory of a loaded object that nobody writes.
pub fn is_in_place(image: *const u8, bytes: usize) -> bool {
    let mut wanted = [image as usize, bytes];
    let Some(iterate) = DL_ITERATE_PHDR.get() else { return false };
    // SAFETY: the callback gets what it casts to, which lives as long.
    bytes != 0 && unsafe { iterate(has, (&raw mut wanted).cast()) } != 0
}

/// Whether an object has a read-only segment with all of the image.
unsafe extern "C" fn has(object: *mut libc::dl_phdr_info, _: usize, wanted: *mut c_void) -> c_int {
    // SAFETY: `is_in_place` gives it.
    let [image, bytes] = unsafe { *wanted.cast::<[usize; 2]>() };
    // SAFETY: the dynamic linker's word on its object.
    let object = unsafe { &*object };
    for number in 0..usize::from(object.dlpi_phnum) {
        // SAFETY: as above.
        let segment = unsafe { &*object.dlpi_phdr.add(number) };
        let start = (object.dlpi_addr as usize).wrapping_add(segment.p_vaddr as usize);
        let offset = image.wrapping_sub(start);
        let is_inside = offset < segment.p_memsz as usize && bytes <= segment.p_memsz as usize - offset;
        if segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_W == 0 && is_inside {
            return 1;
        }
    }
    0
}

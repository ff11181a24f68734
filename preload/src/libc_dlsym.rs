//! libc's own `dlsym`, for our own lookups. Its name leads to our hook, or to that of another preloaded library, and in
//! that one's hands RTLD_NEXT means what comes behind *it*: perhaps ourselves. So it is read from the symbols of libc.so.6,
//! where the dynamic linker has mapped them.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// The public part of the dynamic linker's record of an object (`struct link_map`).
#[repr(C)]
struct LinkMap {
    bias: usize,
    name: *const c_char,
    dynamic: *const [usize; 2],
}

/// An entry of a symbol table (`Elf64_Sym`).
#[repr(C)]
struct Symbol {
    name: u32,
    kind: u8,
    other: u8,
    section: u16,
    value: usize,
    bytes: usize,
}

const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_GNU_HASH: usize = 0x6fff_fef5;

/// `RTLD_DL_LINKMAP`.
const LINK_MAP: c_int = 2;

unsafe extern "C" {
    fn dladdr1(address: *const c_void, object: *mut libc::Dl_info, extra: *mut *mut c_void, kind: c_int) -> c_int;
}

/// The function, once it is known.
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// The function `name` that `handle` leads to, or null. RTLD_NEXT is what comes behind this library.
///
/// # Safety
/// `handle` must be one of dlopen's, RTLD_DEFAULT or RTLD_NEXT.
#[inline(never)]
pub unsafe fn dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    let mut address = DLSYM.load(Ordering::Relaxed);
    if address.is_null() {
        address = find(c"dlsym");
        DLSYM.store(address, Ordering::Relaxed);
    }
    if address.is_null() {
        // glibc before 2.34, with which this library cannot be loaded.
        return address;
    }
    // SAFETY: libc's dlsym has this type.
    let dlsym: Dlsym = unsafe { core::mem::transmute(address) };
    // SAFETY: the caller's word, and a zero-terminated name. It finds "the next" by the address that it returns to, so
    // this must not become a jump.
    let found = unsafe { dlsym(handle, name.as_ptr()) };
    core::hint::black_box(found)
}

/// The function of libc.so.6 with this name, or null.
fn find(name: &CStr) -> *mut c_void {
    // SAFETY: `Dl_info` is four pointers, for which zero is a value.
    let mut object: libc::Dl_info = unsafe { core::mem::zeroed() };
    let mut map = core::ptr::null_mut();
    // A function that nobody stands in front of. (dlopen would find libc too, but allocates, and the heap's own functions
    // may be what is being looked for.)
    let in_libc = libc::gnu_get_libc_version as *const c_void;
    // SAFETY: two places to write to, the second for what the kind says.
    if unsafe { dladdr1(in_libc, &raw mut object, &raw mut map, LINK_MAP) } == 0 || map.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: the dynamic linker's record of libc.so.6, which stays; its dynamic section has absolute addresses.
    unsafe { find_in(&*map.cast::<LinkMap>(), name) }
}

/// # Safety
/// The object must be mapped, and have a GNU hash table, as glibc has.
unsafe fn find_in(map: &LinkMap, name: &CStr) -> *mut c_void {
    // SAFETY: the caller's word; a dynamic section ends with a tag of 0.
    let part = |wanted| unsafe {
        let mut entry = map.dynamic;
        loop {
            match *entry {
                [0, _] => return core::ptr::null::<u8>(),
                [tag, address] if tag == wanted => return address as *const u8,
                _ => entry = entry.add(1),
            }
        }
    };
    let (hash, symbols, strings) = (part(DT_GNU_HASH).cast::<u32>(), part(DT_SYMTAB).cast::<Symbol>(), part(DT_STRTAB));
    if hash.is_null() || symbols.is_null() || strings.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: the layout of the table: four words, a filter, a bucket for each remainder, a chain for each bucket.
    unsafe {
        let (buckets, first, filter_words) = (*hash, *hash.add(1), *hash.add(2));
        let bucket_table = hash.add(4 + 2 * filter_words as usize);
        let chains = bucket_table.add(buckets as usize);
        let wanted = gnu_hash(name.to_bytes());
        let Some(bucket) = wanted.checked_rem(buckets) else { return core::ptr::null_mut() };
        let mut index = *bucket_table.add(bucket as usize);
        if index < first {
            return core::ptr::null_mut();
        }
        loop {
            let link = *chains.add((index - first) as usize);
            let symbol = &*symbols.add(index as usize);
            let is_defined = symbol.section != 0 && symbol.value != 0;
            // The last bit says where a chain ends.
            if link | 1 == wanted | 1 && is_defined && CStr::from_ptr(strings.add(symbol.name as usize).cast()) == name
            {
                return (map.bias + symbol.value) as *mut c_void;
            }
            if link & 1 == 1 {
                return core::ptr::null_mut();
            }
            index += 1;
        }
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

//! The symbols of an object that the dynamic linker has loaded, read from its own tables: without a lock, without an
//! allocation, and without the walk over all of libc's symbols that `dladdr` takes.

use core::ffi::{CStr, c_char, c_void};

const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_SONAME: usize = 14;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const DT_VERSYM: usize = 0x6fff_fff0;

/// What kind of symbol is called to learn the function's address.
const STT_GNU_IFUNC: u8 = 10;
/// The bit of a version that lookups without one pass over.
const VERSION_HIDDEN: u16 = 0x8000;

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

/// Where the tables of an object are.
#[derive(Clone, Copy)]
pub struct Symbols {
    bias: usize,
    hash: *const u32,
    symbols: *const Symbol,
    strings: *const u8,
    /// Null where symbols have no versions.
    versions: *const u16,
    /// Offset of the library's own name in the strings; 0 where it has none.
    library_name: usize,
}

/// A function's name in a static: one word, where a reference to a text has two. All of them, and what else the dynamic
/// linker writes at the start, are in one page.
#[repr(transparent)]
pub struct Literal(*const c_char);

// SAFETY: it leads to a text that nobody changes.
unsafe impl Sync for Literal {}

impl Literal {
    /// The name `text`.
    pub const fn new(text: &'static CStr) -> Self {
        Self(text.as_ptr())
    }

    /// The name.
    pub fn get(&self) -> &'static CStr {
        // SAFETY: from such a text.
        unsafe { CStr::from_ptr(self.0) }
    }
}

/// A function's name and its hash.
#[derive(Clone, Copy)]
pub struct Name<'a> {
    text: &'a CStr,
    hash: u32,
}

impl<'a> Name<'a> {
    /// The name `text`.
    pub fn new(text: &'a CStr) -> Self {
        let hash = |hash: u32, &byte: &u8| hash.wrapping_mul(33).wrapping_add(u32::from(byte));
        Self { text, hash: text.to_bytes().iter().fold(5381, hash) }
    }
}

/// What came of a lookup.
pub enum Found {
    /// The function.
    Function(*mut c_void),
    /// The object has none of that name.
    Nothing,
    /// Only the dynamic linker can say.
    NotReadable,
}

impl Symbols {
    /// Of no object.
    pub const NONE: Self = Self {
        bias: 0,
        hash: core::ptr::null(),
        symbols: core::ptr::null(),
        strings: core::ptr::null(),
        versions: core::ptr::null(),
        library_name: 0,
    };

    /// Those of the object that was loaded `bias` bytes from where it was linked to.
    ///
    /// # Safety
    /// `dynamic` must be the dynamic section of a loaded object that stays.
    pub unsafe fn of(bias: usize, dynamic: *const [usize; 2]) -> Self {
        let mut tables = Self { bias, ..Self::NONE };
        let mut entry = dynamic;
        loop {
            // SAFETY: the caller's word; a dynamic section ends with a tag of 0.
            let [tag, value] = unsafe { *entry };
            // glibc has made addresses of the offsets, unless the section is in read-only memory (the vdso's).
            let address = if value < bias { bias + value } else { value };
            match tag {
                0 => return tables,
                DT_GNU_HASH => tables.hash = address as *const u32,
                DT_SYMTAB => tables.symbols = address as *const Symbol,
                DT_STRTAB => tables.strings = address as *const u8,
                DT_SONAME => tables.library_name = value,
                DT_VERSYM => tables.versions = address as *const u16,
                _ => {}
            }
            entry = entry.wrapping_add(1);
        }
    }

    /// The name by which others need this library.
    ///
    /// # Safety
    /// The object must be loaded still.
    pub unsafe fn library_name(&self) -> Option<&'static CStr> {
        let is_there = self.library_name != 0 && !self.strings.is_null();
        // SAFETY: the caller's word; strings are zero-terminated.
        is_there.then(|| unsafe { CStr::from_ptr(self.strings.add(self.library_name).cast()) })
    }

    /// The function that `dlsym` would find in this object.
    ///
    /// # Safety
    /// The object must be loaded still.
    pub unsafe fn function(&self, name: Name<'_>) -> Found {
        if self.hash.is_null() || self.symbols.is_null() || self.strings.is_null() {
            return Found::NotReadable;
        }
        // SAFETY: the layout of the table: four words, a filter of words of eight bytes, of which there are a power of two, a
        // bucket for each remainder, and a chain of hashes for each bucket, whose last one has its lowest bit set.
        unsafe {
            let [buckets, first, filter_words, shift] = *self.hash.cast::<[u32; 4]>();
            let filter = self.hash.add(4).cast::<u64>();
            let word = filter.add(((name.hash / 64) & (filter_words - 1)) as usize).read_unaligned();
            let bits = 1_u64 << (name.hash % 64) | 1_u64 << (name.hash.wrapping_shr(shift) % 64);
            let bucket_table = filter.add(filter_words as usize).cast::<u32>();
            let chains = bucket_table.add(buckets as usize);
            let Some(bucket) = name.hash.checked_rem(buckets) else { return Found::Nothing };
            if word & bits != bits {
                return Found::Nothing;
            }
            let mut index = *bucket_table.add(bucket as usize);
            if index < first {
                return Found::Nothing;
            }
            loop {
                let link = *chains.add((index - first) as usize);
                if link | 1 == name.hash | 1 && self.is(index as usize, name.text) {
                    let symbol = &*self.symbols.add(index as usize);
                    return match symbol.kind & 0xf {
                        STT_GNU_IFUNC => Found::NotReadable,
                        _ => Found::Function((self.bias + symbol.value) as *mut c_void),
                    };
                }
                if link & 1 == 1 {
                    return Found::Nothing;
                }
                index += 1;
            }
        }
    }

    /// Whether a symbol is defined, has this name, and can be found without naming a version.
    ///
    /// # Safety
    /// There must be so many.
    unsafe fn is(&self, index: usize, name: &CStr) -> bool {
        // SAFETY: the caller's word; each symbol has a version where there are any, and a zero-terminated name.
        unsafe {
            let symbol = &*self.symbols.add(index);
            let version = if self.versions.is_null() { 1 } else { *self.versions.add(index) };
            let is_default = version & VERSION_HIDDEN == 0;
            let is_defined = symbol.section != 0 && symbol.value != 0;
            is_defined && is_default && CStr::from_ptr(self.strings.add(symbol.name as usize).cast()) == name
        }
    }
}

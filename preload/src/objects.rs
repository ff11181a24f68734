//! What the dynamic linker has loaded: this library, those behind it, libc.
//!
//! The functions behind our hooks are looked up here, once, by the constructor. `dlsym` finds the same, after a lock, a search
//! for its caller and, for libc's own `dlsym`, a walk over all of libc's symbols: that took as long as all else that the
//! constructor does (docs/performance.md). Where this cannot tell, `dlsym` is asked.

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::libc_functions::DL_ITERATE_PHDR;
use crate::symbols::{Found, Name, Symbols};

/// How many libraries behind this one are looked at; libc is among the first few.
const OBJECTS_MAX: usize = 64;

unsafe extern "C" {
    /// Our own dynamic section, which the linker names.
    #[link_name = "_DYNAMIC"]
    static OUR_DYNAMIC: [usize; 2];
}

/// The libraries behind this one, in the order in which the dynamic linker looks functions up: what RTLD_NEXT means here.
pub struct Behind {
    objects: [Symbols; OBJECTS_MAX],
    count: usize,
}

impl Behind {
    /// Those that are loaded now.
    pub fn this_library() -> Self {
        let mut behind = Self { objects: [Symbols::NONE; OBJECTS_MAX], count: 0 };
        let mut is_behind = false;
        each_object(|object| {
            if object.is_ours() {
                is_behind = true;
            } else if is_behind {
                let Some(slot) = behind.objects.get_mut(behind.count) else { return false };
                *slot = object.symbols();
                behind.count += 1;
            }
            true
        });
        behind
    }

    /// The next function `name`; `None` if `dlsym` has to be asked.
    #[inline(never)]
    pub fn function(&self, name: &CStr) -> Option<*mut c_void> {
        let name = Name::new(name);
        for object in self.objects.get(..self.count)? {
            // SAFETY: what a program is started with stays, and this is its start.
            match unsafe { object.function(name) } {
                Found::Function(address) => return Some(address),
                Found::Nothing => {}
                Found::NotReadable => return None,
            }
        }
        None
    }
}

/// The path that this library was loaded from, as the dynamic linker was given it.
pub fn path_of_this_library() -> Option<&'static CStr> {
    let mut path: *const c_char = core::ptr::null();
    each_object(|object| {
        if object.is_ours() {
            path = object.0.dlpi_name;
        }
        path.is_null()
    });
    // SAFETY: the dynamic linker keeps the name, zero-terminated, for as long as the library is loaded: for ever.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) })
}

/// A loaded object.
struct Object<'a>(&'a libc::dl_phdr_info);

impl Object<'_> {
    fn is_ours(&self) -> bool {
        core::ptr::eq(self.dynamic(), &raw const OUR_DYNAMIC)
    }

    /// Null where there is none.
    fn dynamic(&self) -> *const [usize; 2] {
        let header = self.headers().iter().find(|header| header.p_type == libc::PT_DYNAMIC);
        header.map_or(core::ptr::null(), |header| self.at(header) as *const [usize; 2])
    }

    fn symbols(&self) -> Symbols {
        match self.dynamic() {
            dynamic if dynamic.is_null() => Symbols::NONE,
            // SAFETY: its dynamic section, as it says itself. (It stays for as long as the caller uses it.)
            dynamic => unsafe { Symbols::of(self.0.dlpi_addr as usize, dynamic) },
        }
    }

    fn at(&self, header: &libc::Elf64_Phdr) -> usize {
        self.0.dlpi_addr.wrapping_add(header.p_vaddr) as usize
    }

    fn headers(&self) -> &[libc::Elf64_Phdr] {
        if self.0.dlpi_phdr.is_null() {
            return &[];
        }
        // SAFETY: the dynamic linker's word on where an object's program headers are and how many.
        unsafe { core::slice::from_raw_parts(self.0.dlpi_phdr, usize::from(self.0.dlpi_phnum)) }
    }
}

/// Calls `look` with one object after the other, the program first, until it says that it has seen enough.
fn each_object<F: FnMut(Object<'_>) -> bool>(mut look: F) {
    unsafe extern "C" fn one<F: FnMut(Object<'_>) -> bool>(
        object: *mut libc::dl_phdr_info,
        _bytes: usize,
        look: *mut c_void,
    ) -> c_int {
        // SAFETY: dl_iterate_phdr passes an object and what it was given, which is the closure below.
        let (object, look) = unsafe { (Object(&*object), &mut *look.cast::<F>()) };
        c_int::from(!look(object))
    }
    if let Some(iterate) = DL_ITERATE_PHDR.get() {
        // SAFETY: `one` is given the closure that it casts to; nothing here unwinds.
        unsafe { iterate(one::<F>, (&raw mut look).cast()) };
    }
}

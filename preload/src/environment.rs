//! The environment as the dynamic linker passes it to a constructor.

use core::ffi::c_char;

/// The entries of an environment, `NAME=value` each.
#[derive(Clone, Copy)]
pub struct Entries<'a> {
    next: *const *const c_char,
    lifetime: core::marker::PhantomData<&'a [u8]>,
}

impl Entries<'_> {
    /// The entries of the list at `envp`.
    ///
    /// # Safety
    /// `envp` must be null, or a list of zero-terminated texts that ends with a null pointer; nobody may change
    /// it for the lifetime.
    pub unsafe fn new(envp: *const *const c_char) -> Self {
        Self { next: envp, lifetime: core::marker::PhantomData }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.next.is_null() {
            return None;
        }
        // SAFETY: `next` is within the list, or at its null pointer, by the contract of `new`.
        let entry = unsafe { *self.next };
        if entry.is_null() {
            return None;
        }
        self.next = self.next.wrapping_add(1);
        // SAFETY: an entry is a zero-terminated text that stays for the lifetime, by the contract of `new`.
        Some(unsafe { core::ffi::CStr::from_ptr(entry) }.to_bytes())
    }
}

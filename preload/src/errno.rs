//! Error numbers: ours, which come back from raw system calls, and the program's, which we leave alone.

/// The number that a system call failed with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Puts the program's `errno` back when dropped: `dlsym` and `dladdr` may change it, and system calls made
/// through [`sys`](crate::sys) never do.
pub struct SavedErrno(i32);

impl SavedErrno {
    /// Remembers the calling thread's `errno`.
    pub fn new() -> Self {
        // SAFETY: `__errno_location` returns a valid pointer to the calling thread's own int.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for SavedErrno {
    fn drop(&mut self) {
        set_errno(self.0);
    }
}

/// Sets the calling thread's `errno`, for functions whose contract with the program says so.
pub fn set_errno(value: i32) {
    // SAFETY: as in `SavedErrno::new`; no reference to it exists on our side.
    unsafe { *libc::__errno_location() = value }
}

//! The capabilities of the calling thread, read and set by bare system calls: they may be made between fork and exec, and by threads
//! for themselves.

use nix::errno::Errno;

/// Version of the header and the sets of `capget(2)` and `capset(2)`.
pub const LINUX_CAPABILITY_VERSION_3: u32 = 0x2008_0522;
/// To make namespaces, for one.
pub const CAP_SYS_ADMIN: u32 = 21;
/// To choose ids.
pub const CAP_CHECKPOINT_RESTORE: u32 = 40;

/// `struct __user_cap_header_struct` for this thread.
const HEADER: [u32; 2] = [LINUX_CAPABILITY_VERSION_3, 0];

/// Its three sets as the kernel has them: effective, permitted, inheritable, by halves.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnCapabilities([u32; 6]);

impl OwnCapabilities {
    /// Those that it has.
    pub fn read() -> nix::Result<OwnCapabilities> {
        // The kernel writes to a header whose version it does not know.
        let (mut header, mut sets) = (HEADER, [0; 6]);
        // SAFETY: capget reads the header and writes two records of three words each.
        let got = unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) };
        Errno::result(got).map(|_| OwnCapabilities(sets))
    }

    /// Those of `wanted` in all three sets.
    pub fn all(wanted: u64) -> OwnCapabilities {
        let (low, high) = (wanted as u32, (wanted >> 32) as u32);
        OwnCapabilities([low, low, low, high, high, high])
    }

    /// Those in force.
    pub fn effective(&self) -> u64 {
        u64::from(self.0[3]) << 32 | u64::from(self.0[0])
    }

    /// Those that can be put in force.
    pub fn permitted(&self) -> u64 {
        u64::from(self.0[4]) << 32 | u64::from(self.0[1])
    }

    /// Puts those of `wanted` in force that are permitted.
    pub fn set_effective(&mut self, wanted: u64) {
        self.0[0] = wanted as u32 & self.0[1];
        self.0[3] = (wanted >> 32) as u32 & self.0[4];
    }

    /// Has executed programs inherit all that are permitted, as far as they may.
    pub fn inherit_permitted(&mut self) {
        (self.0[2], self.0[5]) = (self.0[1], self.0[4]);
    }

    /// Makes these the thread's.
    pub fn apply(&self) -> nix::Result<()> {
        let mut header = HEADER;
        // SAFETY: capset reads the header and two records of three words each.
        let set = unsafe { libc::syscall(libc::SYS_capset, header.as_mut_ptr(), self.0.as_ptr()) };
        Errno::result(set).map(drop)
    }
}

/// Has executed programs of an ordinary user keep `capability`, which has to be permitted and inheritable.
pub fn raise_ambient(capability: u32) -> nix::Result<()> {
    let raise = libc::PR_CAP_AMBIENT_RAISE as libc::c_ulong;
    // SAFETY: this prctl takes numbers only.
    Errno::result(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, raise, libc::c_ulong::from(capability), 0, 0) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_taken_apart_and_put_together() {
        let wanted = 1 << CAP_CHECKPOINT_RESTORE | 1 << CAP_SYS_ADMIN;
        let mut sets = OwnCapabilities::all(wanted);
        assert_eq!((sets.effective(), sets.permitted()), (wanted, wanted));
        sets.set_effective(!(1 << CAP_SYS_ADMIN));
        assert_eq!(sets.effective(), 1 << CAP_CHECKPOINT_RESTORE);
        assert_eq!(OwnCapabilities::default().permitted(), 0);
    }
}

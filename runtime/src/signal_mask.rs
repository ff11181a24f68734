//! The signals that the calling thread blocks, all 64 of them. The C library's functions leave two out, 32 and 33, by which its
//! threads are cancelled and its `setuid` reaches all of them.

use nix::errno::Errno;

const EVERYTHING: u64 = u64::MAX;

/// What a thread has blocked. Bit 0 is signal 1.
#[derive(Clone, Copy, Debug)]
pub struct Blocked(u64);

/// Blocks everything. What was blocked before.
///
/// # Errors
/// The kernel's.
pub fn block_all() -> Result<Blocked, Errno> {
    set(EVERYTHING)
}

impl Blocked {
    /// Blocks these, and no others.
    ///
    /// # Errors
    /// The kernel's.
    pub fn restore(self) -> Result<(), Errno> {
        set(self.0).map(drop)
    }
}

fn set(mask: u64) -> Result<Blocked, Errno> {
    let mut before = 0_u64;
    // SAFETY: reads one set and writes another, both of the length given.
    let done = unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, &raw mut before, size_of::<u64>())
    };
    Errno::result(done).map(|_| Blocked(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_is_blocked_and_what_was_comes_back() {
        let blocked = |text: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim().to_owned();
            u64::from_str_radix(&line, 16).unwrap()
        };
        let now = || blocked(&std::fs::read_to_string("/proc/thread-self/status").unwrap());
        let before = now();
        let old = block_all().unwrap();
        // SIGKILL and SIGSTOP cannot be.
        assert_eq!(now(), EVERYTHING & !(1 << 8) & !(1 << 18));
        old.restore().unwrap();
        assert_eq!(now(), before);
    }
}

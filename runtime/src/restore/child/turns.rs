//! Ids that cannot be chosen: all processes of the job make theirs in one rising order, each at its turn, and use up what lies between
//! two of them.
//!
//! The turn is on a page that all share. As the rest of what runs here, this takes no lock and allocates nothing.

use std::ffi::CStr;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use ckpt_wire::settings::text::Text;
use nix::errno::Errno;

use super::calls;
use crate::error::{Error, Result};
use crate::namespace::{FIRST_AGAIN, is_in_use, last_pid, leads_to, take_one};
use crate::restore::ascending::Order;

/// How a process ends that has got another id than the one that it is for.
pub const HAS_OTHER_ID: i32 = 3;
/// How long a turn is waited for before a look at whether the restarter is still there.
const LOOK_NS: i64 = 20_000_000;
const LAST_ID: &CStr = c"/proc/sys/kernel/ns_last_pid";

/// What the processes share.
#[repr(C)]
struct Page {
    /// Place in the order of the id that is to be made next.
    turn: AtomicU32,
    /// The last id that the kernel has given, as far as it is known here.
    last: AtomicI32,
    /// How many may still be used up.
    left: AtomicU32,
}

/// Whose turn it is.
#[derive(Debug)]
pub struct Turns {
    order: Order,
    page: NonNull<Page>,
}

// SAFETY: the page is made of atomics, and unmapped only when this is dropped.
unsafe impl Send for Turns {}
// SAFETY: as above.
unsafe impl Sync for Turns {}

impl Turns {
    /// The turns of these ids, which rise; `search` others may be used up.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(order: Order, search: u32) -> Result<Turns> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, wherever there is room.
        let page = unsafe { libc::mmap(ptr::null_mut(), size_of::<Page>(), protection, flags, -1, 0) };
        let failed = || Error::io("map", "a page that the rebuilt processes share", std::io::Error::last_os_error());
        let page =
            NonNull::new(page.cast::<Page>()).filter(|page| page.as_ptr().addr() != usize::MAX).ok_or_else(failed)?;
        let turns = Turns { order, page };
        turns.page().left.store(search, Ordering::Relaxed);
        turns.page().last.store(last_pid(), Ordering::Relaxed);
        Ok(turns)
    }

    /// The lowest id.
    pub fn first(&self) -> i32 {
        self.order.ids.first().copied().unwrap_or(0)
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped for as long as this lives, in each process that has it, and made of atomics, for which zeros are values.
        unsafe { self.page.as_ref() }
    }

    /// Waits until it is the turn of `id`.
    ///
    /// # Errors
    /// `ECANCELED` when the restarter is gone; `EINVAL` for an id that has no turn.
    pub fn wait(&self, id: i32, channel: RawFd) -> nix::Result<()> {
        let place = self.order.ids.binary_search(&id).map_err(|_| Errno::EINVAL)? as u32;
        loop {
            let turn = self.page().turn.load(Ordering::Acquire);
            if turn == place {
                return Ok(());
            }
            if turn > place {
                return Err(Errno::EINVAL);
            }
            calls::wait_for_change(&self.page().turn, turn, LOOK_NS);
            if calls::has_hung_up(channel) {
                return Err(Errno::ECANCELED);
            }
        }
    }

    /// Has the kernel look for the next id at `id`.
    ///
    /// # Errors
    /// `ERANGE` when so many may not be used up; the kernel's when it makes no processes.
    pub fn reach(&self, id: i32) -> nix::Result<()> {
        let page = self.page();
        let mut last = page.last.load(Ordering::Relaxed);
        if !leads_to(last, id) && self.is_written(id) {
            last = id - 1;
        }
        while !leads_to(last, id) {
            let goes_around_it = last >= id && id < FIRST_AGAIN;
            if goes_around_it || page.left.load(Ordering::Relaxed) == 0 {
                return Err(Errno::ERANGE);
            }
            page.left.fetch_sub(1, Ordering::Relaxed);
            last = take_one()?;
            page.last.store(last, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes where the kernel is to go on, where that is allowed.
    fn is_written(&self, id: i32) -> bool {
        let mut text = Text::<12>::new();
        text.push_decimal(u64::from(id.unsigned_abs()) - 1, 1);
        calls::write_file(LAST_ID, text.as_bytes()).is_ok()
    }

    /// An id was made: whether it is `wanted`, whose turn is over then.
    pub fn made(&self, id: i32, wanted: i32) -> bool {
        self.page().last.store(id, Ordering::Relaxed);
        if id == wanted {
            self.page().turn.fetch_add(1, Ordering::Release);
            calls::tell_change(&self.page().turn);
        }
        id == wanted
    }

    /// The id of the process that makes orphan `id` and ends.
    pub fn maker_of(&self, id: i32) -> Option<i32> {
        self.order.makers.get(&id).copied()
    }

    /// How many such processes there are.
    pub fn makers(&self) -> usize {
        self.order.makers.len()
    }

    /// A free id behind the ids of `first`, which are the first ones, or before all; `None` if others come before the next free one.
    pub fn free_behind(&self, first: &[i32]) -> Option<i32> {
        let is_wanted = |id: i32| self.order.ids.binary_search(&id).is_ok();
        let mut id = self.page().last.load(Ordering::Relaxed) + 1;
        while is_wanted(id) || is_in_use(id) {
            if is_wanted(id) && !first.contains(&id) {
                return None;
            }
            id += 1;
        }
        Some(id)
    }

    /// A free id before all of them.
    pub fn free_before(&self) -> Option<i32> {
        let last = self.page().last.load(Ordering::Relaxed);
        (last + 1..self.first()).rev().find(|&below| !is_in_use(below))
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and not used any more.
        unsafe { libc::munmap(self.page.as_ptr().cast(), size_of::<Page>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_their_turns_in_order() {
        let turns = Turns::new(Order { ids: vec![7, 9], ..Order::default() }, 3).unwrap();
        assert_eq!(turns.first(), 7);
        assert_eq!(turns.wait(8, -1), Err(Errno::EINVAL));
        turns.wait(7, -1).unwrap();
        assert!(!turns.made(6, 7));
        turns.wait(7, -1).unwrap();
        assert!(turns.made(7, 7));
        assert_eq!(turns.wait(7, -1), Err(Errno::EINVAL));
        turns.wait(9, -1).unwrap();
        assert!(turns.made(9, 9));
    }
}

//! The flags of mappings, read before a stop.

use crate::error::Result;
use crate::proc::maps::{self, Mapping};

/// The mappings of a process that runs, with their flags.
#[derive(Debug)]
pub struct Flags {
    pid: i32,
    mappings: Vec<Mapping>,
}

impl Flags {
    /// Those of process `pid`, if they can be read.
    pub fn read(pid: i32) -> Option<Flags> {
        let mappings = maps::mappings(pid).ok()?;
        Some(Flags { pid, mappings })
    }

    /// Themselves, if the process, which stands still now, has the same mappings.
    ///
    /// # Errors
    /// When its mappings cannot be read.
    pub fn of_still(self) -> Result<Option<Flags>> {
        let now = maps::outline(self.pid)?;
        let is_same =
            now.len() == self.mappings.len() && now.iter().zip(&self.mappings).all(|(now, then)| is_same(now, then));
        Ok(is_same.then_some(self))
    }

    /// The mappings.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// Whether the process, which runs again, has no mapping that is the same but for its flags: then these may have changed
    /// before the stop. Of mappings that are gone nothing can be said, and nothing of a process that is.
    pub fn still_hold(&self) -> bool {
        let Ok(now) = maps::mappings(self.pid) else { return true };
        let of = |mapping: &Mapping| now.binary_search_by_key(&mapping.start, |now| now.start).ok().map(|at| &now[at]);
        let changed = |then: &&Mapping| of(then).is_some_and(|now| is_same(now, then) && !has_flags_of(now, then));
        match self.mappings.iter().find(changed) {
            None => true,
            Some(mapping) => {
                log::debug!("process {}: the flags of the mapping at {:#x} have changed", self.pid, mapping.start);
                false
            }
        }
    }
}

/// Whether two mappings are the same, as far as /proc/PID/maps shows.
fn is_same(one: &Mapping, other: &Mapping) -> bool {
    let shown = |it: &Mapping| (it.start, it.end, it.protection, it.shared, it.offset, it.device, it.inode);
    shown(one) == shown(other) && one.name == other.name
}

/// Whether two mappings have the same flags, but for those of who watches what is written to them.
fn has_flags_of(one: &Mapping, other: &Mapping) -> bool {
    const OF_WATCHERS: [[u8; 2]; 2] = [*b"uw", *b"sd"];
    let flags = |it: &Mapping| it.flags.iter().filter(|flag| !OF_WATCHERS.contains(flag)).copied().collect::<Vec<_>>();
    one.protection_key == other.protection_key && flags(one) == flags(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Flags {
        Flags::read(std::process::id() as i32).unwrap()
    }

    #[test]
    fn flags_hold_until_they_are_changed() {
        use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous};
        let bytes = std::num::NonZeroUsize::new(8192).unwrap();
        // SAFETY: a new mapping where the kernel finds room, which stays.
        let start = unsafe { mmap_anonymous(None, bytes, ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE) }.unwrap();
        let address = start.as_ptr() as u64;
        // Other tests change mappings of this process meanwhile.
        let mut flags = own();
        flags.mappings.retain(|mapping| (mapping.start..mapping.end).contains(&address));
        assert!(flags.mappings.len() == 1 && flags.still_hold());
        let (first, bytes) = (flags.mappings[0].start as usize, flags.mappings[0].bytes() as usize);
        let start = std::ptr::NonNull::new(first as *mut libc::c_void).unwrap();
        // SAFETY: only says what becomes of the mapping in dumps.
        unsafe { madvise(start, bytes, MmapAdvise::MADV_DONTDUMP) }.unwrap();
        let holds = flags.still_hold();
        // SAFETY: as above.
        unsafe { madvise(start, bytes, MmapAdvise::MADV_DODUMP) }.unwrap();
        assert!(!holds);
    }

    #[test]
    fn another_mapping_in_the_place_of_one_is_not_the_same() {
        let of = |name: &[u8], end| Mapping { start: 4096, end, name: name.to_vec(), ..Mapping::default() };
        assert!(is_same(&of(b"", 8192), &Mapping { flags: vec![*b"dd"], ..of(b"", 8192) }));
        assert!(!is_same(&of(b"", 8192), &of(b"", 12288)));
        assert!(!is_same(&of(b"", 8192), &of(b"/x", 8192)));
    }
}

//! What lies behind guards (`MADV_GUARD_INSTALL`) in shared memory: it is there still, and cannot be read where they are.
//!
//! The program maps the memory a second time, which has no guards, for as long as it is read. A guard in a private mapping has nothing
//! behind it but the file's page.

use std::collections::HashMap;

use super::guest::Guest;
use super::regions::Draft;
use super::tracking::Scanner;
use crate::error::Result;
use crate::image::Backing;
use crate::page_set::PageSet;

/// Mappings of shared memory with guards, by their first addresses.
#[derive(Debug, Default)]
pub struct BehindGuards(HashMap<u64, Second>);

/// A second mapping of the same memory.
#[derive(Debug)]
pub struct Second {
    /// The guards in the first one, counted from its start.
    pub guards: PageSet,
    /// Where the second one is.
    pub address: u64,
    bytes: u64,
}

impl BehindGuards {
    /// Maps those of `drafts`, the mappings of the guest's process, once more that have guards.
    ///
    /// # Errors
    /// When the page tables cannot be read, or the program cannot map it.
    pub fn map(guest: &mut Guest<'_>, drafts: &[Draft]) -> Result<BehindGuards> {
        let mut all = BehindGuards::default();
        let is_shared =
            |draft: &&Draft| matches!(draft.backing, Backing::SharedFile { .. } | Backing::SharedObject { .. });
        let mut shared = drafts.iter().filter(is_shared).map(|draft| &draft.mapping).peekable();
        if shared.peek().is_none() {
            return Ok(all);
        }
        let scanner = Scanner::open(guest.pid())?;
        for mapping in shared {
            let guards = scanner.guards(mapping)?;
            if guards.is_empty() {
                continue;
            }
            // With an old length of 0 the kernel makes a second mapping.
            let arguments = [mapping.start, 0, mapping.bytes(), libc::MREMAP_MAYMOVE as u64, 0, 0];
            let address = guest.call("mremap", "reading what is behind guards", libc::SYS_mremap, arguments)?;
            all.0.insert(mapping.start, Second { guards, address, bytes: mapping.bytes() });
        }
        Ok(all)
    }

    /// The second mapping of `draft`, if it has guards.
    pub fn of(&self, draft: &Draft) -> Option<&Second> {
        self.0.get(&draft.mapping.start)
    }

    /// Takes the second mappings away again.
    ///
    /// # Errors
    /// The kernel's.
    pub fn unmap(self, guest: &mut Guest<'_>) -> Result<()> {
        for Second { address, bytes, .. } in self.0.into_values() {
            let arguments = [address, bytes, 0, 0, 0, 0];
            guest.call("munmap", "removing a mapping of ours", libc::SYS_munmap, arguments)?;
        }
        Ok(())
    }
}

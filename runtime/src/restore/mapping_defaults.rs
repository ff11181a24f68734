//! Gives the process what it had decided for mappings that it will make.

use super::process::{Call, HalfBuilt};
use crate::error::Result;
use crate::image::{NewLocks, ProcessImage};

const MLOCKALL: Call = Call("mlockall", libc::SYS_mlockall);
const PRCTL: Call = Call("prctl", libc::SYS_prctl);

const PR_SET_THP_DISABLE: u64 = 41;
const PR_GET_THP_DISABLE: u64 = 42;
const PR_SET_MEMORY_MERGE: u64 = 67;
const PR_GET_MEMORY_MERGE: u64 = 68;

/// Transparent huge pages and merging of equal pages, before the mappings are made. The restarter's are inherited. Both are
/// about speed and space: where the kernel refuses them, the restart goes on.
pub fn set_for_pages(process: &mut HalfBuilt, image: &ProcessImage) -> Result<()> {
    let Some(defaults) = &image.mapping_defaults else { return Ok(()) };
    let disabled = defaults.huge_pages_disabled;
    let settings = [
        (
            "transparent huge pages",
            PR_GET_THP_DISABLE,
            disabled,
            [PR_SET_THP_DISABLE, disabled & 1, disabled & !1, 0, 0],
        ),
        (
            "merging of equal pages",
            PR_GET_MEMORY_MERGE,
            u64::from(defaults.merged),
            [PR_SET_MEMORY_MERGE, u64::from(defaults.merged), 0, 0, 0],
        ),
    ];
    for (name, question, wanted, change) in settings {
        let found = process.try_call(0, PRCTL, &[question, 0, 0, 0, 0])?.unwrap_or(0);
        if found == wanted {
            continue;
        }
        if let Err(errno) = process.try_call(0, PRCTL, &change)? {
            log::warn!("{name}: the program had switched them to {wanted}, here it gets {found}: {errno}");
        }
    }
    Ok(())
}

/// Has new mappings locked in memory as before, when all that the rebuild needs are made.
pub fn lock_new(process: &mut HalfBuilt, image: &ProcessImage) -> Result<()> {
    let flags = match image.mapping_defaults.unwrap_or_default().locked {
        NewLocks::No => return Ok(()),
        NewLocks::AtOnce => libc::MCL_FUTURE,
        NewLocks::OnFault => libc::MCL_FUTURE | libc::MCL_ONFAULT,
    };
    process.call(0, MLOCKALL, &[flags as u64], format_args!("new mappings are locked")).map(drop)
}

//! What a program has registered for `membarrier(2)`: it calls it later without asking again.

use super::process::{Call, HalfBuilt};
use crate::error::Result;
use crate::image::ProcessImage;

const MEMBARRIER: Call = Call("membarrier", libc::SYS_membarrier);

/// Registers the process for the same commands.
pub fn register(process: &mut HalfBuilt, image: &ProcessImage) -> Result<()> {
    let registered = (0..u64::BITS).map(|bit| 1_u64 << bit).filter(|command| image.memory_barriers & command != 0);
    registered.into_iter().try_for_each(|command| {
        process.call(0, MEMBARRIER, &[command, 0, 0], format_args!("registration {command:#x}")).map(drop)
    })
}

//! Where an allocation of the calling thread's is to be made, and whether it can be backed there.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use super::calls::{self, Properties};
use crate::hooks::cuda::driver::Handle;

/// A context, and what memory in it is to be like.
#[derive(Clone, Copy)]
pub struct Place {
    pub context: Handle,
    pub device: c_int,
    /// What pieces are multiples of.
    pub granularity: usize,
    /// Whether other devices on the bus are to reach it.
    pub rdma: bool,
}

/// Memory of such a size is shared by small allocations: it must be a multiple of the granularity.
pub const SLAB_BYTES: usize = 2 << 20;

// Attributes of a device.
const HAS_VIRTUAL_MEMORY: c_int = 102;
const HAS_DESCRIPTORS: c_int = 103;
const HAS_RDMA_OF_VIRTUAL_MEMORY: c_int = 110;

/// What is known of each device: [`KNOWN`], and where it is [`USABLE`], [`RDMA`] and the granularity.
static DEVICES: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
const KNOWN: u64 = 1;
const USABLE: u64 = 2;
const RDMA: u64 = 4;
const FLAGS: u64 = 7;

/// The calling thread's context. `None` if it has none, or its device cannot do it.
pub fn here() -> Option<Place> {
    let context = calls::current_context().ok()?;
    let device = calls::current_device().ok()?;
    let known = DEVICES.get(usize::try_from(device).ok()?)?;
    let mut state = known.load(Ordering::Relaxed);
    if state & KNOWN == 0 {
        state = KNOWN | ask(device);
        known.store(state, Ordering::Relaxed);
    }
    let place = Place { context, device, granularity: (state & !FLAGS) as usize, rdma: state & RDMA != 0 };
    (state & USABLE != 0 && !context.is_null()).then_some(place)
}

/// What memory of a device is like on which something has been backed.
pub fn properties(device: c_int) -> Properties {
    let known = usize::try_from(device).ok().and_then(|device| DEVICES.get(device));
    let state = known.map_or(0, |known| known.load(Ordering::Relaxed));
    Properties::of(device, state & RDMA != 0)
}

fn ask(device: c_int) -> u64 {
    let has = |attribute| calls::device_attribute(attribute, device) != 0;
    if !has(HAS_VIRTUAL_MEMORY) || !has(HAS_DESCRIPTORS) {
        return 0;
    }
    let rdma = has(HAS_RDMA_OF_VIRTUAL_MEMORY);
    match calls::granularity(&Properties::of(device, rdma)) {
        Ok(bytes) if bytes > FLAGS as usize && bytes.is_power_of_two() && bytes <= SLAB_BYTES => {
            USABLE | if rdma { RDMA } else { 0 } | bytes as u64
        }
        Ok(_) | Err(_) => 0,
    }
}

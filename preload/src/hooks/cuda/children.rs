//! Children of fork whose parent has begun to use the driver, such as the workers of PyTorch's DataLoader.
//!
//! The driver refuses their calls (`CUDA_ERROR_NOT_INITIALIZED`; T12 of scripts/gpu-experiments), yet they have the parent's devices
//! open and mapped, which no checkpoint can capture. So each gives both up as soon as it is there. Descriptors lead to /dev/null from
//! then on: a library that closes its own at the end of the child closes no file that has got the number since.

use core::sync::atomic::Ordering;

use ckpt_wire::device::DEVICES_THERE;

use super::keeper::address_space;
use super::{backing, gate, hold, keeper, records};
use crate::sys::{self, in_child};

/// For a child of fork, before it runs on.
pub fn forked() {
    if !keeper::is_of_parent() {
        return;
    }
    let mut unmap = |mapping: &address_space::Mapping| {
        if mapping.is_of_driver() {
            let [start, end] = mapping.range;
            // SAFETY: the driver's, whose calls do nothing in this process.
            unsafe { sys::unmap(start as *mut u8, end - start) };
        }
    };
    // Else it counts as one with a context of its parent's, which a checkpoint refuses by name.
    if address_space::for_each(&mut unmap).is_ok() && in_child::lead_to_null(b"/dev/nvidia").is_ok() {
        gate::begin_anew();
        keeper::forget();
        backing::begin_anew();
        records::remove_where(|_| true);
        hold::contexts().store(0, Ordering::Release);
        hold::devices().store(DEVICES_THERE, Ordering::Release);
    }
}

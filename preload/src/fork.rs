//! Children of `fork`. They inherit nothing of what their parent has allowed its tracer: where Yama is, each says it by itself. And
//! they cannot use the CUDA devices that it has open.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::control;
use crate::hooks::cuda;
use crate::libc_functions::REGISTER_ATFORK;
use crate::sys;

/// Whether that is done already.
static ARE_LOOKED_AFTER: AtomicBool = AtomicBool::new(false);

/// Looks after all children of this process from now on, and theirs. It takes a lock of libc's, so no handler of signals may.
pub fn look_after_children() {
    if let (Some(register_atfork), false) = (REGISTER_ATFORK.get(), ARE_LOOKED_AFTER.swap(true, Ordering::Relaxed)) {
        // SAFETY: the handler may run in any child of a fork; this library is never unloaded.
        unsafe { register_atfork(None, None, Some(in_child), core::ptr::null()) };
    }
}

unsafe extern "C" fn in_child() {
    let agent = control::agent_pid().load(Ordering::Relaxed);
    if agent > 0 {
        sys::allow_tracer(agent);
    }
    cuda::forked();
}

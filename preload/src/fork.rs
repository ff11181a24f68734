//! Children of `fork`, which inherit nothing of what their parent has allowed its tracer: where Yama is, each says it by
//! itself.

use core::sync::atomic::Ordering;

use crate::control;
use crate::libc_functions::REGISTER_ATFORK;
use crate::sys;

/// Has all children of this process, and theirs, allow its agent to trace them. For the constructor alone: it takes a lock.
pub fn hand_on_tracer() {
    if let Some(register_atfork) = REGISTER_ATFORK.get() {
        // SAFETY: the handler may run in any child of a fork; this library is never unloaded.
        unsafe { register_atfork(None, None, Some(in_child), core::ptr::null()) };
    }
}

unsafe extern "C" fn in_child() {
    let agent = control::agent_pid().load(Ordering::Relaxed);
    if agent > 0 {
        sys::allow_tracer(agent);
    }
}

//! Children of `fork`, which inherit nothing of what their parent has allowed its tracer: where Yama is, each says it by
//! itself.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use crate::control;
use crate::sys;

unsafe extern "C" {
    /// What `pthread_atfork` calls. It allocates nothing for the first few handlers.
    fn __register_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
        library: *const c_void,
    ) -> c_int;
}

/// Has all children of this process, and theirs, allow its agent to trace them. For the constructor alone: it takes a lock.
pub fn hand_on_tracer() {
    // SAFETY: the handler may run in any child of a fork; this library is never unloaded.
    unsafe { __register_atfork(None, None, Some(in_child), core::ptr::null()) };
}

unsafe extern "C" fn in_child() {
    let agent = control::agent_pid().load(Ordering::Relaxed);
    if agent > 0 {
        sys::allow_tracer(agent);
    }
}

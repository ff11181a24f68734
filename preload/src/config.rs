//! What the program's environment says, for the control block and the hooks.

use core::ffi::{CStr, c_char};

use ckpt_wire::Control;
use ckpt_wire::settings::{self, Reason, Settings, Surroundings};

use crate::hooks::{cuda, recorded};
use crate::objects;
use crate::sys;

/// Fills in what the variables say.
pub fn apply(settings: &Settings<'_>, control: &mut Control) -> Result<(), Reason> {
    let hooks = settings::apply(settings, &Inside, control)?;
    recorded::record_from(hooks.record_from_bytes);
    cuda::back_allocations(hooks.back_device_memory);
    cuda::pin_managed_memory(hooks.pin_managed_memory);
    cuda::wait_for_devices(hooks.device_wait_ms);
    Ok(())
}

/// What is known inside the program.
struct Inside;

impl Surroundings for Inside {
    fn working_directory<'a>(&'a self, into: &'a mut [u8]) -> Option<&'a [u8]> {
        sys::working_directory(into).ok()
    }

    /// The path that was given to execve, which the kernel leaves in the process. /proc/self/exe says nearly the same, and
    /// costs 15 microseconds in every process that starts.
    fn executed_path(&self) -> &[u8] {
        // SAFETY: getauxval reads a table of the process that never changes.
        let path = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const c_char;
        if path.is_null() {
            return b"";
        }
        // SAFETY: the kernel put a zero-terminated path there, above the stack; programs rename themselves (setproctitle)
        // later than this constructor, and in the memory of their arguments and environment.
        unsafe { CStr::from_ptr(path) }.to_bytes()
    }

    fn random_job(&self) -> u64 {
        let mut bytes = [0; 8];
        if sys::random(&mut bytes) {
            return u64::from_ne_bytes(bytes);
        }
        // Only while the machine boots: time and pid are enough to tell the few jobs of that moment apart.
        sys::seconds_since_1970() << 32 ^ u64::from(sys::getpid().unsigned_abs())
    }

    fn installed_file(&self) -> Option<&[u8]> {
        objects::path_of_this_library().map(CStr::to_bytes)
    }
}

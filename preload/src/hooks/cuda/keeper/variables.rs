//! Recording variables of loaded code that the program has not asked for itself.
//!
//! Only code that is in the table is asked, and only in contexts that are listed: both stay while the gate is closed, and a
//! handle that is no longer one must not get to the driver.

use core::ffi::c_char;

use ckpt_wire::allocations::CUDA_GLOBAL;
use ckpt_wire::device::{CODE_MODULE, LoadedCode};

use super::super::driver::{CuResult, Handle, NO_FUNCTION, SUCCESS};
use super::super::{code, contexts, modules, records};
use super::commands::{INVALID, NO_CONTEXT};
use super::{functions, line};

/// `CUDA_ERROR_NOT_FOUND`.
const NOT_FOUND: CuResult = 500;

/// Records the variable of this name in all contexts that the code is in: how many were found, and how many were new. If one
/// of the contexts cannot be asked (it may be on a device that the code is not for), the others are all the same.
///
/// # Safety
/// The name must be zero-terminated.
pub unsafe fn record(id: u64, name: *const c_char) -> Result<(u64, u64), CuResult> {
    let code = code::with_id(id).ok_or(INVALID)?;
    let (mut is_asked, mut found, mut new, mut refused) = (false, 0, 0, SUCCESS);
    for (_, context) in contexts::all().ok_or(NO_CONTEXT)? {
        if line::is_over() {
            return Err(NO_CONTEXT);
        }
        if code.kind == CODE_MODULE && code.context != context as u64 {
            continue;
        }
        is_asked = true;
        // SAFETY: the caller's word, and code and a context that are there.
        match unsafe { variable(&code, context, name) } {
            Ok(Some((address, bytes))) => {
                found += 1;
                new += u64::from(add(&code, address, bytes));
            }
            Ok(None) => {}
            Err(error) => refused = error,
        }
    }
    match (is_asked, refused) {
        (false, _) => Err(NO_CONTEXT),
        (true, SUCCESS) => Ok((found, new)),
        (true, error) => Err(error),
    }
}

/// Records a variable, unless it is recorded already.
fn add(code: &LoadedCode, address: u64, bytes: usize) -> bool {
    let is_new = records::at(address).is_none();
    if is_new {
        // SAFETY: two live numbers.
        unsafe { modules::add(CUDA_GLOBAL, &raw const address, &raw const bytes, code.handle as Handle) };
    }
    is_new
}

/// Where the variable is in a context, and its bytes.
///
/// # Safety
/// The code and the context must be there, and the name zero-terminated.
unsafe fn variable(code: &LoadedCode, context: Handle, name: *const c_char) -> Result<Option<(u64, usize)>, CuResult> {
    let (mut address, mut bytes) = (0, 0);
    let (to, of) = ((&raw mut address, &raw mut bytes), code.handle as Handle);
    // SAFETY: the caller's word, and places to write to.
    let result = unsafe {
        match functions::set_current(context) {
            SUCCESS if code.kind == CODE_MODULE => functions::module_variable(to.0, to.1, of, name),
            SUCCESS => match functions::library_variable(to.0, to.1, of, name) {
                NOT_FOUND => functions::library_managed(to.0, to.1, of, name),
                result => result,
            },
            error => error,
        }
    };
    match result {
        SUCCESS => Ok((bytes != 0).then_some((address, bytes))),
        NOT_FOUND | NO_FUNCTION => Ok(None),
        error => Err(error),
    }
}

//! Recording variables of loaded code that the program has not asked for itself.
//!
//! Only code that is in the table is asked, and only in contexts that are listed: both stay while the gate is closed, and a
//! handle that is no longer one must not get to the driver.

use core::ffi::c_char;

use ckpt_wire::allocations::CUDA_GLOBAL;
use ckpt_wire::device::{CODE_MODULE, LoadedCode};

use super::super::driver::{CuResult, Handle, NO_FUNCTION, SUCCESS};
use super::super::{code, contexts, modules, records};
use super::commands::NO_CONTEXT;
use super::{functions, line};

/// `CUDA_ERROR_INVALID_VALUE`.
const INVALID: CuResult = 1;
/// `CUDA_ERROR_NOT_FOUND`.
const NOT_FOUND: CuResult = 500;

/// Records the variable of this name in all contexts that the code is in: how many were found, and how many were new.
///
/// # Safety
/// The name must be zero-terminated.
pub unsafe fn record(id: u64, name: *const c_char) -> Result<(u64, u64), CuResult> {
    let code = code::with_id(id).ok_or(INVALID)?;
    let (mut asked, mut found, mut new) = (0, 0, 0);
    for (_, context) in contexts::all().ok_or(NO_CONTEXT)? {
        if line::is_over() {
            return Err(NO_CONTEXT);
        }
        if code.kind == CODE_MODULE && code.context != context as u64 {
            continue;
        }
        asked += 1;
        // SAFETY: the caller's word, and code and a context that are there.
        if let Some((address, bytes)) = unsafe { variable(&code, context, name) }? {
            found += 1;
            if !records::begins_at(address) {
                // SAFETY: two live numbers.
                unsafe { modules::add(CUDA_GLOBAL, &raw const address, &raw const bytes, code.handle as Handle) };
                new += 1;
            }
        }
    }
    if asked == 0 { Err(NO_CONTEXT) } else { Ok((found, new)) }
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

//! ckpt and libckpt.so: both there, and speaking the same protocol.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ckpt_wire::{CONTROL_MAGIC, CONTROL_SYMBOL, CONTROL_VERSION, Control};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol};

use super::finding::{Finding, State};
use super::trial::{Failure, Outcome, in_child};
use crate::commands::installation;

const PROBE: &str = "libckpt.so";
const TRIED: &str = if IS_STATIC {
    "find libckpt.so beside ckpt, and its control block in it"
} else {
    "find libckpt.so beside ckpt, load it in a child and read its control block"
};
/// A statically linked ckpt cannot load a library that wants another C library than it has itself.
const IS_STATIC: bool = cfg!(target_feature = "crt-static");
const ADVICE: &str = "install ckpt and libckpt.so of one build in one directory";

/// The probe.
pub fn probe() -> Finding {
    let outcome = match installation::library() {
        Ok(path) if IS_STATIC => look_at(&path),
        Ok(path) => in_child(|| load(&path)),
        Err(error) => Err(Failure::wrong(error.to_string())),
    };
    Finding::of(PROBE, TRIED, outcome, State::No, ADVICE).required()
}

/// What can be known of it without loading it.
fn look_at(path: &Path) -> Outcome {
    let bytes = std::fs::read(path).map_err(|error| Failure::wrong(format!("{}: {error}", path.display())))?;
    let library = ElfFile64::<Endianness>::parse(&*bytes)
        .map_err(|error| Failure::wrong(format!("{}: {error}", path.display())))?;
    let mut symbols = library.dynamic_symbols();
    match symbols.any(|symbol| symbol.name() == Ok(CONTROL_SYMBOL)) {
        true => Ok(format!(
            "{}; not loaded and its protocol not compared, because this ckpt is statically linked",
            path.display()
        )),
        false => Err(Failure::wrong(format!("{} has no symbol {CONTROL_SYMBOL}", path.display()))),
    }
}

fn load(path: &Path) -> Outcome {
    forget_settings();
    // The library keeps out of ckpt, and says so: for this one, the agent is another program.
    // SAFETY: this child has one thread.
    unsafe { std::env::set_var("CKPT_AGENT", path) };
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Failure::wrong("a path with a zero"))?;
    // SAFETY: `name` ends with a zero. The library's constructor is made for being loaded into any program, and
    // this child is about to end.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(Failure::wrong(last_error()));
    }
    let symbol = CString::new(CONTROL_SYMBOL).map_err(|_| Failure::wrong("a symbol with a zero"))?;
    // SAFETY: `library` has just been opened, and `symbol` ends with a zero.
    let control = unsafe { libc::dlsym(library, symbol.as_ptr()) }.cast::<Control>();
    if control.is_null() {
        return Err(Failure::wrong(format!("{} has no symbol {CONTROL_SYMBOL}", path.display())));
    }
    // SAFETY: every libckpt.so begins its control block with these two fields.
    let (magic, version) = unsafe { ((*control).magic, (*control).version) };
    if magic != CONTROL_MAGIC {
        return Err(Failure::wrong(format!("{} does not fill in its control block", path.display())));
    }
    if version != CONTROL_VERSION {
        return Err(Failure::wrong(format!("libckpt.so speaks protocol {version}, ckpt {CONTROL_VERSION}")));
    }
    Ok(format!("{} and ckpt {}, protocol {version}", path.display(), env!("CARGO_PKG_VERSION")))
}

/// The library shall not start anything on account of our own environment.
fn forget_settings() {
    let ours: Vec<_> =
        std::env::vars_os().map(|(name, _)| name).filter(|name| name.as_bytes().starts_with(b"CKPT_")).collect();
    for name in ours {
        // SAFETY: this child has one thread.
        unsafe { std::env::remove_var(name) };
    }
}

fn last_error() -> String {
    // SAFETY: dlerror returns null or a text that stays until the next call of the dl family.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "dlopen failed".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_loaded_is_known_by_its_symbol() {
        assert!(look_at(Path::new("/bin/true")).is_err());
        assert!(look_at(Path::new("/etc/passwd")).is_err());
    }
}

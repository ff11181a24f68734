//! Where our own files are: `ckpt` and `libckpt.so` lie in one directory.

use std::path::PathBuf;

use crate::error::{Error, Result};

/// File name of the preloaded library.
pub const LIBRARY_NAME: &str = "libckpt.so";

/// The path of this executable.
pub fn own_executable() -> Result<PathBuf> {
    std::env::current_exe().map_err(|source| Error::io("read", "/proc/self/exe", source))
}

/// The libckpt.so beside this executable, in a form that LD_PRELOAD can express.
pub fn library() -> Result<PathBuf> {
    let path = own_executable()?.with_file_name(LIBRARY_NAME);
    if !path.is_file() {
        let why = format!("it is not beside ckpt, at {}", path.display());
        return Err(Error::environment("libckpt.so", why, "install both in one directory"));
    }
    if path.as_os_str().as_encoded_bytes().iter().any(|byte| [b':', b' ', b'\t', b'\n'].contains(byte)) {
        return Err(Error::environment(
            format!("libckpt.so at {}", path.display()),
            "LD_PRELOAD takes colons and spaces in a path for separators",
            "install ckpt and libckpt.so in a directory without them",
        ));
    }
    Ok(path)
}

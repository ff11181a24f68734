//! Where the files under test are.

use std::path::{Path, PathBuf};

/// Root of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies one folder below the root")
}

/// Cargo's target directory.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => std::path::absolute(PathBuf::from(dir)).expect("the working directory exists"),
        None => repository().join("target"),
    }
}

/// libckpt.so.
pub fn library() -> PathBuf {
    built("libckpt.so")
}

/// The `ckpt` command.
pub fn ckpt() -> PathBuf {
    built("ckpt")
}

fn built(name: &str) -> PathBuf {
    let path = target().join("release").join(name);
    assert!(path.exists(), "{} is missing; build first: cargo build --release", path.display());
    path.canonicalize().expect("it exists")
}

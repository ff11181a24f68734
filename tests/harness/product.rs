//! Where the files under test are.

use std::path::{Path, PathBuf};

/// Environment variable that names a copy of what tests need of the repository, for users who may not read the original.
pub const REPOSITORY: &str = "CKPT_TESTS_REPOSITORY";

/// Root of the repository.
pub fn repository() -> PathBuf {
    let original = || Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies one folder below the root");
    std::env::var_os(REPOSITORY).map_or_else(|| original().to_owned(), PathBuf::from)
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

/// A file that `cargo build --release --workspace` makes.
pub fn built(name: &str) -> PathBuf {
    let path = target().join("release").join(name);
    assert!(path.exists(), "{} is missing; build first: cargo build --release", path.display());
    path.canonicalize().expect("it exists")
}

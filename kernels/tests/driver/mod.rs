//! The driver that the tests use: one that runs the kernels on the CPU, compiled here, or what `CKPT_TEST_DRIVER` names
//! (`libcuda.so.1` on a machine with a GPU).
#![allow(clippy::unwrap_used, dead_code, reason = "for tests")]

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

const SOURCES: [&str; 7] =
    ["device.cc", "streams.cc", "copies.cc", "launches.cc", "grid.cc", "kernels.cc", "engine.cc"];

/// The driver's library.
pub fn path() -> &'static Path {
    path_with(&[])
}

/// The same, compiled with these sources or flags besides. They count when it is asked for first.
pub fn path_with(more: &[&str]) -> &'static Path {
    static DRIVER: OnceLock<PathBuf> = OnceLock::new();
    DRIVER.get_or_init(|| env::var_os("CKPT_TEST_DRIVER").map_or_else(|| compile("on_cpu", more), PathBuf::from))
}

/// Compiles the driver for the CPU, with these sources or flags besides.
pub fn compile(name: &str, more: &[&str]) -> PathBuf {
    // The tests of examples use this file too.
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let sources = folders.map(|folder| folder.join("kernels/cuda/on_cpu")).find(|sources| sources.is_dir()).unwrap();
    // Several tests may compile it at once.
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.so", std::process::id()));
    let status = Command::new("g++")
        .args(["-std=c++17", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-shared", "-fPIC"])
        .args(["-pthread", "-o"])
        .arg(&library)
        .args(SOURCES.map(|source| sources.join(source)))
        .args(more)
        .status()
        .expect("g++ can be run");
    assert!(status.success(), "the driver for the CPU does not compile");
    library
}

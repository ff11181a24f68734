//! The driver that the tests use: one that runs the kernels on the CPU, compiled here, or what `CKPT_TEST_DRIVER` names
//! (`libcuda.so.1` on a machine with a GPU).
#![allow(clippy::unwrap_used, reason = "for tests")]

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The driver's library.
pub fn path() -> &'static Path {
    static DRIVER: OnceLock<PathBuf> = OnceLock::new();
    DRIVER.get_or_init(|| env::var_os("CKPT_TEST_DRIVER").map_or_else(compile, PathBuf::from))
}

/// Compiles the driver for the CPU, with the engine's kernels and this program's.
fn compile() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let driver = here.join("../../kernels/cuda/on_cpu");
    // Several tests may compile it at once.
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("on_cpu-{}.so", std::process::id()));
    let status = Command::new("g++")
        .args(["-std=c++17", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-shared", "-fPIC"])
        .args(["-pthread", "-o"])
        .arg(&library)
        .args(["grid.cc", "driver.cc", "kernels.cc", "engine.cc"].map(|source| driver.join(source)))
        .arg(here.join("cuda/on_cpu.cc"))
        .status()
        .expect("g++ can be run");
    assert!(status.success(), "the driver for the CPU does not compile");
    library
}

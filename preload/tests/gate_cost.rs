//! What the gate costs a call of the CUDA driver: `cargo test --release -p ckpt-preload --test gate_cost -- --ignored
//! --nocapture`. A measurement and no test: it passes whatever the figures are.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

#[test]
#[ignore = "a measurement"]
fn launches_of_a_driver_that_does_nothing_through_the_hook_and_past_it() {
    let directory = tempfile::tempdir().unwrap();
    // Its own references do not meet the hooks.
    let options = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic"];
    let driver = support::compile_with("cc", "no_driver.c", &directory.path().join("libcuda.so.1"), &options);
    let program = support::compile(directory.path(), "gate_cost");
    for run in 1..=5 {
        let mut command = support::preloaded(&program);
        println!("run {run}: {}", support::output(command.arg(&driver).current_dir(directory.path())).trim_end());
    }
}

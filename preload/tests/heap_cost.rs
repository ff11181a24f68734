//! What the hooks over the heap cost a program: `cargo test --release -p ckpt-preload --test heap_cost -- --ignored
//! --nocapture`. A measurement and no test: it passes whatever the figures are.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

#[test]
#[ignore = "a measurement"]
fn pairs_of_malloc_and_free_through_the_hooks_and_past_them() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "heap_cost");
    for run in 1..=5 {
        println!(
            "run {run}\n{}",
            support::output(support::preloaded(&program).current_dir(directory.path())).trim_end()
        );
    }
    println!("without libckpt.so\n{}", support::output(&mut support::plain(&program)).trim_end());
}

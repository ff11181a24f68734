//! What libckpt.so costs a program that does nothing: `cargo test --release -p ckpt-preload --test loader_cost --
//! --ignored --nocapture`. A measurement and no test: it passes whatever the figures are.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

const STARTS: usize = 3000;

fn start_us(library: Option<&Path>) -> f64 {
    let mut command = Command::new("/bin/true");
    command.env_clear().env("PATH", "/usr/bin:/bin");
    if let Some(library) = library {
        command.env("LD_PRELOAD", library);
    }
    let begin = Instant::now();
    assert!(command.status().unwrap().success());
    begin.elapsed().as_secs_f64() * 1e6
}

#[test]
#[ignore = "a measurement"]
fn starting_true_with_no_library_an_empty_one_and_ours() {
    let directory = tempfile::tempdir().unwrap();
    let (source, empty) = (directory.path().join("empty.c"), directory.path().join("empty.so"));
    std::fs::write(&source, "int ckpt_empty;\n").unwrap();
    support::output(Command::new("cc").args(["-shared", "-fPIC", "-nostartfiles", "-o"]).arg(&empty).arg(&source));
    let ours = support::library();
    // Alternating, so that all three see the same machine.
    let kinds = [None, Some(empty.as_path()), Some(ours.as_path())];
    let mut times: [Vec<f64>; 3] = Default::default();
    for _ in 0..STARTS {
        for (kind, times) in kinds.iter().zip(&mut times) {
            times.push(start_us(*kind));
        }
    }
    for (name, times) in ["no library", "an empty library", "libckpt.so"].iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let [min, median, p99] = [0, STARTS / 2, STARTS * 99 / 100].map(|index| times[index]);
        println!("/bin/true with {name:16}: min {min:6.1} us, median {median:6.1} us, p99 {p99:6.1} us");
    }
}

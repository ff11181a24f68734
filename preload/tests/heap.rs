//! Large allocations are recorded, whatever allocates them, and no program notices.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

/// `program` preloaded with libckpt.so and, behind it, an allocator.
fn with_allocator(program: &Path, allocator: Option<&str>) -> Option<Command> {
    let mut command = support::preloaded(program);
    if let Some(name) = allocator {
        let library = PathBuf::from("/usr/lib/x86_64-linux-gnu").join(name);
        if !library.exists() {
            eprintln!("skipped: {} is not installed", library.display());
            return None;
        }
        command.env("LD_PRELOAD", format!("{} {}", support::library().display(), library.display()));
    }
    Some(command)
}

const ALLOCATORS: [Option<&str>; 3] = [None, Some("libjemalloc.so.2"), Some("libtcmalloc_minimal.so.4")];

#[test]
fn every_function_of_the_c_heap_is_handled_and_passed_through() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "heap");
    for allocator in ALLOCATORS {
        for (wish, min_bytes) in [(None, "65536"), (Some("1048576"), "1048576"), (Some("none"), "0")] {
            let Some(mut command) = with_allocator(&program, allocator) else { continue };
            command.args([min_bytes, allocator.unwrap_or("glibc")]).current_dir(directory.path());
            if let Some(wish) = wish {
                command.env("CKPT_TRACK_MIN", wish);
            }
            assert_eq!(support::output(&mut command), "done\n", "{allocator:?} from {min_bytes} on");
        }
    }
}

#[test]
fn a_program_that_cannot_be_checkpointed_is_not_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "heap");
    let mut command = support::preloaded(&program);
    command.args(["0", "glibc"]).current_dir(directory.path()).env("CKPT_SIGNAL", "?");
    assert_eq!(support::output(&mut command), "done\n");
}

#[test]
fn every_operator_of_cxx_is_handled_and_passed_through() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile_with("c++", "heap_cxx.cc", &directory.path().join("heap_cxx"), &["-std=c++17"]);
    for allocator in ALLOCATORS {
        let Some(mut command) = with_allocator(&program, allocator) else { continue };
        assert_eq!(support::output(command.current_dir(directory.path())), "done\n", "{allocator:?}");
    }
}

#[test]
fn a_library_with_a_cxx_runtime_of_its_own_finds_it() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "heap_local");
    let options = ["-std=c++17", "-DLIBRARY", "-shared", "-fPIC"];
    for (name, more) in [("shared.so", &[][..]), ("static.so", &["-static-libstdc++", "-static-libgcc"])] {
        let library = directory.path().join(name);
        support::compile_with("c++", "heap_cxx.cc", &library, &[&options, more].concat());
        let mut command = support::preloaded(&program);
        assert_eq!(support::output(command.arg(library).current_dir(directory.path())), "done\n", "{name}");
    }
}

#[test]
fn threads_forks_signal_handlers_and_constructors_may_allocate() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "heap_threads");
    for allocator in ALLOCATORS {
        let Some(mut command) = with_allocator(&program, allocator) else { continue };
        assert_eq!(support::output(command.current_dir(directory.path())), "done\n", "{allocator:?}");
    }
}

#[test]
fn pointers_into_large_allocations_are_classified_wherever_they_point() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "classify");
    assert_eq!(support::output(support::preloaded(&program).current_dir(directory.path())), "done\n");
}

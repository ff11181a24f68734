//! `dlsym` and `dlvsym` answer as ever.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

#[test]
fn lookups_find_and_miss_the_same_with_and_without_the_library() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "lookups");
    let without = support::output(&mut support::plain(&program));
    let with = support::output(support::preloaded(&program).current_dir(directory.path()));
    assert_eq!(with, without);
    assert!(with.contains("again: getppid, no error") && with.contains("driver, default: nothing, :"), "{with}");
}

#[test]
fn another_library_that_hooks_dlsym_works_in_front_of_us_and_behind() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "lookups");
    let other = directory.path().join("other.so");
    support::compile_with("cc", "other_dlsym.c", &other, &["-shared", "-fPIC"]);
    let without = support::output(&mut support::plain(&program));
    let ours = support::library();
    for libraries in [[&ours, &other], [&other, &ours]] {
        let mut command = support::plain(&program);
        command.env("LD_PRELOAD", libraries.map(|path| path.display().to_string()).join(" "));
        let output = command.current_dir(directory.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        // In front of us it goes on to libc's own function, past ours.
        let is_ours = |line: &&str| line.starts_with("driver") && libraries[0] == &other;
        let same = |text: &str| text.lines().filter(|line| !is_ours(line)).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(same(&String::from_utf8_lossy(&output.stdout)), same(&without), "{libraries:?}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("counted 4"), "{libraries:?}: {errors}");
    }
}

/// The constructor reads the tables of the libraries behind us itself; what it cannot read there, it asks `dlsym` for.
#[test]
fn functions_behind_us_are_those_that_dlsym_finds() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "calls_behind");
    let behind = directory.path().join("behind.so");
    let versions = concat!("-Wl,--version-script=", env!("CARGO_MANIFEST_DIR"), "/tests/victims/behind.map");
    support::compile_with("cc", "behind.c", &behind, &["-shared", "-fPIC", versions]);
    let run = |libraries: &[&std::path::Path]| {
        let libraries: Vec<_> = libraries.iter().map(|path| path.display().to_string()).collect();
        let mut command = support::plain(&program);
        support::output(command.env("LD_PRELOAD", libraries.join(" ")).current_dir(directory.path()))
    };
    let ours = support::library();
    assert_eq!(run(&[&ours, &behind]), "sigignore 41, sigset 42, bsd_signal 44, signal 0 in place\n");
    // In front of us, it has the calls that name no version of libc's, and libc's own functions are behind us.
    assert_eq!(run(&[&behind, &ours]), run(&[&behind]));
    assert_eq!(run(&[&ours]), run(&[]));
}

//! libckpt.so in one process with libraries that hook what it hooks, and in programs that have such functions themselves.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ckpt_tests::exact::{self, How};
use ckpt_tests::{Launch, Program, Scene, product, program, skip};

/// Lines after which the checkpoint is taken.
const LINE: usize = 6;

/// A library of Debian's.
fn of_debian(name: &str) -> PathBuf {
    Path::new("/usr/lib/x86_64-linux-gnu").join(name)
}

fn large() -> Program {
    Program::victim("large").argument("20")
}

fn threads() -> Program {
    Program::victim("threads8").argument("30")
}

fn python() -> Program {
    Program::python("lines.py").argument("30")
}

/// (Python hangs under libfaketime alone.)
fn bash() -> Program {
    Program::installed("bash").argument(program::source("lines.bash")).argument("30")
}

/// Started with these libraries, checkpointed, killed and restarted, it ends as it does with those of them that are not ours.
fn comes_back_with(libraries: &[&Path], program: &Program) {
    let of = |libraries: &[&Path]| {
        let paths: Vec<OsString> = libraries.iter().map(|&path| path.as_os_str().to_owned()).collect();
        program.clone().variable("LD_PRELOAD", paths.join(&OsString::from(":")))
    };
    let ours = product::library();
    let others: Vec<&Path> = libraries.iter().copied().filter(|&library| library != ours).collect();
    let scene = Scene::of_at_most(std::time::Duration::from_secs(60));
    let bare = exact::reference(&scene, &of(&others));
    exact::survives(&scene, &of(libraries), How { launch: Launch::Plain, ..How::usual() }, LINE, &bare);
}

/// The same with the library before libckpt.so, and behind it.
fn comes_back_beside(library: &Path, programs: &[Program]) {
    if !library.exists() {
        return skip(&format!("{} is not installed", library.display()));
    }
    let ours = product::library();
    for program in programs {
        comes_back_with(&[library, &ours], program);
        comes_back_with(&[&ours, library], program);
    }
}

#[test]
fn jemalloc_stands_beside() {
    comes_back_beside(&of_debian("libjemalloc.so.2"), &[large(), threads()]);
}

#[test]
fn tcmalloc_stands_beside() {
    comes_back_beside(&of_debian("libtcmalloc_minimal.so.4"), &[large(), threads()]);
}

#[test]
fn stdbuf_stands_beside() {
    let unbuffered = python().variable("_STDBUF_O", "0");
    comes_back_beside(Path::new("/usr/libexec/coreutils/libstdbuf.so"), &[unbuffered]);
}

#[test]
fn a_library_made_with_redhook_stands_beside() {
    comes_back_beside(&product::built("libwith_redhook.so"), &[large(), python()]);
}

#[test]
fn a_library_made_with_ctor_stands_beside() {
    comes_back_beside(&product::built("libwith_ctor.so"), &[large(), python()]);
}

#[test]
#[ignore = "packages that nothing else needs; scripts/test --all"]
fn a_faked_clock_stands_beside() {
    let program = |program: Program| program.variable("FAKETIME", "-400d");
    comes_back_beside(&of_debian("faketime/libfaketime.so.1"), &[program(large()), program(bash())]);
    comes_back_beside(&of_debian("faketime/libfaketimeMT.so.1"), &[program(threads())]);
}

#[test]
#[ignore = "packages that nothing else needs; scripts/test --all"]
fn mimalloc_stands_beside() {
    comes_back_beside(&of_debian("libmimalloc.so.2"), &[large(), threads(), python()]);
}

#[test]
#[ignore = "packages that nothing else needs; scripts/test --all"]
fn the_whole_of_tcmalloc_stands_beside() {
    comes_back_beside(&of_debian("libtcmalloc.so.4"), &[large(), threads()]);
}

#[test]
#[ignore = "packages that nothing else needs; scripts/test --all"]
fn a_sampling_profiler_stands_beside() {
    let profiled =
        |program: Program| program.variable("CPUPROFILE", "profile").variable("CPUPROFILE_FREQUENCY", "1000");
    comes_back_beside(&of_debian("libprofiler.so.0"), &[profiled(large()), profiled(threads())]);
}

#[test]
#[ignore = "packages that nothing else needs; scripts/test --all"]
fn eatmydata_stands_beside() {
    comes_back_beside(&of_debian("libeatmydata.so.1"), &[large(), python()]);
}

#[test]
fn a_program_has_a_dl_iterate_phdr_that_looks_up_the_next() {
    comes_back_with(&[&product::library()], &Program::victim_with("large", "iterates").argument("20"));
}

#[test]
fn a_program_with_musl_for_a_c_library_comes_back() {
    let scene = Scene::new();
    let program = Program::with_musl("large").argument("20").argument("threads");
    let bare = exact::reference(&scene, &program);
    for launch in [Launch::Preload, Launch::Run(Vec::new())] {
        exact::survives(&Scene::new(), &program, How { launch, ..How::usual() }, LINE, &bare);
    }
}

/// A victim built with a sanitizer, and with one that has its own library for that first, as it wants to be.
fn comes_back_with_sanitizer(compiler: &str, sanitizer: &str, first: Option<&Path>) {
    let ours = product::library();
    let libraries: Vec<&Path> = first.into_iter().chain([ours.as_path()]).collect();
    for (victim, steps) in [("large", "20"), ("threads8", "30")] {
        comes_back_with(&libraries, &Program::sanitized(victim, compiler, sanitizer).argument(steps));
    }
}

#[test]
fn the_thread_sanitizer_stands_beside() {
    comes_back_with_sanitizer("cc", "thread", None);
}

#[test]
fn the_undefined_behaviour_sanitizer_stands_beside() {
    comes_back_with_sanitizer("cc", "undefined", None);
}

#[test]
fn the_address_sanitizer_stands_before() {
    let library = Program::library_of_compiler("libasan.so");
    comes_back_with_sanitizer("cc", "address", Some(&library));
}

#[test]
fn the_address_sanitizer_stands_behind_where_it_does_not_insist_on_being_first() {
    let program = Program::sanitized("large", "cc", "address").argument("20");
    comes_back_with(&[&product::library()], &program.variable("ASAN_OPTIONS", "verify_asan_link_order=0"));
}

#[test]
#[ignore = "clang, which nothing else needs; scripts/test --all"]
fn the_memory_sanitizer_stands_beside() {
    comes_back_with_sanitizer("clang", "memory", None);
}

//! What libckpt.so shows to the dynamic linker of every program it is loaded into.

mod support;

use std::collections::BTreeSet;
use std::process::Command;

fn readelf(options: &str) -> String {
    support::output(Command::new("readelf").arg(options).arg(support::library()))
}

#[test]
fn the_library_exports_the_control_block_the_api_and_the_hooks_only() {
    let names = support::output(Command::new("nm").args(["-D", "--defined-only"]).arg(support::library()));
    let exported: BTreeSet<&str> = names.lines().filter_map(|line| line.split(' ').next_back()).collect();
    let expected = [
        "__sysv_signal",
        "aligned_alloc",
        "bsd_signal",
        "calloc",
        "cfree",
        "ckpt_checkpoint",
        "ckpt_classify",
        "ckpt_control",
        "ckpt_copy_id",
        "ckpt_generation",
        "dlsym",
        "dlvsym",
        "free",
        "malloc",
        "memalign",
        "msgget",
        "posix_memalign",
        "pvalloc",
        "realloc",
        "semget",
        "sigaction",
        "sigignore",
        "signal",
        "sigset",
        "sysv_signal",
        "valloc",
    ];
    let begins_with = |starts: &'static [&str]| move |name: &&str| starts.iter().any(|start| name.starts_with(start));
    // operator new and operator delete have twenty forms.
    let (operators, others): (BTreeSet<&str>, BTreeSet<&str>) =
        exported.into_iter().partition(begins_with(&["_Znw", "_Zna", "_Zdl", "_Zda"]));
    assert_eq!(operators.len(), 20, "{operators:?}");
    let (of_cuda, others): (BTreeSet<&str>, BTreeSet<&str>) = others.into_iter().partition(begins_with(&["cu"]));
    let known: BTreeSet<&str> = include_str!("../src/hooks/cuda/known_names.txt").lines().collect();
    for name in &of_cuda {
        assert!(known.contains(name) || name.starts_with("cudaMalloc") || name.starts_with("cudaHost"), "{name}");
    }
    assert!(of_cuda.contains("cuMemAlloc_v2") && of_cuda.contains("cuGetProcAddress_v2"), "{of_cuda:?}");
    assert_eq!(others, BTreeSet::from(expected));
}

#[test]
fn the_library_needs_libc_only_and_calls_few_functions_by_name() {
    let dynamic = readelf("-dW");
    let needed: Vec<&str> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(matches!(needed[..], [only] if only.contains("[libc.so.6]")), "{needed:?}");
    let names = support::output(Command::new("nm").args(["-D", "--undefined-only"]).arg(support::library()));
    // What is called by name may be the program's. What begins with an underscore is the C library's or the dynamic linker's alone.
    let by_name = BTreeSet::from_iter(names.lines().filter_map(|line| line.split_whitespace().next_back()));
    let expected = [
        "__errno_location@GLIBC_2.2.5",
        "_dl_debug_addr",
        "_r_debug",
        "environ@GLIBC_2.2.5",
        "getauxval@GLIBC_2.16",
        "pthread_attr_destroy@GLIBC_2.2.5",
        "pthread_attr_init@GLIBC_2.2.5",
        "pthread_attr_setdetachstate@GLIBC_2.2.5",
        "pthread_attr_setstacksize@GLIBC_2.34",
        "pthread_create@GLIBC_2.34",
    ];
    assert_eq!(by_name, BTreeSet::from(expected));
}

#[test]
fn the_stack_is_not_executable_and_nothing_is_written_but_one_mapping() {
    let segments = readelf("-lW");
    let stack = segments.lines().find(|line| line.contains("GNU_STACK")).expect("a GNU_STACK header");
    assert!(stack.contains(" RW "), "{stack}");
    // Of two mappings, one is never written and the other never executed: see layout.ld.
    let loaded: Vec<&str> = segments.lines().filter(|line| line.trim_start().starts_with("LOAD")).collect();
    assert!(matches!(loaded[..], [code, data] if code.contains(" R E ") && data.contains(" RW  ")), "{loaded:?}");
    let dynamic = readelf("-dW");
    assert!(dynamic.contains("NOW") && dynamic.contains("NODELETE") && !dynamic.contains("TEXTREL"), "{dynamic}");
}

/// The dynamic linker writes each of them, in every process.
#[test]
fn hooks_need_no_relocations() {
    let relocations = readelf("-rW").lines().filter(|line| line.contains("R_X86_64_")).count();
    let hooks = support::output(Command::new("nm").args(["-D", "--defined-only"]).arg(support::library()));
    assert!(hooks.lines().filter(|line| line.contains(" T cu")).count() > 200, "{hooks}");
    // Those that are there belong to the names of functions that libckpt.so calls itself.
    assert!(relocations < 280, "{relocations} relocations");
}

#[test]
fn the_library_is_small_and_cannot_panic() {
    let bytes = support::library().metadata().expect("a file").len();
    // More than half of it is for the CUDA driver (hooks, keeper), which a program that does not use it never reads.
    assert!(bytes < 412 * 1024, "{bytes} bytes");
    let symbols = support::output(Command::new("nm").arg(support::library()));
    assert!(!symbols.contains("panicking"), "a path to a panic was not optimised away:\n{symbols}");
}

//! What the CUDA driver allocates is recorded, whichever way a program has to it, and no program notices.
//!
//! Programs are there before a scene begins: compiling the double takes a minute, and a scene's time is limited.

use std::collections::BTreeSet;
use std::fs;

use ckpt_tests::cuda::{self, Runtime};
use ckpt_tests::exact::assert_same;
use ckpt_tests::{Ckpt, Launch, Life, Program, Scene, Stdout, code_of, processes, product};
use nix::sys::signal::Signal;
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// `ckpt show PID --json`.
fn show(scene: &Scene, pid: i32) -> Value {
    let answer = Ckpt::new(scene, ["show", &pid.to_string(), "--json"]).call().succeeded();
    serde_json::from_str(&answer.stdout).expect("show --json prints JSON")
}

/// Kind and size of all allocations of the driver's, sorted; each must have been asked for in the program's own code.
fn of_driver(scene: &Scene, pid: i32) -> Vec<(String, u64)> {
    let view = show(scene, pid);
    assert_eq!((&view["unrecorded"], &view["unknown_entry_points"]), (&Value::from(0), &Value::from(0)), "{view}");
    let of = |allocation: &Value| {
        let kind = allocation["kind"].as_str().expect("a word").to_owned();
        let function = allocation["call_site"]["function"].as_str();
        assert!(kind == "host" || function == Some("main"), "{allocation}");
        (kind != "host").then(|| (kind, allocation["bytes"].as_u64().expect("a number")))
    };
    let mut all: Vec<_> = view["allocations"].as_array().expect("a list").iter().filter_map(of).collect();
    all.sort();
    all
}

fn sorted(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    let mut sorted: Vec<_> = expected.iter().map(|(kind, bytes)| ((*kind).to_owned(), *bytes)).collect();
    sorted.sort();
    sorted
}

/// A program that waits for SIGUSR2 after each line: waits for `line`, looks, and lets it go on.
fn at(scene: &Scene, life: &Life<'_>, line: &str, expected: &[(&str, u64)]) {
    life.output.wait_for_line(line);
    assert_eq!(of_driver(scene, life.pid), sorted(expected), "at {line:?}");
    processes::send(life.pid, Signal::SIGUSR2);
}

/// The same program without ckpt, to its end: what it does itself finds its results right.
fn runs_alone(scene: &Scene, program: &Program, lines: &[&str]) {
    let mut life = Life::start(scene, "alone", program, &Launch::Plain, Stdout::File);
    for line in lines {
        life.output.wait_for_line(line);
        processes::send(life.pid, Signal::SIGUSR2);
    }
    assert_eq!(code_of(life.wait()), 0, "{}", life.output.text());
}

#[track_caller]
fn ends_well(mut life: Life<'_>) {
    assert_eq!((code_of(life.wait()), life.errors().as_str()), (0, ""), "{}", life.output.text());
    assert!(life.output.text().ends_with("done\n"), "{}", life.output.text());
}

/// What a program with a function in each way allocates, as it is seen.
fn is_recorded_by_way(way: &str) {
    let driver = cuda::library().join("libcuda.so.1");
    let program = cuda::program("ways").argument(way).argument(driver);
    let scene = Scene::new();
    runs_alone(&scene, &program, &["allocated", "freed", "one more", "no context"]);
    let life = Life::preloaded(&scene, "life", &program);
    let all = [
        ("device 0", 10_000_000),
        ("device 0", 100),
        ("device 0", 1024 * 300),
        ("managed", 3_000_000),
        ("pinned", 200_000),
        ("pinned", 300_000),
        ("registered", 40_960),
        ("device 0", 500_000),
        ("device 0", 600_000),
        ("managed", 700_000),
        ("physical 0", 4 * MIB),
        ("mapped 0", 4 * MIB),
        ("array", 64 * 32 * 4),
        ("global 0", 4096),
    ];
    at(&scene, &life, "allocated", &all);
    at(&scene, &life, "freed", &[]);
    at(&scene, &life, "one more", &[("device 0", MIB)]);
    at(&scene, &life, "no context", &[]);
    ends_well(life);
}

macro_rules! ways {
    ($($name:ident = $way:literal;)*) => { $(
        #[test]
        fn $name() {
            is_recorded_by_way($way);
        }
    )* };
}

ways! {
    a_program_that_is_linked_with_the_driver_is_recorded = "linked";
    a_program_that_opens_the_driver_for_itself_is_recorded = "dlsym";
    a_program_that_looks_in_the_scope_of_all_is_recorded = "default";
    a_program_that_looks_up_versions_is_recorded = "dlvsym";
    a_program_that_asks_the_driver_in_the_first_way_is_recorded = "first";
    a_program_that_asks_the_driver_as_runtimes_do_is_recorded = "second";
    a_program_with_a_default_stream_for_each_thread_is_recorded = "per thread";
}

#[test]
fn imported_memory_arrays_libraries_graphs_and_contexts_are_recorded_and_forgotten() {
    let program = cuda::program("kinds");
    let scene = Scene::new();
    runs_alone(&scene, &program, &["allocated", "freed", "two contexts", "one context", "no context"]);
    let life = Life::preloaded(&scene, "life", &program);
    let all = [
        ("imported 0", 3 * MIB),
        ("array", 32 * 16 * 8 * 4),
        ("array", (32 * 16 * 8 + 16 * 8 * 4) * 4),
        ("global 0", 4096),
        ("managed global", 2048),
        ("graph 0", 5 * MIB),
        ("graph 0", 8 * MIB),
    ];
    at(&scene, &life, "allocated", &all);
    at(&scene, &life, "freed", &[]);
    at(&scene, &life, "two contexts", &[("device 0", 7 * MIB), ("device 0", 6 * MIB)]);
    at(&scene, &life, "one context", &[("device 0", 7 * MIB)]);
    at(&scene, &life, "no context", &[]);
    ends_well(life);
}

/// Some four hundred lines, most of them a call of the driver and what came of it.
#[test]
fn a_program_gets_the_same_answers_from_the_driver_with_libckpt_in_between() {
    let program = cuda::program("conformance").argument(cuda::kernels());
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &program);
    let (code, errors) = (code_of(life.wait()), life.errors());
    assert_eq!((code, errors.as_str()), (0, ""), "{}", life.output.text());
    let expected = product::repository().join("tests/victims/cuda/conformance.txt");
    assert_same(&life.output.bytes(), &fs::read(expected).expect("the trace is there"), "the trace");
}

/// Name, version and flags of what a program asks a driver for, and the library that asks.
fn queries(scene: &Scene, name: &str, program: &Program, launch: &Launch) -> Vec<(String, String)> {
    let written = scene.path().join(format!("{name}-queries"));
    let program = program.clone().variable("QUERIES", &written);
    let mut life = Life::start(scene, name, &program, launch, Stdout::File);
    assert_eq!(code_of(life.wait()), 0, "{}", life.errors());
    let text = fs::read_to_string(&written).unwrap_or_default();
    text.lines().filter_map(|line| line.rsplit_once(' ')).map(|(query, by)| (query.into(), by.into())).collect()
}

#[test]
fn every_query_of_a_cuda_runtime_passes_the_hooks() {
    let runtimes = [Runtime::Static, Runtime::Shared];
    let programs = runtimes.map(|runtime| (runtime, cuda::program_with_runtime("runtime", runtime)));
    let asked = cuda::asked();
    let scene = Scene::new();
    for (runtime, program) in programs {
        let program = program.variable("LD_LIBRARY_PATH", &asked);
        let without = queries(&scene, &format!("{runtime:?}-alone"), &program, &Launch::Plain);
        let with = queries(&scene, &format!("{runtime:?}-with"), &program, &Launch::Preload);
        let words = |queries: &[(String, String)]| queries.iter().map(|(query, _)| query.clone()).collect::<Vec<_>>();
        assert!(without.len() > 400, "{runtime:?} asks for {} functions", without.len());
        assert_eq!(words(&with), words(&without), "{runtime:?}");
        let past: Vec<_> = with.iter().filter(|(_, by)| by != "libckpt.so").collect();
        assert!(past.is_empty(), "{runtime:?} has a way past the hooks: {past:?}");
    }
}

#[test]
fn functions_of_a_newer_driver_are_passed_on_untouched_and_counted() {
    let program = cuda::program("newer").argument(cuda::asked().join("libcuda.so.1"));
    let scene = Scene::new();
    runs_alone(&scene, &program, &["looked up"]);
    let life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("looked up");
    assert_eq!(show(&scene, life.pid)["unknown_entry_points"], 2);
    processes::send(life.pid, Signal::SIGUSR2);
    ends_well(life);
}

/// All that `cuda.h` declares, by the names that the library has.
#[test]
fn the_known_names_are_those_of_the_header() {
    let header = cuda::header();
    let word =
        |text: &str| text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().map(str::to_owned);
    let mut declared = BTreeSet::new();
    for (at, _) in header.match_indices("CUDAAPI cu") {
        declared.extend(word(&header[at + "CUDAAPI ".len()..]));
    }
    assert!(declared.len() > 450, "{}", declared.len());
    let known: BTreeSet<String> =
        fs::read_to_string(product::repository().join("preload/src/hooks/cuda/known_names.txt"))
            .expect("a list")
            .lines()
            .map(str::to_owned)
            .collect();
    let missing: Vec<_> = declared.difference(&known).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn what_a_runtime_library_allocates_was_asked_for_by_the_function_that_called_it() {
    let program = cuda::program_by_small_runtime();
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("allocated");
    let view = show(&scene, life.pid);
    let asked_by = |bytes: u64| {
        let mut all = view["allocations"].as_array().expect("a list").iter();
        let found = all.find(|allocation| allocation["bytes"] == bytes).unwrap_or_else(|| panic!("{bytes}: {view}"));
        found["call_site"]["function"].as_str().unwrap_or_default().to_owned()
    };
    let functions = [3_000_000, 200_000, 100_000, 500_000].map(asked_by);
    assert_eq!(functions, ["make_weights", "make_table", "make_buffer", "make_without_runtime"]);
    processes::send(life.pid, Signal::SIGUSR2);
    assert_eq!(code_of(life.wait()), 0, "{}", life.output.text());
}

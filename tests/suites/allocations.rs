//! What `ckpt show` says about the large allocations of a program, running and checkpointed, over its lives.

use std::collections::BTreeMap;
use std::time::Duration;

use ckpt_tests::{Ckpt, Life, Program, Restart, Scene, checkpoint, code_of, processes};
use nix::sys::signal::Signal;
use serde_json::Value;

fn scene() -> Scene {
    Scene::of_at_most(Duration::from_secs(120))
}

/// `ckpt show PID --json`.
fn live(scene: &Scene, pid: i32) -> Value {
    let answer = Ckpt::new(scene, ["show", &pid.to_string(), "--json"]).call().succeeded();
    serde_json::from_str(&answer.stdout).expect("show --json prints JSON")
}

/// Id, bytes and function of the victim's own allocations, by id. The libraries may have some too.
fn own(view: &Value) -> Vec<(u64, u64, String)> {
    let of = |allocation: &Value| {
        assert_eq!(allocation["kind"], "host", "{allocation}");
        let site = &allocation["call_site"];
        let function = site["function"].as_str()?.to_owned();
        let module = site["module"].as_str()?;
        module.ends_with("allocations").then_some((allocation["id"].as_u64()?, allocation["bytes"].as_u64()?, function))
    };
    let mut own: Vec<_> = view["allocations"].as_array().expect("a list").iter().filter_map(of).collect();
    own.sort();
    own
}

fn sizes(own: &[(u64, u64, String)]) -> Vec<(u64, &str)> {
    own.iter().map(|(_, bytes, function)| (*bytes, function.as_str())).collect()
}

const AT_FIRST: [(u64, &str); 3] =
    [(5_000_000, "allocate_grid"), (100_000, "size_table"), (70_000, "replace_fleeting")];
const LATER: [(u64, &str); 3] =
    [(5_000_000, "allocate_grid"), (30_000_000, "size_table"), (80_000, "replace_fleeting")];

#[test]
fn allocations_are_shown_of_running_programs_and_checkpoints_and_keep_their_numbers_over_a_restart() {
    let scene = scene();
    let program = Program::victim("allocations").argument("3");
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("step 1");
    let first = own(&live(&scene, life.pid));
    assert_eq!(sizes(&first), AT_FIRST);
    let one = checkpoint(&scene, life.pid);
    processes::send(life.pid, Signal::SIGUSR2);
    life.output.wait_for_line("step 2");
    let second = own(&live(&scene, life.pid));
    assert_eq!(sizes(&second), LATER);
    // The table has grown; what was freed and allocated again is another allocation.
    let ids = |own: &[(u64, u64, String)]| own.iter().map(|(id, ..)| *id).collect::<Vec<_>>();
    let (before, after) = (ids(&first), ids(&second));
    assert_eq!(after[..2], before[..2]);
    assert!(after[2] > before[2]);
    let two = checkpoint(&scene, life.pid);
    let store = life.store();
    assert_eq!(own(&store.show(&scene, one)), first);
    assert_eq!(own(&store.show(&scene, two)), second);
    life.kill();

    let mut next = Restart::of(store.path()).id(one).begin(&scene, &life.directory, life.pid);
    assert_eq!(own(&live(&scene, next.pid)), first, "after a restart");
    processes::send(next.pid, Signal::SIGUSR2);
    next.output.wait_for_line("step 2");
    assert_eq!(own(&live(&scene, next.pid)), second, "the program does the same again");
    processes::send(next.pid, Signal::SIGUSR2);
    assert_eq!(code_of(next.wait()), 7, "{}", next.output.text());
}

#[test]
fn people_see_sizes_and_functions() {
    let scene = scene();
    let mut life = Life::preloaded(&scene, "life", &Program::victim("allocations").argument("2"));
    life.output.wait_for_line("step 1");
    let text = Ckpt::new(&scene, ["show", &life.pid.to_string()]).call().succeeded().stdout;
    let line = text.lines().find(|line| line.contains("allocate_grid")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("4.8 MiB") && line.contains("host"), "{line}");
    assert!(text.contains(&format!("Process {}", life.pid)), "{text}");
    life.kill();
}

#[test]
fn a_program_without_libckpt_and_one_that_is_gone_are_refused() {
    let scene = scene();
    let own_pid = std::process::id().to_string();
    let answer = Ckpt::new(&scene, ["show", &own_pid]).call().failed_with(5);
    assert!(answer.stderr.contains("libckpt.so"), "{answer:?}");
    // Beyond what any system gives out.
    let answer = Ckpt::new(&scene, ["show", "2000000000"]).call();
    assert!(answer.code != 0 && answer.stderr.contains("2000000000"), "{answer:?}");
}

/// The victim behind its second step, and a checkpoint from before it.
fn one_checkpoint<'a>(scene: &'a Scene, name: &str, program: &Program) -> (Life<'a>, u64) {
    let life = Life::preloaded(scene, name, program);
    life.output.wait_for_line("step 1");
    let one = checkpoint(scene, life.pid);
    processes::send(life.pid, Signal::SIGUSR2);
    life.output.wait_for_line("step 2");
    (life, one)
}

#[test]
fn the_content_of_any_allocation_is_extracted_whole_and_what_changed_of_each_is_counted() {
    let scene = scene();
    for method in ["pages", "tree"] {
        let program = Program::victim("allocations").argument("3");
        let program = program.variable("CKPT_METHOD", method).variable("CKPT_TREE_MIN", "64K");
        let (mut life, one) = one_checkpoint(&scene, method, &program);
        let two = checkpoint(&scene, life.pid);
        life.kill();
        let store = life.store();
        let path = store.path().to_string_lossy().into_owned();
        let extract = |id: u64, region: &str, file: &str, more: &[&str]| {
            let (id, output) = (id.to_string(), scene.path().join(file).to_string_lossy().into_owned());
            let arguments = ["extract", &path, &id, "--region", region, "-o", &output];
            Ckpt::new(&scene, arguments.iter().chain(more).map(|&word| word.to_owned())).call().succeeded();
            std::fs::read(output).expect("a file")
        };
        let by_function = |id: u64| {
            let own = own(&store.show(&scene, id)).into_iter();
            own.map(|(id, _, function)| (function, id)).collect::<BTreeMap<_, _>>()
        };
        let (first, second) = (by_function(one), by_function(two));
        let grid = extract(one, &first["allocate_grid"].to_string(), "grid", &[]);
        assert_eq!((grid.len(), grid.last(), grid.iter().filter(|&&byte| byte != 0).count()), (5_000_000, Some(&7), 1));
        assert!(extract(one, &first["size_table"].to_string(), "table", &[]) == vec![9; 100_000], "{method}");
        assert!(extract(two, &second["size_table"].to_string(), "table", &[]) == vec![9; 30_000_000], "{method}");
        let array = extract(two, &second["replace_fleeting"].to_string(), "fleeting.npy", &["--dtype", "f8"]);
        assert!(array.starts_with(b"\x93NUMPY") && array.ends_with(&[11; 80_000]) && array.len() % 64 == 0);
        assert!(
            String::from_utf8_lossy(&array[..128]).contains("'<f8'")
                && String::from_utf8_lossy(&array[..128]).contains("(10000,)")
        );
        // By its address, and a whole mapping.
        let view = store.show(&scene, two);
        let allocations = view["allocations"].as_array().expect("a list");
        let found = allocations.iter().find(|it| it["id"] == second["replace_fleeting"]).expect("it is there");
        assert_eq!(extract(two, found["address"].as_str().expect("text"), "fleeting", &[]), [11; 80_000]);
        let mapping = &view["regions"].as_array().expect("a list")[0];
        let bytes = extract(two, mapping["id"].as_str().expect("text"), "mapping", &[]);
        assert_eq!(bytes.len() as u64, mapping["bytes"].as_u64().expect("a number"));

        let arguments = ["diff", &path, &one.to_string(), &two.to_string(), "--all", "--json"];
        let diff: Value = serde_json::from_str(&Ckpt::new(&scene, arguments).call().succeeded().stdout).expect("JSON");
        let state = |id: u64| {
            let all = diff["allocations"].as_array().expect("a list");
            let found = all.iter().find(|it| it["id"] == id).unwrap_or_else(|| panic!("{id}: {diff}"));
            (found["state"].as_str().expect("a word").to_owned(), found["bytes_changed"].as_u64().expect("a number"))
        };
        assert_eq!(state(first["allocate_grid"]), ("same".to_owned(), 0), "{method}");
        assert_eq!(state(first["size_table"]), ("resized".to_owned(), 0), "{method}");
        assert_eq!(state(first["replace_fleeting"]), ("only_in_a".to_owned(), 0), "{method}");
        assert_eq!(state(second["replace_fleeting"]), ("only_in_b".to_owned(), 0), "{method}");
    }
}

#[test]
fn what_cannot_be_extracted_is_refused_and_leaves_no_file() {
    let scene = scene();
    let (mut life, one) = one_checkpoint(&scene, "life", &Program::victim("allocations").argument("3"));
    life.kill();
    let (path, id) = (life.store().path().to_string_lossy().into_owned(), one.to_string());
    let refused = |region: &str, output: &str, more: &[&str], code: i32, why: &str| {
        let arguments = ["extract", &path, &id, "--region", region, "-o", output];
        let arguments = arguments.iter().chain(more).map(|&word| word.to_owned());
        let answer = Ckpt::new(&scene, arguments).call().failed_with(code);
        assert!(answer.stderr.contains(why) && answer.stderr.trim_end().lines().count() == 1, "{answer:?}");
    };
    refused("123456", "out", &[], 2, "no such region");
    refused("0x10", "out", &[], 2, "no such region");
    refused("m0", "out.npy", &["--dtype", "f5"], 2, "there is no such type");
    refused("m0", "/nowhere/out", &[], 1, "/nowhere/out");
    let files = std::fs::read_dir(scene.path()).expect("the scene").map(|entry| entry.expect("an entry").file_name());
    let left: Vec<_> = files.filter(|name| name.to_string_lossy().starts_with("out")).collect();
    assert!(left.is_empty(), "{left:?}");
}

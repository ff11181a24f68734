//! Checkpoints of the data on devices, on the double of the CUDA driver: exact, consistent, and no more over the bus than is
//! new.
//!
//! Programs are there before a scene begins: compiling the double takes a minute, and a scene's time is limited.

use std::time::Duration;

use ckpt_tests::{Answer, Ckpt, Life, Program, Scene, Store, code_of, cuda, processes};
use nix::sys::signal::Signal;
use serde_json::Value;

fn take_data(scene: &Scene, pid: i32, more: &[&str]) -> Answer {
    let arguments = ["checkpoint", &pid.to_string(), "--data"].map(str::to_owned);
    Ckpt::new(scene, arguments.into_iter().chain(more.iter().map(|&word| word.to_owned()))).call()
}

#[track_caller]
fn data_checkpoint(scene: &Scene, pid: i32) -> u64 {
    take_data(scene, pid, &[]).succeeded().number()
}

/// The allocation of a kind and of so many bytes.
#[track_caller]
fn allocation<'a>(shown: &'a Value, kind: &str, bytes: u64) -> &'a Value {
    let mut all = shown["allocations"].as_array().expect("a list").iter();
    let found = all.find(|allocation| allocation["kind"] == kind && allocation["bytes"] == bytes);
    found.unwrap_or_else(|| panic!("no {bytes} bytes of kind {kind} in {shown}"))
}

fn extract(scene: &Scene, store: &Store, id: u64, region: &str) -> Answer {
    let path = store.path().to_string_lossy().into_owned();
    Ckpt::new(scene, ["extract", &path, &id.to_string(), "--region", region, "-o", "extracted"]).call()
}

#[track_caller]
fn content(scene: &Scene, store: &Store, id: u64, kind: &str, bytes: u64) -> Vec<u8> {
    let shown = store.show(scene, id);
    let allocation = allocation(&shown, kind, bytes);
    assert!(allocation["left_out"].is_null(), "{allocation}");
    extract(scene, store, id, &allocation["id"].to_string()).succeeded();
    std::fs::read(scene.path().join("extracted")).expect("a file")
}

const MIB: u64 = 1 << 20;
const WORDS: u32 = 1 << 21;
const GRID_BYTES: u64 = WORDS as u64 * 4;
/// Chunks that a step changes of the grid, and their bytes.
const CHANGED_BYTES: u64 = 50 * 128;
/// What a difference says beside its data, as it leaves the device: at most so much.
const METADATA_BYTES: u64 = 48 << 10;

/// tests/victims/cuda/stepped.cc.
fn grid(step: u32) -> Vec<u8> {
    let mut words: Vec<u32> = (0..WORDS).map(|word| word.wrapping_mul(2_654_435_761)).collect();
    for step in 2..=step {
        for n in 0..50_u32 {
            words[((step * 7919 + n * 104_729) % WORDS) as usize] = step * 1000 + n;
        }
    }
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

fn filled(bytes: u64, factor: u64, step: u32) -> Vec<u8> {
    (0..bytes).map(|n| (n * factor + (n >> 8) + u64::from(step)) as u8).collect()
}

#[track_caller]
fn check_step(scene: &Scene, store: &Store, id: u64, step: u32, managed: &str) {
    let is = |kind: &str, bytes: u64, expected: Vec<u8>| {
        assert!(content(scene, store, id, kind, bytes) == expected, "{bytes} bytes, {kind}, of {id} at step {step}");
    };
    is("device 0", GRID_BYTES, grid(step));
    is("mapped 0", 2 * MIB, grid(1)[..2 << 20].to_vec());
    let last = if step < 3 { 1 } else { step };
    let small = if step < 4 { 3000 } else { 5000 };
    is("device 0", small, filled(small, 31, last));
    is(managed, MIB, filled(MIB, 7, last));
    is("device 0", 500_000, filled(500_000, 13, last));
    is("global 0", 4096, filled(4096, 3, last));
    is("mapped 0", 4 * MIB, filled(4 * MIB, 5, last));
    is("pinned", 300_000, (0..300_000_u32).map(|n| (n * 11 + 1) as u8).collect());
}

fn at_step_1<'a>(scene: &'a Scene, program: &Program) -> (Life<'a>, Store) {
    let life = Life::preloaded(scene, "life", program);
    life.output.wait_for_line("step 1");
    let store = life.store();
    (life, store)
}

fn next_step(life: &Life<'_>, step: u32) {
    processes::send(life.pid, Signal::SIGUSR2);
    life.output.wait_for_line(&format!("step {step}"));
}

#[track_caller]
fn ends_well(mut life: Life<'_>) {
    processes::send(life.pid, Signal::SIGUSR2);
    assert_eq!(code_of(life.wait()), 0, "{}", life.output.text());
}

fn moved(scene: &Scene, store: &Store, id: u64, way: &str) -> u64 {
    store.show(scene, id)["moved"][way].as_u64().expect("a number")
}

fn each_step_is_exact(program: &Program, managed: &str) {
    let scene = Scene::of_at_most(Duration::from_secs(180));
    let (life, store) = at_step_1(&scene, program);
    let mut ids = vec![data_checkpoint(&scene, life.pid)];
    for step in 2..=6 {
        next_step(&life, step);
        ids.push(data_checkpoint(&scene, life.pid));
    }
    ends_well(life);
    for (step, id) in (1..).zip(ids) {
        check_step(&scene, &store, id, step, managed);
    }
}

#[test]
fn memory_of_every_kind_is_as_it_was_at_each_step() {
    each_step_is_exact(&cuda::program("stepped"), "managed");
}

#[test]
fn what_the_driver_has_allocated_itself_is_as_it_was_too() {
    each_step_is_exact(&cuda::program("stepped").variable("CKPT_DEVICE_BACKING", "native"), "managed");
}

#[test]
fn managed_memory_that_is_pinned_is_as_it_was_too() {
    each_step_is_exact(&cuda::program("stepped").variable("CKPT_MANAGED_BACKING", "pinned"), "managed (pinned)");
}

#[test]
fn whoever_fears_equal_digests_has_all_of_it_stored() {
    each_step_is_exact(&cuda::program("stepped").variable("CKPT_VERIFY_MATCHES", "yes"), "managed");
}

#[test]
fn no_more_leaves_a_device_than_what_is_new_and_where_it_belongs() {
    let program = cuda::program("stepped");
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let (mut life, store) = at_step_1(&scene, &program);
    let first = data_checkpoint(&scene, life.pid);
    next_step(&life, 2);
    let second = data_checkpoint(&scene, life.pid);
    let third = data_checkpoint(&scene, life.pid);
    life.kill();
    let out = |id| moved(&scene, &store, id, "device_to_host_bytes");
    // Two MiB of the grid are there twice.
    let unique = GRID_BYTES + 4 * MIB + MIB + 500_000 + 4096 + 3000;
    assert!((unique / 2..unique + METADATA_BYTES).contains(&out(first)), "{} of {unique}", out(first));
    assert!((CHANGED_BYTES..CHANGED_BYTES + METADATA_BYTES).contains(&out(second)), "{}", out(second));
    assert!(out(third) <= METADATA_BYTES, "{}", out(third));
    // What the agent cannot map, or the program has mapped itself, is copied on the device, and nothing else is.
    let copied = 2 * MIB + 4 * MIB + MIB + 500_000 + 4096;
    assert_eq!(moved(&scene, &store, third, "within_device_bytes"), copied);
    let text =
        Ckpt::new(&scene, ["show", &store.path().to_string_lossy(), &third.to_string()]).call().succeeded().stdout;
    assert!(text.contains("device to host") && text.contains("crossed the bus"), "{text}");
}

#[test]
fn what_is_no_plain_memory_is_left_out_by_name() {
    let program = cuda::program("stepped");
    let scene = Scene::new();
    let (mut life, store) = at_step_1(&scene, &program);
    let data = data_checkpoint(&scene, life.pid);
    life.kill();
    let shown = store.show(&scene, data);
    let array = allocation(&shown, "array", 32 * 16 * 4);
    assert!(array["left_out"].as_str().is_some_and(|why| why.contains("arrays")), "{array}");
    let answer = extract(&scene, &store, data, &array["id"].to_string()).failed_with(4);
    assert!(answer.stderr.contains("arrays"), "{answer:?}");
}

#[test]
fn devices_stand_still_while_they_are_read() {
    let program = cuda::program("in_step");
    let scene = Scene::of_at_most(Duration::from_secs(180));
    let life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("running");
    let answer = take_data(&scene, life.pid, &["--every", "10ms", "--count", "20"]).succeeded();
    let store = life.store();
    ends_well(life);
    for id in answer.stdout.lines().map(|line| line.parse::<u64>().expect("an id")) {
        let shown = store.show(&scene, id);
        let buffers = shown["allocations"].as_array().expect("a list").iter();
        let buffers = buffers.filter(|it| it["kind"] == "device 0" && it["bytes"] == 4 * MIB);
        let rounds: Vec<u32> = buffers
            .map(|buffer| {
                extract(&scene, &store, id, &buffer["id"].to_string()).succeeded();
                let bytes = std::fs::read(scene.path().join("extracted")).expect("a file");
                let round = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
                assert!(bytes == round.to_le_bytes().repeat(1 << 20), "a buffer of {id} is of several rounds");
                round
            })
            .collect();
        let [first, .., last] = rounds[..] else { panic!("{rounds:?}") };
        assert!(rounds.len() == 3 && rounds.is_sorted_by(|one, next| one >= next) && first - last <= 1, "{rounds:?}");
    }
}

#[test]
fn an_agent_that_dies_lets_the_devices_go_on() {
    let program = cuda::program("in_step");
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("running");
    let store = life.store();
    data_checkpoint(&scene, life.pid);
    for _ in 0..5 {
        let rows = store.rows(&scene).len();
        std::thread::scope(|threads| {
            threads.spawn(|| take_data(&scene, life.pid, &["--every", "1ms", "--count", "500"]));
            processes::wait_until("some are taken", Duration::from_secs(20), || store.rows(&scene).len() > rows + 2);
            let agent = processes::agents_of(life.pid).pop().expect("an agent");
            processes::send(agent, Signal::SIGKILL);
        });
        data_checkpoint(&scene, life.pid);
    }
    ends_well(life);
}

fn unasked() -> Program {
    cuda::program("unasked").argument(cuda::kernels().with_file_name("kernels.sm_90.cubin"))
}

/// What tests/victims/cuda/unasked.cc has of a kind and so many bytes: zeros behind the number of launches.
#[track_caller]
fn counted(scene: &Scene, store: &Store, id: u64, kind: &str, bytes: u64) -> u32 {
    let content = content(scene, store, id, kind, bytes);
    let (launches, zeros) = content.split_at(4);
    assert!(zeros.iter().all(|&byte| byte == 0), "{bytes} bytes, {kind}, of {id}");
    u32::from_le_bytes(launches.try_into().expect("four bytes"))
}

/// Lengths of all variables in a checkpoint, ascending.
#[track_caller]
fn variables(scene: &Scene, store: &Store, id: u64) -> Vec<u64> {
    let shown = store.show(scene, id);
    let all = shown["allocations"].as_array().expect("a list").iter();
    let globals = all.filter(|it| it["kind"] == "global 0" || it["kind"] == "managed global");
    let mut bytes: Vec<u64> = globals.map(|it| it["bytes"].as_u64().expect("a number")).collect();
    bytes.sort_unstable();
    bytes
}

/// The lengths of an image's variables in device and in managed memory, and how often its kernel was launched.
type Counts = [(u64, u64, u32)];

#[track_caller]
fn check_counts(scene: &Scene, store: &Store, id: u64, counts: &Counts) {
    for &(of_device, managed, launches) in counts {
        assert_eq!(counted(scene, store, id, "global 0", of_device), launches, "{of_device} bytes, of {id}");
        assert_eq!(counted(scene, store, id, "managed global", managed), launches, "{managed} bytes, of {id}");
    }
}

const AT_STEP_1: &Counts =
    &[(64, 96, 1), (128, 160, 2), (256, 288, 3), (512, 544, 4), (640, 672, 5), (704, 736, 6), (832, 864, 8)];

#[test]
fn variables_that_only_kernels_use_are_found_wherever_their_code_was_loaded_from() {
    let program = unasked();
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let (life, store) = at_step_1(&scene, &program);
    let first = data_checkpoint(&scene, life.pid);
    next_step(&life, 2);
    let second = data_checkpoint(&scene, life.pid);
    let running = Ckpt::new(&scene, ["show", &life.pid.to_string(), "--json"]).call().succeeded().stdout;
    next_step(&life, 3);
    let third = data_checkpoint(&scene, life.pid);
    next_step(&life, 4);
    let fourth = data_checkpoint(&scene, life.pid);
    let log = std::fs::read_to_string(store.path().join("log")).expect("a log");
    ends_well(life);

    assert!(!log.contains("in no checkpoint"), "all code can be read: {log}");
    assert_eq!(
        variables(&scene, &store, first),
        [64, 96, 128, 160, 256, 288, 320, 512, 544, 640, 672, 704, 736, 832, 864]
    );
    check_counts(&scene, &store, first, AT_STEP_1);
    assert_eq!(counted(&scene, &store, first, "global 0", 320), 0, "constants are there");
    // The unloaded module's are gone; what has changed is as it was, and those of a new module are there.
    assert_eq!(
        variables(&scene, &store, second),
        [128, 160, 256, 288, 320, 512, 544, 640, 672, 704, 736, 768, 800, 832, 864]
    );
    check_counts(&scene, &store, second, &[(256, 288, 13), (512, 544, 4), (768, 800, 7)]);
    let id = |shown: &Value| allocation(shown, "global 0", 256)["id"].clone();
    assert_eq!(id(&store.show(&scene, first)), id(&store.show(&scene, second)));
    let running: Value = serde_json::from_str(&running).expect("JSON");
    assert_eq!(id(&running), id(&store.show(&scene, second)), "they are among those of the running program");
    // A new context has libraries anew: one count for each, and their managed variables once.
    let of_third = variables(&scene, &store, third);
    let how_many = |bytes| of_third.iter().filter(|&&it| it == bytes).count();
    assert_eq!((how_many(512), how_many(544), how_many(640), how_many(256)), (2, 1, 2, 1), "{of_third:?}");
    assert_eq!(counted(&scene, &store, third, "managed global", 544), 24);
    assert_eq!(counts_of_library(&scene, &store, third), [4, 20]);
    assert_eq!(variables(&scene, &store, fourth), [128, 160, 256, 288, 320, 640, 672, 704, 736, 768, 800, 832, 864]);
}

/// Launches of the library's kernel in each context.
#[track_caller]
fn counts_of_library(scene: &Scene, store: &Store, id: u64) -> Vec<u32> {
    let shown = store.show(scene, id);
    let all = shown["allocations"].as_array().expect("a list").iter();
    let count = |allocation: &Value| {
        extract(scene, store, id, &allocation["id"].to_string()).succeeded();
        let bytes = std::fs::read(scene.path().join("extracted")).expect("a file");
        u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
    };
    let mut counts: Vec<u32> = all.filter(|it| it["kind"] == "global 0" && it["bytes"] == 512).map(count).collect();
    counts.sort_unstable();
    counts
}

#[test]
fn code_that_cannot_be_read_keeps_no_variable_of_other_code_out_of_a_checkpoint() {
    let program = unasked().argument("hostile");
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let (mut life, store) = at_step_1(&scene, &program);
    let ids = [(); 2].map(|()| data_checkpoint(&scene, life.pid));
    let log = std::fs::read_to_string(store.path().join("log")).expect("a log");
    life.kill();
    for id in ids {
        check_counts(&scene, &store, id, AT_STEP_1);
    }
    assert_eq!(log.matches("that it does not ask for are in no checkpoint").count(), 4, "{log}");
}

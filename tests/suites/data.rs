//! Checkpoints of data: what a program has allocated, exactly, beside checkpoints of the whole program.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ckpt_tests::{Answer, Ckpt, Life, Program, Restart, Scene, Store, checkpoint, code_of, processes};
use nix::sys::signal::Signal;
use serde_json::Value;

fn scene() -> Scene {
    Scene::of_at_most(Duration::from_secs(120))
}

fn take_data(scene: &Scene, pid: i32, more: &[&str]) -> Answer {
    let arguments = ["checkpoint", &pid.to_string(), "--data"].map(str::to_owned);
    Ckpt::new(scene, arguments.into_iter().chain(more.iter().map(|&word| word.to_owned()))).call()
}

fn data_checkpoint(scene: &Scene, pid: i32) -> u64 {
    take_data(scene, pid, &[]).succeeded().number()
}

/// What `ckpt show` says of allocations, by their bytes.
fn by_bytes(shown: &Value) -> BTreeMap<u64, &Value> {
    let all = shown["allocations"].as_array().expect("a list").iter();
    all.map(|allocation| (allocation["bytes"].as_u64().expect("bytes"), allocation)).collect()
}

fn extract(scene: &Scene, store: &Store, id: u64, region: &str) -> Answer {
    let path = store.path().to_string_lossy().into_owned();
    Ckpt::new(scene, ["extract", &path, &id.to_string(), "--region", region, "-o", "extracted"]).call()
}

/// The allocation of so many bytes, or nothing if there is none.
fn content(scene: &Scene, store: &Store, id: u64, bytes: u64) -> Option<Vec<u8>> {
    let shown = store.show(scene, id);
    let region = by_bytes(&shown).get(&bytes)?["id"].to_string();
    extract(scene, store, id, &region).succeeded();
    Some(std::fs::read(scene.path().join("extracted")).expect("a file"))
}

const WORDS: u32 = 1 << 21;
const GRID_BYTES: u64 = WORDS as u64 * 4;
const ODD_BYTES: u64 = 70_001;
const KEPT_BACK_BYTES: u64 = 64 * 4096;

/// tests/victims/grids.c: the grid at a step, which begins at an address with that offset in its page.
fn grid(step: u32, offset_in_page: u64) -> Vec<u8> {
    let mut words: Vec<u32> = (0..WORDS).map(|word| word.wrapping_mul(2_654_435_761)).collect();
    for step in 2..=step {
        for n in 0..50_u32 {
            words[((step * 7919 + n * 104_729) % WORDS) as usize] = step * 1000 + n;
        }
        if step == 4 {
            let start = (4096 - offset_in_page) % 4096 + 100 * 4096;
            words[start as usize / 4..start as usize / 4 + 100 * 1024].fill(0);
        }
    }
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

fn odd(step: u32) -> Vec<u8> {
    (0..ODD_BYTES as u32).map(|n| (n * 31 + step) as u8).collect()
}

fn table(step: u32) -> Option<Vec<u8>> {
    match step {
        1 | 2 => Some(vec![9; 100_000]),
        3 | 4 => Some(vec![8; 3_000_000]),
        _ => None,
    }
}

fn check_step(scene: &Scene, store: &Store, id: u64, step: u32) {
    let shown = store.show(scene, id);
    let address = by_bytes(&shown)[&GRID_BYTES]["address"].as_str().expect("hexadecimal").to_owned();
    let offset = u64::from_str_radix(&address[2..], 16).expect("hexadecimal") % 4096;
    assert!(content(scene, store, id, GRID_BYTES) == Some(grid(step, offset)), "the grid of {id} at step {step}");
    assert!(content(scene, store, id, ODD_BYTES) == Some(odd(step)), "the odd one of {id} at step {step}");
    let bytes = table(step).map_or(3_000_000, |table| table.len() as u64);
    assert!(content(scene, store, id, bytes) == table(step), "the table of {id} at step {step}");
}

fn next_step(life: &Life<'_>, pid: i32, step: u32) {
    processes::send(pid, Signal::SIGUSR2);
    life.output.wait_for_line(&format!("step {step} "));
}

/// Which depth is taken at each step of the victim.
fn all_steps(scene: &Scene, name: &str, program: &Program, depths: &[&str]) -> (Vec<(u32, u64)>, Store) {
    let mut life = Life::preloaded(scene, name, program);
    let store = life.store();
    let (mut data, mut full, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    for (step, depth) in (1..).zip(depths) {
        match step {
            1 => life.output.wait_for_line("step 1 "),
            _ => next_step(&life, life.pid, step),
        };
        lines.push(life.output.text().lines().last().expect("a line").to_owned());
        if depth.contains("data") {
            data.push((step, data_checkpoint(scene, life.pid)));
        }
        if depth.contains("full") {
            full.push((step, checkpoint(scene, life.pid)));
        }
    }
    life.kill();
    for (step, id) in full {
        // Every full one has what was written before a checkpoint of data has looked, too.
        let mut next = Restart::of(store.path()).id(id).begin(scene, &life.directory, life.pid);
        for later in step + 1..=depths.len() as u32 {
            processes::send(next.pid, Signal::SIGUSR2);
            next.output.wait_for_line(&lines[later as usize - 1]);
        }
        processes::send(next.pid, Signal::SIGKILL);
        next.wait();
    }
    (data, store)
}

#[test]
fn each_holds_exactly_what_was_allocated_then_and_full_ones_between_them_lose_nothing() {
    let scene = scene();
    let program = Program::victim("grids").argument("99");
    let depths = ["data full", "full", "data", "data", "full data", "data full", "full", "data"];
    let (data, store) = all_steps(&scene, "mixed", &program, &depths);
    for (step, id) in data {
        check_step(&scene, &store, id, step);
    }
    let answer = Ckpt::new(&scene, [Path::new("verify"), store.path()]).call();
    assert_eq!(answer.code, 0, "{answer:?}");
}

#[test]
fn only_what_has_changed_is_read_and_stored_where_the_kernel_watches() {
    let scene = scene();
    let mut life = Life::preloaded(&scene, "life", &Program::victim("grids").argument("99"));
    life.output.wait_for_line("step 1 ");
    let store = life.store();
    let first = data_checkpoint(&scene, life.pid);
    next_step(&life, life.pid, 2);
    let second = data_checkpoint(&scene, life.pid);
    let third = data_checkpoint(&scene, life.pid);
    let host_bytes = |id| store.show(&scene, id)["moved"]["host_bytes"].as_u64().expect("a number");
    let [first, second, third] = [first, second, third].map(host_bytes);
    assert!(first >= GRID_BYTES, "{first}");
    // 50 words on 50 pages, and the odd one whole.
    assert!((ODD_BYTES..60 * 4096 + ODD_BYTES + 8192).contains(&second), "{second}");
    assert!(third < 3 * 4096, "{third}");
    life.kill();
}

#[test]
fn a_checkpoint_of_data_is_no_way_back_and_is_kept_beside_those_that_are() {
    let scene = scene();
    let program = Program::victim("grids").argument("3").variable("CKPT_KEEP", "2");
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("step 1 ");
    let store = life.store();
    let path = store.path().to_string_lossy().into_owned();
    let refused = |answer: Answer| assert!(answer.stderr.contains("data alone"), "{answer:?}");
    let data = data_checkpoint(&scene, life.pid);
    refused(Ckpt::new(&scene, ["restart", &path]).call().failed_with(121));
    refused(Ckpt::new(&scene, ["restart", &path, "--id", &data.to_string()]).call().failed_with(124));
    let full = checkpoint(&scene, life.pid);
    let many: Vec<u64> = (0..4).map(|_| data_checkpoint(&scene, life.pid)).collect();
    processes::wait_until("two of each depth are left", Duration::from_secs(30), || {
        let ids: Vec<u64> = store.sealed(&scene).iter().map(|row| row.id).collect();
        ids == [full, many[2], many[3]]
    });
    let listed = Ckpt::new(&scene, ["list", &path]).call().succeeded().stdout;
    assert_eq!(listed.lines().filter(|line| line.contains(" data ")).count(), 2, "{listed}");
    let shown = Ckpt::new(&scene, ["show", &path]).call().succeeded().stdout;
    assert!(shown.contains(&format!("Checkpoint {}", many[3])) && shown.contains("cannot be restarted"), "{shown}");
    life.kill();
    let mut next = Restart::of(store.path()).begin(&scene, &life.directory, life.pid);
    for step in [2, 3] {
        processes::send(next.pid, Signal::SIGUSR2);
        next.output.wait_for_line(&format!("step {step} "));
    }
    assert_eq!(code_of(next.wait()), 7, "{}", next.output.text());
}

#[test]
fn what_changed_of_each_allocation_is_counted_between_checkpoints_of_any_depth() {
    let scene = scene();
    let mut life = Life::preloaded(&scene, "life", &Program::victim("grids").argument("99"));
    life.output.wait_for_line("step 1 ");
    let store = life.store();
    let ids = [data_checkpoint(&scene, life.pid), checkpoint(&scene, life.pid)];
    next_step(&life, life.pid, 2);
    let later = [data_checkpoint(&scene, life.pid), checkpoint(&scene, life.pid)];
    life.kill();
    let path = store.path().to_string_lossy().into_owned();
    // Of the words that were changed, those bytes that were not so before; and every byte of the odd one.
    let (before, after) = (grid(1, 0), grid(2, 0));
    let of_grid = before.iter().zip(&after).filter(|(before, after)| before != after).count() as u64;
    for (a, b) in [(ids[0], later[0]), (ids[0], later[1]), (ids[1], later[0])] {
        let answer = Ckpt::new(&scene, ["diff", &path, &a.to_string(), &b.to_string(), "--json"]).call().succeeded();
        let diff: Value = serde_json::from_str(&answer.stdout).expect("JSON");
        let changed = diff["allocations"].as_array().expect("a list").iter();
        let changed: BTreeMap<_, _> = changed
            .filter(|it| it["state"] == "changed")
            .map(|it| (it["bytes_b"].as_u64(), it["bytes_changed"].as_u64()))
            .collect();
        assert_eq!(changed[&Some(GRID_BYTES)], Some(of_grid), "{a} {b}: {diff}");
        assert_eq!(changed[&Some(ODD_BYTES)], Some(ODD_BYTES), "{a} {b}: {diff}");
    }
    let text = Ckpt::new(&scene, ["diff", &path, &ids[0].to_string(), &later[0].to_string()]).call().succeeded().stdout;
    assert!(text.contains("allocations alone"), "{text}");
}

#[test]
fn an_allocation_that_cannot_be_frozen_is_left_out_by_name() {
    let scene = scene();
    let mut life = Life::preloaded(&scene, "life", &Program::victim("grids").argument("99"));
    life.output.wait_for_line("step 1 ");
    let id = data_checkpoint(&scene, life.pid);
    life.kill();
    let shown = life.store().show(&scene, id);
    let left_out = by_bytes(&shown)[&KEPT_BACK_BYTES];
    assert!(left_out["left_out"].as_str().is_some_and(|why| why.contains("MADV_DONTFORK")), "{left_out}");
    assert!(by_bytes(&shown)[&GRID_BYTES]["left_out"].is_null(), "{shown}");
    let answer = extract(&scene, &life.store(), id, &left_out["id"].to_string()).failed_with(4);
    assert!(answer.stderr.contains("MADV_DONTFORK"), "{answer:?}");
}

#[test]
fn a_program_without_recorded_allocations_is_told_so_and_runs_on() {
    let scene = scene();
    let program = Program::victim("grids").argument("2").variable("CKPT_TRACK_MIN", "none");
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("step 1 ");
    let answer = take_data(&scene, life.pid, &[]).failed_with(5);
    assert!(answer.stderr.contains("CKPT_TRACK_MIN"), "{answer:?}");
    next_step(&life, life.pid, 2);
    assert_eq!(code_of(life.wait()), 7, "{}", life.output.text());
}

#[test]
fn many_in_a_row_wait_for_one_another_and_each_is_exact() {
    let scene = scene();
    let mut life = Life::preloaded(&scene, "life", &Program::victim("grids").argument("99"));
    life.output.wait_for_line("step 1 ");
    let answer = take_data(&scene, life.pid, &["--every", "10ms", "--count", "80"]).succeeded();
    let ids: Vec<u64> = answer.stdout.lines().map(|line| line.parse().expect("an id")).collect();
    assert!(ids.len() == 80 && ids.is_sorted(), "{ids:?}");
    next_step(&life, life.pid, 2);
    let last = data_checkpoint(&scene, life.pid);
    let store = life.store();
    life.kill();
    for (id, step) in [(ids[0], 1), (ids[40], 1), (ids[79], 1), (last, 2)] {
        check_step(&scene, &store, id, step);
    }
    // A series ends after 64, and what the next one begins with is in the store.
    let new: u64 = store.sealed(&scene).iter().skip(1).map(|row| row.new_bytes).sum();
    assert!(new < GRID_BYTES, "{new}");
}

#[test]
fn every_byte_is_compared_if_that_is_wanted() {
    let scene = scene();
    let program = Program::victim("grids").argument("99").variable("CKPT_VERIFY_MATCHES", "yes");
    let (data, store) = all_steps(&scene, "verified", &program, &["data", "data", "data", "data", "data"]);
    for (step, id) in data {
        check_step(&scene, &store, id, step);
    }
}

#[test]
fn calls_that_wait_do_not_notice() {
    let scene = scene();
    let program = Program::victim("blocked_calls").argument("120");
    let reference = ckpt_tests::exact::reference(&scene, &program);
    let mut life = Life::preloaded(&scene, "many", &program);
    for line in [5, 20, 35, 50, 65, 80] {
        life.output.wait_for_lines(line);
        data_checkpoint(&scene, life.pid);
    }
    assert_eq!(code_of(life.wait()), reference.code, "{}", life.output.text());
    ckpt_tests::exact::assert_same(&life.output.bytes(), &reference.stdout, "the table after six checkpoints");
}

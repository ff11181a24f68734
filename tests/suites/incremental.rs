//! Only what changed is stored again, equal pages are stored once, and zero pages cost nothing.

use std::time::Duration;

use ckpt_tests::exact::{assert_same, reference};
use ckpt_tests::{Life, Program, Restart, Row, Scene, checkpoint, code_of, processes};

const MIB: u64 = 1 << 20;

fn idle(kind: &str) -> Program {
    Program::victim("idle").argument("3000").argument(kind)
}

fn row(scene: &Scene, life: &Life<'_>, id: u64) -> Row {
    life.store().rows(scene).into_iter().find(|row| row.id == id).expect("the checkpoint is listed")
}

#[test]
fn a_second_checkpoint_of_an_idle_program_adds_little() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &idle("random"));
    life.output.wait_for_lines(3);
    let first = checkpoint(&scene, life.pid);
    life.output.wait_for_more_lines(10);
    let second = checkpoint(&scene, life.pid);
    let (first, second) = (row(&scene, &life, first), row(&scene, &life, second));
    assert!(first.new_bytes >= 256 * MIB, "random bytes cannot be stored in less: {first:?}");
    assert!(first.memory_bytes >= 256 * MIB, "{first:?}");
    assert!(second.new_bytes < 4 * MIB, "about ten pages of 65,536 changed: {second:?}");
    assert_eq!((second.processes, second.state.as_str()), (1, "sealed"));
    life.kill();
}

/// The kernel forgets then that it watches what is written to both, and not that it has.
#[test]
fn what_is_written_behind_memory_that_was_moved_beside_it_is_in_the_next_checkpoint() {
    let scene = Scene::new();
    let program = Program::victim("moved_beside").argument("200");
    let reference = reference(&scene, &program);
    let over = scene.path().join("over");
    let mut life = Life::preloaded(&scene, "life", &program.waiting(180, &over));
    let wait_for = |name: &str| {
        let path = life.directory.join(name);
        processes::wait_until(name, Duration::from_secs(20), || path.exists());
    };
    let checkpoint_later = || {
        life.output.wait_for_more_lines_to(6, 180);
        checkpoint(&scene, life.pid);
    };
    checkpoint_later();
    for name in ["apart", "together"] {
        std::fs::write(life.directory.join(name), "").expect("the life's directory");
        wait_for(&format!("is-{name}"));
        checkpoint_later();
    }
    checkpoint_later();
    life.kill();
    std::fs::write(over, "").expect("a file in the scene");
    let mut second = Restart::of(life.store()).begin(&scene, &life.directory, life.pid);
    assert_eq!(code_of(second.wait()), reference.code, "{}{}", second.output.text(), second.errors());
    assert_same(&life.output.bytes(), &reference.stdout, "the output of both lives");
}

#[test]
fn the_store_grows_by_what_is_new() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &idle("random"));
    life.output.wait_for_lines(3);
    checkpoint(&scene, life.pid);
    let before = life.store().bytes();
    life.output.wait_for_more_lines(10);
    let second = checkpoint(&scene, life.pid);
    let grown = life.store().bytes() - before;
    let said = row(&scene, &life, second).new_bytes;
    assert!(grown < said + MIB, "the directory grew by {grown} bytes, list says {said}");
    life.kill();
}

#[test]
fn zero_pages_cost_nothing() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &idle("zero"));
    life.output.wait_for_lines(3);
    let id = checkpoint(&scene, life.pid);
    let row = row(&scene, &life, id);
    assert!(row.new_bytes < 16 * MIB, "256 MiB of zeros: {row:?}");
    life.kill();
}

#[test]
fn two_copies_of_the_same_data_are_stored_once() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &idle("twice"));
    life.output.wait_for_lines(3);
    let id = checkpoint(&scene, life.pid);
    let row = row(&scene, &life, id);
    assert!(row.new_bytes >= 64 * MIB && row.new_bytes < 80 * MIB, "64 MiB twice: {row:?}");
    life.kill();
}

#[test]
fn two_jobs_with_the_same_data_share_a_store() {
    let scene = Scene::new();
    let shared = scene.path().join("shared");
    let program = idle("twice").variable("CKPT_DIR", &shared);
    let mut first = Life::preloaded(&scene, "first", &program);
    let mut second = Life::preloaded(&scene, "second", &program);
    let store = ckpt_tests::Store::at(&shared);
    let take = |life: &mut Life<'_>| {
        life.output.wait_for_lines(3);
        let id = checkpoint(&scene, life.pid);
        life.kill();
        store.rows(&scene).into_iter().find(|row| row.id == id).expect("it is listed")
    };
    let one = take(&mut first);
    let other = take(&mut second);
    assert_ne!(one.id, other.id);
    assert_ne!(one.job, other.job);
    assert!(other.new_bytes < 8 * MIB, "its data is there already: {other:?}");
}

/// Pages are copied while the program runs, and are of use only as long as nothing happens to them or to the mapping they lie in.
#[test]
fn memory_that_changes_in_every_way_while_it_is_copied_ahead_comes_back() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &Program::victim("remaps").argument("100000"));
    life.output.wait_for_lines(3);
    let ids: Vec<u64> = (0..12)
        .map(|_| {
            life.output.wait_for_more_lines(1);
            checkpoint(&scene, life.pid)
        })
        .collect();
    let rows = life.store().rows(&scene);
    let copied = rows.iter().filter(|row| !row.stop_phases_ms.contains_key("clone")).count();
    assert!(copied >= 4, "most are taken without a clone, which cannot show what is asked here: {rows:?}");
    life.output.wait_for_more_lines(2);
    life.kill();
    for id in ids.iter().rev().step_by(3) {
        let mut restarted = Restart::of(life.store()).id(*id).begin(&scene, &life.directory, life.pid);
        restarted.output.wait_for_more_lines(3);
        restarted.kill();
        assert!(!restarted.output.text().contains("FAILED"), "checkpoint {id}: {}", restarted.output.text());
    }
}

/// Flags of mappings are read while the program runs, and may have changed when it stops.
#[test]
fn mappings_whose_flags_change_around_a_stop_come_back_with_those_of_the_stop() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &Program::victim("advised").argument("100000"));
    life.output.wait_for_lines(2);
    let ids: Vec<u64> = (0..3).map(|_| checkpoint(&scene, life.pid)).collect();
    life.kill();
    for id in ids {
        let mut restarted = Restart::of(life.store()).id(id).begin(&scene, &life.directory, life.pid);
        restarted.output.wait_for_more_lines(2);
        restarted.kill();
    }
}

#[test]
fn the_restored_memory_is_the_captured_one() {
    for kind in ["random", "zero", "twice"] {
        let program = Program::victim("idle").argument("40").argument(kind);
        ckpt_tests::exact::survives_once(&program, 10);
    }
}

#[test]
fn the_agent_holds_no_more_than_it_may_however_much_the_program_has() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &idle("random").variable("CKPT_MEMORY", "16M"));
    life.output.wait_for_lines(3);
    let id = checkpoint(&scene, life.pid);
    assert!(row(&scene, &life, id).new_bytes >= 256 * MIB);
    let agents = processes::agents_of(life.pid);
    let peak = processes::status_field(agents[0], "VmHWM").expect("it lives");
    let peak_bytes = peak.trim_end_matches("kB").trim().parse::<u64>().expect("a number") << 10;
    // For each page 84 bytes in tables and lists (docs/performance.md, "Memory"), and the process itself.
    let pages = 256 * MIB / 4096;
    assert!(peak_bytes < 16 * MIB + 84 * pages + 24 * MIB, "{} KiB", peak_bytes >> 10);
    life.kill();
}

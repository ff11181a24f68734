//! Ways of storing memory that ckpt's own is compared with: what each stores, and that it restarts as any other.

use std::time::Duration;

use ckpt_tests::{Ckpt, Life, Program, Restart, Row, Scene, Store, checkpoint, code_of, exact};

const MIB: u64 = 1 << 20;

fn idle(kind: &str, method: &str) -> Program {
    Program::victim("idle").argument("100000").argument(kind).variable("CKPT_METHOD", method)
}

fn row(scene: &Scene, store: &Store, id: u64) -> Row {
    store.rows(scene).into_iter().find(|row| row.id == id).expect("the checkpoint is listed")
}

/// What two checkpoints of a program have added, with some steps of the program between them.
fn new_bytes(kind: &str, method: &str) -> [u64; 2] {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &idle(kind, method));
    life.output.wait_for_lines(3);
    let first = checkpoint(&scene, life.pid);
    life.output.wait_for_more_lines(3);
    let second = checkpoint(&scene, life.pid);
    life.kill();
    [first, second].map(|id| row(&scene, &life.store(), id).new_bytes)
}

#[track_caller]
fn assert_mib(found: u64, expected: std::ops::Range<u64>, story: &str) {
    assert!(
        (expected.start * MIB..expected.end * MIB).contains(&found),
        "{found} bytes, not {expected:?} MiB: {story}"
    );
}

/// 256 MiB, of which a few pages change: by each method, the MiB of the first checkpoint and of the second.
#[test]
fn a_second_checkpoint_of_an_idle_program_takes_all_of_it_by_methods_that_read_all() {
    for (method, expected) in [("full-dump", 256..300), ("local-dedup", 256..300), ("inc-tracking", 0..4)] {
        let [first, second] = new_bytes("random", method);
        assert_mib(first, 256..300, method);
        assert_mib(second, expected, method);
    }
}

/// The same 64 MiB at two places.
#[test]
fn equal_pages_of_one_checkpoint_are_stored_once_by_local_dedup_alone() {
    for (method, expected) in
        [("local-dedup", [64..84, 64..84]), ("full-dump", [128..164, 128..164]), ("inc-tracking", [128..164, 0..4])]
    {
        let found = new_bytes("twice", method);
        found.into_iter().zip(expected).for_each(|(found, expected)| assert_mib(found, expected, method));
    }
}

/// 64 MiB, into each page of which the program writes what is there.
#[test]
fn pages_written_with_what_they_held_are_stored_again_by_inc_tracking_and_not_as_pages() {
    for (method, expected) in [("inc-tracking", 64..84), ("pages", 0..4)] {
        assert_mib(new_bytes("rewritten", method)[1], expected, method);
    }
}

#[test]
fn a_program_goes_on_exactly_from_a_checkpoint_by_each_method() {
    for method in ["full-dump", "local-dedup", "inc-tracking"] {
        let program = Program::victim("idle").argument("40").argument("twice").variable("CKPT_METHOD", method);
        exact::survives_once(&program, 10);
    }
    // Processes that have equal pages.
    exact::survives_once(&Program::victim("forks").argument("40").variable("CKPT_METHOD", "full-dump"), 10);
}

/// One program by all methods in turn, each checkpoint after steps of its own; older ones are dropped meanwhile.
#[test]
fn a_running_program_is_moved_from_method_to_method_and_restarts_exactly_from_each_checkpoint() {
    const LAST: usize = 290;
    let scene = Scene::of_at_most(Duration::from_secs(240));
    let program = Program::victim("scattered").argument("300").argument("regions").variable("CKPT_TREE_MIN", "1M");
    let reference = exact::reference(&scene, &program);
    // However busy the machine is, it does not end before.
    let sign = scene.path().join("may-end");
    let mut life = Life::preloaded(&scene, "life", &program.waiting(LAST, &sign));
    let pid = life.pid.to_string();
    let methods =
        ["pages", "full-dump", "pages", "inc-tracking", "", "tree", "local-dedup", "tree", "full-dump", "inc-tracking"];
    let ids = methods.map(|method| {
        life.output.wait_for_more_lines_to(2, LAST);
        let mut arguments = vec!["checkpoint", pid.as_str()];
        if !method.is_empty() {
            arguments.extend(["--method", method]);
        }
        Ckpt::new(&scene, arguments).call().succeeded().number()
    });
    life.output.wait_for_more_lines_to(2, LAST);
    life.kill();
    std::fs::write(sign, "").expect("a file in the scene");
    let (store, dir) = (life.store(), life.store().path().to_string_lossy().into_owned());
    let goes_on = |id| {
        let mut second = Restart::of(store.path()).id(id).begin(&scene, &life.directory, life.pid);
        assert_eq!(code_of(second.wait()), reference.code, "{}{}", second.errors(), second.output.text());
        let story = format!("the output after a restart of checkpoint {id}");
        exact::assert_same(&second.output.bytes(), &reference.stdout, &story);
    };
    [ids[1], ids[2], ids[3], ids[6]].into_iter().for_each(goes_on);
    for keep in [6, 2] {
        Ckpt::new(&scene, ["prune", &dir, "--keep", &keep.to_string()]).call().succeeded();
        Ckpt::new(&scene, ["verify", &dir]).call().succeeded();
        let left = store.sealed(&scene);
        assert_eq!(left.len(), keep);
        goes_on(left[0].id);
    }
}

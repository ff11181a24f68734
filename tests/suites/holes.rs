//! Memory and files that are reserved and hardly used: nothing of them becomes allocated, and what they take is what is in them.

use std::time::Duration;

use ckpt_tests::control_group::ControlGroup;
use ckpt_tests::ordinary_user::as_ordinary_user;
use ckpt_tests::{Life, Program, Restart, Scene, checkpoint, code_of, exact};

fn program() -> Program {
    Program::victim("holes").argument("40")
}

#[test]
fn nothing_becomes_allocated_by_a_checkpoint_and_a_restart() {
    exact::survives_once(&program(), 10);
}

/// Memory files are memory, whatever the bound for files.
#[test]
fn memory_files_have_no_bound() {
    exact::survives_once(&program().variable("CKPT_FILES", "4K"), 10);
}

/// Who may not open shared memory without a name asks the program.
#[test]
fn nothing_becomes_allocated_by_an_ordinary_users_checkpoint() {
    as_ordinary_user(&["holes"], &[], || {
        let scene = Scene::new();
        let reference = exact::reference(&scene, &program());
        let taken = scene.path().join("taken");
        let mut life = Life::preloaded(&scene, "life", &program().waiting(20, &taken));
        life.output.wait_for_lines(10);
        for _ in 0..2 {
            checkpoint(&scene, life.pid);
        }
        std::fs::write(&taken, "").expect("a file in the scene");
        assert_eq!(code_of(life.wait()), 7, "{}", life.output.text());
        exact::assert_same(&life.output.bytes(), &reference.stdout, "the output behind two checkpoints");
    });
}

/// With less room than what is reserved.
#[test]
fn a_group_with_less_memory_than_is_reserved_has_room() {
    let Some(group) = ControlGroup::with_memory(96 << 20) else { return };
    let scene = Scene::of_at_most(Duration::from_secs(60));
    let reference = exact::reference(&scene, &program());
    let taken = scene.path().join("taken");
    let inside = group.around(&program().waiting(20, &taken));
    let mut first = Life::preloaded(&scene, "life", &inside);
    first.output.wait_for_lines(10);
    let id = checkpoint(&scene, first.pid);
    std::fs::write(&taken, "").expect("a file in the scene");
    first.output.wait_for_more_lines(3);
    first.kill();
    let mut second = Restart::of(first.store()).id(id).spawn(&scene, &first.directory);
    assert_eq!(code_of(second.wait()), 7, "{}", second.errors());
    exact::assert_same(&first.output.bytes(), &reference.stdout, "the output of both lives");
}

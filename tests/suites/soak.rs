//! Fifty checkpoints in a row of a program whose threads are born and die all the time.

use std::time::Duration;

use ckpt_tests::exact::{assert_same, reference};
use ckpt_tests::{Life, Program, Restart, Scene, checkpoint, code_of};

/// A fixed sequence that looks random: the same restarts in every run of the test.
fn chosen(count: usize, below: usize) -> Vec<usize> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).expect("small")
    };
    (0..count).map(|_| next()).collect()
}

fn soak(program: &Program, checkpoints: usize, restarts: usize, limit: Duration) {
    let scene = Scene::of_at_most(limit);
    let reference = reference(&scene, program);
    let mut life = Life::preloaded(&scene, "life", program);
    life.output.wait_for_line("ready");
    let mut ids = Vec::new();
    for taken in 0..checkpoints {
        ids.push(checkpoint(&scene, life.pid));
        assert!(life.try_wait().is_none(), "the program ended after {taken} checkpoints: make it longer");
    }
    assert_eq!(code_of(life.wait()), reference.code, "{}", life.output.text());
    assert_same(&life.output.bytes(), &reference.stdout, "the output after all checkpoints");
    let sealed = life.store().sealed(&scene);
    assert_eq!(sealed.len(), checkpoints);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), checkpoints, "ids are unique");
    for index in chosen(restarts, checkpoints) {
        let restart = Restart::of(life.store()).id(ids[index]);
        let mut second = restart.begin(&scene, &life.directory, life.pid);
        assert_eq!(code_of(second.wait()), reference.code, "checkpoint {}: {}", ids[index], second.errors());
        assert_same(&second.output.bytes(), &reference.stdout, &format!("the output from checkpoint {}", ids[index]));
    }
}

#[test]
fn fifty_checkpoints_of_dying_threads_and_restarts_from_three_of_them() {
    let program = Program::victim("churn").argument("3000").argument("unpaced");
    soak(&program, 50, 3, Duration::from_secs(300));
}

#[test]
#[ignore = "minutes; scripts/test --all"]
fn fifty_checkpoints_and_restarts_from_twenty_of_them() {
    for (name, kind) in [("churn", "unpaced"), ("threads8", "")] {
        let program = Program::victim(name).argument("4000").argument(kind);
        soak(&program, 50, 20, Duration::from_secs(1500));
    }
}

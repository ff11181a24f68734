//! A job whose processes are born and end all the time, checkpointed again and again, whose agents are killed in between.

use std::time::Duration;

use ckpt_tests::{Ckpt, Life, Program, Restart, Scene, code_of, processes};

/// Takes checkpoints of the torture; every third time the agent is killed, at a moment that is another one each time.
fn survives(checkpoints: u32) {
    let scene = Scene::of_at_most(Duration::from_secs(600));
    let over = scene.path().join("over");
    let program = Program::victim("torture").argument("20").waiting(10, &over);
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("step 5");
    let (pid, store) = (life.pid.to_string(), life.store());
    let mut sealed = 0;
    for round in 0..checkpoints {
        let asked = Ckpt::new(&scene, ["checkpoint", &pid]);
        if round % 3 == 2 {
            let client = std::thread::spawn(|| asked.call());
            std::thread::sleep(Duration::from_millis(u64::from(7 + 13 * (round * 37 % 17))));
            processes::end_agents(life.pid);
            // Sealed or failed: what matters is that all go on.
            let answer = client.join().expect("it has an answer");
            sealed += usize::from(answer.code == 0);
        } else {
            asked.call().succeeded();
            sealed += 1;
        }
        let stands_still =
            || processes::copies(&program.executable, &life.directory).into_iter().find(|&pid| stays_stopped(pid));
        processes::wait_until("nobody is left stopped", Duration::from_secs(10), || stands_still().is_none());
    }
    assert!(store.sealed(&scene).len() >= sealed, "none is lost");
    assert!(life.try_wait().is_none(), "{}", life.output.text());
    let directory = life.directory.clone();
    life.kill();
    let mut back = Restart::of(store).begin(&scene, &directory, life.pid);
    std::fs::write(&over, "").expect("a file in the scene");
    assert_eq!(code_of(back.wait()), 7, "{}\n{}", back.output.text(), back.errors());
}

/// Whether it is stopped, and not only for a checkpoint that is being taken.
fn stays_stopped(pid: i32) -> bool {
    processes::is_stopped(pid) && {
        std::thread::sleep(Duration::from_millis(200));
        processes::is_stopped(pid)
    }
}

#[test]
fn a_job_in_turmoil_goes_on_over_25_checkpoints_and_a_restart() {
    survives(25);
}

#[test]
#[ignore = "fifty checkpoints; scripts/test --all"]
fn a_job_in_turmoil_goes_on_over_50_checkpoints_and_a_restart() {
    survives(50);
}

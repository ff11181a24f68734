//! `ckpt restart --lazy`: the program runs before its memory is there, and cannot tell.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ckpt_tests::ordinary_user::as_ordinary_user;
use ckpt_tests::{Life, Program, Restart, Scene, checkpoint, code_of, processes};
use nix::sys::signal::Signal;

/// Memory of the program: some tenth of a second.
const MIB: u32 = 256;
/// Attempts to meet a process that lives for a tenth of a second.
const ATTEMPTS: usize = 60;

fn program(way: &str) -> Program {
    Program::victim("later").argument(MIB.to_string()).argument(way)
}

/// A killed life with a checkpoint; its next lives begin at once with what they are to do.
fn checkpointed<'scene>(scene: &'scene Scene, way: &str) -> Life<'scene> {
    let mut life = Life::preloaded(scene, "life", &program(way));
    life.output.wait_for_line("ready");
    checkpoint(scene, life.pid);
    life.kill();
    std::fs::write(life.directory.join("go"), "").expect("the life's folder is writable");
    life
}

fn lazily(life: &Life) -> Restart {
    Restart::of(life.store()).option("--lazy")
}

/// The program is restarted lazily, looks at its memory this way, and finds it whole, with a part missing at first. On a busy machine
/// all of it may have come before it looks: then it is restarted again.
fn is_whole_by(way: &str) {
    is_whole_with(way, |restart| restart);
}

/// The same with more options.
fn is_whole_with(way: &str, with: impl Fn(Restart) -> Restart) {
    comes_late_once(|scene| {
        let first = checkpointed(scene, way);
        let mut second = with(lazily(&first)).spawn(scene, &first.directory);
        let code = code_of(second.wait());
        assert_eq!(code, 7, "{}; {}", second.errors(), first.output.text());
        first.output.text()
    });
}

/// Tries until a life has found a part of its memory missing at first; `attempt` gives its output, which is whole each time.
fn comes_late_once(attempt: impl Fn(&Scene) -> String) {
    const TRIES: usize = 6;
    for _ in 0..TRIES {
        match attempt(&Scene::new()).as_str() {
            "ready\nearly\nwhole\nwhole\n" => return,
            text => assert_eq!(text, "ready\nlate\nwhole\nwhole\n"),
        }
    }
    panic!("no memory has come later, {TRIES} times");
}

#[test]
fn memory_that_comes_later_is_what_it_was() {
    is_whole_by("itself");
}

#[test]
fn the_kernel_waits_for_memory_that_comes_later() {
    is_whole_by("calls");
}

#[test]
fn eight_threads_find_memory_that_comes_later() {
    is_whole_by("threads");
}

#[test]
fn children_find_memory_that_comes_later() {
    is_whole_by("children");
}

#[test]
fn what_is_dropped_before_it_has_come_is_zeros() {
    is_whole_by("dropped");
}

#[test]
fn what_is_moved_before_it_has_come_comes_to_where_it_is() {
    is_whole_by("moved");
}

#[test]
fn a_checkpoint_waits_until_all_memory_is_there_and_can_be_restarted() {
    let scene = Scene::new();
    let first = checkpointed(&scene, "stay");
    let mut second = lazily(&first).begin(&scene, &first.directory, first.pid);
    let id = checkpoint(&scene, second.pid);
    second.kill();
    let third = Restart::of(first.store()).id(id).begin(&scene, &first.directory, first.pid);
    third.output.wait_for_line("whole");
    assert!(!third.output.text().contains("wrong"), "{}", third.output.text());
}

#[test]
fn a_detached_program_gets_its_memory_too() {
    comes_late_once(|scene| {
        let first = checkpointed(scene, "stay");
        // It is over when the program runs, which has no parent then to be found by.
        let mut restart = lazily(&first).option("--detach").spawn(scene, &first.directory);
        assert_eq!(code_of(restart.wait()), 0, "{}", restart.errors());
        first.output.wait_for_text("\nwhole\nwhole\n");
        processes::send(first.pid, Signal::SIGKILL);
        first.output.text()
    });
}

#[test]
fn a_program_in_another_pid_namespace_gets_its_memory_too() {
    is_whole_with("children", |restart| restart.option("--namespace=always"));
}

#[test]
fn an_ordinary_user_is_told_and_all_memory_comes_first() {
    as_ordinary_user(&["later"], &[], || {
        let scene = Scene::new();
        let first = checkpointed(&scene, "itself");
        let mut second = lazily(&first).spawn(&scene, &first.directory);
        let code = code_of(second.wait());
        let errors = second.errors();
        assert_eq!(code, 7, "{errors}; {}", first.output.text());
        assert!(errors.contains("--lazy has no effect: userfaultfd: CAP_SYS_PTRACE is needed"), "{errors}");
        assert_eq!(first.output.text(), "ready\nlate\nwhole\nwhole\n");
    });
}

/// The processes that bring memory later, by their pids: those of `ckpt restart` that lead a session.
fn bringers(scene: &Scene, restart: i32) -> Vec<i32> {
    let is_restart = |pid: &i32| processes::arguments(*pid).iter().any(|word| word == "restart");
    processes::of_scene(scene.path()).into_iter().filter(|pid| *pid != restart).filter(is_restart).collect()
}

/// The guard and its child, the filler.
fn guard_and_filler(scene: &Scene, restart: i32) -> Option<(i32, i32)> {
    let found = bringers(scene, restart);
    let child_of = |pid: i32| processes::children(pid).into_iter().find(|child| found.contains(child));
    found.iter().find_map(|&guard| child_of(guard).map(|filler| (guard, filler)))
}

/// Restarts until one of the two could be killed while memory was missing. Gives what was said then.
fn killed(chosen: fn((i32, i32)) -> i32) -> (String, String) {
    let scene = Scene::new();
    let first = checkpointed(&scene, "stay");
    let stdout = std::fs::File::options().write(true).open(first.directory.join("stdout")).expect("it has a stdout");
    for _ in 0..ATTEMPTS {
        // What the life before has printed would be taken for this one's.
        stdout.set_len("ready\n".len() as u64).expect("it can be shortened");
        let mut second = lazily(&first).spawn(&scene, &first.directory);
        let restart = second.pid;
        let end = std::time::Instant::now() + Duration::from_secs(20);
        let mut victim = None;
        // From the moment the program says that memory is missing.
        while victim.is_none() && std::time::Instant::now() < end && second.try_wait().is_none() {
            let text = first.output.text();
            if text.contains("whole") {
                break;
            }
            if text.contains("early") {
                victim = guard_and_filler(&scene, restart).map(chosen);
            }
        }
        if let Some(victim) = victim {
            processes::send(victim, Signal::SIGKILL);
        }
        processes::wait_until("nobody to bring memory", Duration::from_secs(20), || {
            bringers(&scene, restart).is_empty()
        });
        if victim.is_some() && second.try_wait().is_some_and(|status| code_of(status) == 137) {
            return (second.errors(), first.output.text());
        }
        // It was done already: the program goes on, and is ended.
        for pid in processes::children(restart) {
            processes::send(pid, Signal::SIGKILL);
        }
        second.wait();
    }
    panic!("no one could be killed in time: {}", first.output.text());
}

#[test]
fn a_program_whose_memory_cannot_come_any_more_is_ended_and_never_sees_zeros() {
    let (errors, printed) = killed(|(_, filler)| filler);
    assert!(errors.contains("was ended by SIGKILL"), "{errors}");
    assert!(!printed.contains("wrong"), "{printed}");
}

#[test]
fn a_program_whose_guard_is_gone_is_ended_and_never_sees_zeros() {
    let (errors, printed) = killed(|(guard, _)| guard);
    assert!(errors.contains("its guard has been ended"), "{errors}");
    assert!(!printed.contains("wrong"), "{printed}");
}

/// The largest pack of a store.
fn largest_pack(store: &Path) -> PathBuf {
    let packs = std::fs::read_dir(store.join("packs")).expect("a store").map(|entry| entry.expect("a pack").path());
    packs.max_by_key(|pack| pack.metadata().expect("it is there").len()).expect("there is one")
}

#[test]
fn a_damaged_page_ends_the_program_and_is_named() {
    let scene = Scene::new();
    let first = checkpointed(&scene, "itself");
    let pack = largest_pack(first.store().path());
    let file = std::fs::File::options().read(true).write(true).open(&pack).expect("a pack");
    let at = pack.metadata().expect("it is there").len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("it is that long");
    file.write_all_at(&[byte[0] ^ 1], at).expect("it can be written");
    let mut second = lazily(&first).spawn(&scene, &first.directory);
    // 121 if it is found before the program is complete, which is then never run.
    let code = code_of(second.wait());
    assert!([137, 121].contains(&code), "{code}: {}", second.errors());
    let (errors, name) = (second.errors(), pack.file_name().expect("a name").to_string_lossy().into_owned());
    assert!(errors.contains(&name) && errors.contains("a page's digests"), "{errors}");
    assert!(!first.output.text().contains("wrong"), "{}", first.output.text());
}

#[test]
fn memory_comes_although_its_checkpoint_is_dropped_meanwhile() {
    let scene = Scene::new();
    let first = checkpointed(&scene, "itself");
    let mut second = lazily(&first).spawn(&scene, &first.directory);
    first.output.wait_for_line("early");
    // As prune does it at the end.
    std::fs::remove_dir_all(first.store().path().join("packs")).expect("packs");
    assert_eq!(code_of(second.wait()), 7, "{}; {}", second.errors(), first.output.text());
    assert_eq!(first.output.text(), "ready\nearly\nwhole\nwhole\n");
}

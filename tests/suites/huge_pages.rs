//! Memory of huge pages that a program has asked for. The tests provide the pages, where they may.

use std::fs::{self, File};
use std::path::Path;

use ckpt_tests::exact::{How, Trigger, reference, survives};
use ckpt_tests::{Ckpt, Life, Program, Restart, Scene, skip};

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
/// What the victim has, twice: a life may end while the next begins.
const PAGES: u64 = 32;

/// Pages in the pool, until this is dropped. One test at a time has them.
struct Pages {
    before: String,
    _alone: File,
}

impl Pages {
    /// None where this user may not provide them, there are some already, or the memory is in pieces.
    fn provided(pages: u64) -> Option<Pages> {
        let alone = File::create(std::env::temp_dir().join("ckpt-test-huge-pages")).ok()?;
        alone.lock().ok()?;
        let before = fs::read_to_string(POOL).ok()?;
        let provided = Pages { before, _alone: alone };
        // Otherwise they are somebody's.
        if provided.before.trim() != "0" {
            return None;
        }
        fs::write(POOL, pages.to_string()).ok()?;
        let there = fs::read_to_string(POOL).ok()?.trim().parse::<u64>().ok()?;
        (there >= pages).then_some(provided)
    }

    fn free() -> u64 {
        let text = fs::read_to_string(POOL.replace("nr_", "free_")).expect("the pool");
        text.trim().parse().expect("a number")
    }

    fn set(&self, pages: u64) {
        fs::write(POOL, pages.to_string()).expect("the pool");
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = fs::write(POOL, self.before.trim());
    }
}

#[test]
fn memory_of_huge_pages_survives() {
    let Some(_pages) = Pages::provided(PAGES) else { return skip("no huge pages can be provided") };
    let scene = Scene::new();
    let program = Program::victim("huge_pages");
    let reference = reference(&scene, &program);
    assert!(String::from_utf8_lossy(&reference.stdout).contains("huge 1 1 1 1 1"));
    for (line, trigger) in [(3, Trigger::Signal), (20, Trigger::Command), (40, Trigger::Kill)] {
        survives(&scene, &program, How { trigger, ..How::usual() }, line, &reference);
    }
}

#[test]
fn a_second_life_can_be_checkpointed_and_a_restart_without_pages_says_what_is_missing() {
    let Some(pages) = Pages::provided(PAGES) else { return skip("no huge pages can be provided") };
    let scene = Scene::new();
    let program = Program::victim("huge_pages").argument("100000");
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(5);
    let free = Pages::free();
    ckpt_tests::checkpoint(&scene, life.pid);
    assert_eq!(Pages::free(), free, "a checkpoint takes no page");
    // What processes have in common since a fork stays so, and each would have it for itself after a restart.
    pages.set(PAGES - free);
    let refused = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).call().failed_with(4);
    assert!(refused.stderr.contains("14 pages, and this machine has 12"), "{refused:?}");
    life.output.wait_for_more_lines(3);
    pages.set(PAGES);
    life.kill();
    let mut second = Restart::of(life.store()).begin(&scene, &life.directory, life.pid);
    second.output.wait_for_more_lines(3);
    ckpt_tests::checkpoint(&scene, second.pid);
    second.kill();
    pages.set(0);
    let refused = Ckpt::new(&scene, [Path::new("restart"), life.store().path()]).call().failed_with(125);
    assert!(
        refused.stderr.contains("28.0 MiB of huge pages of 2.0 MiB: 14 pages, and this machine has 0"),
        "{refused:?}"
    );
    assert!(refused.stderr.contains("nr_hugepages"), "{refused:?}");
    pages.set(PAGES);
    for option in ["--lazy", "--force"] {
        let mut third = Restart::of(life.store()).option(option).begin(&scene, &life.directory, life.pid);
        third.output.wait_for_more_lines(3);
        third.kill();
    }
}

//! Large memory stored finer than a page: how little that takes, and that nothing else changes by it.

use std::path::Path;
use std::time::Duration;

use ckpt_tests::exact::{Reference, Trigger, assert_same, reference, take};
use ckpt_tests::{
    Ckpt, Launch, Life, Program, Restart, Row, Scene, Stdout, Store, checkpoint, code_of, fault, processes,
};
use nix::sys::signal::Signal;

/// Longer than any test takes, for programs that are killed.
const ENDLESS: &str = "100000";

fn scattered(steps: &str, kind: &str) -> Program {
    Program::victim("scattered").argument(steps).argument(kind)
}

fn tree(program: Program) -> Program {
    program.variable("CKPT_METHOD", "tree").variable("CKPT_TREE_MIN", "1M")
}

fn scene() -> Scene {
    Scene::of_at_most(Duration::from_secs(240))
}

/// The regions of a checkpoint that are stored as differences, and how many differences it needs.
fn stored_as_differences(store: &Store, scene: &Scene, id: u64) -> (usize, u64) {
    let view = store.show(scene, id);
    let regions = view["regions"].as_array().expect("a list");
    let finer = regions.iter().filter(|region| region["method"] == "tree").count();
    (finer, view["differences"].as_u64().expect("a number"))
}

/// Restarts checkpoint `id` and compares all that the program prints.
#[track_caller]
fn goes_on_exactly(scene: &Scene, store: &Path, id: u64, (directory, pid): (&Path, i32), reference: &Reference) {
    let mut second = Restart::of(store).id(id).begin(scene, directory, pid);
    assert_eq!(code_of(second.wait()), reference.code, "{}{}", second.errors(), second.output.text());
    assert_same(&second.output.bytes(), &reference.stdout, &format!("the output after a restart of checkpoint {id}"));
}

#[track_caller]
fn all_are_whole(scene: &Scene, store: &Store) {
    Ckpt::new(scene, ["verify", &store.path().to_string_lossy()]).call().succeeded();
}

fn log(store: &Store) -> String {
    std::fs::read_to_string(store.path().join("log")).unwrap_or_default()
}

#[test]
fn words_changed_in_many_pages_take_less_than_a_fifth_of_what_their_pages_take() {
    let scene = scene();
    let later_rows = |name: &str, program: Program| -> Vec<Row> {
        let mut life = Life::preloaded(&scene, name, &program);
        for _ in 0..3 {
            // Four steps change a word in every page.
            life.output.wait_for_more_lines(6);
            checkpoint(&scene, life.pid);
        }
        life.kill();
        let rows = life.store().sealed(&scene);
        assert_eq!(rows.len(), 3);
        let (finer, differences) = stored_as_differences(&life.store(), &scene, rows[2].id);
        let expected = if name == "tree" { (1, 3) } else { (0, 0) };
        assert_eq!((finer, differences), expected, "{name}");
        rows.into_iter().skip(1).collect()
    };
    let pages = later_rows("pages", scattered(ENDLESS, "plain"));
    let finer = later_rows("tree", tree(scattered(ENDLESS, "plain")));
    for (pages, finer) in pages.iter().zip(&finer) {
        assert!(pages.new_bytes > 60 << 20, "every page has changed: {pages:?}");
        assert!(finer.new_bytes * 5 < pages.new_bytes, "{finer:?} {pages:?}");
        assert!(finer.memory_bytes >= 64 << 20, "{finer:?}");
    }
}

#[test]
fn a_program_that_maps_grows_joins_and_unmaps_goes_on_exactly_from_each_of_its_checkpoints() {
    let scene = scene();
    let program = tree(scattered("300", "regions"));
    let reference = reference(&scene, &program);
    let mut life = Life::preloaded(&scene, "life", &program);
    let mut ids = Vec::new();
    for (line, trigger) in [
        (6, Trigger::Command),
        (13, Trigger::Signal),
        (20, Trigger::Command),
        (27, Trigger::Command),
        (36, Trigger::Signal),
    ] {
        life.output.wait_for_lines(line);
        ids.push(take(&scene, &life, trigger));
    }
    life.output.wait_for_more_lines(3);
    life.kill();
    let store = life.store();
    all_are_whole(&scene, &store);
    assert!(stored_as_differences(&store, &scene, ids[4]).0 > 1);
    for id in [ids[4], ids[2], ids[0], ids[3]] {
        goes_on_exactly(&scene, store.path(), id, (&life.directory, life.pid), &reference);
    }
}

#[test]
fn dropped_copied_and_flattened_checkpoints_keep_what_their_differences_need() {
    let scene = scene();
    let program = tree(scattered("300", "regions"));
    let reference = reference(&scene, &program);
    let mut life = Life::preloaded(&scene, "life", &program.clone().variable("CKPT_KEEP", "2"));
    let ids: Vec<u64> = (0..5)
        .map(|_| {
            life.output.wait_for_more_lines(4);
            checkpoint(&scene, life.pid)
        })
        .collect();
    life.output.wait_for_more_lines(2);
    life.kill();
    let (store, dir) = (life.store(), life.store().path().to_string_lossy().into_owned());
    Ckpt::new(&scene, ["prune", &dir, "--keep", "1"]).call().succeeded();
    assert_eq!(store.sealed(&scene).len(), 1);
    all_are_whole(&scene, &store);
    let place = (life.directory.as_path(), life.pid);
    goes_on_exactly(&scene, store.path(), ids[4], place, &reference);

    let copy = Store::at(scene.path().join("copy"));
    Ckpt::new(&scene, ["copy", &dir, &copy.path().to_string_lossy()]).call().succeeded();
    std::fs::remove_dir_all(store.path()).expect("the original goes");
    let copied = copy.sealed(&scene)[0].id;
    Ckpt::new(&scene, ["flatten", &copy.path().to_string_lossy(), &copied.to_string()]).call().succeeded();
    all_are_whole(&scene, &copy);
    goes_on_exactly(&scene, copy.path(), copied, place, &reference);
}

#[test]
fn a_restarted_program_is_checkpointed_again_and_needs_nothing_of_its_first_life() {
    let scene = scene();
    let program = tree(scattered("300", "regions"));
    let reference = reference(&scene, &program);
    let options = ["--method", "tree", "--chunk", "64"].map(str::to_owned);
    let mut life = Life::start(&scene, "life", &program, &Launch::Run(options.to_vec()), Stdout::File);
    for line in [8, 14] {
        life.output.wait_for_lines(line);
        checkpoint(&scene, life.pid);
    }
    life.kill();
    let (store, directory, pid) = (life.store(), life.directory.clone(), life.pid);
    let mut newest = 0;
    for generation in 0..2 {
        let mut next = Restart::of(&store).begin(&scene, &directory, pid);
        for _ in 0..2 {
            next.output.wait_for_more_lines(4);
            newest = checkpoint(&scene, next.pid);
        }
        let (finer, differences) = stored_as_differences(&store, &scene, newest);
        assert!(finer > 0 && differences == 2, "generation {generation}: {finer} regions, {differences} differences");
        next.kill();
    }
    Ckpt::new(&scene, ["prune", &store.path().to_string_lossy(), "--keep", "1"]).call().succeeded();
    all_are_whole(&scene, &store);
    goes_on_exactly(&scene, store.path(), newest, (&directory, pid), &reference);
}

#[test]
fn two_chunks_with_one_digest_are_told_apart_when_every_byte_is_compared() {
    let scene = scene();
    let program = tree(scattered("200", "collides")).variable("CKPT_CHUNK", "32");
    let reference = reference(&scene, &program);
    // Who says nothing has them compared.
    for (answer, compares) in [("", true), ("yes", true), ("no", false)] {
        let taken = scene.path().join(format!("{answer}-taken"));
        let program = program.clone().variable("CKPT_VERIFY_MATCHES", answer).waiting(100, &taken);
        let mut life = Life::preloaded(&scene, &format!("life-{answer}"), &program);
        life.output.wait_for_lines(5);
        checkpoint(&scene, life.pid);
        life.output.wait_for_lines(36);
        checkpoint(&scene, life.pid);
        life.output.wait_for_more_lines(4);
        let newest = checkpoint(&scene, life.pid);
        life.kill();
        std::fs::write(taken, "").expect("a file in the scene");
        let store = life.store();
        assert_eq!(log(&store).contains("has the digest of another"), compares);
        all_are_whole(&scene, &store);
        if compares {
            goes_on_exactly(&scene, store.path(), newest, (&life.directory, life.pid), &reference);
        } else {
            // It may end before anybody sees it.
            let mut second = Restart::of(&store).spawn(&scene, &life.directory);
            assert_eq!(code_of(second.wait()), 1, "it finds the chunk of before: {}", second.errors());
        }
    }
}

/// Ends the agents of a program, so that the next command starts one with its own environment.
fn end_agents(pid: i32) {
    let agents = processes::agents_of(pid);
    agents.iter().for_each(|&agent| processes::send(agent, Signal::SIGKILL));
    let limit = Duration::from_secs(5);
    processes::wait_until("the agents are gone", limit, || !agents.iter().any(|&agent| processes::is_alive(agent)));
}

#[test]
fn the_program_outlives_an_agent_that_is_killed_while_it_stores_differences() {
    let scene = scene();
    let program = tree(scattered(ENDLESS, "plain"));
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(5);
    let earliest = checkpoint(&scene, life.pid);
    let pid = life.pid.to_string();
    for name in [
        "store.pack.create:1",
        "store.pack.write:1",
        "store.pack.write:3",
        "store.pack.sync:1",
        "store.manifest.rename:1",
    ] {
        end_agents(life.pid);
        let answer = Ckpt::new(&scene, ["checkpoint", &pid]).variable(fault::KILL, name).call();
        // With the manifest in its place the checkpoint is sealed, whoever says so.
        assert_eq!(answer.code == 0, name.starts_with("store.manifest.rename"), "killed at {name}: {answer:?}");
        let alone = || processes::copies(&program.executable, &life.directory) == [life.pid];
        processes::wait_until(&format!("only the program is left; {name}"), Duration::from_secs(10), alone);
        life.output.wait_for_more_lines(2);
    }
    end_agents(life.pid);
    checkpoint(&scene, life.pid);
    life.output.wait_for_more_lines(6);
    let latest = checkpoint(&scene, life.pid);
    life.output.wait_for_more_lines(2);
    life.kill();
    let store = life.store();
    assert_eq!(stored_as_differences(&store, &scene, latest), (1, 2));
    all_are_whole(&scene, &store);
    // The latest first: a restart cuts the output back.
    for id in [latest, earliest] {
        let mut second = Restart::of(&store).id(id).begin(&scene, &life.directory, life.pid);
        second.output.wait_for_more_lines(8);
        second.kill();
        let printed = second.output.bytes();
        let complete = printed.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let lines = printed.iter().filter(|&&byte| byte == b'\n').count();
        let whole = reference(&scene, &scattered(&lines.to_string(), "plain"));
        assert_same(&printed[..complete], &whole.stdout[..complete], "the program's output");
    }
}

#[test]
fn an_attempt_whose_twin_is_killed_costs_itself_alone() {
    let scene = scene();
    let program = tree(scattered("300", "regions"));
    let reference = reference(&scene, &program);
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(8);
    checkpoint(&scene, life.pid);
    life.output.wait_for_more_lines(4);
    // The kernel has forgotten by now what had been written since the first one.
    Ckpt::new(&scene, ["checkpoint", "--no-wait", &life.pid.to_string()]).call().succeeded();
    let copies = processes::copies(&program.executable, &life.directory);
    copies.into_iter().filter(|&pid| pid != life.pid).for_each(|twin| processes::send(twin, Signal::SIGKILL));
    let failed = || life.store().rows(&scene).iter().any(|row| row.state == "failed");
    processes::wait_until("the attempt has failed", Duration::from_secs(10), failed);
    life.output.wait_for_more_lines(4);
    let newest = checkpoint(&scene, life.pid);
    life.kill();
    goes_on_exactly(&scene, life.store().path(), newest, (&life.directory, life.pid), &reference);
}

#[test]
fn what_changes_altogether_begins_a_new_series_and_a_stopped_program_is_read_as_well() {
    let scene = scene();
    let program = tree(Program::victim("rewrites").argument("200"));
    let reference = reference(&scene, &program);
    let mut life = Life::preloaded(&scene, "life", &program);
    let needed: Vec<u64> = (0..5)
        .map(|_| {
            life.output.wait_for_more_lines(2);
            let id = checkpoint(&scene, life.pid);
            stored_as_differences(&life.store(), &scene, id).1
        })
        .collect();
    assert_eq!(needed, [1, 2, 3, 1, 2], "a restart reads no more than thrice the memory");
    let pid = life.pid.to_string();
    let newest = Ckpt::new(&scene, ["checkpoint", "--kill", &pid]).call().succeeded().number();
    life.kill();
    all_are_whole(&scene, &life.store());
    goes_on_exactly(&scene, life.store().path(), newest, (&life.directory, life.pid), &reference);
}

#[test]
fn the_agent_holds_no_region_whole() {
    let scene = scene();
    let peak_kib = |name: &str, chunk: &str, compares: &str, method: &str| {
        let program = tree(scattered(ENDLESS, "plain")).variable("CKPT_MEMORY", "16M").variable("CKPT_CHUNK", chunk);
        let program = program.variable("CKPT_VERIFY_MATCHES", compares);
        let mut life = Life::preloaded(&scene, name, &program);
        let mut newest = 0;
        for _ in 0..3 {
            life.output.wait_for_more_lines(6);
            newest = checkpoint(&scene, life.pid);
        }
        let agents = processes::agents_of(life.pid);
        let peak = processes::status_field(agents[0], "VmHWM").expect("it lives");
        let (finer, _) = stored_as_differences(&life.store(), &scene, newest);
        assert_eq!(finer, usize::from(method == "tree"), "{name}");
        assert_eq!(log(&life.store()).contains("is stored as pages: its digests need"), method == "pages", "{name}");
        life.kill();
        peak.trim_end_matches("kB").trim().parse::<u64>().expect("a number")
    };
    // 64 MiB have digests of 2 MiB in chunks of 512 bytes, and 8 MiB in chunks of 128: 6 MiB is what there is.
    let peak = peak_kib("long-chunks", "512", "no", "tree");
    assert!(peak < 48 << 10, "{peak} KiB for a region of 64 MiB");
    // What is compared is read in windows of 16 MiB.
    let peak = peak_kib("compared", "512", "", "tree");
    assert!(peak < 72 << 10, "{peak} KiB for a region of 64 MiB that is compared");
    peak_kib("short-chunks", "128", "", "pages");
}

#[test]
fn a_running_program_is_moved_to_the_other_method_and_back() {
    const LAST: usize = 290;
    let scene = scene();
    let program = scattered("300", "plain");
    let reference = reference(&scene, &program);
    // However busy the machine is, it does not end before.
    let sign = scene.path().join("may-end");
    let mut life = Life::preloaded(&scene, "life", &program.waiting(LAST, &sign));
    let pid = life.pid.to_string();
    let mut taken = Vec::new();
    for (option, finer, differences) in
        [("pages", 0, 0), ("tree", 1, 1), ("", 1, 2), ("pages", 0, 0), ("", 0, 0), ("tree", 1, 1), ("tree", 1, 2)]
    {
        life.output.wait_for_more_lines_to(4, LAST);
        let mut arguments = vec!["checkpoint", &pid];
        if !option.is_empty() {
            arguments.extend(["--method", option]);
        }
        let id = Ckpt::new(&scene, arguments).call().succeeded().number();
        assert_eq!(stored_as_differences(&life.store(), &scene, id), (finer, differences), "{id}");
        taken.push(id);
    }
    life.kill();
    std::fs::write(sign, "").expect("a file in the scene");
    all_are_whole(&scene, &life.store());
    for id in [taken[6], taken[4], taken[2]] {
        goes_on_exactly(&scene, life.store().path(), id, (&life.directory, life.pid), &reference);
    }
}

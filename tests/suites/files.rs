//! Files as of the checkpoint: what the program may write to, what only it can reach, and whole directories.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ckpt_tests::exact::{How, Trigger, assert_same, reference, survives};
use ckpt_tests::ordinary_user::as_ordinary_user;
use ckpt_tests::{Ckpt, Life, Program, Restart, Scene, checkpoint, code_of, processes};
use nix::sys::signal::Signal;

fn contents() -> Program {
    Program::victim("contents").writes("plain").writes("write_only").writes("mapped")
}

#[test]
fn content_survives_in_files_with_and_without_names_whatever_is_done_to_it_afterwards() {
    let scene = Scene::of_at_most(Duration::from_secs(180));
    let reference = reference(&scene, &contents());
    for (line, trigger) in [(3, Trigger::Signal), (20, Trigger::Command), (45, Trigger::Signal)] {
        survives(&scene, &contents(), How { trigger, ..How::usual() }, line, &reference);
    }
}

#[test]
fn content_survives_five_generations_and_several_restarts_of_each() {
    let scene = Scene::of_at_most(Duration::from_secs(180));
    let program = contents().argument("400");
    let whole = reference(&scene, &program);
    let mut life = Life::preloaded(&scene, "life", &program);
    let (directory, store, pid) = (life.directory.clone(), life.store(), life.pid);
    for _ in 0..4 {
        for _ in 0..2 {
            life.output.wait_for_more_lines(10);
            checkpoint(&scene, life.pid);
            life.output.wait_for_more_lines(5);
        }
        for _ in 0..2 {
            // A life that is dropped later would end the next one, which has its pid.
            life.kill();
            drop(life);
            life = Restart::of(&store).begin(&scene, &directory, pid);
            life.output.wait_for_more_lines(5);
        }
    }
    assert_eq!(code_of(life.wait()), 7, "{}{}", life.output.text(), life.errors());
    assert_same(&life.output.bytes(), &whole.stdout, "the output of five generations");
}

/// A program that runs until it is killed, in a directory with a tree, and is checkpointed with that.
fn with_tree<'a>(scene: &'a Scene, fill: impl FnOnce(&Path), option: &[&str]) -> (Life<'a>, std::path::PathBuf) {
    let program = Program::victim("threads8").argument("100000");
    let life = Life::preloaded(scene, "life", &program);
    life.output.wait_for_lines(3);
    let tree = life.directory.join("tree");
    fs::create_dir(&tree).expect("a directory");
    fill(&tree);
    let pid = life.pid.to_string();
    let arguments = ["checkpoint", &pid, "--with-dir", &tree.to_string_lossy()].map(str::to_owned);
    let more = option.iter().map(|&word| word.to_owned());
    Ckpt::new(scene, arguments.into_iter().chain(more)).call().succeeded();
    (life, tree)
}

fn written(path: &Path, content: &[u8]) {
    fs::write(path, content).expect("a file");
}

/// Names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

/// Where restarts save what they replace in `directory`.
fn place_of_saved(life: &Life<'_>, directory: &Path) -> PathBuf {
    let directory = directory.canonicalize().expect("it is there");
    life.store().path().join("saved").join(directory.strip_prefix("/").expect("an absolute path"))
}

fn restart_and_kill(scene: &Scene, life: &Life<'_>) -> String {
    let mut second = Restart::of(life.store()).begin(scene, &life.directory, life.pid);
    second.kill();
    second.errors()
}

#[test]
fn a_directory_is_as_it_was_with_all_that_is_in_it_and_nothing_is_lost() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let old: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
    let fill = |tree: &Path| {
        written(&tree.join("same"), b"same");
        written(&tree.join("changed"), &old);
        written(&tree.join("cut"), b"before");
        written(&tree.join("grown"), b"before");
        written(&tree.join("removed"), b"removed");
        written(&tree.join("becomes a directory"), b"file");
        fs::create_dir_all(tree.join("below/deeper")).expect("directories");
        written(&tree.join("below/deeper/file"), b"deep");
        fs::create_dir(tree.join("empty")).expect("a directory");
        fs::create_dir_all(tree.join("becomes a file/deeper")).expect("directories");
        written(&tree.join("becomes a file/deeper/file"), b"deepest");
        symlink("same", tree.join("link")).expect("a link");
        fs::set_permissions(tree.join("removed"), fs::Permissions::from_mode(0o751)).expect("its mode");
    };
    let (mut life, tree) = with_tree(&scene, fill, &[]);
    let time = |name: &str| fs::metadata(tree.join(name)).expect("a file").modified().expect("a time");
    let (time_of_changed, time_of_removed) = (time("changed"), time("removed"));
    life.kill();
    let at_checkpoint = names(&tree);

    let mut new = old.clone();
    new[40_000] ^= 1;
    written(&tree.join("changed"), &new);
    written(&tree.join("cut"), b"");
    written(&tree.join("grown"), b"before|after");
    fs::remove_file(tree.join("removed")).expect("removed");
    fs::remove_file(tree.join("becomes a directory")).expect("removed");
    fs::create_dir(tree.join("becomes a directory")).expect("a directory");
    written(&tree.join("becomes a directory/inside"), b"inside");
    fs::remove_dir_all(tree.join("below")).expect("removed");
    fs::remove_dir(tree.join("empty")).expect("removed");
    fs::remove_dir_all(tree.join("becomes a file")).expect("removed");
    written(&tree.join("becomes a file"), b"a file");
    fs::remove_file(tree.join("link")).expect("removed");
    symlink("changed", tree.join("link")).expect("a link");
    written(&tree.join("added"), b"added");

    let said = restart_and_kill(&scene, &life);
    assert!(said.contains("are again as they were at checkpoint 1"), "{said}");
    let whole = ["added", "becomes a directory", "becomes a file", "changed", "cut", "link"];
    let mut expected: Vec<String> = whole.iter().map(|name| format!("{name}.ckpt-1")).collect();
    expected.push("grown.ckpt-1.tail".to_owned());
    expected.sort();
    // The program finds nothing that it did not have.
    assert_eq!(names(&tree), at_checkpoint);
    let place = place_of_saved(&life, &tree);
    assert_eq!(names(&place), expected);
    let content = |name: &str| fs::read(tree.join(name)).expect("a file");
    let saved = |name: &str| fs::read(place.join(name)).expect("a file");
    assert!(content("changed") == old && saved("changed.ckpt-1") == new);
    assert_eq!([content("cut"), saved("cut.ckpt-1")], [b"before".to_vec(), Vec::new()]);
    assert_eq!([content("grown"), saved("grown.ckpt-1.tail")], [b"before".to_vec(), b"|after".to_vec()]);
    assert_eq!([content("removed"), content("becomes a directory")], [b"removed".to_vec(), b"file".to_vec()]);
    assert_eq!(
        [saved("added.ckpt-1"), saved("becomes a directory.ckpt-1/inside")],
        [b"added".to_vec(), b"inside".to_vec()]
    );
    assert_eq!(content("below/deeper/file"), b"deep");
    assert_eq!(
        [content("becomes a file/deeper/file"), saved("becomes a file.ckpt-1")],
        [b"deepest".to_vec(), b"a file".to_vec()]
    );
    assert_eq!(fs::read_link(tree.join("link")).expect("a link"), Path::new("same"));
    assert_eq!(fs::metadata(tree.join("removed")).expect("a file").permissions().mode() & 0o777, 0o751);
    assert_eq!((time("changed"), time("removed")), (time_of_changed, time_of_removed));

    // Again: nothing differs, so nothing is saved, nor are the saved ones anybody's to move.
    restart_and_kill(&scene, &life);
    assert_eq!((names(&tree), names(&place)), (at_checkpoint, expected));
    // Another change gets another name.
    written(&tree.join("cut"), b"xxxxxx");
    restart_and_kill(&scene, &life);
    assert_eq!([saved("cut.ckpt-1.1"), content("cut")], [b"xxxxxx".to_vec(), b"before".to_vec()]);

    let store = life.store().path().display().to_string();
    let listed = Ckpt::new(&scene, ["saved", &store]).call().succeeded().stdout;
    let line = listed.lines().find(|line| line.ends_with("/tree/changed")).expect("it is listed");
    let number = line.split_whitespace().next().expect("its number");
    let newer = scene.path().join("newer").display().to_string();
    Ckpt::new(&scene, ["saved", &store, number, "--to", &newer]).call().succeeded();
    assert!(fs::read(&newer).expect("a file") == new);
    Ckpt::new(&scene, ["saved", &store, number, "--rm"]).call().succeeded();
    assert!(!names(&place).contains(&"changed.ckpt-1".to_owned()));
}

#[test]
fn an_ordinary_users_files_are_saved_in_the_store_too() {
    as_ordinary_user(&["threads8"], &[], || {
        let scene = Scene::new();
        let (mut life, tree) = with_tree(&scene, |tree| written(&tree.join("changed"), b"before"), &[]);
        life.kill();
        written(&tree.join("changed"), b"after!");
        written(&tree.join("added"), b"added");
        restart_and_kill(&scene, &life);
        assert_eq!(names(&tree), ["changed"]);
        assert_eq!(names(&place_of_saved(&life, &tree)), ["added.ckpt-1", "changed.ckpt-1"]);
        assert_eq!(fs::read(tree.join("changed")).expect("a file"), b"before");
    });
}

#[test]
fn the_store_and_what_restarts_have_saved_are_part_of_no_directory() {
    let scene = Scene::new();
    let program = Program::victim("threads8").argument("100000").variable("CKPT_WITH_DIR", ".");
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(3);
    written(&life.directory.join("mine"), b"mine");
    written(&life.directory.join("mine.ckpt-4"), b"saved");
    let first = checkpoint(&scene, life.pid);
    let second = checkpoint(&scene, life.pid);
    life.kill();
    fs::remove_file(life.directory.join("mine")).expect("removed");
    written(&life.directory.join("mine.ckpt-4"), b"saved again");
    restart_and_kill(&scene, &life);
    assert_eq!(fs::read(life.directory.join("mine")).expect("a file"), b"mine");
    assert_eq!(fs::read(life.directory.join("mine.ckpt-4")).expect("a file"), b"saved again");
    let ids: Vec<u64> = life.store().sealed(&scene).iter().map(|row| row.id).collect();
    assert!(ids.contains(&first) && ids.contains(&second), "{ids:?}");
}

#[test]
fn of_a_file_that_has_hardly_changed_hardly_anything_is_stored() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let bytes: u64 = 48 << 20;
    let fill = |tree: &Path| {
        let words: Vec<u8> =
            (0..bytes / 8).flat_map(|word| (word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes()).collect();
        written(&tree.join("large"), &words);
        File::create(tree.join("hole")).and_then(|hole| hole.set_len(1 << 40)).expect("a file with a hole");
    };
    let (mut life, tree) = with_tree(&scene, fill, &[]);
    let again = || {
        let arguments = ["checkpoint", &life.pid.to_string(), "--with-dir", &tree.to_string_lossy()].map(str::to_owned);
        let id = Ckpt::new(&scene, arguments).call().succeeded().number();
        let rows = life.store().rows(&scene);
        rows.iter().find(|row| row.id == id).expect("a row").new_bytes
    };
    let unchanged = again();
    assert!(unchanged < 2 << 20, "{unchanged}");
    let large = File::options().write(true).open(tree.join("large")).expect("a file");
    large.write_all_at(b"changed", 30 << 20).expect("written");
    let changed = again();
    assert!(changed < 2 << 20, "{changed}");
    life.kill();
    let shown = life.store().show(&scene, 3);
    let files = shown["files"].as_array().expect("a list");
    let hole = files.iter().find(|file| file["bytes"] == 1_u64 << 40).expect("the file with a hole");
    assert!(hole["path"].as_str().is_some_and(|path| path.ends_with("tree/hole")), "{hole}");
    let of_large = files.iter().find(|file| file["bytes"] == bytes).expect("the large file")["id"].clone();
    let (dir, id) = (life.store().path().to_string_lossy().into_owned(), of_large.as_str().expect("an id").to_owned());
    Ckpt::new(&scene, ["extract", &dir, "3", "--region", &id, "-o", "extracted"]).call().succeeded();
    let extracted = fs::read(scene.path().join("extracted")).expect("a file");
    assert!(extracted == fs::read(tree.join("large")).expect("a file"), "the content at the checkpoint");
    large.write_all_at(b"again...", 30 << 20).expect("written");
    restart_and_kill(&scene, &life);
    let mut found = [0; 7];
    File::open(tree.join("large")).and_then(|file| file.read_exact_at(&mut found, 30 << 20)).expect("read");
    assert_eq!(&found, b"changed");
}

#[test]
fn a_file_that_is_not_captured_and_has_shrunk_is_refused_by_name() {
    let scene = Scene::new();
    let program = Program::victim("files").variable("CKPT_FILES", "none");
    let life = Life::until_checkpoint(&scene, "life", &program, 10);
    let path = life.directory.join("append");
    written(&path, b"short");
    let arguments = ["restart".as_ref(), life.store().path().as_os_str()].map(|word| word.to_owned());
    let answer = Ckpt::new(&scene, arguments).call().failed_with(125);
    assert!(answer.stderr.contains("append") && answer.stderr.contains("5 bytes"), "{answer:?}");
    assert_eq!(fs::read(&path).expect("a file"), b"short", "the file is left alone");
}

#[test]
fn what_is_larger_than_allowed_is_not_captured_and_an_unlinked_one_refused() {
    let scene = Scene::new();
    let program = contents().argument("100000").variable("CKPT_FILES", "4K");
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(3);
    let answer = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).call().failed_with(4);
    assert!(answer.stderr.contains("CKPT_FILES allows 4096"), "{answer:?}");
    let lines = life.output.lines();
    life.output.wait_for_more_lines(3);
    assert!(life.output.lines() >= lines + 3, "it runs on");
    life.kill();
}

/// A log of `before` and the program's first lines, to which somebody else has appended before the checkpoint, and another one behind it.
fn with_a_log_of_others(limit: &str) -> (Vec<u8>, String) {
    let scene = Scene::new();
    let sign = scene.path().join("go-on");
    let program =
        Program::victim("appends").argument("20").input("log", "before\n".as_bytes()).variable("CKPT_FILES", limit);
    let mut life = Life::preloaded(&scene, "life", &program.waiting(5, &sign));
    let log = life.directory.join("log");
    let append = |line: &str| {
        let mut file = fs::OpenOptions::new().append(true).open(&log).expect("the log");
        file.write_all(line.as_bytes()).expect("a line");
    };
    // The line of standard output comes behind that of the log.
    life.output.wait_for_lines(6);
    append("somebody else\n");
    checkpoint(&scene, life.pid);
    append("a third one\n");
    written(&sign, b"");
    life.output.wait_for_lines(8);
    life.kill();
    let mut second = Restart::of(life.store()).begin(&scene, &life.directory, life.pid);
    assert_eq!(code_of(second.wait()), 7, "{}", second.errors());
    (fs::read(&log).expect("the log"), second.errors())
}

#[test]
fn a_log_that_others_append_to_is_left_as_it_is_and_that_is_said() {
    for limit in ["64M", "1"] {
        let (log, said) = with_a_log_of_others(limit);
        let text = String::from_utf8(log).expect("text");
        let of_others = ["before\n", "somebody else\n", "a third one\n"];
        assert!(of_others.iter().all(|line| text.contains(line)), "{limit}: {text}");
        assert!(text.ends_with("step 20\n") && text.contains("step 5\nsomebody else\na third one\nstep 6\n"), "{text}");
        // What the first life has written behind the checkpoint stays.
        assert_eq!(text.matches("step 6\n").count(), 2, "{text}");
        assert!(said.contains("others append to") && said.contains("it stays as it is"), "{said}");
    }
}

#[test]
fn a_refused_restart_changes_no_file_and_leaves_none_behind() {
    let scene = Scene::new();
    let fill = |tree: &Path| {
        fs::create_dir(tree.join("below")).expect("a directory");
        written(&tree.join("below/file"), b"file");
        written(&tree.join("changed"), b"before");
    };
    let (mut life, tree) = with_tree(&scene, fill, &[]);
    fs::remove_dir_all(tree.join("below")).expect("removed");
    written(&tree.join("changed"), b"after!");
    // The first life has the pid.
    let arguments = ["restart".as_ref(), life.store().path().as_os_str()].map(|word| word.to_owned());
    Ckpt::new(&scene, arguments.clone()).call().failed_with(125);
    assert_eq!(
        (names(&tree), fs::read(tree.join("changed")).expect("a file")),
        (vec!["changed".into()], b"after!".to_vec())
    );
    life.kill();
    restart_and_kill(&scene, &life);
    assert_eq!(
        (names(&tree), names(&place_of_saved(&life, &tree))),
        (vec!["below".into(), "changed".into()], vec!["changed.ckpt-1".to_owned()])
    );
}

#[test]
fn a_restart_that_is_killed_at_any_moment_can_be_made_again() {
    let scene = Scene::of_at_most(Duration::from_secs(240));
    let old: Vec<u8> = (0..4 << 20_u32).map(|n: u32| (n * 7 + (n >> 9)) as u8).collect();
    let (mut life, tree) = with_tree(&scene, |tree| written(&tree.join("file"), &old), &[]);
    life.kill();
    let new: Vec<u8> = old.iter().map(|byte| byte ^ 0x55).collect();
    for round in 0..12_u64 {
        written(&tree.join("file"), &new);
        let mut restart = Restart::of(life.store()).spawn(&scene, &life.directory);
        std::thread::sleep(Duration::from_millis(round * 12));
        restart.kill();
        processes::wait_until("the pid is free", Duration::from_secs(20), || {
            // Where it was released already, the program lives.
            if processes::executable(life.pid).is_some() {
                processes::send(life.pid, Signal::SIGKILL);
            }
            !Path::new(&format!("/proc/{}", life.pid)).exists()
        });
        restart_and_kill(&scene, &life);
        assert!(fs::read(tree.join("file")).expect("a file") == old, "round {round}");
        assert_eq!(names(&tree), ["file"], "round {round}");
        let place = place_of_saved(&life, &tree);
        let saved = names(&place).into_iter().filter(|name| name.starts_with("file.ckpt-1"));
        let has_new = saved.map(|name| fs::read(place.join(name)).expect("a file")).any(|content| content == new);
        assert!(has_new, "what was there is saved whole, round {round}");
    }
}

#[test]
fn a_program_goes_on_in_another_directory() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let program = contents();
    let whole = reference(&scene, &program);
    let life = Life::until_checkpoint(&scene, "life", &program, 20);
    let moved = scene.path().join("moved");
    fs::rename(&life.directory, &moved).expect("renamed");
    let map = format!("{}={}", life.directory.display(), moved.display());
    let restart = Restart::of(moved.join("store")).option("--map").option(&map);
    let mut second = restart.begin(&scene, &moved, life.pid);
    assert_eq!(code_of(second.wait()), whole.code, "{}", second.errors());
    for (name, expected) in program.files.iter().zip(&whole.files) {
        assert_same(&fs::read(moved.join(name)).expect("a file"), expected, name);
    }
    assert!(!life.directory.exists(), "nothing is made where it was");
}

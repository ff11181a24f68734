//! What processes share by a name on the machine, when the machine has changed between two lives.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use ckpt_tests::{Ckpt, Life, Program, Restart, Scene, checkpoint, code_of};

fn is_fifo(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| there.file_type().is_fifo())
}

/// What a refused restart of `life` says.
fn refused(scene: &Scene, life: &Life<'_>) -> String {
    Ckpt::new(scene, ["restart", &life.store().path().display().to_string()]).call().failed_with(125).stderr
}

/// A life of the victim that is dead, and has a checkpoint of step 5.
fn dead<'scene>(scene: &'scene Scene, program: &Program) -> Life<'scene> {
    let mut life = Life::preloaded(scene, "life", program);
    life.output.wait_for_line("step 5");
    checkpoint(scene, life.pid);
    life.kill();
    life
}

fn goes_on(scene: &Scene, life: &Life<'_>) {
    let mut back = Restart::of(&life.store()).begin(scene, &life.directory, life.pid);
    assert_eq!(code_of(back.wait()), 7, "{}\n{}", back.output.text(), back.errors());
}

#[test]
fn a_named_pipe_that_is_gone_is_made_again_with_its_mode() {
    let scene = Scene::new();
    let life = dead(&scene, &Program::victim("fifos"));
    let names = ["both", "to_child", "from_child", "unwritten"].map(|name| life.directory.join(name));
    names.iter().for_each(|name| fs::remove_file(name).expect("it was there"));
    goes_on(&scene, &life);
    for name in names {
        assert!(is_fifo(&name), "{}", name.display());
        assert_eq!(fs::metadata(&name).expect("a fifo").permissions().mode() & 0o7777, 0o640);
    }
}

#[test]
fn what_is_in_the_place_of_a_named_pipe_is_left_there_and_the_restart_refused() {
    let scene = Scene::new();
    let life = dead(&scene, &Program::victim("fifos"));
    let (gone, replaced) = (life.directory.join("to_child"), life.directory.join("both"));
    fs::remove_file(&gone).expect("it was there");
    fs::remove_file(&replaced).expect("it was there");
    fs::write(&replaced, "mine").expect("a file");
    let said = refused(&scene, &life);
    assert!(said.contains("both was a named pipe and is something else now"), "{said}");
    assert_eq!(fs::read_to_string(&replaced).expect("it is there"), "mine");
    assert!(!gone.exists(), "a restart that is refused makes none");
}

#[test]
fn a_named_pipe_that_somebody_else_has_written_into_is_left_as_it_is() {
    let scene = Scene::new();
    let life = dead(&scene, &Program::victim("fifos"));
    let path = life.directory.join("both");
    let mut other = fs::OpenOptions::new().read(true).write(true).open(&path).expect("a fifo");
    std::io::Write::write_all(&mut other, b"mine").expect("there is room");
    let said = refused(&scene, &life);
    assert!(said.contains("another process has written into") && said.contains("both"), "{said}");
    let mut bytes = [0; 10];
    assert_eq!(std::io::Read::read(&mut other, &mut bytes).expect("bytes"), 4, "nothing was added");
    drop(other);
    goes_on(&scene, &life);
}

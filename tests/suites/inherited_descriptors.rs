//! Descriptors that a program has from elsewhere: their other ends are in processes that are not of its job.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ckpt_tests::{Launch, Life, Program, Restart, Scene, Stdout, checkpoint, code_of};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

/// A life of the victim, and the other ends of its pipes, in one of which something lies unread.
fn with_pipes(scene: &Scene) -> (Life<'_>, [File; 2]) {
    let directory = scene.folder("life");
    let end = |name: &str| {
        let path = directory.join(name);
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe in the scene");
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&path).expect("it is ours")
    };
    let others = [end("from-outside"), end("to-outside")];
    let life = Life::preloaded(scene, "life", &Program::python("inherited.py"));
    life.output.wait_for_line("ready ");
    (&others[0]).write_all(b"unread").expect("a pipe has room");
    (life, others)
}

fn finish(directory: &Path) {
    std::fs::write(directory.join("last"), "").expect("the life's folder is writable");
}

#[test]
fn pipes_from_elsewhere_are_there_after_a_checkpoint_and_closed_after_a_restart() {
    let scene = Scene::new();
    let (mut first, _others) = with_pipes(&scene);
    let id = checkpoint(&scene, first.pid);
    first.kill();
    let restart = Restart::of(first.store()).id(id);
    let mut second = restart.spawn(&scene, &first.directory);
    finish(&first.directory);
    assert_eq!(code_of(second.wait()), 9, "{}", second.errors());
    let text = first.output.text();
    assert!(text.ends_with("b'unread'\nb''\nBrokenPipeError\n"), "{text}");
    let said = second.errors();
    let named = |line: &&str| line.contains("are pipes to processes outside the job, and closed at that end now");
    assert_eq!(said.lines().filter(named).count(), 1, "{said}");
    let numbers = text.lines().next().and_then(|line| line.strip_prefix("ready ")).expect("the numbers");
    assert!(said.contains(&format!("descriptors {} of process", numbers.replace(' ', ", "))), "{said}");

    let scene = Scene::new();
    let (mut life, _others) = with_pipes(&scene);
    checkpoint(&scene, life.pid);
    finish(&life.directory);
    assert_eq!(code_of(life.wait()), 9, "{}", life.errors());
    let text = life.output.text();
    assert!(text.ends_with("b'unread'\nBlockingIOError\n1\n"), "{text}");
}

#[test]
fn run_closes_what_it_has_inherited_when_told_to() {
    for (options, expected) in [(vec![], "inherited"), (vec!["--close-inherited".to_owned()], "closed")] {
        let scene = Scene::new();
        let script = "if test -e /proc/self/fd/9; then echo inherited; else echo closed; fi";
        let shell = Program::installed("bash").argument("-c");
        let inner =
            shell.argument(format!("exec 9</dev/null; exec \"$0\" run {} -- bash -c '{script}'", options.join(" ")));
        let inner = inner.argument(ckpt_tests::product::ckpt());
        let mut life = Life::start(&scene, "life", &inner, &Launch::Plain, Stdout::File);
        assert_eq!(code_of(life.wait()), 0, "{}", life.errors());
        assert_eq!(life.output.text().trim(), expected);
    }
}

//! Restarts in a pid namespace where no id can be chosen and no namespace made: what a container is with its usual options. They want
//! root.

use ckpt_tests::entry_point::Image;
use ckpt_tests::exact::{assert_same, reference};
use ckpt_tests::{Program, Scene, skip};
use nix::sys::signal::Signal;

/// Lives that are ended by SIGTERM to the entry point, and brought back in the next container.
const LIVES: usize = 2;

/// The first life is at the ids that `first` says, or where the kernel gives them.
fn goes_on_from(program: &Program, first: Option<&str>) {
    if !nix::unistd::geteuid().is_root() {
        return skip("pid namespaces want root");
    }
    let scene = Scene::new();
    let expected = reference(&scene, program);
    if expected.code == 77 {
        return skip(String::from_utf8_lossy(&expected.stdout).trim());
    }
    let image = Image::of(&scene, program).variable("CKPT_ON_TERM", "1").confined();
    let image = first.into_iter().fold(image, |image, first| image.variable("CKPT_PID_FIRST", first));
    for life in 0..LIVES {
        let mut container = if life == 0 { image.run() } else { image.restart() };
        container.wait_for_more_lines(5);
        container.signal(Signal::SIGTERM);
        assert_eq!(container.wait(), 85, "{}", container.messages());
    }
    let mut last = image.restart();
    assert_eq!(last.wait(), expected.code, "{}", last.messages());
    assert_same(&image.output().bytes(), &expected.stdout, "the output of all lives together");
}

fn goes_on(program: &Program) {
    goes_on_from(program, None);
}

fn victim(name: &str) -> Program {
    Program::victim(name)
}

#[test]
fn threads_go_on() {
    goes_on(&victim("threads8"));
}

#[test]
fn a_thousand_threads_go_on() {
    goes_on(&victim("thousand"));
}

#[test]
fn processes_with_threads_go_on() {
    goes_on(&victim("family"));
}

#[test]
fn processes_that_come_and_go_go_on() {
    goes_on(&victim("forks").argument("120"));
}

#[test]
fn sessions_and_orphans_go_on() {
    goes_on(&victim("daemons"));
}

#[test]
fn adopted_orphans_go_on() {
    goes_on(&victim("adopts"));
}

#[test]
fn ended_and_stopped_children_go_on() {
    goes_on(&victim("stopped_children"));
}

#[test]
fn common_tables_go_on() {
    goes_on(&victim("common_descriptors"));
    goes_on(&victim("common_places"));
}

#[test]
fn a_group_whose_leader_has_gone_is_refused_by_name() {
    if !nix::unistd::geteuid().is_root() {
        return skip("pid namespaces want root");
    }
    let scene = Scene::new();
    let image = Image::of(&scene, &victim("places")).variable("CKPT_ON_TERM", "1").confined();
    let mut container = image.run();
    container.wait_for_more_lines(5);
    container.signal(Signal::SIGTERM);
    assert_eq!(container.wait(), 85, "{}", container.messages());
    let mut refused = image.restart();
    assert_eq!(refused.wait(), 125);
    let said = refused.messages();
    assert!(said.contains("the leader of process group") && said.contains("--cap-add CHECKPOINT_RESTORE"), "{said}");
}

#[test]
fn low_ids_come_back() {
    goes_on_from(&victim("threads8"), Some("0"));
}

#[test]
fn leaders_go_on() {
    goes_on(&victim("ended_leaders"));
}

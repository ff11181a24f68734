//! A program that goes on in another container: with other addresses, another root file system, other files of its host. They want root.

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use ckpt_tests::entry_point::Image;
use ckpt_tests::exact::{assert_same, reference};
use ckpt_tests::network::Network;
use ckpt_tests::{Answer, Ckpt, Life, Program, Restart, Scene, checkpoint, code_of, skip};
use nix::sys::signal::Signal;

/// Whether these tests are possible.
fn is_possible() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        skip("networks and mounts want root");
    }
    root
}

fn addressed(address: &str) -> Program {
    Program::victim("addressed").argument("60").argument(address)
}

fn refused(scene: &Scene, life: &Life<'_>, options: &[&str]) -> Answer {
    let store = life.store().path().to_string_lossy().into_owned();
    Ckpt::new(scene, ["restart", &store].iter().chain(options)).call()
}

/// Restarts, and has the program come to its end. Gives what ckpt has said.
#[track_caller]
fn goes_on(scene: &Scene, life: &Life<'_>, options: &[&str], address: &str) -> String {
    let restart = options.iter().fold(Restart::of(life.store()), |restart, option| restart.option(option));
    let mut back = restart.begin(scene, &life.directory, life.pid);
    assert_eq!(code_of(back.wait()), 7, "{}\n{}\n{}", back.output.text(), back.errors(), life.errors());
    assert!(back.output.text().contains(&format!("step 60 at {address}\n")), "{}", back.output.text());
    back.errors()
}

#[test]
fn the_one_address_of_a_container_is_that_of_the_next() {
    if !is_possible() {
        return;
    }
    let scene = Scene::new();
    let first = Network::with(7, &["10.1.0.2/24", "fd00:1::2/64"]);
    let second = Network::with(23, &["10.2.0.7/24", "fd00:2::7/64"]);
    for (old, new) in [("10.1.0.2", "10.2.0.7"), ("fd00:1::2", "fd00:2::7"), ("::ffff:10.1.0.2", "::ffff:10.2.0.7")] {
        first.enter();
        let name = format!("life-{}", old.len());
        let life = Life::until_checkpoint(&scene, &name, &addressed(old), 5);
        second.enter();
        let said = goes_on(&scene, &life, &[], new);
        let plain = |address: &str| address.trim_start_matches("::ffff:").to_owned();
        let line = format!("ckpt: the address {} is {} here, for ", plain(old), plain(new));
        assert_eq!(said.lines().filter(|found| found.starts_with(&line)).count(), 1, "{said}");
        assert!(!said.contains("cannot"), "{said}");
    }
}

#[test]
fn an_address_of_a_link_follows_its_interface() {
    if !is_possible() {
        return;
    }
    let scene = Scene::new();
    let first = Network::with(7, &["fe80::2/64", "10.1.0.2/24"]);
    let second = Network::with(23, &["fe80::7/64"]);
    let same = Network::with(24, &["fe80::2/64"]);
    first.enter();
    let life = Life::until_checkpoint(&scene, "life", &addressed("fe80::2%eth0"), 5);
    second.enter();
    goes_on(&scene, &life, &[], "fe80::7%eth0");
    same.enter();
    goes_on(&scene, &life, &[], "fe80::2%eth0");
}

#[test]
fn of_several_addresses_the_user_names_one() {
    if !is_possible() {
        return;
    }
    let scene = Scene::new();
    let first = Network::with(7, &["10.1.0.2/24"]);
    let second = Network::with(7, &["10.2.0.7/24", "10.3.0.7/24"]);
    first.enter();
    let life = Life::until_checkpoint(&scene, "life", &addressed("10.1.0.2"), 5);
    second.enter();
    let answer = refused(&scene, &life, &[]).failed_with(125);
    assert!(answer.stderr.contains("does not have the address 10.1.0.2 (it has 10.2.0.7, 10.3.0.7"), "{answer:?}");
    assert!(answer.stderr.contains("the host of the checkpoint had 10.1.0.2)"), "{answer:?}");
    assert!(answer.stderr.contains("--map-address 10.1.0.2=NEW"), "{answer:?}");
    for (pair, why) in [
        ("10.1.0.2=10.9.9.9", "this host does not have the address 10.9.9.9 (it has 10.2.0.7, 10.3.0.7)"),
        ("10.1.0.2=fd00::9", "are of two families"),
        ("10.1.0.2=elsewhere", "'elsewhere' is no IPv4 or IPv6 address"),
        ("10.1.0.2", "write OLD=NEW"),
        ("0.0.0.0=10.2.0.7", "no address that a host has"),
    ] {
        let code = if pair.ends_with("9.9.9") { 125 } else { 122 };
        let answer = refused(&scene, &life, &["--map-address", pair]).failed_with(code);
        assert!(answer.stderr.contains(why), "{pair}: {answer:?}");
    }
    let both = ["--map-address", "10.1.0.2=10.2.0.7", "--map-address", "10.1.0.2=10.3.0.7"];
    let answer = refused(&scene, &life, &both).failed_with(122);
    assert!(answer.stderr.contains("both 10.2.0.7 and 10.3.0.7"), "{answer:?}");
    let said = goes_on(&scene, &life, &["--map-address", "10.1.0.2=10.3.0.7"], "10.3.0.7");
    assert!(said.contains("the address 10.1.0.2 is 10.3.0.7 here"), "{said}");
    let named = ["--map-address", "10.1.0.2=10.3.0.7", "--map-address", "10.8.8.8=10.2.0.7"];
    let said = goes_on(&scene, &life, &named, "10.3.0.7");
    assert!(said.contains("no socket of the program that comes back has the address 10.8.8.8"), "{said}");
}

#[test]
fn an_address_that_is_here_stays_and_a_checkpoint_of_the_next_place_knows_its_own() {
    if !is_possible() {
        return;
    }
    let scene = Scene::new();
    let first = Network::with(7, &["10.1.0.2/24"]);
    let second = Network::with(7, &["10.2.0.7/24"]);
    let third = Network::with(7, &["10.3.0.9/24"]);
    first.enter();
    let life = Life::until_checkpoint(&scene, "life", &addressed("10.1.0.2"), 5);
    let said = goes_on(&scene, &life, &[], "10.1.0.2");
    assert!(!said.contains("the address"), "{said}");
    second.enter();
    let mut back = Restart::of(life.store()).begin(&scene, &life.directory, life.pid);
    back.output.wait_for_text("at 10.2.0.7");
    checkpoint(&scene, back.pid);
    back.kill();
    third.enter();
    let said = goes_on(&scene, &life, &[], "10.3.0.9");
    assert!(said.contains("the address 10.2.0.7 is 10.3.0.9 here"), "{said}");
}

/// Lives of a program, each on another root file system. It does not come to its end before the last one.
fn goes_on_exactly_on_new_roots(program: &Program) {
    let scene = Scene::new();
    let expected = reference(&scene, program);
    let last = scene.path().join("last");
    let image = Image::of(&scene, &program.clone().waiting(40, &last)).variable("CKPT_ON_TERM", "1").on_a_new_root();
    for life in 0..2 {
        let mut container = if life == 0 { image.run() } else { image.restart() };
        container.program();
        container.wait_for_more_lines(10);
        container.signal(Signal::SIGTERM);
        assert_eq!(container.wait(), 85, "{program:?}: {}", container.messages());
    }
    std::fs::write(last, "").expect("a file in the scene");
    let mut container = image.restart();
    assert_eq!(container.wait(), expected.code, "{program:?}: {}\n{}", container.messages(), image.output().text());
    assert_same(&image.output().bytes(), &expected.stdout, "the output of all lives together");
}

#[test]
fn a_program_goes_on_exactly_on_a_new_root() {
    if is_possible() {
        let name = format!("settled-{}", std::process::id());
        goes_on_exactly_on_new_roots(&Program::victim("settled").argument("60").argument(&name));
    }
}

#[test]
fn ordinary_programs_go_on_exactly_on_a_new_root() {
    if is_possible() {
        goes_on_exactly_on_new_roots(&Program::python("lines.py"));
        goes_on_exactly_on_new_roots(&Program::victim("threads8"));
    }
}

#[test]
fn state_of_files_comes_back_on_a_new_root() {
    if !is_possible() {
        return;
    }
    for name in ["files", "unnamed", "locks", "removed_places", "private_views", "fifos", "shared_names", "contents"] {
        goes_on_exactly_on_new_roots(&Program::victim(name));
    }
    for (name, directory) in [("leases", "leased"), ("named", "names"), ("notified", "noted")] {
        goes_on_exactly_on_new_roots(&Program::victim(name).variable("CKPT_WITH_DIR", directory));
    }
}

#[test]
fn servers_at_an_address_and_their_clients_go_on_at_the_next() {
    if !is_possible() {
        return;
    }
    let scene = Scene::new();
    let first = Network::with(7, &["10.1.0.2/24"]);
    let second = Network::with(9, &["10.2.0.7/24"]);
    first.enter();
    let program = Program::python("bound.py").argument("60").argument("10.1.0.2");
    let life = Life::until_checkpoint(&scene, "life", &program, 20);
    second.enter();
    let said = goes_on(&scene, &life, &[], "10.2.0.7");
    assert!(said.contains("the address 10.1.0.2 is 10.2.0.7 here, for "), "{said}");
}

#[test]
fn connections_with_somebody_outside_need_no_address() {
    if !is_possible() {
        return;
    }
    let scene = Scene::new();
    let first = Network::with(7, &["10.1.0.2/24"]);
    let second = Network::with(9, &["10.1.0.7/24", "10.1.0.8/24"]);
    first.enter();
    let tcp = TcpListener::bind("10.1.0.2:0").expect("this network has the address");
    let path = scene.path().join("outside");
    let unix = UnixListener::bind(&path).expect("a socket in the scene");
    let port = tcp.local_addr().expect("it is bound").port().to_string();
    let over = scene.path().join("over");
    let program = Program::python("strangers.py").argument("60").argument(port).argument(&path).argument("10.1.0.2");
    let mut life = Life::preloaded(&scene, "life", &program.waiting(30, &over));
    let (mut one, _) = tcp.accept().expect("a connection");
    let (mut other, _) = unix.accept().expect("a connection");
    one.write_all(b"unread").and_then(|()| other.write_all(b"unread as well")).expect("somebody is there");
    life.output.wait_for_line("step 10");
    checkpoint(&scene, life.pid);
    life.kill();
    std::fs::write(over, "").expect("a file in the scene");
    second.enter();
    let mut back = Restart::of(life.store()).begin(&scene, &life.directory, life.pid);
    assert_eq!(code_of(back.wait()), 7, "{}\n{}", back.output.text(), back.errors());
    assert!(back.output.text().contains("tcp: unread, then reset\n"), "{}", back.output.text());
    assert!(back.errors().contains("a socket that had it and sends to one place gets another"), "{}", back.errors());
}

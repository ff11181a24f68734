//! Restarts by root of what belongs to other users: a directory of theirs, or a store of theirs, decides nothing of root's.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ckpt_tests::ordinary_user::as_ordinary_user;
use ckpt_tests::processes::wait_until;
use ckpt_tests::{Answer, Ckpt, Life, Program, Restart, Scene, Store, checkpoint, code_of, product};

const USER: u32 = 65534;
const SECRET: &str = "a secret of root's, as long as the input\n";
const INPUT: &str = "what the worker of nobody's reads, always\n";

/// A job of root's whose worker is user [`USER`], and a directory that root alone may look into.
struct Stage<'a> {
    scene: &'a Scene,
    own: PathBuf,
    roots: PathBuf,
    go: PathBuf,
}

impl<'a> Stage<'a> {
    fn new(scene: &'a Scene) -> Stage<'a> {
        fs::set_permissions(scene.path(), Permissions::from_mode(0o755)).expect("the scene is ours");
        let (own, roots, go) = (scene.folder("own"), scene.folder("roots"), scene.path().join("go"));
        let place = scene.folder("own/d");
        fs::set_permissions(&roots, Permissions::from_mode(0o700)).expect("the folder is ours");
        for (directory, input) in [(&place, INPUT), (&roots, SECRET)] {
            let padded = format!("{input:<60}");
            fs::write(directory.join("input"), padded).expect("a file");
            fs::write(directory.join("log"), "before\n").expect("a file");
            fs::write(directory.join("mapped"), [b'm'; 4096]).expect("a file");
        }
        for name in ["input", "log", "mapped"] {
            chown(place.join(name), Some(USER), Some(USER)).expect("root gives away");
            fs::set_permissions(place.join(name), Permissions::from_mode(0o640)).expect("the file is ours");
            fs::set_permissions(roots.join(name), Permissions::from_mode(0o600)).expect("the file is ours");
        }
        chown(&place, Some(USER), Some(USER)).expect("root gives away");
        chown(&own, Some(USER), Some(USER)).expect("root gives away");
        Stage { scene, own, roots, go }
    }

    fn program(&self) -> Program {
        Program::python("worker.py").argument(&self.own).argument(&self.go)
    }

    /// A store with a checkpoint of the job, which has been killed, and the pid of its first process.
    fn checkpointed(&self) -> (PathBuf, PathBuf, i32) {
        let mut life = Life::preloaded(self.scene, "life", &self.program());
        life.output.wait_for_lines(1);
        checkpoint(self.scene, life.pid);
        life.kill();
        (life.store().path().to_owned(), life.directory.clone(), life.pid)
    }

    fn restart(&self, store: &Path) -> Answer {
        Ckpt::new(self.scene, ["restart".as_ref(), store.as_os_str()]).call()
    }

    fn place(&self, name: &str) -> PathBuf {
        self.own.join("d").join(name)
    }

    /// Makes root's file look like the worker's: size and time can be seen by everybody and set by its owner.
    fn give_times(&self, name: &str) {
        let metadata = fs::metadata(self.place(name)).expect("it is there");
        let times = FileTimes::new().set_modified(metadata.modified().expect("files have times"));
        File::options()
            .write(true)
            .open(self.roots.join(name))
            .and_then(|file| file.set_times(times))
            .expect("root may");
    }
}

/// What there is to know of a file: mode, user, group and inode; times of the last changes, ns; content.
type Known = ([u64; 4], [i64; 2], Vec<u8>);

/// Everything there is to know of what is in a folder.
fn everything(folder: &Path) -> BTreeMap<PathBuf, Known> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("root may look").map(|entry| entry.expect("an entry").path()) {
            let about = fs::symlink_metadata(&entry).expect("it is there");
            if about.is_dir() {
                folders.push(entry.clone());
            }
            let content = if about.is_file() { fs::read(&entry).expect("root may read") } else { Vec::new() };
            let ids = [u64::from(about.mode()), u64::from(about.uid()), u64::from(about.gid()), about.ino()];
            let times = [(about.mtime(), about.mtime_nsec()), (about.ctime(), about.ctime_nsec())];
            found.insert(entry, (ids, times.map(|(s, ns)| s * 1_000_000_000 + ns), content));
        }
    }
    found
}

#[test]
fn a_worker_without_rights_has_again_what_it_had() {
    let scene = Scene::new();
    let stage = Stage::new(&scene);
    let (store, directory, pid) = stage.checkpointed();
    fs::remove_file(stage.place("log")).expect("the file is there");
    fs::remove_file(stage.place("fifo")).expect("the pipe is there");
    let mut life = Restart::of(&store).begin(&scene, &directory, pid);
    File::create(&stage.go).expect("a sign");
    assert_eq!(code_of(life.wait()), 7, "{}{}", life.output.text(), life.errors());
    let said = life.output.text();
    for line in [
        &format!("input {}", INPUT.trim_end()),
        "log 65534 640",
        // Of the worker's own user: as root's it would run as root once it has a name again.
        "deleted 65534 4755",
        "fifo through 65534 600",
        "socket True",
        "directory True",
        "user (65534, 65534, 65534) []",
    ] {
        assert!(said.lines().any(|said| said.trim_end() == line), "{line} in {said}");
    }
    assert_eq!(fs::read_to_string(stage.place("log")).expect("it is back"), "before\nafter\n");
    assert_eq!(fs::metadata(stage.place("log")).expect("it is back").uid(), USER);
    assert!(fs::read(stage.place("mapped")).expect("it is there").starts_with(b"shown"));
}

#[test]
fn a_link_in_the_place_of_a_directory_gives_nothing_away_and_changes_nothing() {
    let scene = Scene::new();
    let stage = Stage::new(&scene);
    let (store, ..) = stage.checkpointed();
    for name in ["input", "log", "mapped"] {
        stage.give_times(name);
    }
    fs::rename(stage.own.join("d"), stage.own.join("e")).expect("its user may");
    symlink(&stage.roots, stage.own.join("d")).expect("its user may");
    lchown(stage.own.join("d"), Some(USER), Some(USER)).expect("root may");
    let before = everything(&stage.roots);
    let answer = stage.restart(&store).failed_with(125);
    assert!(answer.stderr.contains("own/d") && answer.stderr.contains("is a symbolic link"), "{answer:?}");
    assert_eq!(everything(&stage.roots), before);
}

#[test]
fn a_link_in_the_place_of_a_file_gives_nothing_away_and_changes_nothing() {
    let scene = Scene::new();
    let stage = Stage::new(&scene);
    let (store, ..) = stage.checkpointed();
    for name in ["input", "log", "mapped"] {
        stage.give_times(name);
        let (path, away) = (stage.place(name), stage.place("away"));
        let before = everything(&stage.roots);
        fs::rename(&path, &away).expect("its user may");
        symlink(stage.roots.join(name), &path).expect("its user may");
        let answer = stage.restart(&store);
        if name != "log" {
            let answer = answer.failed_with(125);
            assert!(answer.stderr.contains("is a symbolic link"), "{name}: {answer:?}");
        } else {
            // Its content is in the checkpoint: the link is moved aside. What it led to is as it was.
            assert!(!answer.stderr.contains(SECRET.trim()), "{answer:?}");
        }
        assert_eq!(everything(&stage.roots), before, "{name}");
        let _ = fs::remove_file(&path);
        fs::rename(&away, &path).expect("its user may");
    }
}

#[test]
fn another_name_of_a_file_of_roots_gives_nothing_away_and_changes_nothing() {
    let scene = Scene::new();
    let stage = Stage::new(&scene);
    let (store, ..) = stage.checkpointed();
    for name in ["input", "log", "mapped"] {
        stage.give_times(name);
        let (path, away) = (stage.place(name), stage.place("away"));
        fs::rename(&path, &away).expect("its user may");
        fs::hard_link(stage.roots.join(name), &path).expect("where the kernel lets everybody, its user may");
        let before = everything(&stage.roots);
        let answer = stage.restart(&store);
        assert_ne!(answer.code, 7, "{name}: {answer:?}");
        assert!(answer.stderr.contains("Permission denied"), "{name}: {answer:?}");
        assert_eq!(everything(&stage.roots), before, "{name}");
        fs::remove_file(&path).expect("its user may");
        fs::rename(&away, &path).expect("its user may");
    }
}

/// A job of user [`USER`] in a home of its own, with a store there, started by `before`.
struct Home {
    path: PathBuf,
}

impl Home {
    fn new(scene: &Scene) -> Home {
        fs::set_permissions(scene.path(), Permissions::from_mode(0o755)).expect("the scene is ours");
        let path = scene.folder("home");
        for file in [product::ckpt(), product::library()] {
            fs::copy(&file, path.join(file.file_name().expect("a file"))).expect("a copy");
        }
        chown(&path, Some(USER), Some(USER)).expect("root gives away");
        Home { path }
    }

    fn ckpt(&self) -> PathBuf {
        self.path.join("ckpt")
    }

    fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    /// Runs a command of the user's in the home.
    fn command(&self, scene: &Scene, words: &[&str]) -> Command {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&self.path).env(ckpt_tests::scene::MARK, scene.path());
        command.env("CKPT_DIR", self.store()).env("HOME", &self.path).uid(USER).gid(USER);
        command
    }

    /// A sealed checkpoint of a program that `before` starts, which has been killed.
    fn checkpointed(&self, scene: &Scene, before: &[&str], script: &str) {
        fs::write(self.path.join("who.py"), script).expect("a script");
        let ckpt = self.ckpt();
        let ckpt = ckpt.to_str().expect("paths of tests are text");
        let words = [before, &[ckpt, "run", "--", "/usr/bin/python3", "who.py"]].concat();
        let mut child = self.command(scene, &words).spawn().expect("it starts");
        let pid_file = self.path.join("pid");
        let mut pid = 0;
        wait_until("the program's pid", std::time::Duration::from_secs(30), || {
            pid = fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
            pid != 0
        });
        let taken = Ckpt::new(scene, ["checkpoint", &pid.to_string()]).call();
        assert_eq!(taken.code, 0, "{taken:?}");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).expect("it runs");
        child.wait().expect("it has ended");
    }
}

/// Says who it is when the file `go` is there.
const WHO: &str = r#"
import os, time
def write(name, text):
    with open(name + ".new", "w") as file: file.write(text)
    os.rename(name + ".new", name)
write("pid", str(os.getpid()))
while not os.path.exists("go"): time.sleep(0.01)
write("said", open("/proc/self/status").read())
os._exit(7)
"#;

#[test]
fn a_store_of_another_user_is_restarted_as_that_user_and_no_more() {
    let scene = Scene::new();
    let home = Home::new(&scene);
    home.checkpointed(&scene, &[], WHO);
    let store = home.store();
    let restart = |option: &[&str]| {
        let words = ["restart", store.to_str().expect("text")];
        Ckpt::new(&scene, words.iter().chain(option)).variable("SECRET_OF_ROOT", "xyzzy").call()
    };
    let refused = restart(&[]).failed_with(125);
    assert!(refused.stderr.contains("--trust-owner"), "{refused:?}");
    File::create(home.path.join("go")).expect("a sign");
    restart(&["--trust-owner"]).failed_with(7);
    let said = fs::read_to_string(home.path.join("said")).expect("it has said who it is");
    for line in ["Uid:\t65534\t65534\t65534\t65534", "Gid:\t65534\t65534\t65534\t65534", "CapEff:\t0000000000000000"] {
        assert!(said.contains(line), "{line} in {said}");
    }
    for set in ["CapPrm", "CapInh", "CapAmb"] {
        assert!(said.contains(&format!("{set}:\t0000000000000000")), "{set} in {said}");
    }
}

#[test]
fn root_of_a_user_namespace_does_not_come_back_as_root() {
    let scene = Scene::new();
    let home = Home::new(&scene);
    let may = Command::new("unshare").args(["--user", "--map-root-user", "true"]).uid(USER).gid(USER).status();
    if !may.is_ok_and(|status| status.success()) {
        ckpt_tests::skip("an ordinary user may make no user namespaces here");
        return;
    }
    home.checkpointed(&scene, &["unshare", "--user", "--map-root-user"], WHO);
    File::create(home.path.join("go")).expect("a sign");
    let store = home.store();
    for option in ["--trust-owner", "--force"] {
        let answer = Ckpt::new(&scene, ["restart", store.to_str().expect("text"), option]).call().failed_with(125);
        assert!(answer.stderr.contains("user"), "{answer:?}");
    }
    // Root's own copy of such a store is no other way in.
    let copy = scene.path().join("copy");
    assert!(Command::new("cp").arg("-r").args([&store, &copy]).status().expect("cp").success());
    let answer = Ckpt::new(&scene, ["restart", copy.to_str().expect("text")]).call().failed_with(125);
    assert!(answer.stderr.contains("of a user namespace"), "{answer:?}");
    assert!(!home.path.join("said").exists(), "it ran");
}

/// Holds a file of its own open, and says when `go` is there what it leads to.
const HOLDER: &str = r#"
import os, time
held = os.open("d/input", os.O_RDONLY)
def write(name, text):
    with open(name + ".new", "w") as file: file.write(text)
    os.rename(name + ".new", name)
write("pid", str(os.getpid()))
while not os.path.exists("go"): time.sleep(0.01)
write("said", os.read(held, 100).decode())
os._exit(7)
"#;

#[test]
fn the_owner_of_a_trusted_store_reads_no_file_of_roots() {
    let scene = Scene::new();
    let home = Home::new(&scene);
    let roots = scene.folder("roots");
    fs::set_permissions(&roots, Permissions::from_mode(0o700)).expect("the folder is ours");
    fs::create_dir(home.path.join("d")).expect("a folder");
    fs::write(home.path.join("d/input"), format!("{INPUT:<60}")).expect("a file");
    fs::write(roots.join("input"), format!("{SECRET:<60}")).expect("a file");
    home.checkpointed(&scene, &[], HOLDER);
    let times = FileTimes::new()
        .set_modified(fs::metadata(home.path.join("d/input")).expect("there").modified().expect("a time"));
    File::options().write(true).open(roots.join("input")).and_then(|file| file.set_times(times)).expect("root may");
    fs::rename(home.path.join("d"), home.path.join("e")).expect("its user may");
    symlink(&roots, home.path.join("d")).expect("its user may");
    File::create(home.path.join("go")).expect("a sign");
    let store = home.store();
    let answer = Ckpt::new(&scene, ["restart", store.to_str().expect("text"), "--trust-owner"]).call().failed_with(125);
    assert!(answer.stderr.contains("is a symbolic link"), "{answer:?}");
    assert!(!home.path.join("said").exists(), "it ran");
}

/// What a hostile owner puts in the place of something in a store.
const IN_ITS_PLACE: [&str; 4] = ["a link to a file of root's", "a named pipe", "a device", "a file of root's"];

fn put(kind: &str, path: &Path, roots: &Path) {
    let words: &[&std::ffi::OsStr] = match kind {
        "a named pipe" => &["mkfifo".as_ref(), "--mode=666".as_ref(), path.as_os_str()],
        "a device" => &["mknod".as_ref(), path.as_os_str(), "c".as_ref(), "1".as_ref(), "5".as_ref()],
        "a file of root's" => &["cp".as_ref(), "/etc/passwd".as_ref(), path.as_os_str()],
        _ => return symlink(roots.join("input"), path).expect("its user may"),
    };
    assert!(Command::new(words[0]).args(&words[1..]).status().expect("it is installed").success());
}

#[test]
fn a_hostile_store_costs_bounded_time_and_touches_nothing_outside() {
    let scene = Scene::of_at_most(std::time::Duration::from_secs(240));
    let home = Home::new(&scene);
    home.checkpointed(&scene, &[], WHO);
    File::create(home.path.join("go")).expect("a sign");
    let roots = scene.folder("roots");
    fs::write(roots.join("input"), SECRET).expect("a file");
    let before = everything(&roots);
    let files: Vec<PathBuf> = everything(&home.store()).into_keys().collect();
    assert!(files.len() > 5, "{files:?}");
    for path in files {
        let aside = home.path.join("aside");
        for kind in IN_ITS_PLACE {
            fs::rename(&path, &aside).expect("its user may");
            put(kind, &path, &roots);
            for command in ["restart --trust-owner", "verify", "list"] {
                let mut call = Command::new("timeout");
                call.args(["--signal=KILL", "30"]).arg(product::ckpt()).args(command.split(' ')).arg(home.store());
                let output = call.env(ckpt_tests::scene::MARK, scene.path()).output().expect("it starts");
                let said = String::from_utf8_lossy(&output.stderr);
                let code = output.status.code();
                let shown = format!("{command} with {kind} at {}: {code:?} {said}", path.display());
                // What is not needed may be missing: the program runs, as its own user, and ends with 7; the others read as that user.
                let is_harmless = code == Some(if command.starts_with("restart") { 7 } else { 0 });
                assert!(is_harmless || code.is_some_and(|code| code != 0 && code != 137), "{shown}");
                assert!(!said.contains(SECRET.trim()), "{shown}");
                assert!(!String::from_utf8_lossy(&output.stdout).contains(SECRET.trim()), "{shown}");
            }
            fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path)).expect("root may");
            fs::rename(&aside, &path).expect("its user may");
        }
    }
    assert_eq!(everything(&roots), before);
    let said = fs::read_to_string(home.path.join("said")).unwrap_or_default();
    assert!(said.is_empty() || said.contains("Uid:\t65534\t65534\t65534\t65534"), "{said}");
}

#[test]
fn a_daemon_that_has_given_up_its_rights_is_stored_by_root() {
    let scene = Scene::new();
    fs::set_permissions(scene.path(), Permissions::from_mode(0o755)).expect("the scene is ours");
    let taken = scene.path().join("taken");
    let program = Program::victim("drops_rights").argument("20").waiting(5, &taken);
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(3);
    let pid = life.pid.to_string();
    let said = Ckpt::new(&scene, ["checkpoint", &pid]).call().failed_with(5).stderr;
    assert!(said.contains("it is not dumpable") && said.contains("ckpt checkpoint --dir DIR PID"), "{said}");
    let store = Store::at(scene.path().join("roots"));
    let checkpoint =
        || Ckpt::new(&scene, ["checkpoint".as_ref(), "--dir".as_ref(), store.path().as_os_str(), pid.as_ref()]);
    assert_eq!([checkpoint().call().number(), checkpoint().call().number()], [1, 2], "one agent takes both");
    assert_eq!(fs::metadata(store.path()).expect("a store").uid(), 0);
    fs::write(&taken, "").expect("a file in the scene");
    life.kill();
    let mut second = Restart::of(&store).begin(&scene, &life.directory, life.pid);
    assert_eq!(code_of(second.wait()), 7, "{}{}", second.output.text(), second.errors());
}

#[test]
fn an_ordinary_user_cannot_choose_the_store_of_a_program() {
    as_ordinary_user(&["idle"], &[], || {
        let scene = Scene::new();
        let said = Ckpt::new(&scene, ["checkpoint", "--dir", "elsewhere", "1"]).call().failed_with(2).stderr;
        assert!(said.contains("--dir is for root"), "{said}");
    });
}

/// Gives a folder with all that is in it to user [`USER`].
fn give_away(folder: &Path) {
    for entry in fs::read_dir(folder).expect("root may look") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { give_away(&path) } else { lchown(path, Some(USER), Some(USER)).expect("root gives away") }
    }
    chown(folder, Some(USER), Some(USER)).expect("root gives away");
}

#[test]
fn root_reads_the_store_of_a_user_with_that_users_rights() {
    let scene = Scene::new();
    fs::set_permissions(scene.path(), Permissions::from_mode(0o755)).expect("the scene is ours");
    let mut life = Life::preloaded(&scene, "life", &Program::victim("registers").argument("100000"));
    life.output.wait_for_lines(3);
    checkpoint(&scene, life.pid);
    checkpoint(&scene, life.pid);
    life.kill();
    let store = life.store().path().to_owned();
    fs::set_permissions(&life.directory, Permissions::from_mode(0o755)).expect("it is ours");
    give_away(&store);
    let read = |words: &[&str]| {
        let (verb, rest) = words.split_first().expect("a verb");
        let words = [*verb].into_iter().map(str::to_owned).chain([store.display().to_string()]);
        Ckpt::new(&scene, words.chain(rest.iter().map(|&word| word.to_owned()))).call()
    };
    let verbs: [&[&str]; 4] = [&["list", "--json"], &["show", "1"], &["verify"], &["diff", "1", "2"]];
    for words in verbs {
        let answer = read(words).succeeded();
        assert!(!answer.stdout.is_empty(), "{words:?}: {answer:?}");
    }
    // Root itself could read these.
    for name in ["packs", "manifests", "attempts"] {
        fs::set_permissions(store.join(name), Permissions::from_mode(0o000)).expect("root may");
    }
    for words in verbs {
        let answer = read(words);
        assert!(answer.code != 0 && answer.stderr.contains("ermission denied"), "{words:?}: {answer:?}");
    }
}

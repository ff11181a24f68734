//! Many copies of one checkpoint, and commands that run when a program is complete and before it runs on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ckpt_tests::life::prepare;
use ckpt_tests::ordinary_user::USER;
use ckpt_tests::processes::{self, wait_until};
use ckpt_tests::{Answer, Ckpt, Life, Program, Restart, Scene, Stdout, Store, checkpoint, network, product};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;

const SOON: Duration = Duration::from_secs(30);

fn program() -> Program {
    Program::victim("copies").argument("20000")
}

/// A store with a checkpoint of a program that has been killed, with its agent.
fn warm(scene: &Scene) -> Life<'_> {
    let life = Life::until_checkpoint(scene, "life", &program(), 5);
    wait_until_agents_have_ended(life.store().path());
    life
}

fn wait_until_agents_have_ended(store: &Path) {
    let agents = store.join("agents");
    wait_until("the agent has ended", SOON, || fs::read_dir(&agents).is_ok_and(|left| left.count() == 0));
}

fn copy(store: impl AsRef<Path>, options: &[&str]) -> Restart {
    let restart = Restart::of(store).option("--stdio").option("inherit").stdout(Stdout::Pipe);
    options.iter().fold(restart, |restart, option| restart.option(option))
}

/// What there is to know of each file of a store but its content: length, mode, times of the last changes.
fn everything(store: &Path) -> BTreeMap<PathBuf, [i64; 6]> {
    let mut found = BTreeMap::new();
    let mut folders = vec![store.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).expect("root may look").map(|entry| entry.expect("an entry").path());
        for path in entries.chain([folder.clone()]) {
            let about = fs::symlink_metadata(&path).expect("it is there");
            if about.is_dir() && path != folder {
                folders.push(path.clone());
            }
            let times = [about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec()];
            let [m, mn, c, cn] = times;
            found.insert(path, [about.len() as i64, i64::from(about.mode()), m, mn, c, cn]);
        }
    }
    found
}

/// The id in a line of the victim's.
fn id_in(text: &str) -> String {
    let line = text.lines().find(|line| line.starts_with("step ")).expect("a line of the victim's");
    line.split_whitespace().nth(3).expect("it has an id").to_owned()
}

#[test]
fn several_copies_run_at_once_and_the_store_stays_as_it_is() {
    let scene = Scene::new();
    let life = warm(&scene);
    assert!(life.output.text().contains("step 3 copy - generation 0"), "{}", life.output.text());
    let before = everything(life.store().path());
    let begin = |options: &[&str]| copy(life.store(), options).begin(&scene, &life.directory, life.pid);
    let mut copies = [
        begin(&["--copy", "--namespace", "always"]),
        begin(&["--copy", "--namespace", "always"]),
        begin(&["--copy=third_1.x-y", "--namespace", "always"]),
        // Whoever comes first has the program's own ids.
        begin(&["--copy"]),
        begin(&["--copy"]),
    ];
    let ids: BTreeSet<String> = copies
        .iter()
        .map(|copy| {
            copy.output.wait_for_line("child copy");
            let text = copy.output.text();
            let id = id_in(&text);
            assert!(text.contains(&format!("copy {id} generation 1 pid {}", life.pid)), "{text}");
            assert!(text.contains(&format!("child copy {id} store - mark ")), "{text}");
            id
        })
        .collect();
    assert!(ids.len() == copies.len() && ids.contains("third_1.x-y"), "{ids:?}");
    let is_random = |id: &&String| id.len() == 32 && id.bytes().all(|digit| b"0123456789abcdef".contains(&digit));
    assert_eq!(ids.iter().filter(is_random).count(), 4, "{ids:?}");
    copies.iter().for_each(|copy| copy.output.wait_for_more_lines(5));
    assert_eq!(everything(life.store().path()), before, "the store is as it was");
    copies.iter_mut().for_each(Life::kill);
    let mut own = Restart::of(life.store()).begin(&scene, &life.directory, life.pid);
    own.output.wait_for_text("copy - generation 1");
    own.kill();
}

#[test]
fn a_copy_comes_from_a_store_that_is_mounted_read_only() {
    let scene = Scene::new();
    let life = warm(&scene);
    let store = life.store().path().to_string_lossy().into_owned();
    let script = format!("mount --bind {store} {store} && mount -o remount,bind,ro {store} && exec \"$@\"");
    for options in [&["--copy"][..], &["--copy", "--lazy"], &["--copy", "--namespace", "always"]] {
        let copy = copy(&store, options).by(&["unshare", "--mount", "sh", "-c", &script, "sh"]);
        let mut second = copy.begin(&scene, &life.directory, life.pid);
        second.output.wait_for_text("generation 1");
        second.kill();
    }
}

/// Programs and checkpoints of [`USER`], in a scene that he may look into.
struct OfUser<'a> {
    scene: &'a Scene,
    folder: PathBuf,
}

impl<'a> OfUser<'a> {
    fn new(scene: &'a Scene) -> OfUser<'a> {
        fs::set_permissions(scene.path(), Permissions::from_mode(0o755)).expect("the scene is ours");
        let folder = scene.folder("of-user");
        for file in [product::ckpt(), product::library(), program().executable] {
            fs::copy(&file, folder.join(file.file_name().expect("a name"))).expect("a copy");
        }
        chown(&folder, Some(USER), Some(USER)).expect("root gives away");
        OfUser { scene, folder }
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.folder.join(name));
        command.current_dir(&self.folder).stdin(Stdio::null()).uid(USER).gid(USER);
        prepare(self.scene, &mut command);
        command
    }

    fn store(&self) -> PathBuf {
        self.folder.join("store")
    }

    /// Takes a checkpoint of a program that is killed then; gives its pid.
    fn checkpointed(&self) -> i32 {
        let printed = self.folder.join("printed");
        let mut command = self.command("copies");
        command.arg("20000").env("LD_PRELOAD", self.folder.join("libckpt.so")).env("CKPT_DIR", self.store());
        let file = File::create(&printed).expect("root may");
        chown(&printed, Some(USER), Some(USER)).expect("root gives away");
        let mut child = command.stdout(file).spawn().expect("it is there");
        let pid = child.id().cast_signed();
        wait_until("it prints", SOON, || fs::read_to_string(&printed).is_ok_and(|text| text.lines().count() > 5));
        let taken = self.command("ckpt").args(["checkpoint", &pid.to_string()]).output().expect("ckpt is there");
        assert!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stderr));
        child.kill().and_then(|()| child.wait()).expect("it is our child");
        wait_until_agents_have_ended(&self.store());
        pid
    }
}

fn give(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).expect("root may");
    if path.is_dir() {
        fs::read_dir(path).expect("it is there").for_each(|entry| give(&entry.expect("an entry").path(), user));
    }
}

#[test]
fn who_may_only_read_a_store_makes_copies_of_his_program() {
    let scene = Scene::new();
    let of_user = OfUser::new(&scene);
    let pid = of_user.checkpointed();
    let store = of_user.store();
    give(&store, 0);
    let attempt = |options: &[&str]| {
        let mut command = of_user.command("ckpt");
        command.arg("restart").arg(&store).args(["--copy", "--stdio", "inherit"]).args(options);
        command
    };
    let refused = attempt(&["--trust-owner"]).output().expect("ckpt is there");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(125) && said.contains("ermission denied"), "{said}");
    let chmod = Command::new("chmod").args(["-R", "a+rX"]).arg(&store).status().expect("chmod");
    assert!(chmod.success());
    let refused = attempt(&[]).output().expect("ckpt is there");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(125) && said.contains("belongs to user 0"), "{said}");
    let before = everything(&store);
    let printed = scene.path().join("printed");
    let stdout = File::create(&printed).expect("a file in the scene");
    let mut child = attempt(&["--trust-owner"]).stdout(stdout).stderr(Stdio::null()).spawn().expect("it starts");
    let lines = || fs::read_to_string(&printed).unwrap_or_default();
    wait_until("the copy prints", SOON, || lines().contains(&format!("generation 1 pid {pid}")));
    assert_eq!(everything(&store), before);
    let program = processes::descendants(child.id().cast_signed());
    let program = program.into_iter().find(|&found| processes::pid_in_its_namespace(found) == Some(pid));
    let program = program.expect("it runs");
    assert!(processes::status_field(program, "Uid").is_some_and(|uids| uids.starts_with("65534")));
    processes::send(program, Signal::SIGKILL);
    child.wait().expect("it is our child");
}

#[test]
fn checkpoints_of_a_copy_go_to_its_own_directory() {
    let scene = Scene::new();
    let life = warm(&scene);
    let before = everything(life.store().path());
    let own = Store::at(scene.path().join("own"));
    let dir = own.path().to_string_lossy().into_owned();
    let mut first = copy(life.store(), &["--copy=one", "--dir", &dir, "--interval", "300ms"]).begin(
        &scene,
        &life.directory,
        life.pid,
    );
    first.output.wait_for_line("child copy");
    let text = first.output.text();
    assert!(text.contains(&format!("child copy one store {dir} mark ")), "{text}");
    own.wait_for_sealed(&scene, 1);
    let id = checkpoint(&scene, first.pid).to_string();
    first.kill();
    assert_eq!(everything(life.store().path()), before);
    let job = |store: &Store| store.sealed(&scene).last().expect("there is one").job.clone();
    assert_ne!(job(&own), job(&life.store()), "a copy is another job");
    let mut again = copy(&own, &["--id", &id, "--interval", "0"]).begin(&scene, &life.directory, life.pid);
    again.output.wait_for_text("copy one generation 2");
    again.kill();
    let mut other = copy(&own, &["--id", &id, "--copy=two"]).begin(&scene, &life.directory, life.pid);
    other.output.wait_for_line("child copy");
    let text = other.output.text();
    assert!(text.contains("copy two generation 2") && text.contains("child copy two store - mark "), "{text}");
    other.kill();
}

#[test]
fn a_copy_without_a_directory_refuses_checkpoints_by_name_and_runs_on() {
    let scene = Scene::new();
    let life = warm(&scene);
    let mut second = copy(life.store(), &["--copy"]).begin(&scene, &life.directory, life.pid);
    second.output.wait_for_more_lines(3);
    let refused = Ckpt::new(&scene, ["checkpoint", &second.pid.to_string()]).call().failed_with(4);
    assert!(refused.stderr.contains("copy without a store") && refused.stderr.contains("--dir"), "{refused:?}");
    processes::send(second.pid, Signal::SIGUSR1);
    second.output.wait_for_more_lines(5);
    second.kill();
}

fn refused(scene: &Scene, life: &Life<'_>, options: &[&str]) -> Answer {
    let store = life.store().path().to_string_lossy().into_owned();
    Ckpt::new(scene, ["restart", &store].iter().chain(options)).call()
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_built() {
    let scene = Scene::new();
    let life = warm(&scene);
    let store = life.store().path().to_string_lossy().into_owned();
    let long = format!("--copy={}", "x".repeat(65));
    for option in ["--copy=", "--copy=a b", "--copy=../up", "--copy=\u{e4}", &long] {
        let answer = refused(&scene, &life, &[option]).failed_with(122);
        assert!(answer.stderr.contains("1 to 64 of the characters"), "{answer:?}");
    }
    let answer = refused(&scene, &life, &["--copy", "--dir", &store]).failed_with(122);
    assert!(answer.stderr.contains("writes nothing to the store"), "{answer:?}");
    let answer = refused(&scene, &life, &["--copy", "--interval", "10s"]).failed_with(122);
    assert!(answer.stderr.contains("give --dir DIR"), "{answer:?}");
    refused(&scene, &life, &["--copy", "--end-leftovers"]).failed_with(122);
}

#[test]
fn a_command_runs_where_the_program_is_before_it_runs() {
    let scene = Scene::new();
    let life = warm(&scene);
    let said = scene.path().join("said");
    let command = format!(
        "echo \"$CKPT_COPY $CKPT_PID $CKPT_JOB $CKPT_GENERATION $(readlink /proc/self/ns/pid) $(readlink /proc/$CKPT_PID/exe)\" \
         >{0}.new; echo to stderr; grep State /proc/$CKPT_PID/status >>{0}.new; mv {0}.new {0}",
        said.display()
    );
    for (options, id) in [(&["--copy=web-1", "--namespace", "always"][..], "web-1"), (&["--namespace", "never"], "")] {
        let restart = copy(life.store(), options).option("--on-restart").option(&command);
        let mut second = restart.begin(&scene, &life.directory, life.pid);
        second.output.wait_for_more_lines(3);
        let text = fs::read_to_string(&said).expect("the command has run");
        let namespace = fs::read_link(format!("/proc/{}/ns/pid", second.pid)).expect("it runs");
        let (executable, namespace) = (program().executable, namespace.to_string_lossy().into_owned());
        let begins = format!("{id} {} ", life.pid);
        let ends = format!(" 1 {namespace} {}\n", executable.display());
        assert!(text.starts_with(&begins) && text.contains(&ends) && text.contains("tracing stop"), "{text}");
        assert!(second.errors().contains("to stderr"), "{}", second.errors());
        fs::remove_file(&said).expect("it was there");
        second.kill();
    }
}

#[test]
fn a_command_that_fails_lets_nothing_run_and_a_later_restart_works() {
    let scene = Scene::new();
    let life = warm(&scene);
    let before = fs::read(life.directory.join("stdout")).expect("the program has printed");
    for (option, value) in [("--on-restart", "exit 3"), ("", "exit 3"), ("--copy", "exit 3")] {
        let store = life.store().path().to_string_lossy().into_owned();
        let mut words = vec!["restart", &store, "--namespace", "always"];
        match option {
            "--on-restart" => words.extend([option, value]),
            "" => {}
            other => words.push(other),
        }
        let mut call = Ckpt::new(&scene, words);
        if option != "--on-restart" {
            call = call.variable("CKPT_ON_RESTART", value);
        }
        let answer = call.call().failed_with(125);
        assert!(answer.stderr.contains("exit code 3") && answer.stderr.contains("not let run"), "{answer:?}");
        assert!(processes::copies(&program().executable, &life.directory).is_empty());
    }
    let late = refused(&scene, &life, &["--on-restart", "sleep 1000", "--on-restart-timeout", "300ms"]);
    assert!(late.failed_with(125).stderr.contains("longer than 300ms"));
    assert_eq!(fs::read(life.directory.join("stdout")).expect("it is there"), before, "no file was changed");
    let mut second =
        Restart::of(life.store()).option("--on-restart").option("exit 0").begin(&scene, &life.directory, life.pid);
    second.output.wait_for_text("generation 1");
    second.kill();
}

#[test]
fn root_runs_a_command_for_another_users_program_as_that_user() {
    let scene = Scene::new();
    let of_user = OfUser::new(&scene);
    of_user.checkpointed();
    let store = of_user.store().to_string_lossy().into_owned();
    let command = "echo uid $(id -u) gid $(id -g) groups $(id -G) secret \"$SECRET\" copy $CKPT_COPY; \
                   grep -e CapEff -e CapPrm -e CapAmb /proc/self/status; exit 9";
    let said = |options: &[&str]| {
        let words = ["restart", &store, "--copy=one", "--detach", "--on-restart", command];
        let call = Ckpt::new(&scene, words.iter().chain(options)).variable("SECRET", "of root's");
        let answer = call.call().failed_with(125);
        assert!(answer.stderr.contains("uid 65534 gid 65534 groups 65534 secret  copy one\n"), "{answer:?}");
        let capabilities = answer.stderr.lines().filter(|line| line.starts_with("Cap"));
        assert_eq!(capabilities.filter(|line| line.ends_with("\t0000000000000000")).count(), 3, "{answer:?}");
    };
    said(&["--trust-owner"]);
    // A store of root's own, as `ckpt checkpoint --dir` makes them.
    give(Path::new(&store), 0);
    said(&[]);
    said(&["--namespace", "always"]);
}

#[test]
fn system_v_objects_that_are_there_are_not_shared() {
    // What the victim leaves goes with the namespace.
    unshare(CloneFlags::CLONE_NEWIPC).expect("root may");
    let scene = Scene::new();
    let life = Life::until_checkpoint(&scene, "life", &Program::victim("sysv").argument("2000"), 5);
    let answer = refused(&scene, &life, &["--copy", "--namespace", "always"]).failed_with(125);
    assert!(answer.stderr.contains("a copy has none in common") && answer.stderr.contains("--ipc"), "{answer:?}");
    let restart = copy(life.store(), &["--copy", "--namespace", "always"]).by(&["unshare", "--ipc"]);
    let mut second = restart.begin(&scene, &life.directory, life.pid);
    second.output.wait_for_more_lines(3);
    second.kill();
}

fn request(port: u16) -> String {
    let mut answer = String::new();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn a_server_is_copied_once_into_each_network() {
    const PORT: u16 = 8097;
    network::of_its_own();
    let scene = Scene::new();
    let program = Program::python("serves.py").argument(PORT.to_string());
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(1);
    assert_eq!(request(PORT), "request 1\n");
    life.output.wait_for_line("served 1");
    checkpoint(&scene, life.pid);
    life.kill();
    wait_until_agents_have_ended(life.store().path());
    let always = ["--copy", "--namespace", "always"];
    let mut first = copy(life.store(), &always).begin(&scene, &life.directory, life.pid);
    assert_eq!(request(PORT), "request 2\n");
    let store = life.store().path().to_string_lossy().into_owned();
    let second = Ckpt::new(&scene, ["restart", &store, "--stdio", "inherit"].iter().chain(&always)).call();
    let said = &second.stderr;
    assert!(second.code == 125 && said.contains(&PORT.to_string()) && said.contains("in use"), "{second:?}");
    let up = "ip link set lo up && exec \"$@\"";
    let third = copy(life.store(), &always).by(&["unshare", "--net", "sh", "-c", up, "sh"]);
    let mut third = third.begin(&scene, &life.directory, life.pid);
    let asked = Command::new("nsenter")
        .args(["--net", "--target", &third.pid.to_string(), "python3", "-c"])
        .arg(format!(
            "import socket; print(socket.create_connection(('127.0.0.1', {PORT})).recv(100).decode(), end='')"
        ))
        .output()
        .expect("util-linux");
    assert_eq!(String::from_utf8_lossy(&asked.stdout), "request 2\n", "{}", String::from_utf8_lossy(&asked.stderr));
    assert_eq!(request(PORT), "request 3\n");
    first.kill();
    third.kill();
}

#[test]
fn a_file_that_another_copy_writes_to_is_not_put_back() {
    let scene = Scene::new();
    let life = warm(&scene);
    let restart = || Restart::of(life.store()).option("--copy").option("--namespace").option("always");
    let mut first = restart().begin(&scene, &life.directory, life.pid);
    first.output.wait_for_text("generation 1");
    let always = ["--copy", "--namespace", "always"];
    let answer = refused(&scene, &life, &always).failed_with(125);
    let said = &answer.stderr;
    assert!(said.contains("stdout: another program has it open to write") && said.contains("--stdio"), "{answer:?}");
    first.output.wait_for_more_lines(3);
    let mut second = copy(life.store(), &always).begin(&scene, &life.directory, life.pid);
    second.output.wait_for_text("generation 1");
    second.kill();
    first.kill();
}

//! What a process of another user says or owns is an attacker's: root's checkpoints, agents and commands beside strangers and
//! hostile programs of user 65534.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::hash::{BuildHasher, Hasher};
use std::mem::offset_of;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ckpt_tests::life::prepare;
use ckpt_tests::ordinary_user::USER;
use ckpt_tests::{Answer, Ckpt, Life, Program, Restart, Scene, Store, code_of, processes, product};
use ckpt_wire::Control;
use ckpt_wire::allocations::Area;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;
use nix::unistd::geteuid;

/// In which what is awaited happens.
const LIMIT: Duration = Duration::from_secs(20);
/// A scene that everybody may enter, with copies of what is tried that everybody may execute.
struct Town {
    scene: Scene,
    bin: PathBuf,
    /// The mark that root's job has, and that strangers copy.
    mark: String,
}

impl Town {
    fn new() -> Town {
        assert!(geteuid().is_root(), "only root can be two users");
        let scene = Scene::new();
        fs::set_permissions(scene.path(), Permissions::from_mode(0o755)).expect("it is ours");
        let bin = scene.folder("bin");
        for file in [product::ckpt(), product::library()] {
            fs::copy(&file, bin.join(file.file_name().expect("a file"))).expect("a copy");
        }
        let mark = format!("{:016x}", RandomState::new().build_hasher().finish() | 1);
        Town { scene, bin, mark }
    }

    fn ckpt(&self, arguments: &[&str]) -> Ckpt {
        Ckpt::at(self.bin.join("ckpt"), &self.scene, arguments)
    }

    fn checkpoint(&self, pid: i32) -> Answer {
        self.ckpt(&["checkpoint", &pid.to_string()]).call()
    }

    /// A directory that belongs to the stranger.
    fn strangers_folder(&self, name: &str) -> PathBuf {
        let path = self.scene.folder(name);
        chown(&path, Some(USER), Some(USER)).expect("root may");
        path
    }

    /// `program` with libckpt.so, as the stranger, in his directory `name`; its store is in there.
    fn stranger(&self, name: &str, program: &Program, variables: &[(&str, &str)]) -> Stranger {
        let directory = self.strangers_folder(name);
        let executable = self.bin.join(program.executable.file_name().expect("a file"));
        fs::copy(&program.executable, &executable).expect("a copy");
        let mut command = Command::new(&executable);
        command.args(&program.arguments).current_dir(&directory).uid(USER).gid(USER);
        command.env("LD_PRELOAD", self.bin.join("libckpt.so"));
        command.env("CKPT_DIR", directory.join("store")).envs(variables.iter().copied());
        command.envs(program.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(strangers_file(&directory.join("stdout")));
        command.stderr(strangers_file(&directory.join("stderr")));
        prepare(&self.scene, &mut command);
        let child = command.spawn().expect("it can be executed");
        let stranger = Stranger { child, directory };
        stranger.waits_for("step 1");
        stranger
    }

    /// Those that are `ckpt agent` for `pid`.
    fn agents_of(&self, pid: i32) -> Vec<i32> {
        let pid = pid.to_string();
        let is_one = |words: &[String]| words.iter().any(|word| word == "agent") && words.contains(&pid);
        let runs = |other: &i32| processes::executable(*other) == Some(self.bin.join("ckpt"));
        processes::all().into_iter().filter(|other| runs(other) && is_one(&processes::arguments(*other))).collect()
    }

    fn agent_of(&self, pid: i32) -> i32 {
        let agents = self.agents_of(pid);
        let [agent] = agents[..] else { panic!("one agent, not {agents:?}") };
        agent
    }
}

/// A file that belongs to the stranger.
fn strangers_file(path: &Path) -> File {
    let file = File::create(path).expect("a file in the scene");
    chown(path, Some(USER), Some(USER)).expect("root may");
    file
}

/// A program of user 65534.
struct Stranger {
    child: Child,
    directory: PathBuf,
}

impl Stranger {
    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    fn said(&self) -> String {
        fs::read_to_string(self.directory.join("stdout")).unwrap_or_default()
    }

    fn waits_for(&self, line: &str) {
        processes::wait_until(line, LIMIT, || self.said().lines().any(|said| said.starts_with(line)));
    }

    /// Whether it goes on as if nothing were.
    fn goes_on(&self) {
        let before = self.said().lines().count();
        processes::wait_until("it goes on", LIMIT, || self.said().lines().count() > before + 2);
        assert!(!processes::is_stopped(self.pid()));
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that goes on until it is ended.
fn endless() -> Program {
    Program::victim("hostile").argument("1000000").argument("honest")
}

/// Root's program, whose mark is the one that strangers copy, at a step.
fn marked<'town>(town: &'town Town, program: &Program) -> Life<'town> {
    let mark = format!("{}-1111111111111111-0000000000", town.mark);
    let life = Life::preloaded(&town.scene, "life", &program.clone().variable("CKPT_MARK", mark));
    life.output.wait_for_line("step 1");
    life
}

/// A stranger with the mark of root's job, whose first process is `founder`.
fn with_copied_mark(town: &Town, founder: i32) -> Stranger {
    let mark = format!("{}-1111111111111111-{founder:010}", town.mark);
    town.stranger("stranger", &endless(), &[("CKPT_MARK", &mark)])
}

fn processes_of_newest(town: &Town, store: &Store) -> u64 {
    store.sealed(&town.scene).last().expect("a checkpoint").processes
}

#[test]
fn a_stranger_with_the_mark_of_a_job_is_in_no_checkpoint_of_it_and_is_named() {
    let town = Town::new();
    let mut life = marked(&town, &endless());
    let stranger = with_copied_mark(&town, life.pid);
    let answer = town.checkpoint(life.pid).succeeded();
    assert_eq!(processes_of_newest(&town, &life.store()), 1);
    let named = format!("process {} (hostile) of user {USER}", stranger.pid());
    assert!(answer.stderr.contains(&named), "{answer:?}");
    stranger.goes_on();
    life.kill();
}

#[test]
fn a_stranger_with_the_mark_stops_no_restart_and_is_not_ended_as_a_leftover() {
    let town = Town::new();
    let mut life = marked(&town, &endless());
    town.checkpoint(life.pid).succeeded();
    let stranger = with_copied_mark(&town, life.pid);
    life.kill();
    let (store, directory, pid) = (life.store(), life.directory.clone(), life.pid);
    for options in [&[][..], &["--end-leftovers"]] {
        let restart = options.iter().fold(Restart::of(&store), |restart, option| restart.option(option));
        let mut back = restart.begin(&town.scene, &directory, pid);
        let errors = back.errors();
        assert!(errors.contains(&format!("process {} (hostile) of user {USER}", stranger.pid())), "{errors}");
        stranger.goes_on();
        back.kill();
    }
}

#[test]
fn an_agent_does_not_go_on_with_a_stranger_when_its_program_has_ended() {
    let town = Town::new();
    let mut life = marked(&town, &endless());
    town.checkpoint(life.pid).succeeded();
    let agent = town.agent_of(life.pid);
    let stranger = with_copied_mark(&town, life.pid);
    life.kill();
    processes::wait_until("the agent ends with its program", LIMIT, || !processes::is_alive(agent));
    assert_eq!(life.store().sealed(&town.scene).len(), 1);
    stranger.goes_on();
}

#[test]
fn a_stranger_that_names_root_s_store_as_its_own_is_not_taken_for_the_program_of_that_store() {
    let town = Town::new();
    let mut life = marked(&town, &endless());
    town.checkpoint(life.pid).succeeded();
    let store = life.store().path().to_owned();
    let stranger = town.stranger("stranger", &endless(), &[("CKPT_DIR", &store.to_string_lossy())]);
    town.ckpt(&["checkpoint", &store.to_string_lossy()]).call().succeeded();
    assert_eq!(life.store().sealed(&town.scene).len(), 2);
    life.kill();
    let answer = town.ckpt(&["checkpoint", &store.to_string_lossy()]).call().failed_with(5);
    assert!(answer.stderr.contains("no program runs"), "{answer:?}");
    stranger.goes_on();
}

/// Root's job with a worker that has given up its rights, and the worker's pid.
fn with_worker<'scene>(town: &'scene Town, kind: &str, over: &Path) -> (Life<'scene>, i32) {
    let program = Program::victim("gives_up").argument("100").argument(kind);
    let program = program.variable("CKPT_VICTIM_USER", USER.to_string()).waiting(90, over);
    let life = marked(town, &program);
    let said = life.output.text();
    let worker = said.lines().find_map(|line| line.strip_prefix("worker ")?.parse().ok()).expect("it has one");
    assert_eq!(processes::status_field(worker, "Uid"), Some([USER; 4].map(|user| user.to_string()).join("\t")));
    (life, worker)
}

#[test]
fn a_worker_that_has_given_up_its_rights_stays_in_the_job_when_its_parent_has_ended() {
    let town = Town::new();
    let over = town.scene.path().join("over");
    let (mut life, worker) = with_worker(&town, "late", &over);
    let store = life.store();
    town.checkpoint(life.pid).succeeded();
    assert_eq!(processes_of_newest(&town, &store), 3, "it descends from the first process");
    let parent = processes::status_field(worker, "PPid").and_then(|pid| pid.parse().ok()).expect("it has one");
    fs::write(life.directory.join("parent_over"), "").expect("a file in the scene");
    processes::wait_until("its parent ends", LIMIT, || !processes::is_alive(parent));
    let answer = town.checkpoint(life.pid).succeeded();
    assert_eq!((processes_of_newest(&town, &store), answer.stderr.as_str()), (2, ""), "its agent knows it");
    let agent = town.agent_of(life.pid);
    processes::send(agent, Signal::SIGKILL);
    processes::wait_until("the agent is gone", LIMIT, || !processes::is_alive(agent));
    let answer = town.checkpoint(life.pid).succeeded();
    assert_eq!((processes_of_newest(&town, &store), answer.stderr.as_str()), (2, ""), "another one by the checkpoint");
    life.kill();
    let mut back = Restart::of(&store).begin(&town.scene, &life.directory.clone(), life.pid);
    assert!(processes::is_alive(worker));
    let answer = town.checkpoint(back.pid).succeeded();
    assert_eq!((processes_of_newest(&town, &store), answer.stderr.as_str()), (2, ""), "and so it is after a restart");
    fs::write(&over, "").expect("a file in the scene");
    assert_eq!(code_of(back.wait()), 7, "{}", back.output.text());
}

#[test]
fn a_worker_that_no_checkpoint_has_seen_with_its_parent_is_named_when_it_is_left_out() {
    let town = Town::new();
    let over = town.scene.path().join("over");
    let (mut life, worker) = with_worker(&town, "early", &over);
    let answer = town.checkpoint(life.pid).succeeded();
    assert_eq!(processes_of_newest(&town, &life.store()), 1);
    assert!(answer.stderr.contains(&format!("process {worker} (gives_up) of user {USER}")), "{answer:?}");
    let log = fs::read_to_string(life.store().path().join("log")).expect("the agent's log");
    assert!(log.contains(&format!("process {worker} (gives_up)")), "{log}");
    fs::write(&over, "").expect("a file in the scene");
    assert_eq!(code_of(life.wait()), 7, "{}", life.output.text());
}

#[test]
fn the_mark_is_in_no_name_that_everybody_may_read() {
    let town = Town::new();
    let mut life = marked(&town, &endless());
    town.checkpoint(life.pid).succeeded();
    let agent = town.agent_of(life.pid);
    let sockets = fs::read_to_string("/proc/net/unix").expect("everybody may read it");
    assert!(sockets.lines().any(|line| line.ends_with(".sock") && line.contains("/proc/self/fd/")), "it listens");
    let read = |file: &str| fs::read_to_string(format!("/proc/{agent}/{file}")).expect("it lives");
    let mut names = vec![sockets, read("cmdline"), read("comm"), read("status")];
    let listed = town.ckpt(&["list", &life.store().path().to_string_lossy()]).call().succeeded();
    names.extend([listed.stdout, listed.stderr]);
    names.extend(files_below(&life.store().path().join("agents")).into_keys().map(|path| path.display().to_string()));
    let told: Vec<&String> = names.iter().filter(|name| name.contains(&town.mark)).collect();
    assert!(told.is_empty(), "{told:?}");
    life.kill();
}

#[test]
fn the_agent_that_root_starts_for_a_user_has_nothing_of_root_s() {
    let town = Town::new();
    let stranger = town.stranger("stranger", &endless(), &[]);
    let secret = town.scene.path().join("secret");
    fs::write(&secret, "root's").expect("a file in the scene");
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("it is ours");
    let file = File::open(&secret).expect("it is ours");
    let log = town.scene.path().join("root-log");
    let call = town.ckpt(&["checkpoint", &stranger.pid().to_string()]).descriptor(9, file);
    let call = call.variable("AWS_SECRET_ACCESS_KEY", "root's").variable("CKPT_LOG", &log);
    call.variable("RESTIC_PASSWORD", "root's").call().succeeded();
    let agent = town.agent_of(stranger.pid());
    assert_eq!(processes::status_field(agent, "Uid"), Some([USER; 4].map(|user| user.to_string()).join("\t")));
    let environment = fs::read(format!("/proc/{agent}/environ")).expect("it lives");
    let names: Vec<String> =
        environment.split(|&byte| byte == 0).map(name_of).filter(|name| !name.is_empty()).collect();
    assert_eq!(names, ["PATH"]);
    let led: Vec<PathBuf> = links_of(agent);
    assert!(!led.contains(&secret), "{led:?}");
    assert!(led.iter().all(|path| !path.starts_with("/dev/pts") && !path.starts_with("/dev/tty")), "{led:?}");
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    assert!(read(&stranger.directory.join("store/log")).contains("serving process") && !read(&log).contains("serving"));
}

/// The stranger's program in namespaces of its own, as `ckpt restart` makes them for him, and its pid out here.
fn in_namespaces(town: &Town) -> (Stranger, i32) {
    let first = town.stranger("stranger", &endless(), &[]);
    town.checkpoint(first.pid()).succeeded();
    let (directory, executable) = (first.directory.clone(), town.bin.join("hostile"));
    drop(first);
    let mut command = Command::new(town.bin.join("ckpt"));
    command.arg("restart").arg(directory.join("store")).current_dir(&directory).uid(USER).gid(USER);
    command.stdin(Stdio::null()).stdout(strangers_file(&directory.join("restart-out")));
    command.stderr(strangers_file(&directory.join("restart-err")));
    prepare(&town.scene, &mut command);
    let restart = Stranger { child: command.spawn().expect("it can be executed"), directory };
    let is_it = |pid: &i32| {
        processes::executable(*pid).as_ref() == Some(&executable)
            && processes::status_field(*pid, "NSpid").is_some_and(|ids| ids.split_whitespace().count() == 2)
            && processes::status_field(*pid, "TracerPid").as_deref() == Some("0")
    };
    let below = || processes::descendants(restart.pid());
    processes::wait_until("it runs again", LIMIT, || below().iter().any(is_it));
    let pid = below().into_iter().find(is_it).expect("it runs");
    (restart, pid)
}

#[test]
fn what_root_executes_in_a_user_s_namespaces_has_nothing_of_root_s() {
    let town = Town::new();
    let (restart, pid) = in_namespaces(&town);
    let secret = town.scene.path().join("secret");
    fs::write(&secret, "root's").expect("a file in the scene");
    let call = town.ckpt(&["checkpoint", &pid.to_string()]).descriptor(9, File::open(&secret).expect("it is ours"));
    let call = call.variable("AWS_SECRET_ACCESS_KEY", "root's").variable("CKPT_LOG", town.scene.path().join("log"));
    let answer = call.call().succeeded();
    assert_eq!(answer.number(), 2);
    let speaker = format!("user {USER}: ");
    assert!(answer.stderr.lines().all(|line| line.starts_with(&speaker)), "{answer:?}");
    let inner = processes::pid_in_its_namespace(pid).expect("it runs");
    let agent = town.agent_of(inner);
    assert_eq!(processes::status_field(agent, "Uid"), Some([USER; 4].map(|user| user.to_string()).join("\t")));
    let environment = fs::read(format!("/proc/{agent}/environ")).expect("it lives");
    let names: Vec<String> =
        environment.split(|&byte| byte == 0).map(name_of).filter(|name| !name.is_empty()).collect();
    assert!(names.iter().all(|name| ["PATH", "CKPT_RELAYED"].contains(&name.as_str())), "{names:?}");
    assert!(!links_of(agent).contains(&secret), "{:?}", links_of(agent));
    let gone = || !processes::is_alive(pid);
    processes::send(pid, Signal::SIGKILL);
    processes::wait_until("the program ends", LIMIT, gone);
    drop(restart);
}

fn name_of(entry: &[u8]) -> String {
    String::from_utf8_lossy(entry).split('=').next().unwrap_or_default().to_owned()
}

fn links_of(pid: i32) -> Vec<PathBuf> {
    let number = |number: i32| fs::read_link(format!("/proc/{pid}/fd/{number}")).unwrap_or_default();
    processes::descriptors(pid).into_iter().map(number).collect()
}

#[test]
fn an_agent_of_the_same_user_has_the_credentials_for_its_bucket_and_no_descriptor() {
    let town = Town::new();
    let mut life = marked(&town, &endless());
    let file = File::open("/proc/self/exe").expect("a file");
    let call = town.ckpt(&["checkpoint", &life.pid.to_string()]).descriptor(9, file);
    call.variable("AWS_SECRET_ACCESS_KEY", "root's").call().succeeded();
    let agent = town.agent_of(life.pid);
    let environment = fs::read(format!("/proc/{agent}/environ")).expect("it lives");
    assert!(environment.split(|&byte| byte == 0).any(|entry| entry == b"AWS_SECRET_ACCESS_KEY=root's"));
    let own = std::env::current_exe().expect("it runs");
    assert!(!links_of(agent).contains(&own), "{:?}", links_of(agent));
    life.kill();
}

/// A stranger's program that root has asked once, whose agent has ended: the name of its socket.
fn without_agent(town: &Town, stranger: &Stranger) -> PathBuf {
    town.checkpoint(stranger.pid()).succeeded();
    let agent = town.agent_of(stranger.pid());
    processes::send(agent, Signal::SIGKILL);
    processes::wait_until("the agent is gone", LIMIT, || !processes::is_alive(agent));
    let agents = stranger.directory.join("store/agents");
    let mut names = fs::read_dir(&agents).expect("it was there").map(|entry| entry.expect("a name").path());
    names.find(|path| path.extension().is_some_and(|extension| extension == "sock")).expect("a socket is left")
}

/// A stranger who answers at `socket` with these lines.
fn answering(town: &Town, socket: &Path, lines: &str) -> Stranger {
    const SCRIPT: &str = "\
import os, socket, sys
path, lines = sys.argv[1], sys.argv[2]
os.chdir(os.path.dirname(path))
name = os.path.basename(path)
os.unlink(name)
listener = socket.socket(socket.AF_UNIX)
listener.bind(name)
listener.listen(8)
print('step 1', flush=True)
while True:
    client, _ = listener.accept()
    client.recv(65536)
    client.sendall(lines.encode())
    client.close()
";
    let directory = town.strangers_folder("liar");
    let mut command = Command::new("python3");
    command.args(["-c", SCRIPT]).arg(socket).arg(lines).uid(USER).gid(USER).current_dir(&directory);
    command.stdin(Stdio::null());
    prepare(&town.scene, &mut command);
    command.stdout(File::create(directory.join("stdout")).expect("a file in the scene"));
    let liar = Stranger { child: command.spawn().expect("python3 is installed"), directory };
    liar.waits_for("step 1");
    liar
}

#[test]
fn a_failure_is_a_failure_whatever_the_user_s_agent_says_of_it() {
    let town = Town::new();
    let stranger = town.stranger("stranger", &endless(), &[]);
    let socket = without_agent(&town, &stranger);
    let _liar = answering(&town, &socket, "{\"failed\":{\"message\":\"all is well\",\"exit_code\":0}}\n");
    let answer = town.checkpoint(stranger.pid()).failed_with(1);
    assert!(answer.stderr.contains(&format!("the agent of user {USER} says: all is well")), "{answer:?}");
}

#[test]
fn what_another_user_s_agent_says_is_said_to_be_its_word() {
    let town = Town::new();
    let stranger = town.stranger("stranger", &endless(), &[]);
    let socket = without_agent(&town, &stranger);
    let _liar = answering(&town, &socket, "{\"sealed\":{\"id\":4711}}\n");
    let answer = town.checkpoint(stranger.pid()).succeeded();
    assert!(answer.stderr.contains(&format!("what the agent of user {USER} says")), "{answer:?}");
}

#[test]
fn links_to_a_socket_of_root_s_are_not_followed() {
    let town = Town::new();
    let stranger = town.stranger("stranger", &endless(), &[]);
    let socket = without_agent(&town, &stranger);
    let root_s = town.scene.path().join("root.sock");
    let listener = UnixListener::bind(&root_s).expect("a socket in the scene");
    listener.set_nonblocking(true).expect("it is ours");
    fs::remove_file(&socket).expect("root may");
    symlink(&root_s, &socket).expect("root may");
    let answer = town.checkpoint(stranger.pid()).failed_with(5);
    assert!(answer.stderr.contains("in the place of the agent's socket"), "{answer:?}");

    let (agents, elsewhere) = (stranger.directory.join("store/agents"), town.scene.folder("elsewhere"));
    fs::rename(&root_s, elsewhere.join(socket.file_name().expect("a name"))).expect("both are ours");
    fs::remove_dir_all(&agents).expect("root may");
    symlink(&elsewhere, &agents).expect("root may");
    let answer = town.checkpoint(stranger.pid()).failed_with(5);
    assert!(answer.stderr.contains("no directory"), "{answer:?}");
    assert!(listener.accept().is_err(), "nobody has talked to root's socket");
    stranger.goes_on();
}

/// Regular files, directories and links below `directory`, with what would show that they were touched.
fn files_below(directory: &Path) -> BTreeMap<PathBuf, (u32, u64, i64, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let (path, about) = (entry.path(), entry.metadata().expect("it is there"));
        let content = if about.is_file() { fs::read(&path).expect("root may") } else { Vec::new() };
        found.insert(path.clone(), (about.mode(), about.size(), about.mtime(), about.ctime_nsec(), content));
        if about.is_dir() {
            found.extend(files_below(&path));
        }
    }
    found
}

/// The layout of the control block, for the victim.
fn layout() -> String {
    let numbers = [
        size_of::<Control>(),
        offset_of!(Control, allocations),
        offset_of!(Control, with_dirs),
        size_of::<Area>(),
        offset_of!(Area, starts),
        offset_of!(Area, allocations),
        offset_of!(Control, marked_job),
        offset_of!(Control, stub_start),
    ];
    numbers.map(|number| number.to_string()).join(" ")
}

/// A hostile program of this kind under root's agent: root has started it, and it has become the stranger.
fn hostile<'scene>(town: &'scene Town, kind: &str, variables: &[(&str, OsString)]) -> Life<'scene> {
    let program = Program::victim("hostile").argument("1000000").argument(kind).variable("HOSTILE_LAYOUT", layout());
    let program = program.variable("HOSTILE_USER", USER.to_string()).variable("CKPT_INTERVAL", "1h");
    let program = variables.iter().fold(program, |program, (name, value)| program.variable(name, value));
    let life = Life::preloaded(&town.scene, "life", &program);
    life.output.wait_for_line("step 1");
    // It was started before the program gave up its rights.
    let is_socket = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "sock");
    let agents = life.store().path().join("agents");
    processes::wait_until("its agent listens", LIMIT, || files_below(&agents).keys().any(is_socket));
    let agent = processes::agents_of(life.pid)[0];
    assert_eq!(processes::status_field(agent, "Uid").as_deref(), Some("0\t0\t0\t0"));
    fs::write(life.directory.join("begin"), "").expect("a file in the scene");
    life.output.wait_for_line("hostile");
    life
}

/// Root's files, which nothing that a hostile program does may touch.
fn treasure(town: &Town) -> PathBuf {
    let treasure = town.scene.folder("treasure");
    fs::write(treasure.join("secret"), "root's").expect("a file in the scene");
    fs::set_permissions(treasure.join("secret"), Permissions::from_mode(0o600)).expect("it is ours");
    fs::set_permissions(&treasure, Permissions::from_mode(0o700)).expect("it is ours");
    treasure
}

fn goes_on(life: &Life<'_>) {
    assert!(!processes::is_stopped(life.pid), "it runs on");
    life.output.wait_for_more_lines(2);
}

#[test]
fn a_control_block_that_changes_while_it_is_read_costs_no_more_than_the_checkpoint() {
    let town = Town::new();
    let treasure = treasure(&town);
    let mut life = hostile(&town, "flips", &[]);
    let before = files_below(&treasure);
    for _ in 0..20 {
        let began = Instant::now();
        let answer = town.checkpoint(life.pid);
        assert!(began.elapsed() < LIMIT, "{answer:?} after {:?}", began.elapsed());
        assert!([0, 1, 4, 5].contains(&answer.code), "sealed or refused: {answer:?}");
        assert_eq!(answer.code == 0, answer.stderr.is_empty() || answer.code == 0, "a reason: {answer:?}");
        goes_on(&life);
    }
    assert_eq!(files_below(&treasure), before);
    life.kill();
}

#[test]
fn a_program_that_has_written_over_the_agents_system_call_is_refused_by_name() {
    for (kind, said) in [("faults", "it got SIGILL"), ("spins", "it made none for 10 s"), ("other", "it made call 34")]
    {
        let town = Town::new();
        let mut life = hostile(&town, kind, &[]);
        let answer = town.checkpoint(life.pid).failed_with(4);
        assert!(answer.stderr.contains(said), "{kind}: {answer:?}");
        goes_on(&life);
        life.kill();
    }
}

#[test]
fn lists_that_lead_to_themselves_and_lengths_beyond_all_addresses_take_bounded_time_and_memory() {
    for kind in ["cycle", "lengths"] {
        let town = Town::new();
        let mut life = hostile(&town, kind, &[]);
        let began = Instant::now();
        let pid = life.pid.to_string();
        let shown = town.ckpt(&["show", &pid, "--json"]).address_space(2 << 30).call().succeeded();
        assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
        let shown: serde_json::Value = serde_json::from_str(&shown.stdout).expect("it is JSON");
        let count = shown["allocations"].as_array().expect("a list").len();
        assert!(count <= 1 << 16, "each once: {count}");
        assert_eq!(count == 0, kind == "lengths", "{count}");
        town.checkpoint(life.pid).succeeded();
        goes_on(&life);
        life.kill();
    }
}

#[test]
fn checkpoints_stay_those_of_the_job_that_the_agent_was_started_for() {
    let town = Town::new();
    let mut life = hostile(&town, "job", &[]);
    town.checkpoint(life.pid).succeeded();
    let rows = life.store().sealed(&town.scene);
    assert!(rows.len() == 1 && rows[0].job != "0000000000004711", "{rows:?}");
    life.kill();
}

#[test]
fn a_directory_that_a_program_wishes_for_and_may_not_read_is_in_no_checkpoint() {
    let town = Town::new();
    let treasure = treasure(&town);
    let mut life = hostile(&town, "tree", &[("HOSTILE_TREE", treasure.clone().into())]);
    let answer = town.checkpoint(life.pid).failed_with(1);
    assert!(answer.stderr.contains(&treasure.display().to_string()), "{answer:?}");
    assert!(answer.stderr.contains("ermission denied"), "{answer:?}");
    goes_on(&life);
    life.kill();
}

#[test]
fn a_file_of_the_path_and_the_inode_of_a_mapped_one_on_another_device_is_not_captured_for_it() {
    let town = Town::new();
    let place = town.scene.folder("place");
    // Two file systems whose first files have the same inode.
    let lower = Mounted::at(&place);
    fs::write(place.join("file"), "the program's").expect("it is ours");
    let inode = fs::metadata(place.join("file")).expect("it is there").ino();
    let program = Program::victim("hostile").argument("1000000").argument("maps");
    let program = program.variable("HOSTILE_LAYOUT", layout()).variable("HOSTILE_FILE", place.join("file"));
    let mut life = marked(&town, &program);
    let upper = Mounted::at(&place);
    fs::write(place.join("file"), "another one's").expect("it is ours");
    assert_eq!(fs::metadata(place.join("file")).expect("it is there").ino(), inode, "of the same inode");
    let id = town.checkpoint(life.pid).succeeded().number();
    let store = life.store().path().to_owned();
    let shown = town.ckpt(&["show", &store.to_string_lossy(), &id.to_string(), "--json"]).call().succeeded();
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).expect("it is JSON");
    let paths: Vec<_> = shown["files"].as_array().expect("a list").iter().map(|file| file["path"].clone()).collect();
    let path = place.join("file").display().to_string();
    assert!(!paths.contains(&path.clone().into()), "{paths:?}");
    let log = fs::read_to_string(store.join("log")).expect("the agent's log");
    let said = format!("the content of {path} is not captured: its path leads to another file by now");
    assert!(log.contains(&said), "{log}");
    life.kill();
    drop((upper, lower));
}

/// A file system in memory, mounted as long as this lives.
struct Mounted(PathBuf);

impl Mounted {
    fn at(place: &Path) -> Mounted {
        mount(Some("tmpfs"), place, Some("tmpfs"), MsFlags::empty(), None::<&str>).expect("root may");
        Mounted(place.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        umount2(&self.0, MntFlags::MNT_DETACH).expect("it is mounted");
    }
}

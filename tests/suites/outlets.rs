//! What leaves ckpt: messages, files that it makes, core dumps, and what the host's log is told. The other side is user 65534, who
//! owns directories on the way, files and names; this is root.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ckpt_tests::ordinary_user::USER;
use ckpt_tests::output::Output;
use ckpt_tests::{
    Answer, Ckpt, Launch, Life, Program, Restart, Scene, Stdout, Store, checkpoint, code_of, fault, processes, product,
    scene,
};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

/// A title for the terminal, a line of its own, and text that runs the other way.
const HOSTILE: &str = "x\x1b]0;PWNED\x07\nckpt: done \u{202e}txt";

fn ckpt(scene: &Scene, arguments: &[&str]) -> Answer {
    Ckpt::new(scene, arguments).call()
}

fn program() -> Program {
    Program::victim("exits").argument("100000").argument("code:7")
}

/// A store with one checkpoint of a program that has ended.
fn store(scene: &Scene) -> Store {
    Life::until_checkpoint(scene, "life", &program(), 3).store()
}

fn text_of(path: impl AsRef<Path>) -> String {
    path.as_ref().to_string_lossy().into_owned()
}

/// A directory of the scene that is the other user's, where he may put links.
fn his(scene: &Scene, name: &str) -> PathBuf {
    let directory = scene.folder(name);
    chown(&directory, Some(USER), Some(USER)).expect("root may");
    directory
}

/// A link of his at `path` that leads to `target`.
fn his_link(target: &Path, path: &Path) {
    symlink(target, path).expect("a link");
    lchown(path, Some(USER), Some(USER)).expect("root may");
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).mode() & 0o7777
}

/// One line, and nothing that a terminal obeys or that turns text.
#[track_caller]
fn is_harmless(text: &str) {
    let harmful = |character: char| (character.is_control() && character != '\n') || character == '\u{202e}';
    assert!(!text.contains(harmful), "{text:?}");
    assert!(text.lines().all(|line| !line.starts_with("ckpt: done")), "a line that ckpt has not written: {text:?}");
}

// --- messages

#[test]
fn a_file_name_in_an_error_is_shown_and_not_obeyed() {
    let scene = Scene::new();
    let life = Life::until_checkpoint(&scene, "life", &program().reads(HOSTILE, *b"content"), 3);
    fs::write(life.directory.join(HOSTILE), "other").expect("a file");
    let answer = ckpt(&scene, &["restart", &text_of(life.store())]);
    assert!(answer.code > 120 && answer.stderr.contains("PWNED"), "{answer:?}");
    is_harmless(&answer.stderr);
    assert_eq!(answer.stderr.lines().count(), 1, "{answer:?}");
}

#[test]
fn names_of_jobs_are_shown_and_not_obeyed() {
    let scene = Scene::new();
    let mut life =
        Life::start(&scene, "life", &program(), &Launch::Run(vec!["--name".into(), HOSTILE.into()]), Stdout::File);
    let ids = [checkpoint(&scene, life.pid), checkpoint(&scene, life.pid)].map(|id| id.to_string());
    processes::send(life.pid, Signal::SIGKILL);
    life.wait();
    let dir = text_of(life.store());
    for command in [
        &["list", &dir][..],
        &["show", &dir],
        &["diff", &dir, &ids[0], &ids[1]],
        &["verify", &dir],
        &["copy", &dir, &text_of(scene.path().join("copy"))],
        &["prune", &dir, "--keep", "1"],
    ] {
        let answer = ckpt(&scene, command).succeeded();
        is_harmless(&answer.stdout);
        is_harmless(&answer.stderr);
    }
    let json = ckpt(&scene, &["list", &dir, "--json"]).succeeded().stdout;
    assert!(json.contains(r"\u001b]0;PWNED\u0007\nckpt"), "scripts get the name itself: {json}");
}

#[test]
fn what_was_typed_is_shown_and_not_obeyed() {
    let scene = Scene::new();
    let absent = text_of(scene.path().join(HOSTILE));
    for command in [&["list", &absent][..], &["verify", &absent], &[HOSTILE], &["list", &format!("--{HOSTILE}")]] {
        let answer = ckpt(&scene, command);
        assert!(answer.code != 0 && answer.stderr.contains("PWNED"), "{answer:?}");
        is_harmless(&answer.stderr);
    }
}

#[test]
fn names_in_a_log_begin_no_line_and_are_not_obeyed() {
    let scene = Scene::new();
    let hostile = scene.path().join(HOSTILE);
    fs::rename(store(&scene).path(), &hostile).expect("the store moves");
    let log = scene.path().join("log");
    let restart = Ckpt::new(&scene, [Path::new("restart"), &hostile]).variable("CKPT_LOG", &log);
    // It says in the log what it restarts, and goes no further.
    restart.variable(fault::KILL, "ptrace.seize:1").call().failed_with(137);
    let logged = fs::read_to_string(&log).expect("a log");
    assert!(logged.contains("PWNED"), "{logged:?}");
    is_harmless(&logged);
}

#[test]
fn a_line_of_libckpt_in_the_log_begins_no_other_and_is_not_obeyed() {
    let scene = Scene::new();
    let program = Program::victim("self_usr1").argument("100000").variable("CKPT_NAME", HOSTILE);
    let mut life = Life::preloaded(&scene, "life", &program);
    let log = life.store().path().join("log");
    let logged = || fs::read_to_string(&log).unwrap_or_default();
    processes::wait_until("a line of libckpt.so", Duration::from_secs(20), || logged().contains("PWNED"));
    is_harmless(&logged());
    life.kill();
}

// --- files

#[test]
fn what_is_extracted_is_its_owners_alone_and_goes_through_no_link_of_another() {
    let scene = Scene::new();
    let store = store(&scene);
    let (dir, his) = (text_of(&store), his(&scene, "his"));
    let target = scene.path().join("target");
    fs::write(&target, "kept").expect("a file");
    let extract = |to: &Path| ckpt(&scene, &["extract", &dir, "1", "--region", "m1", "-o", &text_of(to)]);

    his_link(&target, &his.join("out.ckpt-partial"));
    extract(&his.join("out")).succeeded();
    assert_eq!(fs::read_to_string(&target).expect("a file"), "kept");
    let made = fs::symlink_metadata(his.join("out")).expect("it is there");
    assert!(made.is_file() && made.uid() == 0 && made.mode() & 0o7777 == 0o600, "{made:?}");

    let private = scene.folder("private");
    his_link(&private, &his.join("folder"));
    let answer = extract(&his.join("folder/out")).failed_with(1);
    assert!(answer.stderr.contains("folder") && answer.stderr.contains("65534"), "{answer:?}");
    assert_eq!(fs::read_dir(&private).expect("a folder").count(), 0);

    symlink(&private, scene.path().join("own")).expect("a link");
    extract(&scene.path().join("own/out")).succeeded();
    assert_eq!(mode_of(&private.join("out")), 0o600);
}

#[test]
fn pid_files_and_outputs_go_through_no_link_of_another() {
    let scene = Scene::new();
    let (dir, his) = (text_of(store(&scene)), his(&scene, "his"));
    let private = scene.folder("private");
    fs::write(private.join("file"), "kept").expect("a file");
    his_link(&private, &his.join("folder"));
    his_link(&private.join("file"), &his.join("file"));
    let pid_file = text_of(his.join("folder/pid"));
    ckpt(&scene, &["run", "--pid-file", &pid_file, "--", "true"]).failed_with(121);
    ckpt(&scene, &["restart", &dir, "--pid-file", &pid_file]).failed_with(121);
    for output in ["folder/out", "folder/file", "file"] {
        let answer = ckpt(&scene, &["restart", &dir, "--stdio", &text_of(his.join(output))]).failed_with(125);
        assert!(answer.stderr.contains("65534"), "{answer:?}");
    }
    let names: Vec<_> = fs::read_dir(&private).expect("a folder").map(|entry| entry.expect("it").file_name()).collect();
    assert_eq!(names, ["file"]);
    assert_eq!(fs::read_to_string(private.join("file")).expect("a file"), "kept");

    let own = scene.path().join("pid");
    ckpt(&scene, &["run", "--pid-file", &text_of(&own), "--", "true"]).succeeded();
    assert_eq!(mode_of(&own), 0o600);
}

#[test]
fn a_log_is_a_file_of_ours_and_nothing_is_waited_for() {
    let scene = Scene::of_at_most(Duration::from_secs(60));
    let (dir, his) = (text_of(store(&scene)), his(&scene, "his"));
    let target = scene.path().join("target");
    fs::write(&target, "kept\n").expect("a file");
    his_link(&target, &his.join("link"));
    his_link(scene.path(), &his.join("folder"));
    fs::hard_link(&target, his.join("second-name")).expect("a link");
    mkfifo(&his.join("fifo"), Mode::S_IRWXU).expect("a pipe");
    fs::write(his.join("owned"), "").expect("a file");
    chown(his.join("owned"), Some(USER), None).expect("root may");
    for name in ["link", "folder/target", "second-name", "fifo", "owned"] {
        let answer = Ckpt::new(&scene, ["-v", "list", &dir]).variable("CKPT_LOG", his.join(name)).call().succeeded();
        assert!(answer.stderr.contains("the log goes to standard error"), "{name}: {answer:?}");
    }
    assert_eq!(fs::read_to_string(&target).expect("a file"), "kept\n");
    assert_eq!(fs::read_to_string(his.join("owned")).expect("a file"), "");

    symlink("own", scene.path().join("own-link")).expect("a link");
    let own = scene.path().join("own-link");
    let answer = Ckpt::new(&scene, ["-v", "list", &dir]).variable("CKPT_LOG", &own).call().succeeded();
    assert_eq!((answer.stderr.as_str(), mode_of(&own)), ("", 0o600), "our own link counts");
}

#[test]
fn an_agent_whose_log_is_refused_logs_into_the_store_and_says_why() {
    let scene = Scene::new();
    let his = his(&scene, "his");
    let target = scene.path().join("target");
    fs::write(&target, "kept\n").expect("a file");
    his_link(&target, &his.join("link"));
    let mut life = Life::preloaded(&scene, "life", &program().variable("CKPT_LOG", his.join("link")));
    life.output.wait_for_lines(3);
    checkpoint(&scene, life.pid);
    let logged = fs::read_to_string(life.store().path().join("log")).expect("a log");
    assert!(logged.contains("65534") && logged.contains("sealed"), "{logged}");
    assert_eq!(fs::read_to_string(&target).expect("a file"), "kept\n");
    life.kill();
}

// --- core dumps

/// The soft limit of core dumps of process `pid`.
fn core_limit(pid: i32) -> String {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("it lives");
    let line = limits.lines().find(|line| line.starts_with("Max core file size")).expect("the limit").to_owned();
    line.split_whitespace().nth(4).expect("a soft limit").to_owned()
}

#[test]
fn processes_with_a_programs_memory_dump_no_core_and_the_program_has_its_own_limit() {
    let (_, hard) = getrlimit(Resource::RLIMIT_CORE).expect("limits");
    setrlimit(Resource::RLIMIT_CORE, hard, hard).expect("up to the hard limit");
    let scene = Scene::new();
    let own = core_limit(std::process::id().cast_signed());
    let mut life = Life::start(&scene, "life", &program(), &Launch::Run(Vec::new()), Stdout::File);
    life.output.wait_for_lines(3);
    checkpoint(&scene, life.pid);
    let agents = agents(&scene);
    assert!(!agents.is_empty() && agents.iter().all(|&agent| core_limit(agent) == "1"), "{agents:?}");
    assert_eq!((core_limit(life.pid), core_limit(life.child.id().cast_signed())), (own.clone(), own.clone()));
    processes::send(life.pid, Signal::SIGKILL);
    life.wait();

    let mut life = Restart::of(life.store()).begin(&scene, &life.directory, life.pid);
    assert_eq!(core_limit(life.pid), own, "the program has its own limit");
    let restarter = life.child.id().cast_signed();
    assert_eq!(core_limit(restarter), "1");
    let directory = fs::read_link(format!("/proc/{restarter}/cwd")).expect("it lives");
    processes::send(restarter, Signal::SIGSEGV);
    life.child.wait().expect("our child");
    let core = |entry: std::io::Result<fs::DirEntry>| text_of(entry.expect("it").path()).contains("core");
    assert!(!fs::read_dir(directory).expect("a folder").any(core), "no core");
    life.kill();
}

fn agents(scene: &Scene) -> Vec<i32> {
    let of_scene = processes::of_scene(scene.path()).into_iter();
    of_scene.filter(|&pid| processes::arguments(pid).iter().any(|word| word == "agent")).collect()
}

#[test]
fn commands_that_read_a_store_are_closed_to_others_of_their_user() {
    let scene = Scene::new();
    let stored = store(&scene);
    let regions = stored.show(&scene, 1)["regions"].as_array().expect("regions").clone();
    let largest = regions.iter().max_by_key(|region| region["bytes"].as_u64()).expect("there are some");
    let region = largest["id"].as_str().expect("an id").to_owned();
    let home = Home::new(&scene);
    home.takes(stored.path());
    // It waits for somebody to read what it writes.
    let mut extract = home.command(&["extract", &text_of(home.store()), "1", "--region", &region, "-o", "-"]);
    let mut child = extract.uid(USER).gid(USER).stdout(Stdio::piped()).spawn().expect("it starts");
    let pid = child.id().cast_signed();
    processes::wait_until("it writes", Duration::from_secs(20), || processes::waits_in(pid, libc::SYS_write));
    assert_eq!(fs::metadata(format!("/proc/{pid}/environ")).expect("it lives").uid(), 0, "its files are root's");
    let mut output = child.stdout.take().expect("a pipe");
    std::io::copy(&mut output, &mut std::io::sink()).expect("it ends");
    assert!(child.wait().expect("our child").success());
}

// --- fault points

#[test]
fn fault_points_are_closed_to_who_has_gained_rights() {
    let scene = Scene::new();
    let dir = text_of(store(&scene));
    let copy = |to: &str| Ckpt::new(&scene, ["copy", &dir, &text_of(scene.path().join(to))]);
    copy("dies").variable(fault::KILL, "store.header.create:1").call().failed_with(137);
    for name in ["SUDO_UID", "DOAS_USER", "PKEXEC_UID"] {
        let answer = copy(name).variable(fault::KILL, "store.header.create:1").variable(name, "65534");
        let trace = scene.path().join("trace");
        answer.variable(fault::TRACE, &trace).call().succeeded();
        assert!(!trace.exists(), "{name}");
    }
}

#[test]
fn a_trace_of_fault_points_goes_into_no_other_file() {
    let scene = Scene::new();
    let dir = text_of(store(&scene));
    let his = his(&scene, "his");
    let target = scene.path().join("target");
    fs::write(&target, "kept\n").expect("a file");
    his_link(&target, &his.join("link"));
    for (number, trace) in [target.clone(), his.join("link")].iter().enumerate() {
        let to = text_of(scene.path().join(format!("copy-{number}")));
        Ckpt::new(&scene, ["copy", &dir, &to]).variable(fault::TRACE, trace).call().succeeded();
        assert_eq!(fs::read_to_string(&target).expect("a file"), "kept\n");
    }
}

// --- the host's log

/// What the other user has: the product, a program and a store, where he may use them.
struct Home<'scene> {
    scene: &'scene Scene,
    path: PathBuf,
}

impl<'scene> Home<'scene> {
    fn new(scene: &'scene Scene) -> Home<'scene> {
        fs::set_permissions(scene.path(), Permissions::from_mode(0o711)).expect("it is ours");
        let path = scene.folder("home");
        for file in [product::ckpt(), product::library(), program().executable] {
            fs::copy(&file, path.join(file.file_name().expect("a file"))).expect("a copy");
        }
        chown(&path, Some(USER), Some(USER)).expect("root may");
        Home { scene, path }
    }

    fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    /// Makes a store his.
    fn takes(&self, store: &Path) {
        fs::rename(store, self.store()).expect("it moves");
        let chown = Command::new("chown").args(["-R", &format!("{USER}:{USER}")]).arg(self.store()).status();
        assert!(chown.expect("chown").success());
    }

    /// His copy of `ckpt`.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.path.join("ckpt"));
        command.args(arguments).current_dir(&self.path).env(scene::MARK, self.scene.path());
        command.stdin(Stdio::null());
        command
    }

    /// What his program waits for before it goes on to its end.
    fn sign(&self) -> PathBuf {
        self.path.join("sign")
    }

    /// A program of his.
    fn program(&self) -> (Child, Output) {
        let printed = fs::File::create(self.path.join("stdout")).expect("root may");
        chown(self.path.join("stdout"), Some(USER), Some(USER)).expect("root may");
        let mut command = Command::new(self.path.join("exits"));
        let waiting = program().waiting(20, &self.sign());
        command.envs(waiting.environment.iter().map(|(name, value)| (name, value)));
        command.args(["40", "code:7"]).current_dir(&self.path).env(scene::MARK, self.scene.path());
        command.env("LD_PRELOAD", self.path.join("libckpt.so")).env("CKPT_DIR", self.store());
        command.stdin(Stdio::null()).stdout(printed).stderr(Stdio::null()).uid(USER).gid(USER);
        let keep_none = || {
            // SAFETY: the call only marks descriptors of this process to be closed by exec.
            let answer = unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC.cast_signed()) };
            nix::errno::Errno::result(answer)?;
            Ok(())
        };
        // SAFETY: between fork and exec the closure makes one system call and neither allocates nor locks.
        unsafe { command.pre_exec(keep_none) };
        (command.spawn().expect("it starts"), Output::File(self.path.join("stdout")))
    }
}

/// A log of the host's: a socket that is /dev/log for this test and what it starts.
struct HostLog {
    socket: UnixDatagram,
    path: PathBuf,
}

impl HostLog {
    fn new(scene: &Scene) -> HostLog {
        let path = scene.path().join("host-log");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("ours");
        put_in_front_of_devices(&scene.folder("devices"), &path);
        HostLog { socket, path }
    }

    /// Executes a command that ends so.
    #[track_caller]
    fn run(&self, command: &mut Command, code: i32) {
        let output = command.output().expect("it starts");
        assert_eq!(code_of(output.status), code, "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// What it has been told since.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut datagram = [0; 4096];
        loop {
            match self.socket.recv(&mut datagram) {
                Ok(bytes) => lines.push(String::from_utf8_lossy(&datagram[..bytes]).into_owned()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return lines,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Asserts that exactly one line says all of that.
    #[track_caller]
    fn says(&self, story: &str, all: &[&str]) {
        let lines = self.lines();
        let [line] = &lines[..] else { panic!("one line of {story}: {lines:?}") };
        let from = ["owner=65534 ", " uid=0 ", " tty=\"", " parent=", " parent_name=\""];
        is_said(line, story, &[all, &from].concat());
    }
}

#[track_caller]
fn is_said(line: &str, story: &str, all: &[&str]) {
    for part in all {
        assert!(line.contains(part), "{part} of {story}: {line}");
    }
    is_harmless(line);
}

/// A /dev with a log, in a mount namespace of this thread and its children.
fn put_in_front_of_devices(devices: &Path, log: &Path) {
    let none = None::<&Path>;
    let bind =
        |from: &Path, to: &Path, more| mount(Some(from), to, none, MsFlags::MS_BIND | more, none).expect("root may");
    unshare(CloneFlags::CLONE_NEWNS).expect("root may");
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("root may");
    mount(none, devices, Some("tmpfs"), MsFlags::empty(), none).expect("root may");
    for name in ["null", "zero", "full", "random", "urandom", "tty"] {
        fs::write(devices.join(name), "").expect("a place");
        bind(&Path::new("/dev").join(name), &devices.join(name), MsFlags::empty());
    }
    fs::write(devices.join("log"), "").expect("a place");
    bind(log, &devices.join("log"), MsFlags::empty());
    bind(devices, Path::new("/dev"), MsFlags::MS_REC);
}

#[test]
fn what_root_does_to_another_users_program_and_store_is_told_to_the_hosts_log() {
    let scene = Scene::new();
    let (log, home) = (HostLog::new(&scene), Home::new(&scene));
    let (mut child, output) = home.program();
    output.wait_for_lines(3);
    let pid = child.id().cast_signed();
    let dir = text_of(home.store());
    let store = format!("store=\"{dir}\"");
    let run = |arguments: &[&str]| log.run(&mut home.command(arguments), 0);

    run(&["checkpoint", &pid.to_string()]);
    let done = "result=done";
    let pid_word = format!("pid={pid} ");
    log.says("a checkpoint", &["<85>", " ckpt[", "]: action=checkpoint ", &pid_word, "checkpoint=1 ", done]);
    run(&["checkpoint", "--kill", &pid.to_string()]);
    log.says("a last checkpoint", &["action=checkpoint ", "checkpoint=2 ", done]);
    child.wait().expect("our child");

    let (out, copy) = (text_of(scene.path().join("out")), text_of(scene.path().join("copy")));
    for (arguments, also) in [
        (&["show", &dir][..], ""),
        (&["extract", &dir, "1", "--region", "m1", "-o", &out], "checkpoint=1 region=\"m1\" "),
        (&["diff", &dir, "1", "2"], "checkpoint=1 with=2 "),
        (&["verify", &dir], ""),
        (&["copy", &dir, &copy], &format!("to=\"{copy}\" ")),
        (&["flatten", &dir, "2"], "checkpoint=2 "),
        (&["prune", &dir, "--keep", "1"], "keep=1 "),
    ] {
        // What only reads is done as the owner.
        let reads = ["show", "diff", "verify"].contains(&arguments[0]);
        log.run(&mut home.command(arguments), if reads { 0 } else { 5 });
        let action = format!("action={} ", arguments[0]);
        let outcome = if reads { ["<85>", done, ""] } else { ["<84>", "result=\"", "belongs to user 65534"] };
        log.says(arguments[0], &[outcome[0], &action, &store, also, outcome[1], outcome[2]]);
    }

    let mut as_admin = home.command(&["restart", &dir]);
    as_admin.env("SUDO_UID", "1000");
    log.run(&mut as_admin, 125);
    log.says(
        "a refused restart",
        &["<84>", "action=restart ", &store, "sudo_uid=\"1000\"", "result=\"", "--trust-owner"],
    );
    fs::write(home.sign(), "").expect("a file");
    log.run(&mut home.command(&["restart", "--trust-owner", &dir]), 7);
    let lines = log.lines();
    let [trusted, restarted] = &lines[..] else { panic!("root that trusts, and the owner that restarts: {lines:?}") };
    is_said(trusted, "trust", &["<85>", "action=trust-owner owner=65534 ", &store, " uid=0 ", done]);
    is_said(restarted, "a restart", &["action=restart owner=65534 ", &store, "checkpoint=2 ", " uid=65534 ", done]);
}

/// Sends so much that nobody else can send anything, whether the queue or a sender's memory is full first.
fn fill(path: &Path) {
    let mut senders = Vec::new();
    loop {
        let sender = UnixDatagram::unbound().expect("a socket");
        sender.set_nonblocking(true).expect("a socket");
        let mut sent = 0;
        while sender.send_to(b"filler", path).is_ok() {
            sent += 1;
        }
        senders.push(sender);
        if sent == 0 {
            return;
        }
    }
}

#[test]
fn what_is_roots_own_is_not_told_and_a_full_log_stops_nobody() {
    let scene = Scene::of_at_most(Duration::from_secs(60));
    let stored = store(&scene);
    let (home, log) = (Home::new(&scene), HostLog::new(&scene));
    let prune = ["prune", &text_of(stored.path()), "--keep", "1"].map(str::to_owned);
    let run = |arguments: &[&str]| log.run(&mut home.command(arguments), 0);
    run(&prune.each_ref().map(String::as_str));
    assert_eq!(log.lines(), [""; 0]);

    home.takes(stored.path());
    fill(&log.path);
    let mut show = home.command(&["show", &text_of(home.store())]);
    log.run(&mut show, 0);
    assert!(log.lines().iter().all(|line| line == "filler"));
    log.run(&mut show, 0);
    log.says("show", &["action=show "]);
    fs::remove_file(&log.path).expect("ours");
}

//! Containers of podman with a program under ckpt in them, as people run them: default capabilities, default seccomp filter.
//!
//! `tests/container-image` makes the image. Each container sees the product in `/opt/ckpt`, victims in `/opt/victims` and
//! scripts in `/opt/scripts`, none of which it may write to, and a folder of the scene in `/job`: the store and what the
//! program writes outlive each container there.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::command::Answer;
use crate::life::prepare;
use crate::program::{source, victims_folder};
use crate::scene::{MARK, Scene, skip};
use crate::{Program, Store, code_of, processes, product};

/// How long lines, ends and checkpoints may take.
const LIMIT: Duration = Duration::from_secs(60);
/// `timeout` ends a podman that hangs.
const PODMAN_LIMIT: &str = "120";
/// The scene's folder in a container.
pub const JOB: &str = "/job";
/// The C library musl, which is its own dynamic linker.
const MUSL: &str = "/lib/ld-musl-x86_64.so.1";
/// Variable with further options of `podman run`, for a machine that needs some.
const OPTIONS: &str = "CKPT_TESTS_PODMAN_RUN";

/// What a container is made from.
#[derive(Clone)]
pub struct Pod<'scene> {
    scene: &'scene Scene,
    /// What is `/job` in each container.
    pub directory: PathBuf,
    image: String,
    options: Vec<OsString>,
    /// The user who runs podman; root if there is none.
    rootless: Option<Rc<Rootless>>,
}

/// An ordinary user with ids for users of containers, which `/etc/subuid` has in a mount namespace alone.
struct Rootless {
    user: u32,
    home: PathBuf,
}

/// A container that has been started. Dropping it removes it.
pub struct Container<'pod> {
    pod: &'pod Pod<'pod>,
    /// podman's name for it.
    pub id: String,
    /// Its first process, as the host sees it.
    pub first: i32,
    log: PathBuf,
}

impl Drop for Rootless {
    fn drop(&mut self) {
        // podman leaves a process that keeps the user's namespaces.
        let left = processes::of_scene(&self.home);
        let keeps = |pid: &&i32| processes::arguments(**pid).first().is_some_and(|word| word == "podman");
        left.iter().filter(keeps).for_each(|&pid| processes::send(pid, Signal::SIGKILL));
    }
}

/// The image's name, or none where podman runs no containers; then the test is skipped.
pub fn image() -> Option<String> {
    let place = product::target().join("containers");
    if let Ok(reason) = fs::read_to_string(place.join("unable")) {
        skip(&format!("podman cannot run containers here: {}", reason.trim()));
        return None;
    }
    let image = fs::read_to_string(place.join("image")).expect("the image is missing; scripts/test makes it");
    Some(image.trim().to_owned())
}

/// `podman` with words, not started yet. cgroups by systemd are not to be had in a container that runs tests.
fn podman(rootless: Option<&Rootless>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", PODMAN_LIMIT]);
    if let Some(Rootless { user, home }) = rootless {
        let home = home.display();
        let become_him = format!(
            "mount --bind {home}/ids /etc/subuid && mount --bind {home}/ids /etc/subgid && \
             exec setpriv --reuid {user} --regid {user} --clear-groups env HOME={home} XDG_RUNTIME_DIR={home}/run \
             TMPDIR={home}/tmp \"$@\""
        );
        command.args(["unshare", "--mount", "sh", "-c", &become_him, "sh"]);
    }
    command.args(["podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs"]);
    if let Some(Rootless { home, .. }) = rootless {
        command.arg("--root").arg(home.join("storage")).arg("--runroot").arg(home.join("run/storage"));
        command.current_dir(home);
    }
    command.stdin(Stdio::null());
    command
}

/// Calls podman and waits for its answer.
#[track_caller]
fn answer(command: &mut Command) -> Answer {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Answer { code: code_of(output.status), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

impl<'scene> Pod<'scene> {
    /// With podman's defaults, or none where podman runs no containers; then the test is skipped.
    pub fn new(scene: &'scene Scene) -> Option<Pod<'scene>> {
        Some(Pod::of(scene, image()?, product::ckpt().parent().expect("a folder")))
    }

    /// The same of a root file system without glibc: musl, a shell, and the product as `scripts/build-static` builds it.
    pub fn without_glibc(scene: &'scene Scene) -> Option<Pod<'scene>> {
        image()?;
        let root = scene.folder("root");
        for folder in ["bin", "lib", "proc", "dev", "sys", "run", "etc", "opt", "job"] {
            scene.folder(&format!("root/{folder}"));
        }
        let shell = root.join("bin/busybox");
        for (from, to) in [("/bin/busybox", &shell), (MUSL, &root.join(&MUSL[1..]))] {
            fs::copy(from, to).unwrap_or_else(|error| panic!("{from}: {error}"));
        }
        for name in ["sh", "ls", "cat", "sleep"] {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).expect("the folder is writable");
        }
        scene.folder("root/tmp");
        let build = product::repository().join("scripts/build-static");
        assert!(Command::new(build).status().is_ok_and(|status| status.success()), "scripts/build-static fails");
        let pod = Pod::of(scene, root.display().to_string(), &product::target().join("static"));
        Some(pod.option("--rootfs"))
    }

    fn of(scene: &'scene Scene, image: String, product: &Path) -> Pod<'scene> {
        let directory = scene.folder("job");
        // Whatever user a container has.
        fs::set_permissions(&directory, Permissions::from_mode(0o777)).expect("it is ours");
        let mut pod = Pod { scene, directory, image, options: Vec::new(), rootless: None };
        let scripts = product::repository().join("scripts");
        let victims = source("");
        fs::create_dir_all(victims_folder()).expect("target is writable");
        let shown = [
            (product, "/opt/ckpt"),
            (&victims_folder(), "/opt/victims"),
            (&victims, "/opt/scripts"),
            (&scripts, "/opt/ckpt-scripts"),
        ];
        for (from, to) in shown {
            pod = pod.option(format!("--volume={}:{to}:ro", from.display()));
        }
        let own = format!("--volume={}:{JOB}", pod.directory.display());
        pod = pod.option(own).option("--env=CKPT_DIR=/job/store").option("--workdir=/job");
        pod = pod.option("--ulimit=nofile=1024:1024").option("--ulimit=nproc=1000:1000");
        let mark = format!("--env={MARK}={}", scene.path().display());
        let further = std::env::var(OPTIONS).unwrap_or_default();
        further.split_whitespace().fold(pod.option(mark), Pod::option)
    }

    /// With one more option of `podman run`.
    pub fn option(mut self, option: impl AsRef<OsStr>) -> Pod<'scene> {
        self.options.push(option.as_ref().to_owned());
        self
    }

    /// With options of `podman run`.
    pub fn options(self, options: &[&str]) -> Pod<'scene> {
        options.iter().fold(self, Pod::option)
    }

    /// Of another image.
    pub fn of_image(mut self, image: &str) -> Pod<'scene> {
        image.clone_into(&mut self.image);
        self
    }

    /// Under podman's seccomp profile, but that these system calls fail with `errno`.
    pub fn without_calls(self, calls: &[&str], errno: i32) -> Pod<'scene> {
        const PROFILE: &str = "/usr/share/containers/seccomp.json";
        let read = fs::read(PROFILE).expect("it comes with podman");
        let mut profile: serde_json::Value = serde_json::from_slice(&read).expect("a profile is JSON");
        let rules = profile["syscalls"].as_array_mut().expect("it has rules");
        for rule in rules.iter_mut() {
            let names = rule["names"].as_array_mut().expect("a rule is for names");
            names.retain(|name| !calls.iter().any(|call| name == call));
        }
        rules.retain(|rule| rule["names"].as_array().is_some_and(|names| !names.is_empty()));
        rules.push(serde_json::json!({ "names": calls, "action": "SCMP_ACT_ERRNO", "errnoRet": errno }));
        let file = self.scene.path().join("seccomp.json");
        fs::write(&file, profile.to_string()).expect("a file in the scene");
        self.under_profile(&file)
    }

    /// Under the seccomp profile of Docker.
    pub fn under_profile_of_docker(self) -> Pod<'scene> {
        self.under_profile(&product::target().join("containers/docker.json"))
    }

    fn under_profile(self, file: &Path) -> Pod<'scene> {
        self.option(format!("--security-opt=seccomp={}", file.display()))
    }

    /// Run by an ordinary user, who gets a copy of the image; none where he can run no container, and then the test is skipped.
    pub fn rootless(mut self) -> Option<Pod<'scene>> {
        const FIRST: u32 = 3_000_000;
        let user = crate::ordinary_user::USER;
        // The way to it is root's alone.
        fs::set_permissions(self.scene.path(), Permissions::from_mode(0o711)).expect("it is ours");
        let home = self.scene.folder("home");
        fs::write(home.join("ids"), format!("{user}:{FIRST}:65536\n")).expect("the folder is writable");
        for folder in ["run", "tmp", "storage"] {
            self.scene.folder(&format!("home/{folder}"));
        }
        give(&home, user);
        fs::set_permissions(home.join("run"), Permissions::from_mode(0o700)).expect("it is ours");
        self.rootless = Some(Rc::new(Rootless { user, home }));
        // His network needs /dev/net/tun, which a container that runs tests does not have.
        self = self.option("--network=none");
        let tar = File::open(product::target().join("containers/root.tar")).expect("scripts/test makes it");
        let imported = answer(self.podman().args(["import", "-", &self.image]).stdin(tar));
        let tried =
            |pod: &Pod<'_>| answer(pod.command("run").arg("--rm").args(&pod.options).args([&pod.image, "true"]));
        if imported.code == 0 {
            let tried = tried(&self);
            if tried.code == 0 {
                return Some(self);
            }
            skip(&format!("an ordinary user cannot run a container here: {}", last_line(&tried.stderr)));
        } else {
            skip(&format!("an ordinary user cannot have an image here: {}", last_line(&imported.stderr)));
        }
        None
    }

    /// The store, as the host sees it.
    pub fn store(&self) -> Store {
        Store::at(self.directory.join("store"))
    }

    /// A container with these words as its entry point.
    #[track_caller]
    pub fn start<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Container<'_> {
        static COUNTER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
        let number = COUNTER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let logs = self.scene.folder("logs");
        if let Some(rootless) = &self.rootless {
            give(&logs, rootless.user);
        }
        let log = logs.join(number.to_string());
        let mut command = self.command("run");
        command.args(["--detach", "--log-driver=k8s-file"]).arg(format!("--log-opt=path={}", log.display()));
        command.args(&self.options).arg(&self.image).args(words.into_iter().map(|word| word.as_ref().to_owned()));
        let said = answer(&mut command).succeeded();
        let id = said.stdout.trim().to_owned();
        let mut container = Container { pod: self, id, first: 0, log };
        let said = answer(self.command("inspect").args(["--format={{.State.Pid}}", &container.id])).succeeded();
        container.first = said.stdout.trim().parse().expect("a pid, or 0 when it has ended");
        container
    }

    /// A container in which `ckpt run` starts a program.
    #[track_caller]
    pub fn run(&self, program: &[&str]) -> Container<'_> {
        self.start(["/opt/ckpt/ckpt", "run", "--"].iter().chain(program))
    }

    /// A container in which `ckpt restart` brings the program back from its newest checkpoint.
    #[track_caller]
    pub fn restart(&self) -> Container<'_> {
        self.start(["/opt/ckpt/ckpt", "restart", "/job/store"])
    }

    /// What the program prints when it runs by itself in a container.
    #[track_caller]
    pub fn uninterrupted(&self, program: &[&str]) -> (String, i32) {
        // Away from where the lives find their files.
        let pod = self.clone().option("--workdir=/tmp");
        let container = pod.start(program);
        let code = container.wait();
        (container.printed(), code)
    }

    /// A podman of whoever runs the containers.
    fn podman(&self) -> Command {
        let mut command = podman(self.rootless.as_deref());
        prepare(self.scene, &mut command);
        command
    }

    fn command(&self, name: &str) -> Command {
        let mut command = self.podman();
        command.arg(name);
        command
    }
}

/// A victim in C as a container sees it, compiled when needed.
pub fn victim(name: &str) -> String {
    Program::victim(name);
    format!("/opt/victims/{name}")
}

/// Builds an image from a file, in a folder; the caller removes it.
#[track_caller]
pub fn build(name: &str, containerfile: &str, folder: &Path, arguments: &[&str]) {
    let mut command = podman(None);
    command
        .args(["build", "--isolation=chroot", "-t", name, "-f", containerfile])
        .args(arguments)
        .arg(".")
        .current_dir(folder);
    answer(&mut command).succeeded();
}

/// Removes an image that [`build`] has made.
pub fn remove_image(name: &str) {
    answer(podman(None).args(["rmi", "--force", name]));
}

/// Makes a folder and what is in it a user's.
fn give(folder: &Path, user: u32) {
    std::os::unix::fs::chown(folder, Some(user), Some(user)).expect("root may");
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        give(&entry.path(), user);
    }
}

fn last_line(text: &str) -> &str {
    text.trim().lines().last().unwrap_or("podman says nothing")
}

impl Container<'_> {
    /// Executes words in it and waits for their end.
    #[track_caller]
    pub fn exec<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Answer {
        let mut command = self.pod.command("exec");
        command.arg(&self.id).args(words.into_iter().map(|word| word.as_ref().to_owned()));
        answer(&mut command)
    }

    /// Executes a line of the shell in it.
    #[track_caller]
    pub fn shell(&self, line: &str) -> Answer {
        self.exec(["sh", "-c", line])
    }

    /// The program's id in it: that of the first process's child which is none of ckpt.
    #[track_caller]
    pub fn program(&self) -> i32 {
        let mut found = None;
        self.wait_until("the program runs", || {
            let runs = |pid: &i32| {
                // By its words: after a restart, `/proc/PID/exe` may lead to ckpt.
                let is_ckpt = processes::arguments(*pid).first().is_none_or(|word| word.ends_with("ckpt"));
                !is_ckpt && processes::status_field(*pid, "TracerPid").as_deref() == Some("0")
            };
            let program = processes::children(self.first).into_iter().find(runs);
            found = program.and_then(processes::pid_in_its_namespace);
            found.is_some()
        });
        found.expect("it has been waited for")
    }

    /// `ckpt checkpoint OPTIONS PROGRAM` in it.
    #[track_caller]
    pub fn checkpoint(&self, options: &[&str]) -> u64 {
        let program = self.program().to_string();
        let words =
            ["/opt/ckpt/ckpt", "checkpoint"].iter().chain(options).map(|&word| word.to_owned()).chain([program]);
        self.exec(words).succeeded().number()
    }

    /// `ckpt checkpoint --kill PROGRAM` in it, with which it ends; the checkpoint's id. The command may get no further than its
    /// container, and then podman says 137 for it.
    #[track_caller]
    pub fn save_and_end(&self) -> u64 {
        let before = self.pod.store().sealed(self.pod.scene).len();
        let said = self.exec(["/opt/ckpt/ckpt", "checkpoint", "--kill", &self.program().to_string()]);
        assert!(matches!(said.code, 0 | 137), "{said:?}");
        assert_eq!(self.wait(), 137, "{}", self.messages());
        let sealed = self.pod.store().sealed(self.pod.scene);
        assert_eq!(sealed.len(), before + 1, "{sealed:?}");
        sealed.iter().map(|row| row.id).max().expect("there is one")
    }

    /// `kill -USR1 PROGRAM` in it, and the id of the checkpoint that comes.
    #[track_caller]
    pub fn checkpoint_by_signal(&self) -> u64 {
        let before = self.pod.store().sealed(self.pod.scene).len();
        self.shell(&format!("kill -USR1 {}", self.program())).succeeded();
        self.wait_until("the checkpoint is sealed", || {
            let rows = self.pod.store().rows_if_any(self.pod.scene);
            let failed = rows.iter().find(|row| row.state == "failed");
            assert!(failed.is_none(), "{failed:?}\n{}", self.messages());
            rows.iter().filter(|row| row.state == "sealed").count() > before
        });
        self.pod.store().sealed(self.pod.scene).iter().map(|row| row.id).max().expect("there is one")
    }

    /// Sends a signal to its first process.
    pub fn signal(&self, signal: Signal) {
        answer(self.pod.command("kill").arg(format!("--signal={}", signal.as_str())).arg(&self.id)).succeeded();
    }

    /// `podman stop`: SIGTERM, and SIGKILL after so many seconds. Its exit code.
    #[track_caller]
    pub fn stop(&self, seconds: u32) -> i32 {
        answer(self.pod.command("stop").arg(format!("--time={seconds}")).arg(&self.id)).succeeded();
        self.wait()
    }

    /// Waits for its end and gives its exit code.
    #[track_caller]
    pub fn wait(&self) -> i32 {
        let said = answer(self.pod.command("wait").arg(&self.id)).succeeded();
        said.stdout.trim().parse().expect("an exit code")
    }

    /// Removes it with all that runs in it.
    pub fn remove(self) {}

    /// What has come through its stdout.
    pub fn printed(&self) -> String {
        self.logged("stdout")
    }

    /// What has come through its stderr.
    pub fn messages(&self) -> String {
        self.logged("stderr")
    }

    /// Waits until it has printed so many lines.
    #[track_caller]
    pub fn wait_for_lines(&self, count: usize) {
        self.wait_until(&format!("{count} lines"), || self.printed().lines().count() >= count);
    }

    /// Waits until it has printed so many lines more.
    #[track_caller]
    pub fn wait_for_more_lines(&self, count: usize) {
        self.wait_for_lines(self.printed().lines().count() + count);
    }

    /// Waits until a condition holds; says what it has printed if it ends before.
    #[track_caller]
    pub fn wait_until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let end = Instant::now() + LIMIT;
        while !holds() {
            let printed = || format!("{}\n{}", self.printed(), self.messages());
            let lives = self.first != 0 && processes::is_alive(self.first);
            assert!(lives || holds(), "it has ended, and there was to come: {what}: {}", printed());
            assert!(Instant::now() < end, "waited {LIMIT:?} in vain: {what}: {}", printed());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// conmon writes "TIME STREAM F TEXT" for a line, with P for F where the line goes on in the next entry.
    fn logged(&self, stream: &str) -> String {
        let mut text = String::new();
        let log = fs::read(&self.log).unwrap_or_default();
        for line in String::from_utf8_lossy(&log).lines() {
            let mut words = line.splitn(4, ' ');
            let (of, whole, content) = (words.nth(1), words.next(), words.next().unwrap_or_default());
            if of == Some(stream) {
                text.push_str(content);
                text.push_str(if whole == Some("F") { "\n" } else { "" });
            }
        }
        text
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let removed = answer(self.pod.command("rm").args(["--force", "--time=0", &self.id]));
        if !std::thread::panicking() {
            removed.succeeded();
        } else {
            eprintln!("the container has said: {}\n{}", self.printed(), self.messages());
        }
    }
}

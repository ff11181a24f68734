//! `ckpt run` and `ckpt restart` as the first process of a pid namespace: what the entry point of a container is.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::life::spawn;
use crate::output::Output;
use crate::{Ckpt, Program, Scene, Store, code_of, processes, product};

/// How long a program may take to appear.
const START_LIMIT: Duration = Duration::from_secs(120);

/// What containers are made from: a folder with a store and the program's output, which outlive each of them.
pub struct Image<'scene> {
    scene: &'scene Scene,
    /// Where it runs; `stdout` in there is the program's, in all lives.
    pub directory: PathBuf,
    program: Program,
    variables: Vec<(String, String)>,
    /// A shell command before ckpt, in the namespace.
    before: String,
}

/// One that has been started. Dropping it ends all that is in it.
pub struct Container<'image> {
    image: &'image Image<'image>,
    /// `unshare`, whose child is the first process.
    child: Child,
    stderr: PathBuf,
}

impl<'scene> Image<'scene> {
    /// For `program`, in the folder `image` of the scene.
    pub fn of(scene: &'scene Scene, program: &Program) -> Image<'scene> {
        let directory = scene.folder("image");
        Image { scene, directory, program: program.clone(), variables: Vec::new(), before: ":".to_owned() }
    }

    /// With an environment variable for ckpt and the program.
    pub fn variable(mut self, name: &str, value: &str) -> Image<'scene> {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With a shell command that the first process has executed before it became ckpt.
    pub fn after(mut self, command: &str) -> Image<'scene> {
        command.clone_into(&mut self.before);
        self
    }

    /// Without the rights to choose an id, to write which comes next, and to make a namespace: as in a container with the usual options.
    pub fn confined(self) -> Image<'scene> {
        self.after(
            "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && \
             exec setpriv --bounding-set=-sys_admin,-checkpoint_restore \"$0\" \"$@\"",
        )
    }

    /// Each on a root file system that is new: an overlay of the machine's, whose upper layer has what the last one did not leave. Its
    /// host has a name, and files of /etc with it, that no other has. What the scene and the product have is the same.
    ///
    /// The program begins in a directory of the new root, which the next one has not.
    pub fn on_a_new_root(self) -> Image<'scene> {
        let shared = [self.scene.path(), &product::repository()].map(|path| format!("'{}'", path.display()));
        let script = format!(
            "out=$(readlink /proc/$$/fd/1) && err=$(readlink /proc/$$/fd/2) && \
             new=$(mktemp -d) && mount -t tmpfs tmpfs $new && mkdir $new/root $new/upper $new/work && \
             mount -t overlay overlay -o lowerdir=/,upperdir=$new/upper,workdir=$new/work $new/root && cd $new/root && \
             for name in hostname hosts resolv.conf; do \
                 head -c $(($(date +%-N) % 50 + 20)) /dev/urandom | base64 >$new/$name && \
                 rm -f etc/$name && : >etc/$name && mount --bind $new/$name etc/$name || exit; done && \
             for shared in /proc /dev {}; do mkdir -p .$shared && mount --rbind $shared .$shared || exit; done && \
             mkdir old && pivot_root . old && cd / && umount -l /old && rmdir /old && \
             place='/tmp{}' && case $1 in run) mkdir -p \"$place\" && cd \"$place\";; esac && \
             exec unshare --uts sh -c 'hostname another$(date +%N) && exec \"$0\" \"$@\"' \"$0\" \"$@\" \
                 </dev/null >>$out 2>>$err",
            shared.join(" "),
            self.directory.display()
        );
        self.after(&script)
    }

    /// The store.
    pub fn store(&self) -> Store {
        Store::at(self.directory.join("store"))
    }

    /// What the program has printed in all lives.
    pub fn output(&self) -> Output {
        Output::File(self.directory.join("stdout"))
    }

    /// State and trigger of each attempt.
    pub fn attempts(&self) -> Vec<(String, String)> {
        let rows = Ckpt::new(self.scene, ["list".as_ref(), self.store().path().as_os_str(), "--json".as_ref()]);
        let word = |row: &serde_json::Value, name| row[name].as_str().unwrap_or_default().to_owned();
        let rows = rows.call().succeeded().json();
        rows.as_array().expect("a list").iter().map(|row| (word(row, "state"), word(row, "trigger"))).collect()
    }

    /// Starts the program in a container.
    pub fn run(&self) -> Container<'_> {
        let mut words = vec!["run".into(), "--".into(), self.program.executable.clone().into_os_string()];
        words.extend(self.program.arguments.iter().cloned());
        self.start(words)
    }

    /// Starts the program itself as the first process, under libckpt.so.
    pub fn run_alone(&self) -> Container<'_> {
        let preload = format!("LD_PRELOAD={}", product::library().display());
        let mut words = vec!["env".into(), preload.into(), self.program.executable.clone().into_os_string()];
        words.extend(self.program.arguments.iter().cloned());
        self.start_first(words)
    }

    /// Brings it back from its newest checkpoint in another one.
    pub fn restart(&self) -> Container<'_> {
        self.start(vec!["restart".into(), self.store().path().into()])
    }

    fn start(&self, mut words: Vec<std::ffi::OsString>) -> Container<'_> {
        words.insert(0, product::ckpt().into());
        self.start_first(words)
    }

    fn start_first(&self, words: Vec<std::ffi::OsString>) -> Container<'_> {
        let mut command = Command::new("unshare");
        let script = format!("{} && exec \"$0\" \"$@\"", self.before);
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", &script]);
        command.args(words).env("CKPT_DIR", self.store().path());
        command.envs(self.program.environment.iter().map(|(name, value)| (name, value)));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let stdout = self.directory.join("stdout");
        command.stdin(std::process::Stdio::null());
        command.stdout(File::options().create(true).append(true).open(&stdout).expect("the folder is writable"));
        let number = COUNTER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let stderr = self.scene.folder("messages").join(number.to_string());
        let child = spawn(self.scene, &mut command, &self.directory, &stderr);
        Container { image: self, child, stderr }
    }
}

static COUNTER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);

impl Container<'_> {
    /// The first process.
    #[track_caller]
    pub fn first(&self) -> i32 {
        let unshare = self.child.id().cast_signed();
        let mut found = None;
        processes::wait_until("the container has a first process", START_LIMIT, || {
            let is_ckpt = |pid: &i32| processes::executable(*pid).as_ref() == Some(&product::ckpt());
            found = processes::children(unshare).into_iter().find(is_ckpt);
            found.is_some()
        });
        found.expect("it has been waited for")
    }

    /// The program, when it runs.
    #[track_caller]
    pub fn program(&mut self) -> i32 {
        let mut found = None;
        let first = self.first();
        processes::wait_until("the program runs", START_LIMIT, || {
            let ended = self.child.try_wait().expect("it is our child");
            assert!(ended.is_none(), "it has ended ({ended:?}): {}", self.messages());
            let runs = |pid: &i32| {
                processes::executable(*pid).as_ref() == Some(&self.image.program.executable)
                    && processes::status_field(*pid, "TracerPid").is_some_and(|tracer| tracer == "0")
            };
            found = processes::children(first).into_iter().find(runs);
            found.is_some()
        });
        found.expect("it has been waited for")
    }

    /// Waits until the program has printed so many more lines than there were when it was started.
    #[track_caller]
    pub fn wait_for_more_lines(&mut self, more: usize) {
        let output = self.image.output();
        let wanted = output.lines() + more;
        processes::wait_until("the program prints", START_LIMIT, || {
            let ended = self.child.try_wait().expect("it is our child");
            assert!(ended.is_none(), "it has ended ({ended:?}): {}", self.messages());
            output.lines() >= wanted
        });
    }

    /// The first process, whatever it executes; of our pid namespace.
    pub fn first_of_all(&self) -> Option<i32> {
        processes::children(self.child.id().cast_signed()).into_iter().next()
    }

    /// Sends a signal to the first process, from outside, as whoever stops a container does.
    pub fn signal(&self, signal: Signal) {
        processes::send(self.first(), signal);
    }

    /// Waits for the end and gives the exit code of the first process.
    pub fn wait(&mut self) -> i32 {
        code_of(self.child.wait().expect("it is our child"))
    }

    /// What ckpt has said.
    pub fn messages(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // With it goes the first process (`--kill-child`), and all others.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

//! Programs to checkpoint: the victims in C, and scripts for interpreters that the machine has.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::SystemTime;

use nix::fcntl::{Flock, FlockArg};

use crate::product;

/// The variable that tells a victim behind which step it waits.
const WAITS_AT: &str = "CKPT_VICTIM_WAITS_AT";

/// Lines that a victim may print between the one that its checkpoint is asked for at and its waiting for the checkpoint.
pub(crate) const LINES_BEFORE_THE_SIGN: usize = 8;

/// What to execute, the same in every life.
#[derive(Clone, Debug)]
pub struct Program {
    /// The executable file, as `/proc/PID/exe` will show it.
    pub executable: PathBuf,
    /// Its arguments; paths in them are relative to the life's directory.
    pub arguments: Vec<OsString>,
    /// Environment variables set for it.
    pub environment: Vec<(String, OsString)>,
    /// Files that are put into its directory before it starts: name and content.
    pub inputs: Vec<Input>,
    /// The one of them that is its stdin; else that is empty.
    pub stdin: Option<String>,
    /// Files that it writes in its directory besides stdout, compared as well.
    pub files: Vec<String>,
}

/// A file that a program finds.
#[derive(Clone)]
pub struct Input {
    /// Its name in the life's directory.
    pub file: String,
    /// What is in it.
    pub content: Arc<[u8]>,
}

impl std::fmt::Debug for Input {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} ({} bytes)", self.file, self.content.len())
    }
}

impl Program {
    /// Any executable.
    pub fn at(path: impl Into<PathBuf>) -> Program {
        let executable = path.into().canonicalize().expect("the program exists");
        Program {
            executable,
            arguments: Vec::new(),
            environment: Vec::new(),
            inputs: Vec::new(),
            stdin: None,
            files: Vec::new(),
        }
    }

    /// A victim in C, compiled when needed.
    pub fn victim(name: &str) -> Program {
        Program::at(compiled(name, name, &[]))
    }

    /// A victim linked statically, which ignores LD_PRELOAD.
    pub fn static_victim(name: &str) -> Program {
        Program::at(compiled(name, &format!("{name}.static"), &["-static"]))
    }

    /// The same, at an address that the kernel chooses.
    pub fn static_pie_victim(name: &str) -> Program {
        Program::at(compiled(name, &format!("{name}.static-pie"), &["-static-pie"]))
    }

    /// A victim in C, with one of the sanitizers of `compiler`.
    pub fn sanitized(name: &str, compiler: &str, sanitizer: &str) -> Program {
        let mut command = Command::new(compiler);
        command.args(["-std=gnu17", "-O1", "-g", "-pthread", &format!("-fsanitize={sanitizer}"), "-o"]);
        Program::at(made_by(command, &format!("{name}.{sanitizer}-sanitizer"), &[&format!("{name}.c")]))
    }

    /// A victim in C for the C library musl.
    pub fn with_musl(name: &str) -> Program {
        let mut command = Command::new("musl-gcc");
        command.args(["-std=gnu17", "-O2", "-g", "-pthread", "-o"]);
        Program::at(made_by(command, &format!("{name}.musl"), &[&format!("{name}.c")]))
    }

    /// A victim in C with musl in it.
    pub fn with_musl_in_it(name: &str) -> Program {
        let mut command = Command::new("musl-gcc");
        command.args(["-static", "-std=gnu17", "-O2", "-g", "-pthread", "-o"]);
        Program::at(made_by(command, &format!("{name}.musl-static"), &[&format!("{name}.c")]))
    }

    /// A victim in assembly, a program of 32 bits, which needs no library.
    pub fn of_32_bits(name: &str) -> Program {
        let mut command = Command::new("cc");
        command.args(["-m32", "-nostdlib", "-static", "-o"]);
        Program::at(made_by(command, name, &[&format!("{name}.S")]))
    }

    /// A victim in C with another source, whose functions others find as the program's.
    pub fn victim_with(name: &str, other: &str) -> Program {
        let mut command = Command::new("cc");
        command.args(["-std=gnu17", "-O2", "-g", "-pthread", "-Wl,--export-dynamic", "-o"]);
        Program::at(made_by(command, &format!("{name}.{other}"), &[&format!("{name}.c"), &format!("{other}.c")]))
    }

    /// The file of one of the libraries that come with the compiler.
    pub fn library_of_compiler(name: &str) -> PathBuf {
        let output = Command::new("cc").arg(format!("-print-file-name={name}")).output().expect("cc is there");
        let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        path.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// A victim in Rust, compiled when needed.
    pub fn rust(name: &str) -> Program {
        let mut compiler = Command::new("rustc");
        compiler.args(["--edition", "2024", "-O", "-D", "warnings", "-o"]);
        Program::at(made_by(compiler, &format!("{name}-rs"), &[&format!("{name}.rs")]))
    }

    /// A victim in Go, compiled when needed: linked dynamically, because it uses cgo.
    pub fn go(name: &str) -> Program {
        let source = format!("{name}.go");
        Program::at(made_by(go("1"), &format!("{name}-go"), &[&source, "cgo.go"]))
    }

    /// The same as Go programs usually are: linked statically, without a C library.
    pub fn static_go(name: &str) -> Program {
        Program::at(made_by(go("0"), &format!("{name}-go.static"), &[&format!("{name}.go")]))
    }

    /// A program of the machine, found on the `PATH`.
    pub fn installed(name: &str) -> Program {
        Program::at(interpreter(name))
    }

    /// A script for Python.
    pub fn python(script: &str) -> Program {
        // What it imports lies beside it, where nothing else is to lie afterwards.
        Program::installed("python3").argument(source(script)).variable("PYTHONDONTWRITEBYTECODE", "1")
    }

    /// A script for node.
    pub fn node(script: &str) -> Program {
        Program::installed("node").argument(source(script))
    }

    /// A class for Java, compiled when needed.
    pub fn java(class: &str) -> Program {
        let classes = compiled_java(class);
        Program::installed("java").argument("-cp").argument(classes).argument(class)
    }

    /// With one more argument.
    pub fn argument(mut self, argument: impl Into<OsString>) -> Program {
        self.arguments.push(argument.into());
        self
    }

    /// With an environment variable.
    pub fn variable(mut self, name: &str, value: impl Into<OsString>) -> Program {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// A victim that is to do no more than `step` steps before the file `sign` is there.
    pub fn waiting(self, step: usize, sign: &Path) -> Program {
        self.variable(WAITS_AT, step.to_string()).variable("CKPT_VICTIM_WAITS_FOR", sign)
    }

    /// Whether it is told so.
    pub fn waits(&self) -> bool {
        self.environment.iter().any(|(name, _)| name == WAITS_AT)
    }

    /// With a file in its directory when it starts.
    pub fn input(mut self, file: &str, content: impl Into<Arc<[u8]>>) -> Program {
        self.inputs.push(Input { file: file.to_owned(), content: content.into() });
        self
    }

    /// With an input that is its stdin.
    pub fn reads(mut self, file: &str, content: impl Into<Arc<[u8]>>) -> Program {
        self.stdin = Some(file.to_owned());
        self.input(file, content)
    }

    /// With a file of its own that is compared like its output.
    pub fn writes(mut self, file: &str) -> Program {
        self.files.push(file.to_owned());
        self
    }
}

/// A file among the victims.
pub fn source(name: &str) -> PathBuf {
    product::repository().join("tests/victims").join(name)
}

/// The real interpreter: not a shell script in front of it, which would be the process that is checkpointed.
fn interpreter(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = [PathBuf::from("/usr/bin")];
    let candidates = system.into_iter().chain(std::env::split_paths(&path)).map(|dir| dir.join(name));
    let is_elf = |path: &PathBuf| fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"));
    candidates.into_iter().find(is_elf).unwrap_or_else(|| panic!("{name} is missing; scripts/test installs it"))
}

fn compiled(name: &str, output: &str, flags: &[&str]) -> PathBuf {
    let folder = victims_folder();
    let binary = folder.join(output);
    let sources = ["victim.h", "netlink.h", "one_call.h", "doubling_server.h"]
        .map(source)
        .into_iter()
        .chain([source(&format!("{name}.c"))]);
    let sources: Vec<PathBuf> = sources.collect();
    let _lock = lock(&folder.join(format!("{output}.lock")));
    if newer_than_all(&binary, &sources) {
        return binary;
    }
    let unfinished = folder.join(format!("{output}.new"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu17", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(flags);
    compiler.arg("-o").arg(&unfinished).arg(source(&format!("{name}.c")));
    let output = compiler.output().expect("cc is missing; scripts/test installs it");
    assert!(output.status.success(), "{compiler:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(&unfinished, &binary).expect("both lie in one folder");
    binary
}

/// A victim in C for ranks of MPI, compiled for an implementation (`openmpi`, `mpich`): what its `mpirun` is to start.
pub fn for_ranks(name: &str, implementation: &str) -> PathBuf {
    let mut compiler = Command::new(format!("mpicc.{implementation}"));
    compiler.args(["-std=gnu17", "-O2", "-g", "-Wall", "-Wextra", "-o"]);
    made_by(compiler, &format!("{name}.{implementation}"), &[&format!("{name}.c")])
}

/// Go's compiler, with cgo or without.
fn go(cgo: &str) -> Command {
    let mut compiler = Command::new("go");
    let cache = victims_folder().join("go-cache");
    compiler.env("GOCACHE", cache).env("GO111MODULE", "off").env("CGO_ENABLED", cgo).args(["build", "-o"]);
    compiler
}

/// What a compiler, whose arguments end with the option for the output, makes of source files.
fn made_by(mut compiler: Command, output: &str, files: &[&str]) -> PathBuf {
    let folder = victims_folder();
    let binary = folder.join(output);
    let sources: Vec<PathBuf> = files.iter().map(|file| source(file)).collect();
    let _lock = lock(&folder.join(format!("{output}.lock")));
    if newer_than_all(&binary, &sources) {
        return binary;
    }
    let unfinished = folder.join(format!("{output}.new"));
    compiler.arg(&unfinished).args(&sources);
    let output = compiler.output();
    let output = output.unwrap_or_else(|error| panic!("{compiler:?}: {error}; scripts/test installs it"));
    assert!(output.status.success(), "{compiler:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(&unfinished, &binary).expect("both lie in one folder");
    binary
}

fn compiled_java(class: &str) -> PathBuf {
    let folder = victims_folder().join(format!("java-{class}"));
    fs::create_dir_all(&folder).expect("target is writable");
    let _lock = lock(&folder.join("lock"));
    let sources = [source(&format!("{class}.java"))];
    if !newer_than_all(&folder.join(format!("{class}.class")), &sources) {
        let output = Command::new("javac").arg("-d").arg(&folder).arg(&sources[0]).output();
        let output = output.expect("javac is missing; scripts/test installs it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    folder
}

pub(crate) fn victims_folder() -> PathBuf {
    let folder = product::target().join("victims");
    fs::create_dir_all(&folder).expect("target is writable");
    folder.canonicalize().expect("just made")
}

/// Several test processes may want the same victim at once.
pub(crate) fn lock(path: &Path) -> Flock<File> {
    let file = File::create(path).expect("target is writable");
    Flock::lock(file, FlockArg::LockExclusive).expect("a lock on a local file")
}

pub(crate) fn newer_than_all(file: &Path, sources: &[PathBuf]) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    let newest = sources.iter().filter_map(|path| modified(path)).max().unwrap_or(SystemTime::UNIX_EPOCH);
    modified(file).is_some_and(|time| time > newest)
}

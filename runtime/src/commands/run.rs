//! `ckpt run`: starts a program under libckpt.so and is its parent.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ckpt_store::{Digest, Store, StoreError, StoreOptions};
use ckpt_wire::settings::numbers::parse_hex;
use ckpt_wire::{
    ENV_AGENT_PID, ENV_CHUNK, ENV_CONFINEMENT, ENV_COPY, ENV_DIGEST, ENV_DIR, ENV_FILES, ENV_INTERVAL, ENV_JOB,
    ENV_KEEP, ENV_MARK, ENV_MEMORY, ENV_METHOD, ENV_NAME, ENV_VERIFY_MATCHES, ENV_WITH_DIR, PID_DIGITS, TEXT_BYTES,
};
use clap::Args;

use super::interval::check_interval;
use super::memory::{check_files, check_memory};
use super::method::{check_chunk, check_method};
use super::on_term::{self, check_on_term};
use super::pid_file::PidFile;
use super::{absolute, default_store, executable, first_pid, installation, with_dir};
use crate::agent::{AwaitingProgram, Method, digest_warning};
use crate::descriptor;
use crate::error::{Error, Result};
use crate::linkage::Linkage;
use crate::location::Location;
use crate::parent::Parent;
use crate::proc::confinement;
use crate::store_key;

/// Start a program that can be checkpointed
#[derive(Args)]
#[command(after_help = "\
The exit status is the program's own, or 128 + the number of the signal that ended it; failures of ckpt
itself are 121 (failed), 122 (usage), 124 (the program cannot be checkpointed), 125 (environment); with
--on-term 85 is: ended at its last checkpoint, run it again.

As the entry point of a container it reaps orphans, and the program's pid is 1000 or above (CKPT_PID_FIRST), so that it
is free in the next container.

Examples:
  ckpt run -- python3 train.py
  ckpt run --dir /scratch/heat --name heat --interval 10m -- ./heat2d 4096
  ckpt run --method tree -- ./app  for programs that change little in many pages
  ckpt run --on-term -- ./app      SIGTERM saves it, as an entry point of a container
  kill -USR1 PID                   a checkpoint; so does `ckpt checkpoint PID`")]
pub struct Arguments {
    /// The store [default: $CKPT_DIR or ./ckpt-store]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Name of the job, for `ckpt list` and `ckpt restart --job` [default: the program's file name]
    #[arg(long, value_parser = check_name)]
    name: Option<String>,
    /// Time between automatic checkpoints: 500ms, 30s, 10m, 2h; a bare number is seconds [default: $CKPT_INTERVAL or none]
    #[arg(long, value_parser = check_interval)]
    interval: Option<String>,
    /// What a new store names its pages by: sha1 (with XXH3-64) or blake3 [default: $CKPT_DIGEST or sha1]
    #[arg(long, value_parser = check_digest)]
    digest: Option<Digest>,
    /// How many checkpoints stay; older ones of this job are dropped when a new one is sealed [default: $CKPT_KEEP or all]
    #[arg(long)]
    keep: Option<NonZeroU32>,
    /// Memory for the buffers of a checkpoint, 16M or more: 64M, 1G; a bare number is bytes [default: $CKPT_MEMORY or 256M]
    #[arg(long, value_parser = check_memory)]
    memory: Option<String>,
    /// How memory is stored: pages, or tree (large private memory as differences finer than a page); to compare with:
    /// full-dump (all, anew each time), local-dedup (all, equal pages of a checkpoint once), inc-tracking (what was
    /// written, without looking whether it is there) [default: $CKPT_METHOD or pages]
    #[arg(long, value_parser = check_method)]
    method: Option<Method>,
    /// Bytes of a chunk for tree: 32 to 4096, in steps of 4 [default: $CKPT_CHUNK or 128]
    #[arg(long, value_name = "BYTES", value_parser = check_chunk)]
    chunk: Option<u32>,
    /// Compare every byte with what tree would restore, at each checkpoint, also of data alone and of devices, which is then
    /// stored whole [default: $CKPT_VERIFY_MATCHES, or large memory of the host alone]
    #[arg(long)]
    verify_matches: bool,
    /// The largest file whose content is captured when the program may write to it: 64M, 1G; a bare number is bytes; all;
    /// none [default: $CKPT_FILES or 1G]
    #[arg(long, value_parser = check_files)]
    files: Option<String>,
    /// Capture a directory with all that is in it, to be there again after a restart; may be given several times
    /// [default: $CKPT_WITH_DIR]
    #[arg(long, value_name = "DIR")]
    with_dir: Vec<PathBuf>,
    /// Write the program's pid to this file, before its first instruction; a second line has its start time and the boot
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// SIGTERM to this command has a last checkpoint taken and the program ended at it, within a time (25s, 2m) or, with 1,
    /// within 60 s; the exit status is then 85. Otherwise the program gets the SIGTERM [default: $CKPT_ON_TERM or 0]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = check_on_term)]
    on_term: Option<String>,
    /// Start the program without the descriptors above 2 that this command has inherited
    #[arg(long)]
    close_inherited: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn check_name(name: &str) -> Result<String, String> {
    match name.len() {
        0 => Err("a name has at least one character".to_owned()),
        bytes if bytes >= TEXT_BYTES => Err(format!("a name has at most {} bytes", TEXT_BYTES - 1)),
        _ => Ok(name.to_owned()),
    }
}

fn check_digest(name: &str) -> Result<Digest, String> {
    let found = Digest::ALL.into_iter().find(|digest| digest.name() == name);
    found.ok_or_else(|| "write sha1 or blake3".to_owned())
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    let program = &arguments.command[0];
    let pid_file = arguments.pid_file.as_deref().map(PidFile::prepare).transpose()?;
    let on_term = on_term::chosen(arguments.on_term.as_deref())?;
    let is_static = executable::check(program)? == Some(Linkage::Static);
    let dir = store_dir(arguments.dir.as_deref())?;
    refuse_other_key(&dir)?;
    let dirs = (!arguments.with_dir.is_empty()).then(|| with_dir::joined(&arguments.with_dir)).transpose()?;
    let mut command = Command::new(program);
    command.args(&arguments.command[1..]);
    command.env("LD_PRELOAD", preload_list(&installation::library()?, std::env::var_os("LD_PRELOAD")));
    if let Some(digest) = &arguments.digest {
        command.env(ENV_DIGEST, digest.name());
    }
    warn_of_other_digest(&dir, arguments.digest);
    command.env(ENV_DIR, dir);
    // It begins a job, whatever job we are in, and whatever copy.
    command.env_remove(ENV_COPY);
    let mark = mark();
    // Without pidfds the program could not be followed, which is not to be found out when it runs.
    descriptor::pidfd_open(std::process::id() as i32)?;
    let agent = AwaitingProgram::start(&mark)?;
    if let Some(confinement) = confinement::own() {
        command.env(ENV_CONFINEMENT, OsStr::from_bytes(confinement.to_text().as_bytes()));
    }
    command.env(ENV_AGENT_PID, format!("{:0width$}", agent.pid(), width = PID_DIGITS));
    command.env(ENV_MARK, mark);
    if let Some(name) = &arguments.name {
        command.env(ENV_NAME, name);
    }
    if let Some(interval) = &arguments.interval {
        command.env(ENV_INTERVAL, interval);
    }
    if let Some(keep) = arguments.keep {
        command.env(ENV_KEEP, keep.to_string());
    }
    if let Some(memory) = &arguments.memory {
        command.env(ENV_MEMORY, memory);
    }
    if let Some(method) = arguments.method {
        command.env(ENV_METHOD, method.name());
    }
    if let Some(chunk) = arguments.chunk {
        command.env(ENV_CHUNK, chunk.to_string());
    }
    if arguments.verify_matches {
        command.env(ENV_VERIFY_MATCHES, "yes");
    }
    if let Some(files) = &arguments.files {
        command.env(ENV_FILES, files);
    }
    if let Some(dirs) = dirs {
        command.env(ENV_WITH_DIR, dirs);
    }
    if arguments.close_inherited {
        // They stay open in this process, which uses some that it has opened itself.
        // SAFETY: it makes one system call, which touches no memory.
        unsafe { command.pre_exec(|| Ok(descriptor::close_inherited_on_exec()?)) };
    }
    if is_static {
        let name = program.display();
        crate::say!(
            "{name} is statically linked: no signal takes a checkpoint of it; use `ckpt checkpoint` or --interval"
        );
        let agent = agent.pid();
        // What libckpt.so would do inside the program. Where Yama is, the kernel remembers it across the exec.
        let allow = move || {
            // SAFETY: it takes numbers. A kernel without Yama refuses, and does not ask for it either.
            unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(agent), 0, 0, 0) };
            Ok(())
        };
        // SAFETY: it makes one system call, which touches no memory.
        unsafe { command.pre_exec(allow) };
    }
    first_pid::leave_lower_ones()?;
    start(command, program, agent, pid_file, on_term)
}

fn start(
    mut command: Command,
    program: &OsStr,
    agent: AwaitingProgram,
    pid_file: Option<PidFile>,
    on_term: Option<Duration>,
) -> Result<u8> {
    let parent = Parent::prepare()?.save_at_term(on_term);
    let inherited = parent.inherited();
    let pid_file = Arc::new(pid_file);
    let childs = Arc::clone(&pid_file);
    let before_exec = move || {
        inherited.apply()?;
        match &*childs {
            // The child itself writes it: there is no moment at which the program runs and nobody can know its pid.
            Some(file) => file.write(std::process::id() as i32).map_err(into_io),
            None => Ok(()),
        }
    };
    // SAFETY: this process has one thread, so nobody holds a lock of the C library at the fork, and the child may do
    // whatever it likes.
    unsafe { command.pre_exec(before_exec) };
    let child = command.spawn().map_err(|source| {
        pid_file.iter().for_each(PidFile::remove);
        Error::io("start", PathBuf::from(program), source)
    })?;
    let heard = agent.announce(child.id());
    let own = parent.inherited();
    // Dropping `child` neither waits nor kills.
    let status = parent.follow(child.id() as i32)?;
    if let Some(heard) = heard {
        // Nobody is to be shielded from signals any more.
        own.apply_mask().map_err(|source| Error::io("unblock", PathBuf::from("signals"), source))?;
        heard.to_its_end();
    }
    Ok(status)
}

/// A mark for a job whose first process is not known yet.
fn mark() -> String {
    let random = || RandomState::new().build_hasher().finish() | 1;
    let named = std::env::var(ENV_JOB).ok().and_then(|job| parse_hex(job.as_bytes()));
    format!("{:016x}-{:016x}-{:0width$}", random(), named.unwrap_or_else(random), 0, width = PID_DIGITS)
}

/// What can be told through the fork: the system's answer.
fn into_io(error: Error) -> io::Error {
    match error {
        Error::Io { source, .. } => source,
        _ => io::ErrorKind::Other.into(),
    }
}

/// Refuses a key that cannot be read or does not open the store that is there, before the program runs: its agent reads the key
/// again, and has a log at most to say so in.
fn refuse_other_key(dir: &Path) -> Result<()> {
    let options = StoreOptions { key: store_key::of_environment()?, ..StoreOptions::default() };
    match Store::open_with(dir, &options) {
        Err(error @ (StoreError::KeyNeeded { .. } | StoreError::WrongKey { .. } | StoreError::NotEncrypted { .. })) => {
            Err(error.into())
        }
        // What else is wrong with it may be mended while the program runs.
        _ => Ok(()),
    }
}

/// Says at once what the agent will say in the log. Whatever else is wrong with the store is the agent's to say.
fn warn_of_other_digest(dir: &Path, option: Option<Digest>) {
    let environment = || std::env::var(ENV_DIGEST).ok().and_then(|name| check_digest(&name).ok());
    let Some(wanted) = option.or_else(environment) else { return };
    let warning = Store::open(dir).ok().and_then(|store| digest_warning(&store, Some(wanted)));
    if let Some(warning) = warning {
        crate::say!("{warning}");
    }
}

/// `LD_PRELOAD` with our library in front.
fn preload_list(library: &Path, others: Option<OsString>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}

/// The store's absolute path, from the option, the environment or the default.
pub(super) fn store_dir(option: Option<&Path>) -> Result<PathBuf> {
    if option.is_some_and(|dir| dir.as_os_str().is_empty()) {
        return Err(Error::Usage("--dir needs the path of a directory".to_owned()));
    }
    let dir = option.map_or_else(default_store::dir, Path::to_owned);
    let dir = absolute(&Location::of(&dir)?.into_directory()?)?;
    if dir.exists() && !dir.is_dir() {
        return Err(Error::Usage(format!("{} is not a directory; --dir names the store", dir.display())));
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_library_comes_first_and_others_stay() {
        let library = Path::new("/opt/libckpt.so");
        assert_eq!(preload_list(library, None), "/opt/libckpt.so");
        assert_eq!(preload_list(library, Some(OsString::new())), "/opt/libckpt.so");
        assert_eq!(preload_list(library, Some("a.so b.so".into())), "/opt/libckpt.so:a.so b.so");
    }

    #[test]
    fn the_store_is_an_absolute_path_to_what_may_become_a_directory() {
        assert_eq!(store_dir(Some(Path::new("/a/b"))).unwrap(), Path::new("/a/b"));
        assert!(store_dir(Some(Path::new("x"))).unwrap().is_absolute());
        assert!(matches!(store_dir(Some(Path::new("/dev/null"))), Err(Error::Usage(_))));
        assert!(matches!(store_dir(Some(Path::new(""))), Err(Error::Usage(_))));
        assert!(matches!(store_dir(Some(Path::new("s3://bucket/x"))), Err(Error::Usage(_))));
        assert_eq!(store_dir(Some(Path::new("file:///a/b"))).unwrap(), Path::new("/a/b"));
    }

    #[test]
    fn a_digest_is_one_of_two() {
        assert_eq!(check_digest("sha1"), Ok(Digest::Sha1));
        assert_eq!(check_digest("blake3"), Ok(Digest::Blake3));
        assert!(check_digest("").is_err() && check_digest("SHA1").is_err());
    }

    #[test]
    fn a_name_fits_into_the_control_block() {
        assert!(check_name("heat").is_ok());
        assert!(check_name("").is_err());
        assert!(check_name(&"x".repeat(TEXT_BYTES - 1)).is_ok());
        assert!(check_name(&"x".repeat(TEXT_BYTES)).is_err());
    }
}

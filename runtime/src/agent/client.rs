//! Asking for a checkpoint: finding the program's agent, or starting one.

use std::ffi::OsStr;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ckpt_wire::ENV_MARK;
use nix::unistd::{geteuid, setsid};

use super::address::Address;
use super::protocol::{Reply, Request, receive, send};
use super::{CheckpointRequest, Progress};
use crate::capture::{Program, find_loaded, root_of};
use crate::error::{Error, Result, exit_code};
use crate::proc::task;

/// How often an agent is looked for or started before a request is given up.
const TRIES: u32 = 3;
/// How long an agent that was killed may hold its lock.
const DYING_AGENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Takes a checkpoint of the job of process `pid` and returns its id.
pub fn request_checkpoint(pid: i32, request: &CheckpointRequest, progress: &mut dyn FnMut(Progress)) -> Result<u64> {
    let pid = root_of(pid);
    let (program, control) = match find_loaded(pid) {
        Err(Error::NotPreloaded { .. }) => {
            // Its agent adopts it, or says why not. If it could not, because another one did, that one is asked.
            let started = start(pid);
            let program = Program::find(pid).map_err(|error| started.err().unwrap_or(error))?;
            let control = program.control()?;
            (program, control)
        }
        found => found?,
    };
    let store = PathBuf::from(OsStr::from_bytes(ckpt_wire::text(&control.dir)));
    let address = Address::new(&store, program.identity_by(&control)?);
    for _ in 0..TRIES {
        let stream = connect(pid, &address)?.ok_or_else(|| no_answer(&store))?;
        match converse(stream, request, progress, &store) {
            // An agent that was just dying accepted the connection and nobody read from it.
            Err(Error::Io { source, .. }) if is_unheard(&source) => {}
            outcome => return outcome,
        }
    }
    Err(no_answer(&store))
}

/// Connects to the program's agent, which is started if there is none.
///
/// One that was killed is the agent, to all that look, until the kernel has taken its memory apart.
fn connect(pid: i32, address: &Address) -> Result<Option<UnixStream>> {
    let deadline = Instant::now() + DYING_AGENT_TIMEOUT;
    loop {
        if let Some(stream) = address.connect()? {
            return Ok(Some(stream));
        }
        start(pid)?;
        if let Some(stream) = address.connect()? {
            return Ok(Some(stream));
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_unheard(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// Sends the request and follows the replies.
pub(super) fn converse(
    mut stream: UnixStream,
    request: &CheckpointRequest,
    progress: &mut dyn FnMut(Progress),
    store: &Path,
) -> Result<u64> {
    let failed = |source| Error::io("talk to the agent of", store, source);
    let CheckpointRequest { trigger, wait_for_seal: _, kill, method, depth, with_dirs } = request.clone();
    send(&mut stream, &Request { trigger, kill, method, depth, with_dirs }).map_err(failed)?;
    let mut reader = BufReader::new(stream);
    while let Some(reply) = receive(&mut reader).map_err(failed)? {
        match reply {
            Reply::Resumed { stop_ms, id } => {
                progress(Progress::Resumed { stop_ms });
                if !request.wait_for_seal {
                    return Ok(id);
                }
            }
            Reply::Writing { done_bytes, total_bytes } => progress(Progress::Writing { done_bytes, total_bytes }),
            Reply::Sealed { id } => return Ok(id),
            Reply::Failed { message, exit_code } => return Err(Error::Agent { message, exit_code }),
        }
    }
    Err(Error::Agent {
        message: "the agent ended before the checkpoint was sealed; the program runs on; try again".to_owned(),
        exit_code: exit_code::FAILED,
    })
}

fn no_answer(store: &Path) -> Error {
    Error::environment("starting an agent", "it ended at once", format!("see the log in {}", store.display()))
}

/// Starts a detached agent for process `pid`, returns when it answers, and gives its pid.
///
/// It runs as the program's user, in a session of its own and without our terminal, so that it outlives us.
pub fn start(pid: i32) -> Result<i32> {
    let (mut command, executable) = detached()?;
    command.args(["--pid", &pid.to_string()]).env_remove(ENV_MARK);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let status = task::text(pid, "status")?;
    let owner = |name| {
        let id = task::status_value(&status, name)?.split_whitespace().next()?;
        id.parse::<u32>().ok()
    };
    if let (true, Some(uid), Some(gid)) = (geteuid().is_root(), owner("Uid"), owner("Gid"))
        && uid != 0
    {
        command.uid(uid).gid(gid);
    }
    let mut child = command.spawn().map_err(|source| Error::io("start an agent", &executable, source))?;

    // The agent closes its standard output once it listens, and says why on standard error if it cannot.
    let mut ready = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        let _ = stdout.read_to_end(&mut ready);
    }
    if ready == super::server::READY {
        return Ok(child.id() as i32);
    }
    let mut message = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut message);
    }
    let status = child.wait().map_err(|source| Error::io("wait for the agent", &executable, source))?;
    let message = message.trim().strip_prefix("ckpt: ").unwrap_or(message.trim()).to_owned();
    let exit_code = status.code().map_or(exit_code::FAILED, |code| code as u8);
    Err(Error::Agent { message, exit_code })
}

/// `ckpt agent` without arguments, in a session of its own and without what is the program's.
fn detached() -> Result<(Command, PathBuf)> {
    let executable =
        std::env::current_exe().map_err(|source| Error::io("find the executable", "/proc/self/exe", source))?;
    let mut command = Command::new(&executable);
    command.arg("agent").env_remove("LD_PRELOAD").current_dir("/");
    // SAFETY: between fork and exec only setsid is called, which is async-signal-safe.
    unsafe { command.pre_exec(|| setsid().map(drop).map_err(std::io::Error::from)) };
    Ok((command, executable))
}

/// An agent that has been started before its program, so that the program can name it to the kernel as the one
/// that may trace it (Yama). Dropping it without a program ends it.
#[derive(Debug)]
pub struct AwaitingProgram(Child);

impl AwaitingProgram {
    /// Starts the agent of the job that will have this mark.
    pub fn start(mark: &str) -> Result<AwaitingProgram> {
        let (mut command, executable) = detached()?;
        command.arg("--pid-from-stdin").env(ENV_MARK, mark);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|source| Error::io("start an agent", &executable, source))?;
        Ok(AwaitingProgram(child))
    }

    /// The agent's pid.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Tells the agent which program is its own.
    pub fn announce(mut self, program: u32) {
        if let Some(mut stdin) = self.0.stdin.take() {
            // An agent that has died meanwhile is replaced by the first request.
            let _ = writeln!(stdin, "{program}");
        }
    }
}

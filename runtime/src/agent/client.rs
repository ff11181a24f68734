//! Asking for a checkpoint: finding the program's agent, or starting one.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ckpt_store::Store;
use ckpt_wire::ENV_MARK;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{geteuid, setsid};

use super::address::{Address, Trusted};
use super::news::Heard;
use super::protocol::{Patient, READY, Reply, Request, receive, send};
use super::request::{CheckpointRequest, Progress, store_of};

use crate::capture::{Program, find_loaded, root_of};
use crate::descriptor::{self, pidfd_open};
use crate::error::{Error, Result, exit_code};
use crate::proc::task;

/// How long an agent that was killed may hold its lock, and one whose program has ended may let others in and hang up: on a busy
/// machine it notices that late, and the program may have another life by then.
const DYING_AGENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two tries to reach an agent.
const RETRY_PAUSE: Duration = Duration::from_millis(10);
/// How long an agent may take from its start until it listens: it may have to wait for the program, and for others.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// How long an agent of ours, or of root's, may say nothing. One at work says so every second, but it works after all programs: on a machine
/// with many for each processor it may not be heard of for minutes. When it ends, that is known at once.
const SILENCE: Duration = Duration::from_secs(900);
/// The same for another user's agent.
const SILENCE_OF_OTHERS: Duration = Duration::from_secs(60);
/// How long another user's agent may be at work without any progress.
const STANDSTILL: Duration = Duration::from_secs(3600);
/// Longest message of an agent that does not start, bytes.
const MESSAGE_BYTES_MAX: u64 = 64 * 1024;
/// How many processes that are not in a checkpoint an agent may name.
const LEFT_OUT_MAX: usize = 100;
/// Where an agent of another user looks for programs: it needs none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Takes a checkpoint of the job of process `pid` and returns its id. With `dir` an agent of ours stores it there, and not where the
/// program says.
pub fn request_checkpoint(
    pid: i32,
    dir: Option<&Path>,
    request: &CheckpointRequest,
    progress: &mut dyn FnMut(Progress),
) -> Result<u64> {
    let pid = root_of(pid);
    let (program, control) = match find_loaded(pid) {
        Err(Error::NotPreloaded { .. }) => {
            // Its agent adopts it, or says why not. If it could not, because another one did, that one is asked.
            let started = start_with(pid, dir);
            let program = Program::find(pid).map_err(|error| started.err().unwrap_or(error))?;
            let control = program.control()?;
            (program, control)
        }
        found => found?,
    };
    let store = store_of(&control, dir);
    let address = Address::new(&store, &program.identity_by(&control)?);
    let deadline = Instant::now() + DYING_AGENT_TIMEOUT;
    loop {
        let (stream, user) = connect(pid, dir, &address)?.ok_or_else(|| no_answer(&store))?;
        match converse(&stream, Patience::with(user), request, progress, &store).map_err(|error| said_by(user, error)) {
            // An agent that was just dying accepted the connection and nobody read from it.
            Err(Error::Io { source, .. }) if is_unheard(&source) => {
                if Instant::now() > deadline {
                    return Err(no_answer(&store));
                }
                std::thread::sleep(RETRY_PAUSE);
            }
            outcome => {
                if outcome.is_ok() && is_other(user) {
                    log::warn!("that the checkpoint is taken is what the agent of user {user} says");
                }
                return outcome;
            }
        }
    }
}

/// Connects to the program's agent, which is started if there is none.
///
/// One that was killed is the agent, to all that look, until the kernel has taken its memory apart.
fn connect(pid: i32, dir: Option<&Path>, address: &Address) -> Result<Option<(UnixStream, u32)>> {
    let deadline = Instant::now() + DYING_AGENT_TIMEOUT;
    loop {
        if let Some(found) = address.connect(Trusted::by(pid)?)? {
            return Ok(Some(found));
        }
        start_with(pid, dir)?;
        if let Some(found) = address.connect(Trusted::by(pid)?)? {
            return Ok(Some(found));
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        std::thread::sleep(RETRY_PAUSE);
    }
}

fn is_unheard(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// How long an agent is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    silence: Duration,
    standstill: Option<Duration>,
}

impl Patience {
    /// That with an agent of this user. Another user's may say for ever that it is at work.
    pub(super) fn with(user: u32) -> Patience {
        match is_other(user) {
            true => Patience { silence: SILENCE_OF_OTHERS, standstill: Some(STANDSTILL) },
            false => Patience { silence: SILENCE, standstill: None },
        }
    }
}

/// Whether what this user says is not to be believed as if we said it ourselves.
fn is_other(user: u32) -> bool {
    user != 0 && user != geteuid().as_raw()
}

/// What an agent of this user has said, or why it says nothing.
fn said_by(user: u32, error: Error) -> Error {
    match error {
        Error::Agent { message, exit_code } if is_other(user) => {
            Error::Agent { message: format!("the agent of user {user} says: {message}"), exit_code }
        }
        other => other,
    }
}

/// Sends the request and follows the replies.
pub(super) fn converse(
    stream: &UnixStream,
    patience: Patience,
    request: &CheckpointRequest,
    progress: &mut dyn FnMut(Progress),
    store: &Path,
) -> Result<u64> {
    let failed = |source: std::io::Error| match source.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => silent(store),
        _ => Error::io("talk to the agent of", store, source),
    };
    let CheckpointRequest { trigger, wait_for_seal: _, kill, method, depth, with_dirs } = request.clone();
    stream.set_write_timeout(Some(patience.silence)).map_err(failed)?;
    send(&mut &*stream, &Request { trigger, kill, method, depth, with_dirs }).map_err(failed)?;
    let mut reader = BufReader::new(Patient::new(stream, patience.silence));
    let (mut far, mut since, mut left_out) = (0, Instant::now(), 0);
    let mut begun = None;
    while let Some(reply) = receive(&mut reader).map_err(failed)? {
        reader.get_mut().wait(patience.silence);
        match reply {
            Reply::Resumed { stop_ms, id } => {
                progress(Progress::Resumed { stop_ms });
                if !request.wait_for_seal {
                    return Ok(id);
                }
                begun = Some(id);
            }
            Reply::Writing { done_bytes, total_bytes } => {
                progress(Progress::Writing { done_bytes, total_bytes });
                if done_bytes > far && done_bytes <= total_bytes {
                    (far, since) = (done_bytes, Instant::now());
                }
            }
            Reply::LeftOut { message } if left_out < LEFT_OUT_MAX => {
                left_out += 1;
                log::warn!("{message}");
            }
            Reply::LeftOut { .. } => {}
            Reply::Alive => progress(Progress::Alive),
            Reply::Sealed { id } => return Ok(id),
            Reply::Failed { message, exit_code } => {
                return Err(Error::Agent { message, exit_code: failing(exit_code) });
            }
        }
        if patience.standstill.is_some_and(|standstill| since.elapsed() > standstill) {
            return Err(silent(store));
        }
    }
    // It may have ended between the seal and its word of it.
    match begun.filter(|_| !kill).map(|id| (id, is_sealed(store, id))) {
        Some((id, Some(true))) => return Ok(id),
        Some((_, None)) => {
            let message =
                "the agent ended before it said that the checkpoint is sealed; the program runs on; see with ckpt list";
            return Err(Error::Agent { message: message.to_owned(), exit_code: exit_code::FAILED });
        }
        Some((_, Some(false))) | None => {}
    }
    Err(Error::Agent {
        message: "the agent ended before the checkpoint was sealed; the program runs on; try again".to_owned(),
        exit_code: exit_code::FAILED,
    })
}

/// None where the store cannot be read as it is: it is encrypted, or another user's.
fn is_sealed(store: &Path, id: u64) -> Option<bool> {
    Store::open(store).and_then(|store| store.sealed()).ok().map(|sealed| sealed.contains(&id))
}

/// The exit code of a failure: whoever says that it is none is not believed.
fn failing(code: u8) -> u8 {
    if code == exit_code::DONE { exit_code::FAILED } else { code }
}

fn silent(store: &Path) -> Error {
    Error::environment(
        format!("talking to the agent of {}", store.display()),
        "it says nothing more of the checkpoint",
        "see with ckpt list whether it is sealed; the program runs on",
    )
}

fn no_answer(store: &Path) -> Error {
    Error::environment("starting an agent", "it ended at once", format!("see the log in {}", store.display()))
}

/// Starts a detached agent for process `pid`, returns when it answers, and gives its pid.
///
/// It runs as the program's user, in a session of its own and without our terminal, so that it outlives us.
pub fn start(pid: i32) -> Result<i32> {
    start_with(pid, None)
}

/// The same; with a store of ours it runs as our user.
fn start_with(pid: i32, dir: Option<&Path>) -> Result<i32> {
    let (mut command, executable) = detached()?;
    command.args(["--pid", &pid.to_string()]).env_remove(ENV_MARK);
    if let Some(dir) = dir {
        command.arg("--dir").arg(dir);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let user = program_user(pid)?;
    if let Some((uid, gid)) = user.filter(|&(uid, _)| geteuid().is_root() && uid != 0 && dir.is_none()) {
        // It is that user's to look into: nothing of ours may be in it.
        command.uid(uid).gid(gid).env_clear().env("PATH", PATH);
    }
    let mut child = command.spawn().map_err(|source| Error::io("start an agent", &executable, source))?;

    // The agent closes its standard output once it listens, and says why on standard error if it cannot.
    let deadline = Instant::now() + START_TIMEOUT;
    let heard =
        |outlet: Option<OwnedFd>, most| outlet.map_or_else(Vec::new, |outlet| read_until(outlet, most, deadline));
    let ready = heard(child.stdout.take().map(OwnedFd::from), READY.len() as u64 + 1);
    if ready == READY {
        return Ok(child.id() as i32);
    }
    let message = heard(child.stderr.take().map(OwnedFd::from), MESSAGE_BYTES_MAX);
    let message = String::from_utf8_lossy(&message);
    let message = message.trim().strip_prefix("ckpt: ").unwrap_or(message.trim()).to_owned();
    let exit_code = failing(code_of(&mut child, deadline)?);
    let error = Error::Agent { message, exit_code };
    Err(said_by(user.map_or_else(|| geteuid().as_raw(), |(uid, _)| uid), error))
}

/// The real user and group of process `pid`.
fn program_user(pid: i32) -> Result<Option<(u32, u32)>> {
    let status = task::text(pid, "status")?;
    let owner = |name| task::status_value(&status, name)?.split_whitespace().next()?.parse::<u32>().ok();
    Ok(owner("Uid").zip(owner("Gid")))
}

/// What comes from there until its end, so many bytes or that moment.
fn read_until(outlet: OwnedFd, most: u64, deadline: Instant) -> Vec<u8> {
    let mut outlet = File::from(outlet).take(most);
    let (mut heard, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(outlet.get_ref().as_fd(), PollFlags::POLLIN)], timeout) {
            Err(Errno::EINTR) => continue,
            Ok(ready) if ready > 0 => {}
            _ => return heard,
        }
        match outlet.read(&mut part) {
            Ok(0) | Err(_) => return heard,
            Ok(bytes) => heard.extend_from_slice(&part[..bytes]),
        }
    }
}

/// The exit code of an agent that has not become one; it may not end at all.
fn code_of(child: &mut Child, deadline: Instant) -> Result<u8> {
    let pidfd = pidfd_open(child.id() as i32)?;
    if descriptor::ends_within(&pidfd, deadline.saturating_duration_since(Instant::now())) != Ok(true) {
        return Ok(exit_code::FAILED);
    }
    let status = child.wait().map_err(|source| Error::io("wait for", "the agent", source))?;
    Ok(status.code().map_or(exit_code::FAILED, |code| code as u8))
}

/// `ckpt agent` without arguments, in a session of its own and without what is the program's or ours.
fn detached() -> Result<(Command, PathBuf)> {
    let executable =
        std::env::current_exe().map_err(|source| Error::io("find the executable", "/proc/self/exe", source))?;
    let mut command = Command::new(&executable);
    command.arg("agent").env_remove("LD_PRELOAD").current_dir("/");
    let prepare = || {
        setsid()?;
        Ok(descriptor::close_inherited_on_exec()?)
    };
    // SAFETY: between fork and exec two system calls are made, and nothing is allocated.
    unsafe { command.pre_exec(prepare) };
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
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().map_err(|source| Error::io("start an agent", &executable, source))?;
        Ok(AwaitingProgram(child))
    }

    /// The agent's pid.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Tells the agent which program is its own; gives what it says of checkpoints.
    pub fn announce(mut self, program: u32) -> Option<Heard> {
        if let Some(mut stdin) = self.0.stdin.take() {
            // An agent that has died meanwhile is replaced by the first request.
            let _ = writeln!(stdin, "{program}");
        }
        self.0.stdout.take().map(Heard::from)
    }
}

#[cfg(test)]
mod tests {
    use ckpt_store::{AttemptEnd, AttemptStart};

    use super::*;

    /// What comes of an agent that says this, and then holds the line if that is wanted.
    fn outcome_of(lines: &str, holds: bool, patience: Patience) -> Result<u64> {
        let (one, mut other) = UnixStream::pair().unwrap();
        other.write_all(lines.as_bytes()).unwrap();
        let held = holds.then_some(other);
        let request =
            CheckpointRequest { wait_for_seal: true, ..CheckpointRequest::by(super::super::Trigger::Command) };
        let outcome = converse(&one, patience, &request, &mut |_| {}, Path::new("/store"));
        drop(held);
        outcome
    }

    fn patience() -> Patience {
        Patience { silence: Duration::from_millis(200), standstill: None }
    }

    #[test]
    fn an_agent_that_says_nothing_is_given_up_and_one_at_work_is_not() {
        let began = Instant::now();
        let error = outcome_of("\"alive\"\n", true, patience()).unwrap_err();
        assert!(error.to_string().contains("says nothing more"), "{error}");
        assert_eq!(error.exit_code(), exit_code::ENVIRONMENT);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());

        let (one, mut other) = UnixStream::pair().unwrap();
        let working = std::thread::spawn(move || {
            for _ in 0..10 {
                send(&mut other, &Reply::Alive).unwrap();
                std::thread::sleep(Duration::from_millis(50));
            }
            send(&mut other, &Reply::Sealed { id: 7 }).unwrap();
        });
        let request =
            CheckpointRequest { wait_for_seal: true, ..CheckpointRequest::by(super::super::Trigger::Command) };
        let patience = Patience { silence: Duration::from_secs(2), standstill: None };
        assert_eq!(converse(&one, patience, &request, &mut |_| {}, Path::new("/store")).unwrap(), 7);
        working.join().unwrap();
    }

    #[test]
    fn another_user_s_agent_is_not_at_work_for_ever_without_progress() {
        let (one, mut other) = UnixStream::pair().unwrap();
        let lying = std::thread::spawn(move || {
            // Progress that is none.
            while send(&mut other, &Reply::Writing { done_bytes: 9, total_bytes: 8 }).is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let request =
            CheckpointRequest { wait_for_seal: true, ..CheckpointRequest::by(super::super::Trigger::Command) };
        let patience = Patience { silence: Duration::from_secs(5), standstill: Some(Duration::from_millis(300)) };
        assert!(converse(&one, patience, &request, &mut |_| {}, Path::new("/store")).is_err());
        drop(one);
        lying.join().unwrap();
    }

    #[test]
    fn a_failure_is_never_a_success() {
        let error = outcome_of("{\"failed\":{\"message\":\"all is well\",\"exit_code\":0}}\n", false, patience());
        assert_eq!(error.unwrap_err().exit_code(), exit_code::FAILED);
        let said = said_by(geteuid().as_raw() + 1, Error::Agent { message: "x".to_owned(), exit_code: 4 });
        assert!(said.to_string().contains("says: x") && said.exit_code() == 4, "{said}");
        assert!(outcome_of("", false, patience()).is_err(), "nor is an end without a word");
    }

    #[test]
    fn an_agent_that_ends_behind_the_seal_has_not_failed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::create_or_open(&dir.path().join("store")).unwrap();
        let (job, name, trigger) = ("job".into(), "lab".into(), "command".into());
        let attempt = store.begin(AttemptStart { job, name, trigger, processes: 1, ..Default::default() }).unwrap();
        let id = attempt.id();
        let wait = CheckpointRequest { wait_for_seal: true, ..CheckpointRequest::by(super::super::Trigger::Command) };
        let outcome = |kill| {
            let (one, mut other) = UnixStream::pair().unwrap();
            send(&mut other, &Reply::Resumed { stop_ms: 1.0, id }).unwrap();
            other.shutdown(std::net::Shutdown::Write).unwrap();
            converse(&one, patience(), &CheckpointRequest { kill, ..wait.clone() }, &mut |_| {}, store.dir())
        };
        assert!(outcome(false).is_err(), "it is not sealed");
        attempt.seal(AttemptEnd { processes: 1, ..AttemptEnd::default() }, b"").unwrap();
        assert_eq!(outcome(false).unwrap(), id);
        assert!(outcome(true).is_err(), "the program may not have ended");
    }

    #[test]
    fn what_an_agent_that_does_not_start_says_is_bounded_in_length_and_time() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(&[b'x'; 100]).unwrap();
        let began = Instant::now();
        let deadline = began + Duration::from_millis(200);
        assert_eq!(read_until(reader.into(), 10, deadline), [b'x'; 10]);
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(read_until(reader.into(), 10, deadline).is_empty());
        assert!(began.elapsed() < Duration::from_secs(10));
    }
}

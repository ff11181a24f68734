//! What still runs of the job that is to be restarted. Two lives of one program write to the same files. In one pid namespace
//! they could not have the same pids; a life in a namespace of its own has to be looked for.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::capture::{self, Kinship};
use crate::commands::which_program;
use crate::error::{Error, Result};
use crate::image::JobImage;
use crate::proc::task;
use crate::units::printable;

/// How long processes may take to end that SIGKILL has been sent to.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Refuses a restart beside a life of the same job; where only a part of it is left, without its first process, `end` ends that.
///
/// # Errors
/// All that run are named.
pub fn refuse(job: &JobImage, end: bool) -> Result<()> {
    let root = job.root();
    if let Some(life) = which_program::life_of(root)? {
        let why = format!("pid {} is in use by a life of the same program that runs already, process {life}", root.pid);
        return Err(Error::environment("restart", why, "end that first"));
    }
    let left = left_of(job)?;
    match (left.is_empty(), end) {
        (true, _) => Ok(()),
        (false, false) => Err(refused(&left)),
        (false, true) => end_all(job, left),
    }
}

/// The processes of the job that run, ascending. One that has only the mark, and other users than the first process, may be
/// anybody's: it is named, and left alone.
fn left_of(job: &JobImage) -> Result<Vec<i32>> {
    let mut left = Vec::new();
    for process in &job.processes {
        left.extend(which_program::life_of(process)?);
    }
    if job.mark != 0 {
        let marked = capture::all_with(&Kinship { mark: job.mark, since: 0, users: job.root().uids }, &left)?;
        left.extend(marked.members);
        marked.doubtful.iter().for_each(|&pid| log::warn!("{}", left_alone(pid)));
    }
    left.sort_unstable();
    left.dedup();
    Ok(left)
}

fn refused(left: &[i32]) -> Error {
    let named: Vec<String> = left.iter().map(|&pid| named(pid)).collect();
    let why = format!("of the job's last life there still run: {}", named.join(", "));
    Error::environment("restart", why, "end them first, or give --end-leftovers")
}

fn left_alone(pid: i32) -> String {
    let user = task::users(pid).map_or_else(|_| "another user".to_owned(), |users| format!("user {}", users[1]));
    let named = named(pid);
    format!(
        "{named} of {user} has the mark of the job and descends from none of it: it may be a stranger, and is left alone"
    )
}

fn named(pid: i32) -> String {
    let name = task::bytes(pid, "comm").unwrap_or_default();
    format!("process {pid} ({})", printable(String::from_utf8_lossy(&name).trim_end()))
}

/// Ends them, and what they make meanwhile.
fn end_all(job: &JobImage, mut left: Vec<i32>) -> Result<()> {
    let deadline = Instant::now() + END_TIMEOUT;
    log::info!("ending what is left of the job: {left:?}");
    while !left.is_empty() {
        for &pid in &left {
            match kill(Pid::from_raw(pid), Signal::SIGKILL) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(source) => return Err(Error::io("end", named(pid), source)),
            }
        }
        if Instant::now() > deadline {
            return Err(refused(&left));
        }
        std::thread::sleep(Duration::from_millis(2));
        left = left_of(job)?;
    }
    Ok(())
}

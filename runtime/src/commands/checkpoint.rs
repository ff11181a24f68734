//! `ckpt checkpoint`: takes one now.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ckpt_store::Depth;
use clap::Args;
use nix::unistd::geteuid;

use super::interval::parse_time;
use super::method::check_method;
use super::progress_bar::{Progress as Bar, Unit};
use super::with_dir::with_dirs;
use super::{absolute, default_store, print, which_program};
use crate::agent::{CheckpointRequest, Method, Progress, Trigger, request_checkpoint};
use crate::audit;
use crate::error::{Error, Result, exit_code};
use crate::messages;
use crate::namespace::{self, Inside};

/// Take a checkpoint of a running program and print its id
#[derive(Args)]
#[command(after_help = "\
The program needs libckpt.so: start it with `ckpt run`, or with LD_PRELOAD=libckpt.so.

Examples:
  ckpt checkpoint 4711                    returns when the checkpoint is sealed
  ckpt checkpoint ckpt-store              the one program whose checkpoints go there
  ckpt checkpoint --no-wait 4711          returns when the program runs again
  ckpt checkpoint --kill $(pidof heat)    the program ends exactly where the checkpoint is
  ckpt checkpoint --dir /var/lib/ckpt 4711
  ckpt checkpoint --data 4711             what it has allocated, and no more: to be looked at, not restarted
  ckpt checkpoint --data --every 10ms --count 500 4711")]
pub struct Arguments {
    /// The program: its pid, or the store, where only one program stores its checkpoints there
    #[arg(value_name = "PID|DIR", default_value_os_t = default_store::dir())]
    program: PathBuf,
    /// Return as soon as the program runs again; the checkpoint is written meanwhile
    #[arg(long, conflicts_with = "kill")]
    no_wait: bool,
    /// End the program once the checkpoint is sealed, without letting it run on
    #[arg(long)]
    kill: bool,
    /// SIGTERM has asked for it (from `ckpt run` and `ckpt restart` to itself)
    #[arg(long, hide = true, requires = "kill")]
    at_term: bool,
    /// Store only what the program has allocated: memory of GPUs, and the large parts of its heap. That takes
    /// milliseconds; `ckpt extract` and `ckpt diff` read it, and no program can be restarted from it
    #[arg(long, conflicts_with_all = ["kill", "method"])]
    data: bool,
    /// Take one after the other, so far apart, until the program ends: 10ms, 2s, 1m. One that is not done by then
    /// delays the next
    #[arg(long, value_name = "TIME", requires = "data", value_parser = parse_time)]
    every: Option<Duration>,
    /// How many to take
    #[arg(long, value_name = "N", requires = "every", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// How memory is stored from now on, while the program's agent lives: pages, or tree (large private memory as
    /// differences finer than a page); to compare with: full-dump, local-dedup, inc-tracking [default: as before]
    #[arg(long, value_parser = check_method)]
    method: Option<Method>,
    /// Capture a directory with all that is in it, as well, to be there again after a restart; may be given several times
    #[arg(long, value_name = "DIR", conflicts_with = "data")]
    with_dir: Vec<PathBuf>,
    /// As root: store it in this directory of root's, by an agent of root's, and not where the program says. For a daemon that has
    /// given up its rights, into which its own user may not look
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    if arguments.dir.is_some() && !geteuid().is_root() {
        return Err(Error::Usage(
            "--dir is for root: other users' programs say themselves where (CKPT_DIR)".to_owned(),
        ));
    }
    let pid = which_program::select(&arguments.program)?;
    audit::of_process("checkpoint", pid, |record| checkpoint(arguments, pid, record))
}

fn checkpoint(arguments: &Arguments, pid: i32, record: &mut audit::Record) -> Result<u8> {
    let inside = Inside::of(pid);
    if inside.is_some() && arguments.dir.is_some() {
        return Err(Error::Usage("--dir is for programs in no namespaces of their own".to_owned()));
    }
    if let Some(inside) = inside
        && let Some(code) =
            namespace::run_inside(&inside, repeated(arguments, inside.pid)?, arguments.every.unwrap_or_default())?
    {
        record.number("exit_code", code);
        return Ok(code);
    }
    match arguments.every {
        Some(every) => take_many(arguments, pid, every, record)?,
        None => drop(record.number("checkpoint", take(arguments, pid)?)),
    }
    Ok(exit_code::DONE)
}

/// The same command line, for the process that is `pid` where it is executed.
fn repeated(arguments: &Arguments, pid: i32) -> Result<Vec<OsString>> {
    let &Arguments { program: _, no_wait, kill, at_term, data, every, count, method, ref with_dir, dir: _ } = arguments;
    let flags = [(no_wait, "--no-wait"), (kill, "--kill"), (at_term, "--at-term"), (data, "--data")];
    let mut words = vec!["checkpoint".to_owned()];
    words.extend(flags.iter().filter(|(given, _)| *given).map(|(_, flag)| (*flag).to_owned()));
    words.extend(every.map(|every| format!("--every={}ms", every.as_millis())));
    words.extend(count.map(|count| format!("--count={count}")));
    words.extend(method.map(|method| format!("--method={}", method.name())));
    words.push(pid.to_string());
    let verbosity = log::max_level() as usize - (log::LevelFilter::Warn as usize).min(log::max_level() as usize);
    words.extend(std::iter::repeat_n("-v".to_owned(), verbosity));
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    for dir in with_dirs(with_dir)? {
        words.extend([OsString::from("--with-dir"), dir.into_os_string()]);
    }
    Ok(words)
}

fn take(arguments: &Arguments, pid: i32) -> Result<u64> {
    let &Arguments { no_wait, kill, at_term, method, .. } = arguments;
    let depth = if arguments.data { Depth::Data } else { Depth::Full };
    let with_dirs = with_dirs(&arguments.with_dir)?;
    let by_command = CheckpointRequest::by(if at_term { Trigger::Term } else { Trigger::Command });
    let request = CheckpointRequest { wait_for_seal: !no_wait, kill, method, depth, with_dirs, ..by_command };
    let mut bar = Bar::start();
    // Whoever passes on what we say hears that we are there, and says nothing of it.
    let is_relayed = std::env::var_os("CKPT_RELAYED").is_some();
    let dir = arguments.dir.as_deref().map(absolute).transpose()?;
    let id = request_checkpoint(pid, dir.as_deref(), &request, &mut |progress| match progress {
        Progress::Resumed { stop_ms } => log::info!("process {pid} was stopped for {stop_ms:.1} ms"),
        Progress::Writing { done_bytes, total_bytes } => bar.update("writing", done_bytes, total_bytes, Unit::Bytes),
        Progress::Alive if is_relayed => messages::be_heard(),
        Progress::Alive => {}
    })?;
    bar.end();
    print(&format!("{id}\n"))?;
    Ok(id)
}

/// One waits for the other: what the store or a device cannot keep up with comes later, and nothing piles up.
fn take_many(arguments: &Arguments, pid: i32, every: Duration, record: &mut audit::Record) -> Result<()> {
    let (mut due, mut taken) = (Instant::now(), 0);
    while arguments.count.is_none_or(|count| taken < count) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        match take(arguments, pid) {
            Err(Error::ProgramGone { .. }) if taken > 0 && arguments.count.is_none() => break,
            outcome => drop(outcome?),
        }
        taken += 1;
        due = (due + every).max(Instant::now());
    }
    record.number("taken", taken);
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn a_command_line_is_repeated_with_all_that_was_asked_for_and_another_pid() {
        let every = "--data --every=10ms --count=3 4711";
        for line in ["4711", "--no-wait --method=tree 4711", "--kill 4711", "--kill --at-term 4711", every] {
            let read = |words: Vec<OsString>| Line::try_parse_from(words).unwrap().arguments;
            let typed = read(["checkpoint"].into_iter().chain(line.split(' ')).map(OsString::from).collect());
            let words = repeated(&typed, 12).unwrap();
            let again: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            assert_eq!(again.join(" "), format!("checkpoint {}", line.replace("4711", "12")));
            let repeated = read(words);
            assert_eq!((repeated.every, repeated.count, repeated.method), (typed.every, typed.count, typed.method));
        }
    }
}

//! What /proc says about processes that a test has to do with.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::product;

/// Repeats `condition` until it holds; panics with `what` when `limit` has passed.
///
/// For conditions that have no event to wait for, such as another program's process having ended.
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < end, "waited {limit:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All process ids.
pub fn all() -> Vec<i32> {
    numbers_in(Path::new("/proc"))
}

/// Thread ids of a process, ascending.
pub fn threads(pid: i32) -> Vec<i32> {
    numbers_in(&PathBuf::from(format!("/proc/{pid}/task")))
}

/// Open descriptors of a process, ascending.
pub fn descriptors(pid: i32) -> Vec<i32> {
    numbers_in(&PathBuf::from(format!("/proc/{pid}/fd")))
}

fn numbers_in(dir: &Path) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut numbers: Vec<i32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// Children of all threads of a process.
pub fn children(pid: i32) -> Vec<i32> {
    let list = |tid: i32| fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
    threads(pid)
        .into_iter()
        .flat_map(|tid| list(tid).split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<i32>>())
        .collect()
}

/// Children, their children and so on.
pub fn descendants(pid: i32) -> Vec<i32> {
    let mut found = children(pid);
    let mut next = 0;
    while next < found.len() {
        let more = children(found[next]);
        found.extend(more);
        next += 1;
    }
    found
}

/// State letters of all threads; empty when the process is gone.
pub fn thread_states(pid: i32) -> Vec<char> {
    threads(pid)
        .into_iter()
        .filter_map(|tid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
            stat.rsplit_once(") ")?.1.chars().next()
        })
        .collect()
}

/// Whether the main thread of a process waits in a call of the kernel (`SYS_*`).
pub fn waits_in(pid: i32, call: i64) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    text.starts_with(&format!("{call} "))
}

/// How often the main thread of a process has waited for anything.
pub fn waits_of(pid: i32) -> u64 {
    status_field(pid, "voluntary_ctxt_switches").and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Whether the process exists and is neither a zombie nor dead.
pub fn is_alive(pid: i32) -> bool {
    thread_states(pid).iter().any(|state| !matches!(state, 'Z' | 'X'))
}

/// Whether a thread of the process is stopped by a signal (T) or a tracer (t).
pub fn is_stopped(pid: i32) -> bool {
    thread_states(pid).iter().any(|state| matches!(state, 'T' | 't'))
}

/// Processor time that a process has used, also when it has ended and was not waited for. In steps of 10 ms.
pub fn processor_time(pid: i32) -> Option<Duration> {
    /// `utime` and `stime`, counted behind the name, and their unit: `USER_HZ` is 100 on x86-64.
    const FIELDS: std::ops::RangeInclusive<usize> = 11..=12;
    const TICK: Duration = Duration::from_millis(10);
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: Option<u32> = fields.get(FIELDS)?.iter().map(|ticks| ticks.parse::<u32>().ok()).sum();
    Some(TICK * ticks?)
}

/// The id of a process in its own pid namespace.
pub fn pid_in_its_namespace(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

/// A field of /proc/PID/status.
pub fn status_field(pid: i32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(&format!("{name}:")))?;
    Some(line[name.len() + 1..].trim().to_owned())
}

/// The executable of a process.
pub fn executable(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Processes that run `executable` in the working directory `directory`: the copies of one program.
pub fn copies(executable_path: &Path, directory: &Path) -> Vec<i32> {
    all()
        .into_iter()
        .filter(|&pid| executable(pid).is_some_and(|path| path == executable_path))
        .filter(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == directory))
        .filter(|&pid| is_alive(pid))
        .collect()
}

/// Living processes of our `ckpt` that were started as `ckpt agent` for `pid`.
pub fn agents_of(pid: i32) -> Vec<i32> {
    let ckpt = product::ckpt();
    let pid_text = pid.to_string();
    all()
        .into_iter()
        .filter(|&candidate| executable(candidate).is_some_and(|path| path == ckpt) && is_alive(candidate))
        .filter(|&candidate| {
            let words = arguments(candidate);
            words.iter().any(|word| word == "agent") && words.contains(&pid_text)
        })
        .collect()
}

/// Processes that work in `directory`, are none of ours, and descend from nobody of this test any more.
pub fn orphans_in(directory: &Path) -> Vec<i32> {
    let own = descendants(std::process::id().cast_signed());
    let works_there = |pid: i32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == directory);
    let is_ours = |pid: i32| executable(pid).is_some_and(|path| path == product::ckpt());
    let all = all().into_iter().filter(|pid| !own.contains(pid));
    // What holds memory for an agent is traced by it.
    let is_traced = |pid: i32| status_field(pid, "TracerPid").is_some_and(|tracer| tracer != "0");
    all.filter(|&pid| works_there(pid) && !is_ours(pid) && is_alive(pid) && !is_traced(pid)).collect()
}

/// The arguments of a process.
pub fn arguments(pid: i32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Processes of the scene in `directory`: those that work in it, name it, or have it in their environment.
pub fn of_scene(directory: &Path) -> Vec<i32> {
    let own = std::process::id().cast_signed();
    all().into_iter().filter(|&pid| pid != own && belongs_to(pid, directory) && is_alive(pid)).collect()
}

/// Whether a process belongs to the scene in `directory`.
pub fn belongs_to(pid: i32, directory: &Path) -> bool {
    let text = directory.as_os_str().as_encoded_bytes();
    let holds = |file: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text)
    };
    fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(directory))
        || holds("cmdline")
        || holds("environ")
}

/// Sends a signal; a process that is gone is not an error.
pub fn send(pid: i32, signal: Signal) {
    assert!(pid > 1, "no test sends a signal to process {pid}");
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
        Err(error) => panic!("sending {signal} to process {pid}: {error}"),
    }
}

/// The mappings of a process as `permissions name`, in order, without those of libckpt itself.
pub fn mapping_names(pid: i32) -> Vec<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process lives");
    maps.lines()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            format!("{} {}", words[1], words[5..].join(" "))
        })
        .filter(|line| !line.contains("libckpt.so"))
        .collect()
}

/// Ends the agents of a program, so that the next command starts one with its own environment.
pub fn end_agents(pid: i32) {
    let agents = agents_of(pid);
    for &agent in &agents {
        send(agent, Signal::SIGKILL);
    }
    // By their ids: a process that is ending loses its executable before its socket.
    let limit = Duration::from_secs(5);
    wait_until("the agents are gone", limit, || !agents.iter().any(|&agent| is_alive(agent)));
}

/// What the descriptors of process `pid` lead to.
pub fn open_files(pid: i32) -> Vec<PathBuf> {
    let table = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    let mut files: Vec<PathBuf> =
        table.map(|entry| std::fs::read_link(entry.expect("it runs").path()).expect("it holds it")).collect();
    files.sort();
    files
}

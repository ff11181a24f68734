//! Passing signals on to the program.

use nix::sys::signalfd::siginfo;
use nix::unistd::Pid;

/// Generations looked through for the sender of a signal.
const GENERATIONS_MAX: usize = 64;

/// What a terminal sends to its foreground group.
const FROM_TERMINAL: [i32; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGHUP, libc::SIGWINCH, libc::SIGCONT];

/// Who caused a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A process sent it to us or to our group.
    Process,
    /// The terminal sent it to the whole foreground group.
    Terminal,
    /// It is about ourselves: a limit, a closed pipe, our own access to the terminal.
    Ourselves,
    /// A child changed its status.
    Child,
}

impl Source {
    /// Whose `signal` is.
    pub fn of(signal: &siginfo) -> Source {
        match signal.ssi_code {
            // SIGPIPE for our own write looks like a signal that we have sent to ourselves.
            libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL if signal.ssi_pid == std::process::id() => {
                Source::Ourselves
            }
            libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL => Source::Process,
            libc::SI_KERNEL if FROM_TERMINAL.contains(&(signal.ssi_signo as i32)) => Source::Terminal,
            _ if signal.ssi_signo as i32 == libc::SIGCHLD => Source::Child,
            _ => Source::Ourselves,
        }
    }
}

/// Sends `signal` to process `pid`, with its value if it carries one. A program that has ended meanwhile, or has
/// another user's rights, cannot be told, and there is nobody to tell that.
pub fn to_process(pid: i32, signal: &siginfo) {
    let number = signal.ssi_signo as i32;
    if signal.ssi_code == libc::SI_QUEUE {
        queue(pid, signal);
    } else {
        // SAFETY: kill takes two integers; `pid` is our child and not reaped, so it names no other process.
        unsafe { libc::kill(pid, number) };
    }
}

/// Sends `signal` to all processes of `group`.
pub fn to_group(group: Pid, signal: i32) {
    // SAFETY: kill takes two integers.
    unsafe { libc::kill(-group.as_raw(), signal) };
}

/// The part of siginfo_t that a queued signal fills, as the kernel lays it out.
#[repr(C)]
struct QueuedSignal {
    signal: i32,
    error: i32,
    code: i32,
    padding: i32,
    pid: i32,
    uid: u32,
    value: u64,
    rest: [u8; 96],
}

const _: () = assert!(size_of::<QueuedSignal>() == size_of::<libc::siginfo_t>());

fn queue(pid: i32, signal: &siginfo) {
    let queued = QueuedSignal {
        signal: signal.ssi_signo as i32,
        error: signal.ssi_errno,
        code: libc::SI_QUEUE,
        padding: 0,
        pid: signal.ssi_pid as i32,
        uid: signal.ssi_uid,
        value: signal.ssi_ptr,
        rest: [0; 96],
    };
    // SAFETY: the kernel reads one siginfo_t, whose size `QueuedSignal` has.
    unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, pid, queued.signal, &queued) };
}

/// Whether process `pid` is `ancestor` or one of its descendants.
pub fn descends_from(mut pid: i32, ancestor: i32) -> bool {
    for _ in 0..GENERATIONS_MAX {
        if pid == ancestor {
            return true;
        }
        match status_fields(pid) {
            Some((_, parent)) if parent > 1 => pid = parent,
            _ => return false,
        }
    }
    false
}

/// Whether process `pid` shows no sign of running: it is stopped, also while an agent looks at it, or its main
/// thread has ended and says nothing about the others.
pub fn seems_stopped(pid: i32) -> bool {
    matches!(status_fields(pid), Some(('T' | 't' | 'Z', _)))
}

/// State and parent of process `pid`.
fn status_fields(pid: i32) -> Option<(char, i32)> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name in front, in parentheses, may contain anything.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(signal: i32, code: i32) -> siginfo {
        // SAFETY: all fields are integers.
        let mut info: siginfo = unsafe { std::mem::zeroed() };
        info.ssi_signo = signal as u32;
        info.ssi_code = code;
        info
    }

    #[test]
    fn a_signal_of_a_process_differs_from_one_of_the_terminal_and_one_of_a_child() {
        assert_eq!(Source::of(&with(libc::SIGTERM, libc::SI_USER)), Source::Process);
        assert_eq!(Source::of(&with(libc::SIGRTMIN(), libc::SI_QUEUE)), Source::Process);
        assert_eq!(Source::of(&with(libc::SIGINT, libc::SI_KERNEL)), Source::Terminal);
        assert_eq!(Source::of(&with(libc::SIGXCPU, libc::SI_KERNEL)), Source::Ourselves);
        assert_eq!(Source::of(&with(libc::SIGCHLD, libc::CLD_EXITED)), Source::Child);
    }

    #[test]
    fn a_process_descends_from_itself_and_its_parent_but_not_from_a_stranger() {
        let me = std::process::id() as i32;
        assert!(descends_from(me, me));
        assert!(descends_from(me, nix::unistd::getppid().as_raw()));
        assert!(!descends_from(nix::unistd::getppid().as_raw(), me));
        assert!(!seems_stopped(me));
    }
}

//! Stopping every thread of a program from outside.
//!
//! The list of threads is read again after each round until a round finds nobody new: threads may be born while
//! others are being stopped, but only running threads can give birth. Nothing else is read before that, because
//! mappings and descriptors of a program that is still running do not fit together.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::threads;
use crate::error::{Error, Result};
use crate::filtered;
use crate::proc::task;
use crate::ptrace::{Options, Running, Stopped};

/// How long a program may take to stop: a thread in vfork waits for its child, one in an uninterruptible
/// call for its disk.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long another ckpt may hold the program: one that takes a checkpoint of it, or wanted to adopt it and finds that this has
/// been done.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(2);

/// Stops all threads of `pid`; the first one returned is the main thread. When this fails, all go on.
///
/// # Errors
/// [`Error::Traced`] if somebody else traces it, and is none of us or does not let it go.
pub fn stop(pid: i32) -> Result<Vec<Stopped>> {
    as_soon_as_others_let_go(pid, || stop_threads(pid))
}

/// Stops thread `tid` of `pid` for a moment, so that a call that it waits in begins anew.
///
/// # Errors
/// As of [`stop`].
pub fn interrupt(pid: i32, tid: i32) -> Result<()> {
    as_soon_as_others_let_go(pid, || seize(pid, tid)?.wait_for_trap(Instant::now() + STOP_TIMEOUT)?.detach())
}

/// Does what another of us may keep us from for a while, by holding threads of `pid`.
fn as_soon_as_others_let_go<T>(pid: i32, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + OTHERS_TIMEOUT;
    loop {
        let outcome = attempt();
        let was_held_by_us = match &outcome {
            Err(Error::Traced { tracer, .. }) => is_one_of_us_or_gone(*tracer),
            // Nobody was seen: whoever held it had let it go before we looked, or we may not trace it at all.
            Err(Error::Environment { .. }) => may_be_traced(pid),
            _ => false,
        };
        if !was_held_by_us || Instant::now() >= deadline {
            return outcome;
        }
        // Nothing is held while we wait: the other may be waiting for us.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The same for all threads of `pid` but these, which go on.
///
/// # Errors
/// As of [`stop`].
pub fn all_but(pid: i32, others: &[i32]) -> Result<Vec<Stopped>> {
    let (others, stopped): (Vec<_>, Vec<_>) = stop(pid)?.into_iter().partition(|thread| others.contains(&thread.tid()));
    others.into_iter().for_each(let_go);
    Ok(stopped)
}

/// Whether a thread that traces a program executes what we do. One that has ended traces nothing any more.
fn is_one_of_us_or_gone(tracer: i32) -> bool {
    task::executes_what_we_do(tracer) || !std::path::Path::new(&format!("/proc/{tracer}")).exists()
}

/// Whether we have the right to trace `pid`, which it takes to open its memory as well.
fn may_be_traced(pid: i32) -> bool {
    std::fs::File::open(format!("/proc/{pid}/mem")).is_ok()
}

fn tracer_of(pid: i32, tid: i32) -> Option<i32> {
    let status = task::text(pid, &format!("task/{tid}/status")).ok()?;
    task::status_value(&status, "TracerPid")?.parse().ok().filter(|&tracer| tracer != 0)
}

fn stop_threads(pid: i32) -> Result<Vec<Stopped>> {
    let deadline = Instant::now() + STOP_TIMEOUT;
    let mut stopped: Vec<Stopped> = Vec::new();
    match stop_into(pid, deadline, &mut stopped) {
        Ok(()) => {}
        Err(error) => {
            stopped.into_iter().for_each(let_go);
            return Err(error);
        }
    }
    match stopped.iter().position(|thread| thread.tid() == pid) {
        Some(main) => stopped.swap(0, main),
        None => return Err(Error::ProgramGone { pid }),
    }
    stopped[1..].sort_by_key(Stopped::tid);
    Ok(stopped)
}

/// Adds all threads of `pid` to `stopped`. Those that have been seized when this fails are there, too, but for one that does not
/// stop; that one the kernel lets go when the calling thread ends.
fn stop_into(pid: i32, deadline: Instant, stopped: &mut Vec<Stopped>) -> Result<()> {
    loop {
        let mut seized = Vec::new();
        let mut refused = None;
        for tid in task::threads(pid)? {
            if stopped.iter().any(|thread| thread.tid() == tid) || is_kernels_worker(pid, tid) {
                continue;
            }
            match seize(pid, tid) {
                Ok(running) => seized.push(running),
                Err(Error::ThreadGone { .. }) => {}
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        if seized.is_empty() && refused.is_none() {
            return Ok(());
        }
        for running in seized {
            let tid = running.tid();
            match running.wait_for_trap(deadline) {
                Ok(thread) => stopped.push(thread),
                Err(Error::ThreadGone { .. }) => {}
                Err(Error::StopTimeout { .. }) => refused = refused.or_else(|| Some(did_not_stop(pid, tid))),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        if let Some(error) = refused {
            return Err(error);
        }
    }
}

/// Lets a thread go on as if it had not been stopped, but that a time-out begins anew where the stop has broken off its call.
/// One that has been led home goes on there.
pub fn let_go(thread: Stopped) {
    let repaired = || {
        let now = thread.registers()?;
        let is_due = |signals: Vec<_>| threads::mask_of(&signals) & !thread.signal_mask().unwrap_or(0) != 0;
        let signal_is_due = is_due(thread.queued_signals()?) || is_due(thread.queued_process_signals()?);
        if now.broken_by_stop() && !signal_is_due { thread.set_registers(&now.reissuing(true)) } else { Ok(()) }
    };
    if let Err(error) = repaired() {
        log::debug!("letting thread {} go: {error}", thread.tid());
    }
}

fn seize(pid: i32, tid: i32) -> Result<Running> {
    let is_refused = |error: &Error| matches!(error, Error::Ptrace { source: Errno::EPERM, .. });
    let running = match Running::seize(tid, Options::PROGRAM) {
        // Whoever held it may have let it go at this moment.
        Err(error) if is_refused(&error) && tracer_of(pid, tid).is_none() => Running::seize(tid, Options::PROGRAM),
        outcome => outcome,
    };
    let running = running.map_err(|error| if is_refused(&error) { not_permitted(pid, tid) } else { error })?;
    running.interrupt()?;
    Ok(running)
}

/// Finds out why a thread may not be traced.
fn not_permitted(pid: i32, tid: i32) -> Error {
    let Ok(status) = task::text(pid, &format!("task/{tid}/status")) else { return Error::ThreadGone { tid } };
    let value = |name| task::status_value(&status, name).unwrap_or("");
    if value("State").starts_with('Z') || value("State").starts_with('X') {
        if tid == pid {
            return ended(pid);
        }
        return Error::ThreadGone { tid };
    }
    match value("TracerPid").parse::<i32>() {
        Ok(tracer) if tracer != 0 => Error::Traced { pid, tracer },
        _ if filtered::forbids_ptrace() => {
            Error::environment(format!("stopping process {pid}"), "a seccomp filter forbids ptrace", filtered::ALLOW)
        }
        _ => Error::environment(
            format!("stopping process {pid}"),
            "ptrace is not permitted (another user's process, one that changed its user, or Yama's ptrace_scope)",
            "use the program's own user; under Yama start the program with `ckpt run`, or send it the signal",
        ),
    }
}

/// Whether a thread is one of the kernel's that works for the program's io_uring: it executes nothing of the program, and a request
/// that it works for would be interrupted by a stop.
fn is_kernels_worker(pid: i32, tid: i32) -> bool {
    // Its name, which costs less than its flags; others may have one like it.
    if !task::bytes(pid, &format!("task/{tid}/comm")).is_ok_and(|name| name.starts_with(b"iou-")) {
        return false;
    }
    const PF_IO_WORKER: u64 = 0x10;
    const PF_USER_WORKER: u64 = 0x4000;
    let stat = task::stat_fields(pid, &format!("task/{tid}/stat"));
    stat.is_ok_and(|stat| task::stat_number(&stat, 9) & (PF_IO_WORKER | PF_USER_WORKER) != 0)
}

/// What it means that the main thread of `pid` has ended.
pub fn ended(pid: i32) -> Error {
    match task::threads(pid) {
        Ok(threads) if threads.len() > 1 => Error::unsupported(
            format!("process {pid} whose main thread has ended"),
            "the kernel does not let a thread group be rebuilt without its leader",
            "let the main thread wait for the others",
        ),
        _ => Error::ProgramGone { pid },
    }
}

/// Says what the thread that did not stop was doing.
fn did_not_stop(pid: i32, tid: i32) -> Error {
    let read = |file: &str| task::text(pid, &format!("task/{tid}/{file}")).unwrap_or_default();
    let state = task::status_value(&read("status"), "State").unwrap_or("unknown").to_owned();
    let why = match read("wchan").trim() {
        _ if is_vfork(&read("syscall")) => "in vfork, until its child executes a program or ends".to_owned(),
        "" | "0" => format!("state {state}"),
        place => format!("state {state}, waiting in the kernel's {place}"),
    };
    Error::StopTimeout { tid, timeout_ms: STOP_TIMEOUT.as_millis() as u64, why }
}

/// Whether a thread waits for a child that borrows its memory; `syscall` is the file of that name in /proc.
fn is_vfork(syscall: &str) -> bool {
    let mut words = syscall.split_whitespace();
    let number = words.next().and_then(|number| number.parse().ok());
    let flags = words.next().and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    match number {
        // The flags of clone3 are in memory; it waits for nothing else.
        Some(libc::SYS_vfork | libc::SYS_clone3) => true,
        Some(libc::SYS_clone) => flags.is_some_and(|flags| flags & libc::CLONE_VFORK as u64 != 0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering};

    use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};

    use super::*;

    const TIMERS: usize = 3;
    const INTERVAL_NS: i64 = 10_000;

    /// What a process tells of the signals that its timers send it; in memory that we share with it.
    #[derive(Default)]
    struct Seen {
        timers: [Timer; TIMERS],
        /// Signals that did not come from the timer that they should come from.
        strange: AtomicU64,
        /// Threads that are ready.
        ready: AtomicU64,
    }

    #[derive(Default)]
    struct Timer {
        /// When it runs out first, on the monotonic clock.
        start_ns: AtomicI64,
        /// How often it has run out, as its signals say.
        times: AtomicI64,
        /// By how much that has been less, at least, than it should be by the clock.
        behind: AtomicI64,
    }

    static SEEN: AtomicPtr<Seen> = AtomicPtr::new(std::ptr::null_mut());

    fn now_ns() -> i64 {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: clock_gettime writes one timespec to `now`.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
        now.tv_sec * 1_000_000_000 + now.tv_nsec
    }

    extern "C" fn count(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the child has set it before it has timers, and it is there for ever.
        let seen = unsafe { &*SEEN.load(Ordering::Relaxed) };
        // SAFETY: the kernel hands a siginfo_t to the handler; that of a timer has its overrun in the sixth word.
        let (info, overrun) = unsafe { (&*info, info.cast::<i32>().add(5).read()) };
        // SAFETY: all bytes are there, whatever they are.
        let number = unsafe { info.si_value() }.sival_ptr as usize;
        if info.si_code != libc::SI_TIMER || info.si_signo != libc::SIGRTMIN() + number as i32 || number >= TIMERS {
            seen.strange.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let timer = &seen.timers[number];
        let times = timer.times.fetch_add(1 + i64::from(overrun), Ordering::Relaxed) + 1 + i64::from(overrun);
        let due = (now_ns() - timer.start_ns.load(Ordering::Relaxed)) / INTERVAL_NS + 1;
        timer.behind.fetch_min(due - times, Ordering::Relaxed);
    }

    /// Gives the calling thread a timer, whose signals are for it alone unless it is the first one.
    fn start_timer(seen: &Seen, number: usize) {
        // SAFETY: integers, pointers and functions that may be none, for which zero is a value; the calls are given what they
        // expect, of which they keep nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = count as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(libc::SIGRTMIN() + number as i32, &action, std::ptr::null_mut());
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = if number == 0 { libc::SIGEV_SIGNAL } else { libc::SIGEV_THREAD_ID };
            event.sigev_notify_thread_id = libc::gettid();
            event.sigev_signo = libc::SIGRTMIN() + number as i32;
            event.sigev_value.sival_ptr = number as *mut libc::c_void;
            let mut timer: libc::timer_t = std::mem::zeroed();
            libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer);
            let start = now_ns() + 1_000_000;
            seen.timers[number].start_ns.store(start, Ordering::Relaxed);
            let first = libc::timespec { tv_sec: start / 1_000_000_000, tv_nsec: start % 1_000_000_000 };
            let it_interval = libc::timespec { tv_sec: 0, tv_nsec: INTERVAL_NS };
            let times = libc::itimerspec { it_interval, it_value: first };
            libc::timer_settime(timer, libc::TIMER_ABSTIME, &times, std::ptr::null_mut());
        }
        seen.ready.fetch_add(1, Ordering::Relaxed);
    }

    /// A process of ours, with as many threads as `timers_of` has entries, each of which has so many timers.
    struct Child {
        pid: i32,
        seen: &'static Seen,
    }

    impl Child {
        fn start(timers_of: &[usize]) -> Child {
            let bytes = std::num::NonZeroUsize::new(size_of::<Seen>()).expect("it is not empty");
            let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
            // SAFETY: a new mapping at an address that the kernel chooses; it stays. Zeroes are a `Seen`.
            let seen: &'static Seen = unsafe {
                mmap_anonymous(None, bytes, protection, MapFlags::MAP_SHARED)
                    .expect("some memory")
                    .cast::<Seen>()
                    .as_ref()
            };
            let timers: usize = timers_of.iter().sum();
            // SAFETY: the child does nothing that a lock of ours could keep it from: the C library sees to its own.
            let pid = match unsafe { libc::fork() } {
                0 => live(seen, timers_of),
                pid => pid,
            };
            assert!(pid > 0, "no child");
            let child = Child { pid, seen };
            let deadline = Instant::now() + Duration::from_secs(10);
            while seen.ready.load(Ordering::Relaxed) < (timers + timers_of.len()) as u64 {
                assert!(Instant::now() < deadline, "the child is not ready");
                std::thread::sleep(Duration::from_millis(1));
            }
            child
        }

        fn stop_and_let_go(&self, times: u32, pause: Duration) {
            for time in 0..times {
                let threads = stop(self.pid).unwrap_or_else(|error| panic!("stop {time}: {error}"));
                threads.into_iter().for_each(let_go);
                std::thread::sleep(pause);
            }
        }
    }

    fn live(seen: &'static Seen, timers_of: &[usize]) -> ! {
        // SAFETY: it takes integers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        SEEN.store(std::ptr::from_ref(seen).cast_mut(), Ordering::Relaxed);
        let work = |is_main: bool, first: usize, timers: usize| {
            (first..first + timers).for_each(|number| start_timer(seen, number));
            seen.ready.fetch_add(1, Ordering::Relaxed);
            loop {
                // One thread works, where there are timers; the others wait.
                if is_main && timers > 0 {
                    (0..1000).for_each(|_| std::hint::spin_loop());
                } else {
                    // SAFETY: it takes nothing.
                    unsafe { libc::pause() };
                }
            }
        };
        let mut first = timers_of[0];
        for &timers in &timers_of[1..] {
            std::thread::spawn(move || work(false, first, timers));
            first += timers;
        }
        work(true, 0, timers_of[0])
    }

    impl Drop for Child {
        fn drop(&mut self) {
            // SAFETY: they take numbers; the child is ours and has not been waited for. A thread that did not stop is still traced by
            // this thread, and the child has not ended before that has been waited for, too.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                while libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL | libc::__WNOTHREAD) > 0 {}
            }
        }
    }

    /// Stops `child` so often, and sees that each of its timers has run out as often as its signals say.
    fn no_signal_is_lost(child: &Child, timers: usize, stops: u32) {
        child.stop_and_let_go(stops, Duration::ZERO);
        let timers = &child.seen.timers[..timers];
        timers.iter().for_each(|timer| timer.behind.store(i64::MAX, Ordering::Relaxed));
        // As soon as each handler has run once without being interrupted between two looks at a clock.
        let deadline = Instant::now() + Duration::from_secs(20);
        while timers.iter().any(|timer| timer.behind.load(Ordering::Relaxed) >= 50) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(child.seen.strange.load(Ordering::Relaxed), 0, "signals that came from elsewhere");
        for (number, timer) in timers.iter().enumerate() {
            let behind = timer.behind.load(Ordering::Relaxed);
            assert!((-1..50).contains(&behind), "timer {number} is {behind} signals behind");
        }
    }

    fn stops() -> u32 {
        std::env::var("CKPT_TEST_STOPS").ok().and_then(|stops| stops.parse().ok()).unwrap_or(2000)
    }

    #[test]
    fn a_process_whose_timer_sends_signals_without_end_stops_each_time() {
        no_signal_is_lost(&Child::start(&[1]), 1, stops());
    }

    #[test]
    fn threads_whose_timers_send_signals_without_end_stop_each_time() {
        no_signal_is_lost(&Child::start(&[2, 1, 0]), 3, stops());
    }

    #[test]
    fn two_that_stop_it_again_and_again_do_not_disturb_each_other() {
        let child = Child::start(&[0, 0, 0]);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| child.stop_and_let_go(500, Duration::from_micros(500)));
            }
        });
    }

    #[test]
    fn who_interrupts_one_of_its_threads_waits_until_another_of_us_has_let_it_go() {
        let child = Child::start(&[0]);
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while done.load(Ordering::Acquire) == 0 {
                    child.stop_and_let_go(1, Duration::from_micros(100));
                }
            });
            let failed = (0..300).find_map(|_| interrupt(child.pid, child.pid).err());
            done.store(1, Ordering::Release);
            assert!(failed.is_none(), "{}", failed.map(|error| error.to_string()).unwrap_or_default());
        });
    }

    #[test]
    fn a_process_that_another_traces_is_refused_with_its_tracer() {
        let child = Child::start(&[0]);
        let (ready, tracer) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _held = stop(child.pid).unwrap();
                // SAFETY: it takes nothing.
                tracer.store(unsafe { libc::gettid() } as u64, Ordering::Relaxed);
                ready.store(1, Ordering::Release);
                while ready.load(Ordering::Acquire) == 1 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            while ready.load(Ordering::Acquire) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let refused = stop(child.pid);
            ready.store(2, Ordering::Release);
            let error = refused.expect_err("it is held for longer than we wait").to_string();
            let tracer = tracer.load(Ordering::Relaxed);
            assert!(error.contains(&format!("process {tracer} is tracing it")), "{error}");
        });
        child.stop_and_let_go(1, Duration::ZERO);
    }

    #[test]
    fn vfork_is_known_in_all_its_forms() {
        for waits in ["58 0x1 0x2\n", "435 0x7ffc0 0x58", "56 0x4111 0x7f00"] {
            assert!(is_vfork(waits), "{waits}");
        }
        for other in ["56 0x11 0x7f00", "0 0x4111 0x7f00", "running", ""] {
            assert!(!is_vfork(other), "{other}");
        }
    }
}

//! Kernel state in situations of its own; what every program has is in the table of kept_state.rs.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use ckpt_tests::exact::{How, Trigger, assert_same, reference, survives, survives_once};
use ckpt_tests::system_v;
use ckpt_tests::{Launch, Life, Program, Restart, Scene, Stdout, checkpoint, code_of, processes};
use nix::fcntl::{FcntlArg, Flock, FlockArg, fcntl};

/// Locks the file at `path` as somebody else, until the file is dropped.
fn locked_by_us(path: &Path) -> File {
    let file = File::options().read(true).write(true).open(path).expect("the victim has made it");
    let all = libc::flock { l_type: libc::F_WRLCK as i16, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
    fcntl(&file, FcntlArg::F_OFD_SETLK(&all)).expect("nobody has locked it");
    file
}

#[test]
fn a_program_that_waits_for_a_lock_goes_on_waiting() {
    let scene = Scene::new();
    let program = Program::victim("locks").argument("30").argument("waits").input("waited", *b"");
    let expected = reference(&scene, &program);
    let held = |life: &str| {
        let path = scene.folder(life).join("waited");
        File::create(&path).expect("a file in the scene");
        locked_by_us(&path)
    };
    let lock = held("life");
    let first = Life::until_checkpoint(&scene, "life", &Program { inputs: Vec::new(), ..program.clone() }, 10);
    let mut second = Restart::of(first.store()).begin(&scene, &first.directory, first.pid);
    second.output.wait_for_lines(expected.lines() - 1);
    assert!(second.try_wait().is_none(), "it waits for the lock");
    drop(lock);
    assert_eq!(code_of(second.wait()), 7, "{}", second.errors());
    assert_same(&second.output.bytes(), &expected.stdout, "the output of both lives");
}

#[test]
fn a_lock_that_somebody_else_has_taken_is_refused_with_its_holder() {
    let scene = Scene::new();
    let first = Life::until_checkpoint(&scene, "life", &Program::victim("locks"), 10);
    let before = std::fs::read(first.directory.join("stdout")).expect("the program's output");
    for file in ["ranges", "described", "whole", "shared"] {
        let path = first.directory.join(file);
        let flocked = matches!(file, "whole" | "shared").then(|| {
            let file = File::open(&path).expect("the victim has made it");
            Flock::lock(file, FlockArg::LockExclusive).expect("nobody has locked it")
        });
        let ranges = flocked.is_none().then(|| locked_by_us(&path));
        let mut refused = Restart::of(first.store()).spawn(&scene, &first.directory);
        assert_eq!(code_of(refused.wait()), 125, "{file}: {}", refused.errors());
        let holder = format!("{} is locked by process {} (", path.display(), std::process::id());
        assert!(refused.errors().contains(&holder), "{holder} is missing: {}", refused.errors());
        assert_eq!(std::fs::read(first.directory.join("stdout")).expect("still there"), before, "nothing has changed");
        drop((flocked, ranges));
    }
    let mut second = Restart::of(first.store()).begin(&scene, &first.directory, first.pid);
    assert_eq!(code_of(second.wait()), 7, "{}", second.errors());
}

#[test]
fn rights_that_were_given_up_stay_given_up() {
    survives_once(&Program::victim("rights"), 20);
}

#[test]
fn what_proc_had_of_another_program_leads_to_it_after_a_restart_until_it_is_gone() {
    let scene = Scene::new();
    let mut another = Command::new("sleep").arg("600").spawn().expect("sleep");
    let program = Program::victim("of_processes").argument("60").argument(another.id().to_string());
    let life = Life::until_checkpoint(&scene, "life", &program, 8);
    let goes_on = || {
        let mut restarted = Restart::of(life.store()).begin(&scene, &life.directory, life.pid);
        assert_eq!(code_of(restarted.wait()), 7, "{}", restarted.output.text());
        restarted.output.text()
    };
    let printed = goes_on();
    assert!(!printed.contains("is gone"), "{printed}");
    another.kill().expect("it is ours");
    another.wait().expect("it is ours");
    let printed = goes_on();
    assert!(printed.contains("step 60: the other program is gone"), "{printed}");
}

#[test]
fn memory_that_a_child_would_not_inherit_comes_back_zeroed() {
    let scene = Scene::new();
    let program = Program::victim("mappings").argument("60").argument("wiped");
    let life = Life::until_checkpoint(&scene, "life", &program, 10);
    let mut second = Restart::of(life.store()).begin(&scene, &life.directory, life.pid);
    assert_eq!(code_of(second.wait()), 7, "{}", second.errors());
    assert!(second.output.text().contains("wiped 1"), "{}", second.output.text());
}

/// Queues real-time signals with the values 0, 1, 2 ... until `over`, then one with [`LAST`]; gives how many.
///
/// Never many at once: the queue has a limit that all programs of a user share.
fn queue_until(over: &AtomicBool, pid: i32, signal: i32) -> i32 {
    const AT_ONCE: i32 = 32;
    let mut next = 0;
    while !over.load(Ordering::Relaxed) {
        for _ in 0..AT_ONCE {
            queue(pid, signal, next);
            next += 1;
        }
        while !over.load(Ordering::Relaxed) && is_pending(pid, signal) {
            std::thread::yield_now();
        }
    }
    queue(pid, signal, LAST);
    next
}

const LAST: i32 = i32::MAX;

fn queue(pid: i32, signal: i32, value: i32) {
    let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(value as usize) };
    // SAFETY: sigqueue takes numbers and a value that it does not follow.
    let answer = unsafe { libc::sigqueue(pid, signal, value) };
    assert_eq!(answer, 0, "queueing a signal for {pid}: {}", nix::errno::Errno::last());
}

/// Whether `signal` waits for the process as a whole.
fn is_pending(pid: i32, signal: i32) -> bool {
    let pending = processes::status_field(pid, "ShdPnd").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    pending.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Tells the sender when the test is over, also by failing.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn signals_from_another_process_all_arrive_in_order_while_checkpoints_are_taken() {
    let scene = Scene::new();
    let program = Program::victim("signal_storm").argument("20").argument("queued");
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("ready");
    let (pid, signal) = (life.pid, libc::SIGRTMIN() + 3);
    let over = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| queue_until(&over, pid, signal));
        let ending = Over(&over);
        for _ in 0..20 {
            checkpoint(&scene, pid);
        }
        drop(ending);
        sender.join().expect("the sender does not panic")
    });
    assert_eq!(code_of(life.wait()), 7, "{}", life.output.text());
    let expected = format!("received {sent} in order, 0 out of order");
    assert!(life.output.text().contains(&expected), "{expected}:\n{}", life.output.text());
}

#[test]
fn a_program_that_uses_sigusr1_itself_is_checkpointed_by_command() {
    survives_once(&Program::victim("self_usr1"), 20);
}

/// What one process of a job sends to another is the program's; from outside it asks for a checkpoint.
#[test]
fn a_program_that_ends_its_children_by_sigusr1_goes_on() {
    let scene = Scene::new();
    let program = Program::victim("sent_inside");
    let reference = reference(&scene, &program);
    survives(&scene, &program, How { trigger: Trigger::Signal, ..How::usual() }, 20, &reference);
}

#[test]
fn a_signal_inside_the_job_takes_no_checkpoint() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &Program::victim("sent_inside").argument("20"));
    assert_eq!(code_of(life.wait()), 7, "{}", life.output.text());
    assert!(!life.store().path().exists() || life.store().sealed(&scene).is_empty());
}

#[test]
fn a_program_without_descriptors_survives() {
    let scene = Scene::new();
    for kind in ["none", "full"] {
        let program = Program::victim("no_fds").argument("60").argument(kind).writes("lines");
        let mut first = Life::start(&scene, kind, &program, &Launch::Preload, Stdout::Pipe);
        let lines = first.directory.join("lines");
        let output = ckpt_tests::output::Output::File(lines);
        output.wait_for_lines(20);
        checkpoint(&scene, first.pid);
        output.wait_for_more_lines(3);
        first.kill();
        let mut second = Restart::of(first.store()).begin(&scene, &first.directory, first.pid);
        assert_eq!(code_of(second.wait()), 7, "{kind}: {}", second.errors());
        assert_eq!(output.lines(), 62, "ready, 60 steps and verified");
        assert!(output.text().trim_end().ends_with("verified"), "{}", output.text());
    }
}

#[test]
fn calls_that_wait_do_not_notice_a_checkpoint_by_command() {
    let scene = Scene::new();
    let _objects = system_v::Objects::of(&scene);
    let program = Program::victim("blocked_calls").argument("120");
    let reference = reference(&scene, &program);
    let over = scene.path().join("over");
    let mut life = Life::preloaded(&scene, "many", &program.waiting(100, &over));
    for line in [5, 20, 35, 50, 65, 80] {
        life.output.wait_for_lines(line);
        checkpoint(&scene, life.pid);
    }
    std::fs::write(over, "").expect("a file in the scene");
    assert_eq!(code_of(life.wait()), reference.code, "{}", life.output.text());
    assert_same(&life.output.bytes(), &reference.stdout, "the table after six checkpoints");
}

#[test]
fn calls_that_two_checkpoints_have_stopped_are_issued_again_after_a_restart() {
    let scene = Scene::new();
    let _objects = system_v::Objects::of(&scene);
    let program = Program::victim("blocked_calls").argument("120");
    let reference = reference(&scene, &program);
    let over = scene.path().join("over");
    let mut life = Life::preloaded(&scene, "life", &program.waiting(100, &over));
    life.output.wait_for_lines(40);
    // One behind the other, most calls of both are the same.
    for _ in 0..4 {
        checkpoint(&scene, life.pid);
    }
    std::fs::write(over, "").expect("a file in the scene");
    life.kill();
    let mut second = Restart::of(life.store()).begin(&scene, &life.directory.clone(), life.pid);
    assert_eq!(code_of(second.wait()), reference.code, "{}", second.output.text());
    assert_same(&second.output.bytes(), &reference.stdout, "the table after four checkpoints and a restart");
}

#[test]
fn calls_that_wait_do_not_notice_automatic_checkpoints() {
    let scene = Scene::new();
    let _objects = system_v::Objects::of(&scene);
    let program = Program::victim("blocked_calls").argument("150");
    let reference = reference(&scene, &program);
    let run = Launch::Run(vec!["--interval".to_owned(), "1s".to_owned()]);
    let mut life = Life::start(&scene, "interval", &program, &run, Stdout::File);
    assert_eq!(code_of(life.wait()), reference.code, "{}", life.output.text());
    assert_same(&life.output.bytes(), &reference.stdout, "the table after automatic checkpoints");
    assert!(!life.store().sealed(&scene).is_empty(), "no automatic checkpoint was taken in 3 seconds");
}

#[test]
fn calls_that_wait_do_not_notice_checkpoints_that_the_program_asks_for() {
    let scene = Scene::new();
    let program = Program::victim("blocked_calls").argument("120").argument("asks");
    let reference = reference(&scene, &program);
    let mut life = Life::preloaded(&scene, "asks", &program);
    assert_eq!(code_of(life.wait()), reference.code, "{}", life.output.text());
    assert_same(&life.output.bytes(), &reference.stdout, "the table after checkpoints that it asked for");
    assert!(life.store().sealed(&scene).len() >= 3, "it has asked six times");
}

#[test]
fn calls_that_wait_are_issued_again_after_a_restart() {
    let scene = Scene::new();
    let _objects = system_v::Objects::of(&scene);
    let program = Program::victim("blocked_calls").argument("120");
    survives(&scene, &program, How::usual(), 40, &reference(&scene, &program));
}

/// The calls that a checkpoint triggered by signal may interrupt, because the trigger's handler runs in the thread
/// that makes them: signal(7), "Interruption of system calls". Everything else goes on.
const INTERRUPTED_BY_A_SIGNAL: [&str; 17] = [
    "nanosleep",
    "clock_nanosleep",
    "clock_nanosleep_absolute",
    "usleep",
    "poll",
    "ppoll",
    "select",
    "pselect",
    "epoll_wait",
    "epoll_pwait2",
    "futex_timeout",
    "sem_timedwait",
    "sigtimedwait",
    "clock_nanosleep_realtime",
    "futex_bitset",
    "sem_clockwait",
    "semtimedop",
];

/// Such calls that it does not.
const NOT_INTERRUPTED_BY_A_SIGNAL: [&str; 2] = ["pthread_cond_timedwait", "read_timerfd"];

#[test]
fn a_checkpoint_by_signal_interrupts_only_the_listed_calls() {
    let scene = Scene::of_at_most(std::time::Duration::from_secs(120));
    let _objects = system_v::Objects::of(&scene);
    let calls = INTERRUPTED_BY_A_SIGNAL.into_iter().chain(NOT_INTERRUPTED_BY_A_SIGNAL);
    for call in calls {
        let program = Program::victim("blocked_calls").argument("30").argument(format!("only:{call}"));
        let over = scene.path().join(format!("{call}-over"));
        let mut life = Life::preloaded(&scene, call, &program.waiting(29, &over));
        life.output.wait_for_lines(4);
        ckpt_tests::exact::take(&scene, &life, Trigger::Signal);
        std::fs::write(over, "").expect("a file in the scene");
        assert_eq!(code_of(life.wait()), 7, "{}", life.output.text());
        let text = life.output.text();
        let interrupted = text.lines().filter(|line| line.ends_with("interrupted")).count();
        let wrong = text.lines().filter(|line| line.contains("wrong") || line.contains("early")).count();
        assert_eq!(wrong, 0, "{call}:\n{text}");
        assert!(interrupted <= 1, "{call} was interrupted {interrupted} times by one signal");
        let listed = INTERRUPTED_BY_A_SIGNAL.contains(&call);
        assert!(listed || interrupted == 0, "{call} was interrupted and is not listed");
    }
}

#[test]
fn a_checkpoint_by_command_interrupts_no_call_at_all() {
    let scene = Scene::of_at_most(std::time::Duration::from_secs(120));
    let _objects = system_v::Objects::of(&scene);
    for call in INTERRUPTED_BY_A_SIGNAL.into_iter().chain(NOT_INTERRUPTED_BY_A_SIGNAL) {
        let program = Program::victim("blocked_calls").argument("30").argument(format!("only:{call}"));
        let over = scene.path().join(format!("{call}-over"));
        let mut life = Life::preloaded(&scene, call, &program.waiting(25, &over));
        for line in [4, 8, 12] {
            life.output.wait_for_lines(line);
            checkpoint(&scene, life.pid);
        }
        std::fs::write(over, "").expect("a file in the scene");
        assert_eq!(code_of(life.wait()), 7, "{}", life.output.text());
        assert!(!life.output.text().contains("interrupted"), "{call}:\n{}", life.output.text());
    }
}

#[test]
fn a_program_stopped_by_sigstop_is_checkpointed_and_stays_stopped() {
    use nix::sys::signal::Signal;
    let scene = Scene::new();
    let program = Program::victim("churn").argument("200");
    let reference = reference(&scene, &program);
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(10);
    processes::send(life.pid, Signal::SIGSTOP);
    processes::wait_until("it stops", std::time::Duration::from_secs(5), || processes::is_stopped(life.pid));
    checkpoint(&scene, life.pid);
    processes::wait_until("it is stopped as before", std::time::Duration::from_secs(5), || {
        processes::thread_states(life.pid).iter().all(|&state| state == 'T')
    });
    processes::send(life.pid, Signal::SIGCONT);
    assert_eq!(code_of(life.wait()), reference.code);
    assert_same(&life.output.bytes(), &reference.stdout, "the output");
}

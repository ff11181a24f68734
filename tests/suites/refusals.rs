//! State that is not supported is refused by name and number, with exit code 4, and the program runs on.

use ckpt_tests::exact::{assert_same, reference};
use ckpt_tests::{Ckpt, Life, Program, Scene, code_of, processes, skip};

/// Runs the victim that holds `kind`, tries a checkpoint by command and one by signal, and lets it end.
fn is_refused(kind: &str) {
    let scene = Scene::new();
    let program = Program::victim("refused").argument("40").argument(kind);
    let expected = reference(&scene, &program);
    if expected.code == 77 {
        return skip(String::from_utf8_lossy(&expected.stdout).trim());
    }
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(5);
    let text = life.output.text();
    let number = text.lines().next().and_then(|line| line.rsplit(' ').next()).expect("holds KIND NUMBER").to_owned();

    let answer = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).call().failed_with(4);
    assert_eq!(answer.stdout, "", "a refusal prints no id");
    assert!(answer.stderr.contains(&number), "the refusal of {kind} does not name {number}: {}", answer.stderr);
    assert_eq!(answer.stderr.trim_end().lines().count(), 1, "a message is one line: {}", answer.stderr);

    processes::send(life.pid, nix::sys::signal::Signal::SIGUSR1);
    let failed = || life.store().rows(&scene).into_iter().filter(|row| row.state == "failed").collect::<Vec<_>>();
    let limit = std::time::Duration::from_secs(10);
    processes::wait_until("the refusal by signal is a row of the list", limit, || failed().len() >= 2);
    for row in failed() {
        assert!(row.reason.contains(&number), "the reason does not name {number}: {row:?}");
    }
    assert!(!processes::is_stopped(life.pid), "a refused program runs on");
    assert_eq!(code_of(life.wait()), expected.code, "{}", life.output.text());
    let pids_differ = matches!(kind, "child" | "zombie" | "shm");
    let (found, wanted) = (life.output.bytes(), expected.stdout);
    if pids_differ {
        let rest = |bytes: &[u8]| bytes.iter().position(|&byte| byte == b'\n').map(|end| bytes[end..].to_vec());
        assert_eq!(rest(&found), rest(&wanted), "{kind}");
    } else {
        assert_same(&found, &wanted, kind);
    }
    assert_eq!(life.errors(), "", "nothing is written to the program's own stderr");
}

macro_rules! refused {
    ($($test:ident: $kind:literal,)*) => { $(
        #[test]
        fn $test() {
            is_refused($kind);
        }
    )* };
}

refused! {
    a_network_socket_is_refused: "socket",
    a_pair_of_unix_sockets_is_refused: "socketpair",
    a_living_child_is_refused: "child",
    a_child_that_was_not_waited_for_is_refused: "zombie",
    a_timerfd_is_refused: "timerfd",
    an_inotify_descriptor_is_refused: "inotify",
    a_signalfd_is_refused: "signalfd",
    a_pidfd_is_refused: "pidfd",
    a_userfaultfd_is_refused: "userfaultfd",
    a_memfd_descriptor_is_refused: "memfd",
    a_posix_timer_is_refused: "posix_timer",
    system_v_shared_memory_is_refused: "shm",
    a_locked_file_is_refused: "flock",
    a_deleted_file_is_refused: "deleted",
    an_io_uring_is_refused: "io_uring",
    a_fifo_is_refused: "fifo",
    the_master_side_of_a_terminal_is_refused: "terminal",
    a_message_queue_is_refused: "mqueue",
}

#[test]
fn a_traced_program_is_refused_with_the_tracers_name() {
    let scene = Scene::new();
    let program = Program::victim("churn").argument("200");
    let life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(3);
    // This test is the tracer: attached, and letting it run.
    let pid = nix::unistd::Pid::from_raw(life.pid);
    nix::sys::ptrace::seize(pid, nix::sys::ptrace::Options::empty()).expect("it is our child");
    let answer = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).call().failed_with(5);
    assert!(answer.stderr.contains("trace"), "{}", answer.stderr);
    life.output.wait_for_more_lines(3);
}

#[test]
fn a_program_without_libckpt_is_refused() {
    let scene = Scene::new();
    let program = Program::victim("churn").argument("100");
    let life = Life::start(&scene, "life", &program, &ckpt_tests::Launch::Plain, ckpt_tests::Stdout::File);
    life.output.wait_for_lines(3);
    let answer = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).call().failed_with(5);
    assert!(answer.stderr.contains("LD_PRELOAD"), "{}", answer.stderr);
    life.output.wait_for_more_lines(3);
}

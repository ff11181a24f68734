//! State that is not supported is refused by name and number, with exit code 4, and the program runs on.

use ckpt_tests::exact::{Trigger, assert_same, reference};
use ckpt_tests::ordinary_user::as_ordinary_user;
use ckpt_tests::{Ckpt, Life, Program, Scene, checkpoint, code_of, processes, skip};
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::time::Duration;

/// Runs the victim that holds `kind`, tries a checkpoint by command and one by signal, and lets it end.
fn is_refused(kind: &str, why: &str) {
    is_refused_at(kind, why, &[Trigger::Command, Trigger::Signal]);
}

fn is_refused_at(kind: &str, why: &str, triggers: &[Trigger]) {
    victim_is_refused("refused", kind, why, triggers);
}

/// The same for a thread that waits in a call on `kind`, which must not notice.
fn is_refused_while_a_call_waits(kind: &str, why: &str) {
    victim_is_refused("refused_calls", kind, why, &[Trigger::Command, Trigger::Signal]);
}

fn victim_is_refused(victim: &str, kind: &str, why: &str, triggers: &[Trigger]) {
    let scene = Scene::new();
    let program = Program::victim(victim).argument("40").argument(kind);
    let expected = reference(&scene, &program);
    if expected.code == 77 {
        return skip(String::from_utf8_lossy(&expected.stdout).trim());
    }
    let refused = scene.path().join("refused");
    let patient = program.waiting(20, &refused);
    let mut life = Life::preloaded(&scene, "life", &patient);
    life.output.wait_for_lines(5);
    let text = life.output.text();
    let word = text.lines().next().and_then(|line| line.rsplit(' ').next()).expect("holds KIND WORD").to_owned();

    let answer = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).call().failed_with(4);
    assert_eq!(answer.stdout, "", "a refusal prints no id");
    assert!(answer.stderr.contains(&word), "the refusal of {kind} does not name {word}: {}", answer.stderr);
    assert!(answer.stderr.contains(why), "the refusal of {kind} does not say {why:?}: {}", answer.stderr);
    assert_eq!(answer.stderr.trim_end().lines().count(), 1, "a message is one line: {}", answer.stderr);

    if triggers.contains(&Trigger::Signal) {
        processes::send(life.pid, Signal::SIGUSR1);
    }
    let failed = || life.store().rows(&scene).into_iter().filter(|row| row.state == "failed").collect::<Vec<_>>();
    let limit = Duration::from_secs(10);
    processes::wait_until("each refusal is a row of the list", limit, || failed().len() >= triggers.len());
    for row in failed() {
        assert!(row.reason.contains(&word) && row.reason.contains(why), "{word} or {why:?} is missing: {row:?}");
    }
    assert!(!processes::is_stopped(life.pid), "a refused program runs on");
    std::fs::write(refused, "").expect("a file in the scene");
    assert_eq!(code_of(life.wait()), expected.code, "{}", life.output.text());
    // The first line has numbers of processes and addresses, which differ.
    let rest =
        |bytes: &[u8]| bytes.iter().position(|&byte| byte == b'\n').map_or(Vec::new(), |end| bytes[end..].to_vec());
    assert_same(&rest(&life.output.bytes()), &rest(&expected.stdout), kind);
    assert_eq!(life.errors(), "", "nothing is written to the program's own stderr");
}

#[test]
fn an_ordinary_users_full_connection_is_refused() {
    as_ordinary_user(&["refused"], &[], || is_refused("full_connection", "because the other end is full"));
}

#[test]
fn an_ordinary_users_seccomp_filter_is_refused() {
    as_ordinary_user(&["refused"], &[], || is_refused("seccomp", "a seccomp filter that the program has added"));
}

#[test]
fn a_seccomp_filter_that_asks_another_process_is_refused() {
    is_refused_at("asking_filter", "a seccomp filter that asks another process", &[Trigger::Command]);
}

macro_rules! refused {
    ($how:ident: $($test:ident: $kind:literal, $why:literal;)*) => { $(
        #[test]
        fn $test() {
            $how($kind, $why);
        }
    )* };
}

refused! { is_refused:
    a_socket_whose_path_may_begin_at_another_root_is_refused: "other_root", "from which root its path leads";
    a_packet_socket_with_a_ring_is_refused: "packet_ring", "its packets are in a ring";
    a_filter_in_ebpf_is_refused: "ebpf_filter", "it has a filter in eBPF";
    what_was_sent_before_it_was_accepted_is_refused: "unaccepted", "to a connection that has not been accepted yet";
    a_child_that_shares_its_memory_is_refused: "sharing_child", "which shares its memory with process";
    a_process_that_shares_its_directory_with_another_than_its_parent_is_refused: "sharing_cousin", "which shares its directories and umask with process";
    a_thread_with_descriptors_for_itself_is_refused: "thread_with_descriptors", "with a descriptor table for itself (unshare)";
    a_thread_with_a_directory_for_itself_is_refused: "thread_with_directory", "with a working directory and umask for itself (unshare)";
    a_fanotify_group_that_is_asked_for_its_leave_is_refused: "asked_for_leave", "it is asked for its leave to open files";
    an_inotify_descriptor_with_unread_events_is_refused: "inotify", "events are queued in it that nobody has read yet";
    a_netlink_socket_with_an_unread_answer_is_refused: "netlink", "the kernel has told something in it";
    a_pidfd_of_another_program_is_refused: "pidfd", "which is not in the job";
    a_userfaultfd_is_refused: "userfaultfd", "this kind of object is not captured yet";
    a_posix_timer_over_the_time_of_a_thread_is_refused: "posix_timer", "the processor time of one thread";
    a_flood_of_queued_signals_is_refused: "flood", "more than 8192 queued signals";
    a_file_that_proc_has_of_a_thread_is_refused: "thread_file", "of a thread other than the main one";
    a_file_that_proc_has_of_a_descriptor_is_refused: "descriptor_file", "behind the descriptor";
    an_io_uring_with_a_request_that_waits_for_a_file_is_refused: "busy_io_uring", "requests may be under way in it";
    an_io_uring_with_a_request_that_waits_for_a_time_is_refused: "timing_io_uring", "requests may be under way in it";
    an_io_uring_that_the_kernel_polls_is_refused: "polled_io_uring", "IORING_SETUP_SQPOLL";
    an_io_uring_of_one_thread_alone_is_refused: "single_io_uring", "IORING_SETUP_SINGLE_ISSUER";
    an_io_uring_with_an_eventfd_is_refused: "io_uring_with_eventfd", "an eventfd is registered with it";
    an_io_uring_with_buffers_is_refused: "io_uring_with_buffers", "buffers are registered with it";
    an_io_uring_that_a_thread_has_registered_is_refused: "registered_io_uring", "IORING_REGISTER_RING_FDS";
    an_io_uring_without_a_descriptor_is_refused: "closed_io_uring", "no descriptor leads to it any more";
    an_io_uring_whose_requests_nobody_has_mapped_is_refused: "unmapped_io_uring", "has its requests mapped";
    a_fifo_to_another_process_is_refused: "fifo", "is open in a process outside the job";
    a_terminal_that_somebody_outside_works_at_is_refused: "terminal", "is used by process";
    a_message_queue_that_notifies_is_refused: "mqueue_notify", "mq_notify";
    an_open_device_is_refused: "device", "the device keeps state of its own";
    an_epoll_set_that_watches_a_closed_descriptor_is_refused: "epoll", "which has been closed or replaced";
    a_protection_key_is_refused: "protection_key", "memory protection keys are not captured yet";
    memory_whose_page_faults_another_process_handles_is_refused: "faults", "handles its page faults by a userfaultfd";
    a_segment_of_huge_pages_is_refused: "huge_segment", "System V segments of huge pages (hugetlbfs) are not captured yet";
    secure_bits_are_refused: "secure_bits", "capabilities under secure bits are not restored yet";
    another_mount_namespace_is_refused: "mount_namespace", "in another mnt namespace";
    another_ipc_namespace_is_refused: "ipc_namespace", "in another ipc namespace";
    a_time_namespace_for_children_is_refused: "time_namespace", "a time namespace that it has made for its children";
}

refused! { is_refused_while_a_call_waits:
    io_getevents_goes_on: "io_getevents", "does not tell whether requests of asynchronous I/O (io_setup) are under way";
    io_uring_enter_goes_on: "io_uring_enter", "has its requests mapped";
    a_call_of_a_process_that_is_stopped_before_another_is_refused_goes_on: "sharing_child", "which shares its memory";
}

#[test]
fn a_thread_with_deadlines_is_refused() {
    // Such a thread may not clone, so a signal starts no ckpt.
    is_refused_at("deadline", "under SCHED_DEADLINE", &[Trigger::Command]);
}

#[test]
fn a_main_thread_that_has_ended_is_refused() {
    // Its memory cannot be reached through its pid any more, so nobody knows its store: there is no row.
    let scene = Scene::new();
    let program = Program::victim("refused").argument("40").argument("leaderless");
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(5);
    let answer = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).call().failed_with(4);
    assert!(answer.stderr.contains(&format!("process {} whose main thread has ended", life.pid)), "{}", answer.stderr);
    assert_eq!(code_of(life.wait()), 7, "{}", life.output.text());
}

/// A life with a thread in vfork, and where it is told what its child is to do.
fn with_a_vfork<'scene>(scene: &'scene Scene) -> (Life<'scene>, impl Fn(&str)) {
    let over = scene.path().join("over");
    let program = Program::victim("vforked").argument("40").waiting(30, &over);
    let life = Life::preloaded(scene, "life", &program);
    life.output.wait_for_line("step 5");
    let directory = life.directory.clone();
    let tell = move |sign: &str| {
        let place = if sign == "over" { over.clone() } else { directory.join(sign) };
        std::fs::write(place, "").expect("a file in the scene");
    };
    (life, tell)
}

#[test]
fn a_vfork_whose_child_executes_nothing_is_refused_in_bounded_time() {
    let scene = Scene::new();
    let (mut life, tell) = with_a_vfork(&scene);
    let begun = std::time::Instant::now();
    let answer = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).call().failed_with(1);
    assert!(begun.elapsed().as_secs() < 20, "it is given 10 seconds: {:?}", begun.elapsed());
    assert!(answer.stderr.contains("vfork"), "{answer:?}");
    assert!(!processes::is_stopped(life.pid), "it runs on");
    life.output.wait_for_line("step 30");
    for sign in ["exec_now", "end_child", "over"] {
        tell(sign);
    }
    assert_eq!(code_of(life.wait()), 7, "{}\n{}", life.output.text(), life.errors());
}

#[test]
fn a_vfork_during_which_a_checkpoint_begins_comes_to_its_end() {
    let scene = Scene::new();
    let (mut life, tell) = with_a_vfork(&scene);
    let pid = life.pid;
    let answer = std::thread::scope(|scope| {
        let asked = scope.spawn(|| Ckpt::new(&scene, ["checkpoint", &pid.to_string()]).call());
        let limit = Duration::from_secs(5);
        let stands = || processes::thread_states(pid).contains(&'t');
        processes::wait_until("the others stand still", limit, stands);
        tell("exec_now");
        asked.join().expect("the call does not panic")
    });
    // What it has executed has no libckpt.so, and is adopted.
    answer.succeeded();
    life.output.wait_for_line("executed");
    tell("end_child");
    life.output.wait_for_line("ended");
    checkpoint(&scene, pid);
    tell("over");
    assert_eq!(code_of(life.wait()), 7, "{}\n{}", life.output.text(), life.errors());
}

#[test]
fn a_traced_program_is_refused_with_the_tracers_name() {
    let scene = Scene::new();
    let program = Program::victim("churn").argument("200");
    let life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(3);
    // This test is the tracer: attached, and letting it run.
    ptrace::seize(Pid::from_raw(life.pid), Options::empty()).expect("it is our child");
    let answer = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).call().failed_with(5);
    assert!(answer.stderr.contains("trace"), "{}", answer.stderr);
    life.output.wait_for_more_lines(3);
}

/// Sends the trigger signal to a program of one thread, and keeps the process that starts its agent from ending: gives that
/// process, which the calling thread traces.
fn start_an_agent_and_keep_its_parent(program: i32) -> Pid {
    let program = Pid::from_raw(program);
    let options = Options::PTRACE_O_TRACEVFORK | Options::PTRACE_O_TRACEVFORKDONE;
    // An agent that has sealed a checkpoint may look once more at what it watches.
    let limit = Duration::from_secs(10);
    processes::wait_until("nobody traces it", limit, || ptrace::seize(program, options).is_ok());
    processes::send(program.as_raw(), Signal::SIGUSR1);
    let next = |pid: Pid| waitpid(pid, Some(WaitPidFlag::__WALL)).expect("a process of ours that is traced");
    let child_of = |pid: Pid| Pid::from_raw(ptrace::getevent(pid).expect("it has a child") as i32);
    // Each of the two children stops at its beginning, and each parent when it has one.
    let vforks = |pid: Pid| loop {
        match next(pid) {
            WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_VFORK) => return child_of(pid),
            WaitStatus::Stopped(_, signal) => ptrace::cont(pid, signal).expect("it has stopped"),
            WaitStatus::PtraceEvent(..) => ptrace::cont(pid, None).expect("it has stopped"),
            other => panic!("the trigger starts no agent: {other:?}"),
        }
    };
    let parent = vforks(program);
    ptrace::detach(program, None).expect("it has stopped");
    let agent = vforks(parent);
    next(agent);
    ptrace::detach(agent, None).expect("it has stopped");
    ptrace::cont(parent, None).expect("it has stopped");
    let executed = next(parent);
    assert!(matches!(executed, WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_VFORK_DONE)), "{executed:?}");
    parent
}

#[test]
fn an_agent_whose_parent_has_not_ended_yet_is_none_of_the_job() {
    let scene = Scene::new();
    let program = Program::victim("registers").argument("100000");
    let life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(3);
    // There is one already, which the new one hands its request over to.
    checkpoint(&scene, life.pid);
    let parent = start_an_agent_and_keep_its_parent(life.pid);
    let newest = || life.store().rows(&scene).pop().filter(|row| row.id == 2);
    let is = |state: &str| newest().is_some_and(|row| row.state == state);
    let traced = || processes::status_field(life.pid, "TracerPid").is_some_and(|tracer| tracer != "0");
    let limit = Duration::from_secs(10);
    processes::wait_until("the agent knows the processes of the job", limit, || traced() || is("failed"));
    ptrace::detach(parent, None).expect("it has stopped");
    processes::wait_until("the checkpoint is over", limit, || is("failed") || is("sealed"));
    assert!(is("sealed"), "{:?}", newest());
    life.output.wait_for_more_lines(3);
}

#[test]
fn what_is_refused_at_each_interval_is_in_the_log_once() {
    let scene = Scene::new();
    let refused = scene.path().join("refused");
    let program = Program::victim("refused").argument("40").argument("packet_ring").variable("CKPT_INTERVAL", "1s");
    let mut life = Life::preloaded(&scene, "life", &program.waiting(20, &refused));
    let log = life.store().path().join("log");
    let failed = || life.store().rows(&scene).iter().filter(|row| row.state == "failed").count();
    let limit = Duration::from_secs(30);
    processes::wait_until("it is refused again and again", limit, || log.exists() && failed() >= 2);
    std::fs::write(refused, "").expect("a file in the scene");
    assert_eq!(code_of(life.wait()), 7, "{}", life.output.text());
    let log = std::fs::read_to_string(log).expect("a log");
    assert_eq!(log.matches("checkpoint by interval failed").count(), 1, "{log}");
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

//! Programs whose container forbids system calls that ckpt would make: another way is taken, or a refusal names the call.
//!
//! The victim `confined` puts the filter on all: the program, its agent, the command and the restart.

use std::time::Duration;

use ckpt_tests::exact::{assert_same, reference};
use ckpt_tests::{
    Answer, Ckpt, Launch, Life, Program, Restart, Scene, Stdout, code_of, fault, processes, product, skip,
};

const LIMIT: Duration = Duration::from_secs(10);

/// What executes a command under a filter of these rules.
fn confined(rules: &[&str]) -> Vec<String> {
    let confined = Program::victim("confined").executable;
    let words = [confined.to_str().expect("a path in the target folder")].into_iter().chain(rules.iter().copied());
    words.chain(["--"]).map(str::to_owned).collect()
}

fn ckpt(scene: &Scene, rules: &[&str], arguments: &[&str]) -> Answer {
    let words = confined(rules);
    let own = product::ckpt();
    let own = own.to_str().expect("a path in the target folder");
    let all = words[1..].iter().map(String::as_str).chain([own]).chain(arguments.iter().copied());
    Ckpt::at(&words[0], scene, all.map(str::to_owned)).call()
}

fn start<'scene>(scene: &'scene Scene, rules: &[&str], program: &Program) -> Life<'scene> {
    let mut words = confined(rules);
    words.extend([product::ckpt().display().to_string(), "run".to_owned(), "--".to_owned()]);
    Life::start(scene, "life", program, &Launch::By(words), Stdout::File)
}

fn log_of(life: &Life<'_>) -> String {
    std::fs::read_to_string(life.directory.join("store/log")).unwrap_or_default()
}

/// The program is checkpointed under the rules behind `line` lines, killed, restarted under them, and ends as it does by itself; the log
/// has the words once, however many checkpoints there are.
#[track_caller]
fn goes_on(rules: &[&str], program: &Program, line: usize, words: &[&str]) {
    let scene = Scene::new();
    let expected = reference(&scene, program);
    let taken = scene.path().join("taken");
    let mut life = start(&scene, rules, &program.clone().waiting(line + 3, &taken));
    life.output.wait_for_lines(line);
    let pid = life.pid.to_string();
    for _ in 0..=usize::from(!words.is_empty()) {
        ckpt(&scene, rules, &["checkpoint", &pid]).succeeded();
    }
    let log = log_of(&life);
    life.kill();
    for word in words {
        assert!(log.contains(word), "the log has no word of {word:?}: {log}");
        assert_eq!(log.matches(word).count(), 1, "it is said once: {log}");
    }
    std::fs::write(&taken, "").expect("a file in the scene");
    let by = confined(rules);
    let by: Vec<&str> = by.iter().map(String::as_str).collect();
    let mut second = Restart::of(life.store()).by(&by).begin(&scene, &life.directory.clone(), life.pid);
    let code = code_of(second.wait());
    assert_eq!(
        code,
        expected.code,
        "{program:?} under {rules:?}: {}; {}; {log}",
        second.errors(),
        second.output.text()
    );
    assert_same(&second.output.bytes(), &expected.stdout, &format!("the output under {rules:?}"));
}

/// A checkpoint under the rules is refused with the words, and the program ends as it does by itself.
#[track_caller]
fn is_refused_unharmed(program: &Program, rules: &[&str], words: &[&str]) {
    let scene = Scene::new();
    let expected = reference(&scene, program);
    if expected.code == 77 {
        return skip(String::from_utf8_lossy(&expected.stdout).trim());
    }
    let refused = scene.path().join("refused");
    let mut life = start(&scene, rules, &program.clone().waiting(20, &refused));
    life.output.wait_for_lines(10);
    let answer = ckpt(&scene, rules, &["checkpoint", &life.pid.to_string()]).failed_with(5);
    for word in words {
        assert!(answer.stderr.contains(word), "{word:?} is missing: {answer:?}");
    }
    assert!(!processes::is_stopped(life.pid), "a refused program runs on");
    std::fs::write(refused, "").expect("a file in the scene");
    assert_eq!(code_of(life.wait()), expected.code);
    assert_same(&life.output.bytes(), &expected.stdout, "a program that had no checkpoint");
}

fn threads() -> Program {
    Program::victim("threads8").argument("60")
}

fn python() -> Program {
    Program::python("lines.py").argument("60")
}

#[test]
fn the_filter_is_on_the_program() {
    let scene = Scene::new();
    let life = start(&scene, &["kcmp=EPERM"], &threads());
    assert_eq!(processes::status_field(life.pid, "Seccomp").as_deref(), Some("2"));
}

#[test]
fn memory_is_read_through_its_file() {
    let words = ["process_vm_readv: Operation not permitted; memory is read through /proc/PID/mem"];
    goes_on(&["process_vm_readv=EPERM"], &python(), 10, &words);
}

#[test]
fn memory_is_written_through_its_file() {
    let words = ["process_vm_writev: Function not implemented; memory is written through /proc/PID/mem"];
    // Without a userfaultfd all memory is written at a restart.
    goes_on(&["process_vm_writev=ENOSYS", "userfaultfd=EPERM"], &python(), 10, &words);
}

#[test]
fn memory_calls_that_kill_are_not_made() {
    let words = ["memory is read through", "memory is written through"];
    goes_on(&["process_vm_readv=kill", "process_vm_writev=kill"], &threads(), 10, &words);
}

#[test]
fn descriptors_are_sent_where_they_cannot_be_fetched() {
    for victim in ["pipes_epoll", "unix_sockets", "internet_sockets", "pseudo_terminals", "timerfds"] {
        goes_on(&["pidfd_getfd=EPERM"], &Program::victim(victim).argument("60"), 10, &[]);
    }
}

#[test]
fn shared_files_are_told_apart_by_what_is_sent() {
    let words = ["kcmp: "];
    for rules in [["kcmp=EPERM", "pidfd_getfd=EPERM"], ["kcmp=kill", "pidfd_getfd=kill"]] {
        for victim in ["files", "pseudo_terminals"] {
            goes_on(&rules, &Program::victim(victim).argument("60"), 10, &words);
        }
    }
}

#[test]
fn changes_are_tracked_where_descriptors_are_sent() {
    let scene = Scene::new();
    let rules = ["pidfd_getfd=EPERM"];
    let mut life = start(&scene, &rules, &Program::victim("threads8").argument("6000"));
    life.output.wait_for_lines(5);
    let pid = life.pid.to_string();
    for _ in 0..2 {
        ckpt(&scene, &rules, &["checkpoint", &pid]).succeeded();
    }
    let log = log_of(&life);
    life.kill();
    assert!(!log.contains("reads all memory"), "{log}");
}

#[test]
fn the_program_outlives_an_agent_that_dies_while_descriptors_are_sent() {
    const POINTS: [&str; 3] = ["ptrace.syscall", "ptrace.setoptions", "process_vm_writev"];
    let scene = Scene::new();
    let rules = ["pidfd_getfd=EPERM"];
    let trace = scene.path().join("trace");
    let traced = threads().variable(fault::TRACE, &trace);
    let mut life = start(&scene, &rules, &traced);
    life.output.wait_for_lines(5);
    ckpt(&scene, &rules, &["checkpoint", &life.pid.to_string()]).succeeded();
    life.kill();
    let mut passages = fault::passages(&trace);
    passages.retain(|name, _| POINTS.contains(&name.as_str()));
    assert_eq!(passages.len(), POINTS.len(), "{passages:?}");
    let expected = reference(&scene, &threads());
    let faults = fault::plan(&passages, 6);
    let (planned, mut died) = (faults.len(), 0);
    for (number, fault) in faults.into_iter().enumerate() {
        let survived = scene.path().join(format!("survived-{number}"));
        let program = threads().variable(fault::KILL, &fault).waiting(20, &survived);
        let mut life = start(&scene, &rules, &program);
        life.output.wait_for_lines(10);
        let before = processes::open_files(life.pid);
        let answer = ckpt(&scene, &rules, &["checkpoint", &life.pid.to_string()]);
        // A checkpoint of another moment may pass the point less often.
        died += usize::from(answer.code != 0);
        processes::wait_until("it has no clone", LIMIT, || processes::children(life.pid).is_empty());
        assert_eq!(processes::open_files(life.pid), before, "{fault}");
        std::fs::write(survived, "").expect("a file in the scene");
        assert_eq!(code_of(life.wait()), expected.code, "{fault}");
        assert_same(&life.output.bytes(), &expected.stdout, &fault);
        std::fs::remove_dir_all(&life.directory).expect("it has ended");
    }
    assert!(2 * died > planned, "the agent has died at {died} of {planned} points");
}

#[test]
fn a_pipeline_is_sent_by_each_of_its_processes() {
    let rules = ["kcmp=EPERM", "pidfd_getfd=EPERM", "userfaultfd=EPERM"];
    let program = Program::installed("bash").argument(ckpt_tests::program::source("pipeline.bash")).argument("60");
    goes_on(&rules, &program, 10, &[]);
}

#[test]
fn calls_that_kill_are_not_made_in_the_program() {
    let words = ["who calls userfaultfd: it is not called", "who calls membarrier: it is not called"];
    goes_on(&["userfaultfd=kill", "membarrier=kill", "kcmp=kill"], &python(), 10, &words);
}

#[test]
fn an_agent_outside_of_the_filter_does_not_kill_the_program() {
    let scene = Scene::new();
    let program = threads();
    let expected = reference(&scene, &program);
    let taken = scene.path().join("taken");
    // Nothing of ckpt is under the filter but libckpt.so.
    let mut words = confined(&["userfaultfd=kill", "membarrier=kill"]);
    words.extend(["env".to_owned(), format!("LD_PRELOAD={}", product::library().display())]);
    let patient = program.clone().waiting(20, &taken);
    let mut life = Life::start(&scene, "life", &patient, &Launch::By(words), Stdout::File);
    life.output.wait_for_lines(10);
    ckpt_tests::checkpoint(&scene, life.pid);
    std::fs::write(taken, "").expect("a file in the scene");
    assert_eq!(code_of(life.wait()), expected.code, "{}", log_of(&life));
    assert_same(&life.output.bytes(), &expected.stdout, "a program under a filter that kills");
}

#[test]
fn clone3_is_not_needed_for_a_checkpoint() {
    let scene = Scene::new();
    let rules = ["clone3=ENOSYS"];
    let mut life = start(&scene, &rules, &python());
    life.output.wait_for_lines(5);
    ckpt(&scene, &rules, &["checkpoint", &life.pid.to_string()]).succeeded();
    life.kill();
}

#[test]
fn without_ptrace_a_checkpoint_is_refused() {
    for rule in ["ptrace=EPERM", "ptrace=ENOSYS"] {
        is_refused_unharmed(&threads(), &[rule], &["a seccomp filter forbids ptrace", "--cap-add SYS_PTRACE"]);
    }
    is_refused_unharmed(
        &threads(),
        &["ptrace=kill"],
        &["a seccomp filter ends who calls ptrace", "--cap-add SYS_PTRACE"],
    );
}

#[test]
fn an_io_uring_that_cannot_be_fetched_is_refused() {
    let words = ["pidfd_getfd is forbidden here", "cannot be sent over a socket", "--cap-add SYS_PTRACE"];
    is_refused_unharmed(&Program::victim("io_urings").argument("60"), &["pidfd_getfd=EPERM"], &words);
}

#[test]
fn without_ptrace_a_restart_is_refused() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &threads());
    life.output.wait_for_lines(5);
    ckpt_tests::checkpoint(&scene, life.pid);
    life.kill();
    let store = life.store();
    let store = store.path().to_str().expect("a path of the scene");
    for rule in ["ptrace=EPERM", "ptrace=kill"] {
        let answer = ckpt(&scene, &[rule], &["restart", store]).failed_with(125);
        assert!(answer.stderr.contains("ptrace") && answer.stderr.contains("--cap-add SYS_PTRACE"), "{answer:?}");
    }
}

#[test]
fn without_pidfd_open_no_program_is_started() {
    let scene = Scene::new();
    for rule in ["pidfd_open=EPERM", "pidfd_open=ENOSYS", "pidfd_open=kill"] {
        let answer = ckpt(&scene, &[rule], &["run", "--", "echo", "started"]).failed_with(125);
        assert!(answer.stderr.contains("pidfd_open is forbidden here"), "{answer:?}");
        assert_eq!(answer.stdout, "");
    }
}

#[test]
fn without_pidfd_open_a_checkpoint_is_refused() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &threads());
    life.output.wait_for_lines(5);
    for rule in ["pidfd_open=EPERM", "pidfd_open=kill"] {
        let answer = ckpt(&scene, &[rule], &["checkpoint", &life.pid.to_string()]).failed_with(5);
        assert!(answer.stderr.contains("pidfd_open is forbidden here"), "{answer:?}");
    }
    assert_eq!(code_of(life.wait()), 7, "{}", life.output.text());
}

#[test]
fn lazy_has_no_effect_without_userfaultfd() {
    let scene = Scene::new();
    let program = Program::victim("later").argument("64").argument("itself");
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("ready");
    ckpt_tests::checkpoint(&scene, life.pid);
    life.kill();
    std::fs::write(life.directory.join("go"), "").expect("the life's folder is writable");
    for (rule, why) in [
        ("userfaultfd=ENOSYS", "userfaultfd: Function not implemented"),
        ("userfaultfd=EPERM", "userfaultfd: Operation not permitted"),
        ("userfaultfd=kill", "a seccomp filter ends who calls userfaultfd"),
        ("pidfd_getfd=EPERM", "pidfd_getfd: Operation not permitted"),
    ] {
        let by = confined(&[rule]);
        let by: Vec<&str> = by.iter().map(String::as_str).collect();
        let restart = Restart::of(life.store()).option("--lazy").by(&by);
        let mut second = restart.spawn(&scene, &life.directory);
        let code = code_of(second.wait());
        let errors = second.errors();
        assert_eq!(code, 7, "{errors}");
        assert!(errors.contains(&format!("--lazy has no effect: {why}")), "{errors}");
    }
}

fn last_line(answer: &Answer) -> &str {
    answer.stdout.trim_end().lines().last().unwrap_or_default()
}

#[test]
fn doctor_says_what_a_filter_takes() {
    let scene = Scene::new();
    let rules = ["process_vm_readv=EPERM", "pidfd_getfd=EPERM", "kcmp=ENOSYS", "userfaultfd=EPERM"];
    let answer = ckpt(&scene, &rules, &["doctor"]).succeeded();
    let last = last_line(&answer);
    assert!(last.starts_with("Checkpoint and restart work here; given up: "), "{answer:?}");
    for word in ["process_vm_readv", "pidfd_getfd", "kcmp", "userfaultfd", "--cap-add SYS_PTRACE", "seccomp=FILE"] {
        assert!(last.contains(word), "{word} is missing: {last}");
    }
    assert!(answer.stdout.contains("works through /proc/PID/mem"), "{}", answer.stdout);
}

#[test]
fn doctor_says_what_cannot_be_done_without() {
    let scene = Scene::new();
    for (rule, word) in [("ptrace=EPERM", "for want of ptrace"), ("pidfd_open=ENOSYS", "for want of pidfd_open")] {
        let answer = ckpt(&scene, &[rule], &["doctor"]).failed_with(5);
        assert!(last_line(&answer).contains(word) && last_line(&answer).contains("in a container add"), "{answer:?}");
    }
}

#[test]
fn doctor_lives_where_calls_kill() {
    let scene = Scene::new();
    let rules = ["userfaultfd=kill", "kcmp=kill", "process_vm_readv=kill", "pidfd_getfd=kill", "clone3=kill"];
    let answer = ckpt(&scene, &rules, &["doctor"]);
    let deadly = "ended is who calls userfaultfd, kcmp, process_vm_readv, pidfd_getfd, clone3";
    for word in [deadly, "a seccomp filter ends who calls kcmp", "works through /proc/PID/mem (a seccomp filter"] {
        assert!(answer.stdout.contains(word), "{word} is missing: {}", answer.stdout);
    }
    assert!(!answer.stdout.contains("no answer"), "{}", answer.stdout);
}

#[test]
fn doctor_says_where_ids_can_neither_be_chosen_nor_reached() {
    let scene = Scene::new();
    let answer = ckpt(&scene, &["clone3=ENOSYS", "unshare=EPERM"], &["doctor"]);
    let row = answer.stdout.lines().find(|line| line.starts_with("process ids")).unwrap_or_default();
    // On the machine itself; what a container's says is for the suite of containers.
    assert!(row.contains("done only where CKPT_PID_SEARCH says so"), "{}", answer.stdout);
}

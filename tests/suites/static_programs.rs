//! Programs that no dynamic linker loads, and so not libckpt.so either: they are adopted by their agent.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::time::Duration;

use ckpt_tests::exact::{How, Trigger, reference, survives};
use ckpt_tests::ordinary_user::{USER, as_ordinary_user};
use ckpt_tests::{
    Answer, Ckpt, Launch, Life, Program, Restart, Scene, Stdout, checkpoint, code_of, fault, processes, work,
};
use nix::sys::signal::Signal;

/// Parts of the reference's lines after which checkpoints are taken, in per cent.
const MOMENTS: [usize; 3] = [5, 40, 75];

fn run() -> Launch {
    Launch::Run(Vec::new())
}

fn threads8(steps: u32) -> Program {
    Program::static_victim("threads8").argument(steps.to_string())
}

fn goes_on(program: &Program, launches: &[Launch], triggers: &[Trigger]) {
    let scene = Scene::of_at_most(Duration::from_secs(240));
    let reference = reference(&scene, program);
    for ((moment, launch), &trigger) in MOMENTS.iter().zip(launches.iter().cycle()).zip(triggers.iter().cycle()) {
        let line = (reference.lines() * moment / 100).max(1);
        // How it is launched is not in the name of a life, so each moment is one launch's.
        survives(&scene, program, How { stdout: Stdout::File, trigger, launch: launch.clone() }, line, &reference);
    }
}

#[test]
fn eight_threads_go_on_exactly() {
    goes_on(&threads8(90), &[run(), Launch::Preload], &[Trigger::Command, Trigger::Kill, Trigger::Command]);
}

#[test]
fn a_program_at_an_address_of_the_kernels_choice_goes_on_exactly() {
    let program = Program::static_pie_victim("threads8").argument("60");
    goes_on(&program, &[Launch::Preload, run()], &[Trigger::Command]);
}

#[test]
fn signals_and_registers_go_on_exactly() {
    for name in ["signals", "registers"] {
        goes_on(&Program::static_victim(name).argument("60"), &[run()], &[Trigger::Command]);
    }
}

#[test]
fn waiting_calls_go_on_and_none_is_interrupted() {
    // Under LD_PRELOAD it is adopted in the middle of them.
    goes_on(
        &Program::static_victim("blocked_calls").argument("120").argument("own"),
        &[Launch::Preload, run()],
        &[Trigger::Command],
    );
}

#[test]
fn busybox_goes_on_exactly_in_the_middle_of_a_file() {
    let scene = Scene::of_at_most(Duration::from_secs(240));
    let mut numbers = String::new();
    (0..4_000_000_u64).for_each(|number| numbers += &format!("{:x}\n", number.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    let program = Program::installed("busybox").argument("gzip").argument("-c").reads("numbers", numbers.into_bytes());
    let whole = work::uninterrupted(&scene, &program);
    for (per_cent, trigger) in [(30, Trigger::Command), (70, Trigger::Kill)] {
        let how = How { trigger, launch: run(), ..How::usual() };
        work::survives(&scene, &program, &how, per_cent, &whole);
    }
}

#[test]
#[ignore = "needs Go, 450 MB; scripts/test --all installs it"]
fn go_with_goroutines_goes_on_exactly() {
    let program = Program::static_go("channels").argument("80");
    goes_on(&program, &[run(), Launch::Preload], &[Trigger::Command, Trigger::Kill]);
}

fn sealed_before(limit: Duration, scene: &Scene, life: &Life<'_>, count: usize) {
    let enough = || life.store().path().exists() && life.store().sealed(scene).len() >= count;
    processes::wait_until(&format!("{count} checkpoints are sealed"), limit, enough);
}

#[test]
fn an_interval_goes_on_through_lives() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let launch = Launch::Run(["--interval", "1s"].map(str::to_owned).into());
    let mut first = Life::start(&scene, "life", &threads8(100_000), &launch, Stdout::File);
    sealed_before(Duration::from_secs(30), &scene, &first, 2);
    first.kill();
    let count = first.store().sealed(&scene).len();
    let (store, directory, pid) = (first.store(), first.directory.clone(), first.pid);
    drop(first);
    let mut second = Restart::of(&store).begin(&scene, &directory, pid);
    sealed_before(Duration::from_secs(30), &scene, &second, count + 1);
    second.output.wait_for_more_lines(3);
    second.kill();
    let (id, directory) = (store.sealed(&scene).last().expect("there are some").id, directory.clone());
    drop(second);
    let mut third = Restart::of(&store).id(id).begin(&scene, &directory, pid);
    third.output.wait_for_more_lines(3);
    third.kill();
}

#[test]
fn run_says_that_no_signal_takes_a_checkpoint() {
    let scene = Scene::new();
    let mut life = Life::start(&scene, "life", &threads8(100_000), &run(), Stdout::File);
    life.output.wait_for_lines(3);
    let errors = life.errors();
    assert!(errors.contains("threads8.static is statically linked: no signal takes a checkpoint"), "{errors}");
    processes::send(life.pid, Signal::SIGUSR1);
    assert_eq!(code_of(life.wait()), 128 + Signal::SIGUSR1 as i32, "the signal means what it means without ckpt");
}

#[test]
fn a_program_that_is_executed_by_another_is_adopted() {
    let scene = Scene::new();
    let victim = threads8(90);
    let reference = reference(&scene, &victim);
    let script = format!("read -r line <stdin; exec '{}' 90", victim.executable.display());
    let shell = Program::installed("bash").argument("-c").argument(script).reads("stdin", *b"go\n");
    let mut first = Life::start(&scene, "life", &shell, &Launch::Preload, Stdout::File);
    first.output.wait_for_lines(20);
    checkpoint(&scene, first.pid);
    first.output.wait_for_more_lines(3);
    first.kill();
    let mut second = Restart::of(first.store()).begin(&scene, &first.directory.clone(), first.pid);
    assert_eq!(code_of(second.wait()), reference.code, "{}", second.errors());
    assert_eq!(second.output.bytes(), reference.stdout);
}

#[test]
fn two_that_adopt_it_at_once_do_not_disturb_each_other() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    for round in 0..8 {
        let mut life = Life::preloaded(&scene, &format!("life-{round}"), &threads8(100_000));
        life.output.wait_for_lines(1);
        let pid = life.pid.to_string();
        let ask = || Ckpt::new(&scene, ["checkpoint", &pid]).call().succeeded().number();
        let (mine, other) = std::thread::scope(|scope| {
            let other = scope.spawn(ask);
            (ask(), other.join().expect("it succeeds"))
        });
        assert_ne!(mine, other);
        assert_eq!(control_blocks(life.pid), 1, "it is adopted once");
        life.kill();
    }
}

/// How many mappings of a process begin with a control block.
fn control_blocks(pid: i32) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it is alive");
    let begins_with_one = |line: &&str| {
        let address = line.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok()).expect("an address");
        let mut word = [0; 8];
        let is_readable = line.split(' ').nth(1).is_some_and(|protection| protection.starts_with("rw"));
        is_readable && {
            ckpt_tests::holder::read(pid, address, &mut word);
            u64::from_le_bytes(word) == ckpt_wire::CONTROL_MAGIC
        }
    };
    maps.lines().filter(begins_with_one).count()
}

#[test]
fn it_outlives_its_agent_at_every_step_of_the_adoption() {
    let scene = Scene::of_at_most(Duration::from_secs(300));
    let program = threads8(100_000);
    let trace = scene.path().join("trace");
    let mut traced = Life::preloaded(&scene, "traced", &program);
    traced.output.wait_for_lines(2);
    let ask = |pid: i32, name: &str, value: &OsStr| -> Answer {
        Ckpt::new(&scene, ["checkpoint", &pid.to_string()]).variable(name, value).call()
    };
    ask(traced.pid, fault::TRACE, trace.as_os_str()).succeeded();
    traced.kill();
    // The agent adopts before it looks at its store. What comes next is another's test.
    let text = fs::read_to_string(&trace).expect("it was written");
    let adoption = text.split_once("store.").expect("an agent has been there").0;
    fs::write(&trace, adoption).expect("it is ours");
    let faults = fault::plan(&fault::passages(&trace), 100);
    assert!(faults.len() > 50, "{faults:?}");
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(2);
    let vdso = vdso(life.pid);
    let mut adopted = 0;
    for (round, name) in faults.iter().enumerate() {
        let answer = ask(life.pid, fault::KILL, OsStr::new(name));
        for agent in processes::agents_of(life.pid) {
            processes::send(agent, Signal::SIGKILL);
        }
        let limit = Duration::from_secs(10);
        let story = format!("killed at {name}: {answer:?}");
        processes::wait_until(&format!("it runs; {story}"), limit, || !processes::is_stopped(life.pid));
        life.output.wait_for_more_lines(1);
        assert_eq!(processes::threads(life.pid).len(), 9, "{story}");
        if answer.code == 0 || control_blocks(life.pid) == 1 {
            // The adoption is done with: the next is another program's.
            adopted += 1;
            assert!(self::vdso(life.pid) == vdso, "nothing is left behind the vdso; {story}");
            life.kill();
            life = Life::preloaded(&scene, &format!("life-{round}"), &program);
            life.output.wait_for_lines(2);
        }
    }
    assert!((1..faults.len() / 2).contains(&adopted), "most of {faults:?} come before the end of an adoption");
    checkpoint(&scene, life.pid);
    life.output.wait_for_more_lines(2);
    life.kill();
    let printed = life.output.bytes();
    let whole = reference(&scene, &threads8(life.output.lines() as u32 + 20)).stdout;
    let complete = printed.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    assert!(whole.starts_with(&printed[..complete]), "it computes what it would have");
}

/// What the program has where its vdso is, with what is behind it.
fn vdso(pid: i32) -> Vec<u8> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it is alive");
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).expect("every program has one");
    let (start, end) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
    let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).expect("an address"));
    let mut bytes = vec![0; (end - start) as usize];
    ckpt_tests::holder::read(pid, start, &mut bytes);
    bytes
}

#[test]
fn a_program_that_is_none_of_ours_is_refused_and_left_as_it_was() {
    let scene = Scene::new();
    let mut command = std::process::Command::new(&threads8(1).executable);
    command.arg("100000").env_remove("LD_PRELOAD").env_remove("CKPT_DIR").stdout(std::process::Stdio::null());
    let mut child = command.env(ckpt_tests::scene::MARK, scene.path()).spawn().expect("it can be executed");
    let pid = child.id().cast_signed();
    let answer = Ckpt::new(&scene, ["checkpoint", &pid.to_string()]).call().failed_with(4);
    assert!(answer.stderr.contains("was not started by `ckpt run`"), "{answer:?}");
    assert_eq!(control_blocks(pid), 0);
    child.kill().and_then(|()| child.wait()).expect("it is alive");
}

#[test]
fn a_checkpoint_of_data_is_refused() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &threads8(100_000));
    life.output.wait_for_lines(2);
    let answer = Ckpt::new(&scene, ["checkpoint", "--data", &life.pid.to_string()]).call().failed_with(4);
    assert!(answer.stderr.contains("nobody has recorded what it has allocated"), "{answer:?}");
    life.output.wait_for_more_lines(2);
    life.kill();
}

#[test]
fn a_directory_names_the_program_only_if_it_is_the_only_one() {
    let scene = Scene::new();
    let mut adopted = Life::start(&scene, "life", &threads8(100_000), &run(), Stdout::File);
    adopted.output.wait_for_lines(2);
    let store = adopted.store().path().to_string_lossy().into_owned();
    Ckpt::new(&scene, ["checkpoint", &store]).call().succeeded();
    let program = Program::victim("threads8").argument("100000").variable("CKPT_DIR", &store);
    let mut preloaded = Life::preloaded(&scene, "other", &program);
    preloaded.output.wait_for_lines(2);
    let answer = Ckpt::new(&scene, ["checkpoint", &store]).call().failed_with(2);
    for life in [&adopted, &preloaded] {
        assert!(answer.stderr.contains(&format!("{} (threads8", life.pid)), "{answer:?}");
    }
    adopted.kill();
    preloaded.kill();
}

#[test]
fn a_program_with_more_rights_than_its_caller_is_refused_by_name() {
    let scene = Scene::new();
    let path = scene.path().join("set-uid");
    fs::copy(&threads8(1).executable, &path).expect("a copy");
    chown(&path, Some(USER), Some(USER)).expect("root may");
    fs::set_permissions(&path, Permissions::from_mode(0o4755)).expect("root may");
    let answer = Ckpt::new(&scene, ["run", "--", &path.to_string_lossy(), "5"]).call().failed_with(124);
    assert!(answer.stderr.contains("set-uid"), "{answer:?}");
    // Started in another way, with the variables that `ckpt run` would set.
    let mut life = Life::preloaded(&scene, "life", &Program::at(&path).argument("100000"));
    life.output.wait_for_lines(2);
    let answer = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).call().failed_with(4);
    assert!(answer.stderr.contains("it has more rights than its caller"), "{answer:?}");
    assert_eq!(control_blocks(life.pid), 0);
    life.output.wait_for_more_lines(2);
    life.kill();
}

#[test]
fn an_ordinary_users_program_that_may_not_be_looked_at_is_refused_by_name() {
    as_ordinary_user(&["refused"], &[], || {
        let scene = Scene::new();
        let program = Program::victim("refused").argument("100000").argument("undumpable");
        let mut life = Life::preloaded(&scene, "life", &program);
        life.output.wait_for_lines(2);
        let answer = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).call();
        // What the scene knows its processes by may not be looked at either.
        processes::send(life.pid, Signal::SIGKILL);
        life.wait();
        assert!(answer.failed_with(5).stderr.contains("PR_SET_DUMPABLE"));
    });
}

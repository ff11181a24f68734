//! The agent can hold a program's devices still, reads them meanwhile, and the program notices nothing but the time.
//!
//! Programs are there before a scene begins: compiling the double takes a minute, and a scene's time is limited.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use ckpt_tests::holder::{Holder, Line, printed, read};
use ckpt_tests::processes::{self, wait_until};
use ckpt_tests::{Life, Program, Scene, code_of, cuda, product};
use ckpt_wire::device::{
    COMMAND_CLOSE, COMMAND_COPY, COMMAND_IDENTIFY, COMMAND_OPEN, COMMAND_RESUME, COMMAND_STAGE, COMMAND_SUSPEND,
    COMMAND_UNSTAGE, Command, DEVICES_SUSPENDED, DEVICES_THERE, HELD, HELD_CALL_GOES_ON, HELD_CAPTURE, HELD_SUSPENDED,
    HELD_WORK_GOES_ON,
};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::Signal;
use nix::sys::socket::{MsgFlags, send};

const MIB: u64 = 1 << 20;
/// What the program has of each kind of memory.
const BYTES: usize = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

fn held(way: &str) -> Program {
    cuda::program("held").argument(way).argument(cuda::kernels())
}

fn go_on(life: &Life<'_>) {
    processes::send(life.pid, Signal::SIGUSR2);
}

#[track_caller]
fn ends_well(mut life: Life<'_>) {
    assert_eq!((code_of(life.wait()), life.errors().as_str()), (0, ""), "{}", life.output.text());
    assert!(life.output.text().ends_with("done\n"), "{}", life.output.text());
}

/// A program that is to be held, and has said this line.
fn started<'a>(scene: &'a Scene, program: &Program, line: &str) -> (Life<'a>, Holder) {
    let life = Life::preloaded(scene, "life", program);
    let holder = Holder::of(scene, &life);
    life.output.wait_for_line(line);
    (life, holder)
}

/// What was stuck goes on; then the program can be held, and ends well.
#[track_caller]
fn comes_free(life: Life<'_>, holder: &mut Holder) {
    go_on(&life);
    life.output.wait_for_line("goes on");
    go_on(&life);
    life.output.wait_for_line("free");
    holder.begin().open();
    go_on(&life);
    ends_well(life);
}

/// How often each of the program's threads has come round.
fn rounds(life: &Life<'_>) -> [u64; 4] {
    let mut bytes = [0; 32];
    read(life.pid, printed(life, "rounds"), &mut bytes);
    let mut rounds = bytes.chunks_exact(8).map(|round| u64::from_le_bytes(round.try_into().expect("eight bytes")));
    [(); 4].map(|()| rounds.next().expect("four numbers"))
}

/// Every thread that changes memory waits, and still does after a while in which each would have come round many times.
fn stands_still(life: &Life<'_>) {
    // A call that has come back is counted by its thread a moment later.
    let mut before = rounds(life);
    wait_until("all threads wait at the gate", PATIENCE, || {
        let now = rounds(life);
        std::mem::replace(&mut before, now) == now
    });
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(rounds(life), before, "the program goes on");
}

fn goes_on(life: &Life<'_>) {
    let before = rounds(life);
    let all_have_moved = || rounds(life).iter().zip(before).all(|(now, before)| *now > before + 2);
    wait_until("all threads go on", PATIENCE, all_have_moved);
}

/// The content of exportable memory, by way of the driver as another process has it.
fn content(line: &Line, pid: i32, address: u64) -> Vec<u8> {
    let descriptor = line.export(pid, address);
    line.get(COMMAND_CLOSE, 0, 0, 0);
    cuda::import(descriptor, BYTES)
}

fn threads_named(pid: i32, name: &str) -> usize {
    let named =
        |tid: &i32| fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).is_ok_and(|it| it.trim() == name);
    processes::threads(pid).iter().filter(|tid| named(tid)).count()
}

/// Whether memory of the double's is mapped there.
fn is_of_device(pid: i32, address: u64) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
    maps.lines().filter(|line| range_of(line).contains(&address)).any(|line| line.contains("ckpt-double"))
}

/// The addresses of a mapping.
fn range_of(line: &str) -> std::ops::Range<u64> {
    let (start, end) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
    let number = |text| u64::from_str_radix(text, 16).expect("an address");
    number(start)..number(end)
}

/// Where every descriptor leads to.
fn descriptors(pid: i32) -> Vec<(i32, String)> {
    let target = |fd: i32| fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?.into_os_string().into_string().ok();
    processes::descriptors(pid).into_iter().filter_map(|fd| Some((fd, target(fd)?))).collect()
}

#[test]
fn a_program_stands_still_until_the_gate_is_opened() {
    let program = held("traffic");
    let scene = Scene::new();
    let (life, mut holder) = started(&scene, &program, "ready");
    goes_on(&life);
    for _ in 0..3 {
        let line = holder.begin();
        stands_still(&life);
        line.open();
        goes_on(&life);
    }
    go_on(&life);
    ends_well(life);
}

/// The program's devices are suspended, and nobody holds a line to it.
#[track_caller]
fn suspend(holder: &mut Holder) {
    let line = holder.begin();
    line.get(COMMAND_SUSPEND, 0, 0, 10_000);
    assert!(line.has_ended(), "that was the last answer");
    assert_eq!((holder.hold().devices, holder.hold().line), (DEVICES_SUSPENDED, 0));
}

#[test]
fn suspended_devices_are_given_back_to_who_asks_next() {
    let program = held("movable");
    let scene = Scene::new();
    let (life, mut holder) = started(&scene, &program, "ready");
    for goes_on_alone in [false, true, false] {
        goes_on(&life);
        suspend(&mut holder);
        stands_still(&life);
        assert!(!descriptors(life.pid).iter().any(|(_, target)| target.contains("ckpt-double")), "no device is open");
        holder.ask(20_000);
        let line = holder.accept();
        assert_eq!(line.held().outcome, HELD_SUSPENDED);
        let copied = line.carry_out(Command { what: COMMAND_COPY, device: 0, address: 0, to: 0, bytes: 0 });
        assert_ne!(copied.error, 0, "there is no device to copy on");
        if goes_on_alone {
            drop(line);
        } else {
            line.get(COMMAND_RESUME, 0, 0, 0);
            stands_still(&life);
            line.open();
        }
        goes_on(&life);
        assert_eq!(holder.hold().devices, DEVICES_THERE);
    }
    go_on(&life);
    ends_well(life);
}

#[test]
fn suspended_devices_stay_away_while_somebody_listens_and_come_back_when_nobody_does() {
    let program = held("movable");
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let (life, mut holder) = started(&scene, &program, "ready");
    suspend(&mut holder);
    // The keeper looks whether somebody is there, and says nothing.
    assert!(holder.accept().has_ended());
    stands_still(&life);
    assert_eq!(holder.hold().devices, DEVICES_SUSPENDED);
    drop(holder);
    goes_on(&life);
    go_on(&life);
    ends_well(life);
}

#[test]
fn a_program_goes_on_when_the_agent_hangs_up_or_says_nonsense() {
    let program = held("traffic");
    let scene = Scene::new();
    let (life, mut holder) = started(&scene, &program, "ready");
    let line = holder.begin();
    stands_still(&life);
    drop(line);
    goes_on(&life);
    let line = holder.begin();
    let answer = line.carry_out(Command { what: 99, device: 0, address: 0, to: 0, bytes: 0 });
    assert_ne!(answer.error, 0);
    send(line.socket.as_raw_fd(), b"nonsense", MsgFlags::empty()).expect("sent");
    assert!(line.has_ended());
    goes_on(&life);
    go_on(&life);
    ends_well(life);
}

#[test]
fn a_program_goes_on_when_the_agent_is_killed() {
    let program = held("traffic");
    let scene = Scene::new();
    let (life, mut holder) = started(&scene, &program, "ready");
    // A process that has the agent's side of the line, and alone.
    let socket = holder.begin().socket;
    let number = socket.as_raw_fd();
    let keep = move || {
        // SAFETY: open until the child has become another program.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        fcntl(socket, FcntlArg::F_SETFD(FdFlag::empty()))?;
        Ok(())
    };
    let mut agent = Process::new("sleep");
    // SAFETY: between fork and exec the closure makes one system call and neither allocates nor locks.
    unsafe { agent.arg("600").stdin(Stdio::null()).pre_exec(keep) };
    let mut agent = agent.spawn().expect("sleep is there");
    drop(socket);
    stands_still(&life);
    agent.kill().expect("it lives");
    agent.wait().expect("it is ours");
    goes_on(&life);
    go_on(&life);
    ends_well(life);
}

#[test]
fn devices_are_not_held_while_a_stream_is_captured() {
    let program = held("capture");
    let scene = Scene::new();
    let life = Life::preloaded(&scene, "life", &program);
    let mut holder = Holder::of(&scene, &life);
    let steps =
        [("captures", true), ("has captured", false), ("has given up", false), ("another thread captures", true)];
    for (line, captures) in steps.into_iter().chain([("nobody captures", false)]) {
        life.output.wait_for_line(line);
        if captures {
            assert_eq!(holder.outcome(20_000), HELD_CAPTURE, "at {line:?}");
        } else {
            holder.begin().open();
        }
        go_on(&life);
    }
    ends_well(life);
}

#[test]
fn a_call_that_goes_on_is_not_waited_for_for_ever() {
    let program = held("stuck in a call");
    let scene = Scene::new();
    let (life, mut holder) = started(&scene, &program, "stuck");
    wait_until("the call begins", PATIENCE, || rounds(&life)[0] == 1);
    assert_eq!(holder.outcome(300), HELD_CALL_GOES_ON);
    comes_free(life, &mut holder);
}

/// The keeper is in a call of the driver's then.
#[test]
fn work_that_goes_on_is_not_waited_for_for_ever() {
    let program = held("stuck");
    let scene = Scene::new();
    let (life, mut holder) = started(&scene, &program, "stuck");
    assert_eq!(holder.outcome(300), HELD_WORK_GOES_ON);
    comes_free(life, &mut holder);
}

#[test]
fn the_agent_may_end_a_hold_while_the_keeper_waits() {
    let program = held("stuck");
    let scene = Scene::new();
    let (life, mut holder) = started(&scene, &program, "stuck");
    holder.ask(60_000);
    let line = holder.accept();
    line.open();
    comes_free(life, &mut holder);
}

#[test]
fn what_is_exported_is_what_the_program_has_there_and_does_not_change() {
    let program = held("traffic");
    let scene = Scene::of_at_most(Duration::from_secs(240));
    let life = Life::preloaded(&scene, "life", &program);
    let mut holder = Holder::of(&scene, &life);
    let address = printed(&life, "memory");
    life.output.wait_for_line("ready");
    let mut different = BTreeSet::new();
    for _ in 0..200 {
        let line = holder.begin();
        let first = content(&line, life.pid, address);
        // What the program sees there itself.
        let mut seen = vec![0; BYTES];
        read(life.pid, address, &mut seen);
        assert!(first == seen, "it is other memory");
        let second = content(&line, life.pid, address);
        assert!(first == second, "it has changed");
        line.open();
        different.insert(first[..4].to_vec());
    }
    assert!(different.len() > 20, "the program did nothing: {}", different.len());
    go_on(&life);
    ends_well(life);
}

#[test]
fn managed_memory_is_copied_into_a_piece_that_can_be_exported() {
    let program = held("traffic");
    let scene = Scene::new();
    let life = Life::preloaded(&scene, "life", &program);
    let mut holder = Holder::of(&scene, &life);
    let managed = printed(&life, "managed");
    life.output.wait_for_line("ready");
    let line = holder.begin();
    let uuid = line.get(COMMAND_IDENTIFY, 0, 0, 0);
    assert_ne!(uuid, [0, 0]);
    let [piece, bytes] = line.get(COMMAND_STAGE, 0, 0, BYTES as u64 - 4096);
    assert_eq!(bytes, BYTES as u64, "it is whole");
    line.get(COMMAND_COPY, managed, piece, BYTES as u64);
    let words: Vec<u8> = (0..BYTES as u32 / 4).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    assert!(content(&line, life.pid, piece) == words);
    line.get(COMMAND_UNSTAGE, piece, 0, 0);
    let again = line.carry_out(Command { what: COMMAND_UNSTAGE, device: 0, address: piece, to: 0, bytes: 0 });
    assert_ne!(again.error, 0);
    // What is not given back goes with the hold.
    let before = descriptors(life.pid).len();
    line.get(COMMAND_STAGE, 0, 0, 6 * MIB);
    let [other, _] = line.get(COMMAND_STAGE, 0, 0, MIB);
    drop(line.export(life.pid, other));
    assert!(descriptors(life.pid).len() > before);
    assert!(is_of_device(life.pid, other));
    line.open();
    goes_on(&life);
    wait_until("the piece is gone", PATIENCE, || !is_of_device(life.pid, other));
    wait_until("the descriptor is gone", PATIENCE, || descriptors(life.pid).len() <= before);
    go_on(&life);
    ends_well(life);
}

#[test]
fn a_context_of_the_programs_own_is_as_good_as_a_primary_one() {
    let program = held("own context");
    let scene = Scene::new();
    let life = Life::preloaded(&scene, "life", &program);
    let mut holder = Holder::of(&scene, &life);
    life.output.wait_for_line("no context");
    go_on(&life);
    let managed = printed(&life, "managed");
    life.output.wait_for_line("ready");
    wait_until("there is a keeper", PATIENCE, || holder.hold().keeper != 0);
    let line = holder.begin();
    let [piece, _] = line.get(COMMAND_STAGE, 0, 0, BYTES as u64);
    line.get(COMMAND_COPY, managed, piece, BYTES as u64);
    assert!(content(&line, life.pid, piece).iter().all(|&byte| byte == 0x5a));
    line.open();
    go_on(&life);
    life.output.wait_for_line("destroyed");
    let line = holder.begin();
    let answer = line.carry_out(Command { what: COMMAND_STAGE, device: 0, address: 0, to: 0, bytes: 1 });
    assert_eq!(answer.error, 201, "there is no context");
    line.open();
    go_on(&life);
    ends_well(life);
}

#[test]
fn no_descriptor_of_the_program_is_used_and_none_is_left() {
    let program = held("traffic");
    let scene = Scene::new();
    let life = Life::preloaded(&scene, "life", &program);
    let mut holder = Holder::of(&scene, &life);
    let address = printed(&life, "memory");
    life.output.wait_for_line("ready");
    let line = holder.begin();
    stands_still(&life);
    let before = descriptors(life.pid);
    assert!(before.iter().all(|(_, target)| !target.starts_with("socket")), "{before:?}");
    drop(line.export(life.pid, address));
    assert_eq!(descriptors(life.pid).len(), before.len() + 1);
    line.get(COMMAND_CLOSE, 0, 0, 0);
    assert_eq!(descriptors(life.pid), before);
    // One that the agent forgets.
    drop(line.export(life.pid, address));
    line.send(Command { what: COMMAND_OPEN, device: 0, address: 0, to: 0, bytes: 0 });
    wait_until("the line is gone", PATIENCE, || threads_named(life.pid, "ckpt-line") == 0);
    let line = holder.begin();
    stands_still(&life);
    let now: Vec<_> = descriptors(life.pid).into_iter().map(|(fd, _)| fd).collect();
    assert!(now.len() <= before.len() + 1, "{now:?}");
    line.open();
    go_on(&life);
    ends_well(life);
}

#[test]
fn a_program_may_close_all_its_descriptors_meanwhile() {
    let program = held("closing");
    let scene = Scene::new();
    let (life, mut holder) = started(&scene, &program, "ready");
    let line = holder.begin();
    assert_eq!(threads_named(life.pid, "ckpt-line"), 1);
    go_on(&life);
    life.output.wait_for_line("closed");
    // It is held all the same.
    line.get(COMMAND_IDENTIFY, 0, 0, 0);
    go_on(&life);
    wait_until("the call waits", PATIENCE, || {
        !life.output.text().contains("filled") && processes::waits_in(life.pid, libc::SYS_futex)
    });
    line.open();
    life.output.wait_for_line("filled");
    go_on(&life);
    ends_well(life);
}

#[test]
fn a_child_of_fork_is_not_held() {
    let program = held("forking");
    let scene = Scene::new();
    let (life, mut holder) = started(&scene, &program, "ready");
    let line = holder.begin();
    go_on(&life);
    life.output.wait_for_line("forked");
    line.open();
    go_on(&life);
    ends_well(life);
}

#[test]
fn a_program_that_does_not_use_the_driver_has_no_keeper() {
    let program = held("nothing");
    let scene = Scene::new();
    let life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("ready");
    assert_eq!(Holder::of(&scene, &life).hold().keeper, 0);
    assert_eq!(threads_named(life.pid, "ckpt-keeper"), 0);
    go_on(&life);
    ends_well(life);
}

#[test]
fn the_keeper_sleeps_with_its_signals_blocked_and_is_of_one_name() {
    let program = held("own context");
    let scene = Scene::new();
    let life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("no context");
    go_on(&life);
    life.output.wait_for_line("ready");
    let holder = Holder::of(&scene, &life);
    wait_until("there is a keeper", PATIENCE, || holder.hold().keeper != 0);
    let hold = holder.hold();
    assert_eq!(threads_named(life.pid, "ckpt-keeper"), 1);
    let status = fs::read_to_string(format!("/proc/{}/task/{}/status", life.pid, hold.keeper)).expect("it lives");
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("a mask").trim();
    let blocked = u64::from_str_radix(blocked, 16).expect("a mask in hexadecimal");
    // Not those that nobody can block (9 and 19), and libc's own two.
    assert_eq!(blocked | 1 << 8 | 1 << 18, !(1 << 31 | 1 << 32), "{blocked:x}");
    let maps = fs::read_to_string(format!("/proc/{}/maps", life.pid)).expect("it lives");
    let of_driver = |line: &&str| range_of(line).contains(&hold.driver);
    assert!(maps.lines().find(of_driver).is_some_and(|line| line.contains("libcuda.so.1")), "{:#x}", hold.driver);
    for _ in 0..2 {
        go_on(&life);
        life.output.wait_for_line("destroyed");
    }
    ends_well(life);
}

/// What is exported of the driver's names.
fn hooks() -> BTreeSet<String> {
    let output = Process::new("nm").args(["-D", "--defined-only"]).arg(product::library()).output().expect("binutils");
    let text = String::from_utf8(output.stdout).expect("names");
    let names = text.lines().filter_map(|line| line.split(' ').next_back());
    names.filter(|name| is_drivers(name)).map(str::to_owned).collect()
}

#[test]
fn every_hook_but_those_that_only_ask_waits_at_the_gate() {
    let mut names = hooks();
    let lookups = ["cuGetProcAddress", "cuGetProcAddress_v2", "cuModuleGetGlobal_v2"];
    let of_pointers = ["cuMemGetAddressRange_v2", "cuPointerGetAttribute", "cuPointerGetAttributes"];
    let of_ranges = ["cuMemRangeGetAttribute", "cuMemRangeGetAttributes"];
    for name in lookups.into_iter().chain(of_pointers).chain(of_ranges) {
        assert!(names.remove(name), "{name}");
    }
    let count = names.len();
    assert!(count > 200, "{count}");
    let driver = cuda::echo().join("libcuda.so.1");
    let program = names.into_iter().fold(cuda::program("gated").argument(driver), Program::argument);
    // Each calls the real function of its own name.
    let program = program.variable("CKPT_DEVICE_BACKING", "native");
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &program);
    let mut holder = Holder::of(&scene, &life);
    life.output.wait_for_line("ready");
    wait_until("there is a keeper", PATIENCE, || holder.hold().keeper != 0);
    let line = holder.begin();
    go_on(&life);
    life.output.wait_for_line("begun");
    let gate = || {
        // Each waits for one and the same word, and the main thread for a signal.
        let call = |tid: i32| fs::read_to_string(format!("/proc/{}/task/{tid}/syscall", life.pid)).unwrap_or_default();
        let calls: Vec<String> = processes::threads(life.pid).into_iter().map(call).collect();
        let words = |call: &String| call.split(' ').take(2).map(str::to_owned).collect::<Vec<_>>();
        let most = calls.iter().map(|one| calls.iter().filter(|other| words(one) == words(other)).count()).max();
        most >= Some(count)
    };
    wait_until("all threads wait at the gate", PATIENCE, gate);
    go_on(&life);
    life.output.wait_for_line("looked");
    line.open();
    go_on(&life);
    assert_eq!((code_of(life.wait()), life.errors().as_str()), (0, ""), "{}", life.output.text());
    let text = life.output.text();
    assert!(text.contains("called while held: 0\n") && text.ends_with(&format!("called: {count}\n")), "{text}");
}

/// By its symbol, and by its name and version as cudaTypedefs.h says, with the types that it has there.
#[test]
fn what_only_passes_the_gate_gets_the_arguments_that_it_was_called_with() {
    let listed = fs::read_to_string(product::repository().join("tests/victims/cuda/gated.h")).expect("a list");
    let listed: BTreeSet<&str> = listed.lines().filter_map(|line| line.strip_prefix("X(")?.split(',').next()).collect();
    for file in ["launches", "copies", "fills", "managed", "mappings", "loading", "captures"] {
        let path = product::repository().join(format!("preload/src/hooks/cuda/{file}.rs"));
        let source = fs::read_to_string(path).expect("a source");
        for hook in source.split([' ', '(', ',', '\n']).filter(|word| is_drivers(word)) {
            assert!(listed.contains(hook), "{hook} of {file}.rs has no line in gated.h");
        }
    }
    assert!(listed.iter().all(|&name| hooks().contains(name)));
    let program = cuda::program("gated").argument(cuda::echo().join("libcuda.so.1"));
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &program);
    assert_eq!((code_of(life.wait()), life.errors().as_str()), (0, ""), "{}", life.output.text());
    assert_eq!(life.output.text(), format!("{} entry points\n", listed.len()));
}

fn is_drivers(word: &str) -> bool {
    word.strip_prefix("cu").is_some_and(|rest| rest.starts_with(char::is_uppercase))
}

/// A callback of the driver's may call the driver. Its thread is inside of the gate already.
#[test]
fn a_call_inside_of_a_call_passes_a_closed_gate() {
    let program = cuda::program("gated").argument(cuda::echo().join("libcuda.so.1")).argument("nested");
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &program);
    let mut holder = Holder::of(&scene, &life);
    life.output.wait_for_line("inside");
    wait_until("there is a keeper", PATIENCE, || holder.hold().keeper != 0);
    holder.ask(20_000);
    let line = holder.accept();
    // The gate is closed right after; nothing outside shows that.
    std::thread::sleep(Duration::from_millis(100));
    go_on(&life);
    assert_eq!(line.held().outcome, HELD);
    line.open();
    life.output.wait_for_line("outside");
    go_on(&life);
    assert_eq!((code_of(life.wait()), life.errors().as_str()), (0, ""), "{}", life.output.text());
}

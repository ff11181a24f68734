//! Rebuilds a hand-made program and watches it run.
//!
//! The program is a page of machine code at a fixed address with two threads. What it writes into its file proves
//! one property each: registers, extended state, queued signal and its stack, eventfd, offset of a file, pipe content,
//! epoll data. It needs root and says so where it is skipped.

mod files;
mod lab;
mod other_kernel;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::host::Machine;
use super::options::RestoreOptions;
use super::rebuild;
use crate::error::Error;
use crate::image::*;
use lab::*;

/// The exit status, or a failure after ten seconds, when the process is ended.
fn wait_for_exit(pid: i32) -> i32 {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut status = 0;
        // SAFETY: waitpid writes one int to `status`.
        let waited = unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) };
        assert_ne!(waited, -1, "{pid} is not our child");
        if waited == pid {
            return status;
        }
        if Instant::now() > deadline {
            // SAFETY: takes numbers; the child has not been reaped, so the id is its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            panic!("the rebuilt program did not end");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn exists(pid: i32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

#[test]
fn a_program_goes_on_where_it_was() {
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    let id = lab.seal(sample);
    fs::write(lab.dir.path().join("output"), b"before|after the checkpoint").unwrap();

    let mut stages = Vec::new();
    let rebuilt = rebuild(&lab.store, id, &RestoreOptions::default(), &mut |stage, done, total| {
        assert!(done <= total);
        stages.push(stage);
    })
    .unwrap();
    stages.dedup();
    use super::Stage::{Born, Mapping, Reading, Threads, Verifying};
    assert_eq!(stages, [Reading, Verifying, Born, Mapping, Threads]);
    let pid = rebuilt.pid();
    check_from_outside(&rebuilt);
    rebuilt.release(&mut |_, _, _| {}).unwrap();

    let status = wait_for_exit(pid);
    let output = fs::read(lab.dir.path().join("output")).unwrap();
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "status {status:#x}, output {output:x?}");
    let mut expected = b"before|signal!\ntick...\ntick...\ntick...\n".to_vec();
    expected.extend(42u64.to_le_bytes());
    expected.extend(b"3456");
    expected.extend(0x0102_0304_0506_0708u64.to_le_bytes());
    expected.extend(0x1122_3344_5566_7788u64.to_le_bytes());
    expected.extend(b"piped");
    expected.extend(b"sharedsealed");
    expected.extend(0xfeedu64.to_le_bytes());
    let (content, stack) = output.split_at(output.len() - 8);
    assert_eq!(content, expected);
    let stack = u64::from_le_bytes(stack.try_into().unwrap());
    assert!((STACK + 0x2000..STACK + STACK_BYTES).contains(&stack), "handler ran at {stack:#x}");
    assert_eq!(fs::read(lab.dir.path().join("output.ckpt-1.tail")).unwrap(), b"after the checkpoint");
}

/// What the kernel says about the rebuilt process before it runs.
fn check_from_outside(rebuilt: &super::Rebuilt) {
    let proc = Path::new("/proc").join(rebuilt.pid().to_string());
    let text = |name: &str| fs::read_to_string(proc.join(name)).unwrap();
    let image = rebuilt.image();
    assert_eq!(fs::read_link(proc.join("exe")).unwrap(), fs::canonicalize("/bin/true").unwrap());
    assert_eq!(text("comm"), "the main one\n");
    assert_eq!(text("oom_score_adj"), "100\n");
    assert!(text("status").contains("Umask:\t0027\n"));
    assert!(text("limits").lines().any(|line| line.starts_with("Max open files            100                  200")));
    let second = format!("task/{}", image.threads[1].tid);
    assert_eq!(text(&format!("{second}/comm")), "the second\n");
    assert_eq!(text(&format!("{second}/stat")).split(' ').nth(19), Some("5"), "nice value");

    let mut numbers: Vec<i32> = fs::read_dir(proc.join("fd"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    numbers.sort_unstable();
    let mut expected: Vec<i32> = image.descriptors.iter().map(|descriptor| descriptor.number).collect();
    expected.sort_unstable();
    assert_eq!(numbers, expected);
    let flags = |number: i32| {
        let info = text(&format!("fdinfo/{number}"));
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:\t")).unwrap();
        i32::from_str_radix(flags, 8).unwrap()
    };
    assert_eq!(flags(40) & (libc::O_CLOEXEC | libc::O_NONBLOCK), libc::O_CLOEXEC);
    assert_eq!(flags(41) & (libc::O_CLOEXEC | libc::O_NONBLOCK), libc::O_NONBLOCK);

    let maps = text("maps");
    let mut ours: Vec<(u64, u64)> = image.regions.iter().map(|region| (region.address, region.bytes)).collect();
    ours.extend(image.special_mappings.iter().map(|mapping| (mapping.address, mapping.bytes)));
    let found: Vec<(u64, u64)> = maps
        .lines()
        .filter(|line| !line.ends_with("[vsyscall]"))
        .map(|line| {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let [start, end] = [start, end].map(|number| u64::from_str_radix(number, 16).unwrap());
            (start, end - start)
        })
        .collect();
    assert_eq!(found, ours, "{maps}");
}

#[test]
fn vdso_and_vvar_move_to_where_the_program_had_them() {
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    for shift in [-0x1000i64, 0x2000, 0x7000_0000, -0x7000_0000_0000] {
        let id = lab.seal(|lab, store| {
            let mut image = sample(lab, store);
            for mapping in &mut image.processes[0].special_mappings {
                mapping.address = mapping.address.wrapping_add_signed(shift);
            }
            image
        });
        let rebuilt = rebuild(&lab.store, id, &RestoreOptions::default(), &mut |_, _, _| {}).unwrap();
        let pid = rebuilt.pid();
        check_from_outside(&rebuilt);
        rebuilt.release(&mut |_, _, _| {}).unwrap();
        assert_eq!(libc::WEXITSTATUS(wait_for_exit(pid)), 7);
    }
}

#[test]
fn a_process_that_is_not_released_is_gone() {
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    let id = lab.seal(sample);
    let rebuilt = rebuild(&lab.store, id, &RestoreOptions::default(), &mut |_, _, _| {}).unwrap();
    let pid = rebuilt.pid();
    assert!(exists(pid));
    drop(rebuilt);
    assert!(!exists(pid));
    assert_eq!(fs::read(lab.dir.path().join("output")).unwrap(), b"before|");
}

#[test]
fn a_failure_half_way_leaves_neither_process_nor_traces_on_disk() {
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    let mut pid = 0;
    let id = lab.seal(|lab, store| {
        let mut image = sample(lab, store);
        // The kernel takes no signal stack as small as this: the failure is in the last phase.
        image.processes[0].threads[1].alternate_stack = AlternateStack { address: STACK, flags: 0, bytes: 16 };
        pid = image.processes[0].pid;
        image
    });
    fs::write(lab.dir.path().join("output"), b"before|after").unwrap();
    let error = rebuild(&lab.store, id, &RestoreOptions::default(), &mut |_, _, _| {}).unwrap_err();
    assert!(matches!(error, Error::RemoteCall { call: "sigaltstack", .. }), "{error}");
    assert!(!exists(pid));
    assert_eq!(fs::read(lab.dir.path().join("output")).unwrap(), b"before|after");
}

/// Where the processor puts a state component in the XSAVE area.
fn place_of(component: u32) -> usize {
    std::arch::x86_64::__cpuid_count(0xd, component).ebx as usize
}

#[test]
fn live_tiles_come_back() {
    const TILES: u64 = 0b11 << 17;
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    if Machine::this().unwrap().host.xcr0 & TILES != TILES {
        println!("SKIPPED: this processor has no AMX");
        return;
    }
    let tile: Vec<u8> = (0..1024u32).map(|at| (at * 7 + at / 64) as u8).collect();
    let id = lab.seal(|lab, store| {
        let mut image = sample(lab, store);
        let (configuration, data) = (place_of(17), place_of(18));
        let mut state = extended_state(0);
        state.resize(data + 8192, 0);
        state[512..520].copy_from_slice(&(TILES | 0b11).to_le_bytes());
        state[configuration] = 1;
        state[configuration + 16] = 64;
        state[configuration + 48] = 16;
        state[data..data + 1024].copy_from_slice(&tile);
        image.processes[0].threads[0].extended_state = state;
        image.processes[0].threads[0].registers[16] = address_of(&raw const ckpt_sample_tiles);
        image
    });
    let rebuilt = rebuild(&lab.store, id, &RestoreOptions::default(), &mut |_, _, _| {}).unwrap();
    let pid = rebuilt.pid();
    check_from_outside(&rebuilt);
    rebuilt.release(&mut |_, _, _| {}).unwrap();
    assert_eq!(libc::WEXITSTATUS(wait_for_exit(pid)), 7);
    let output = fs::read(lab.dir.path().join("output")).unwrap();
    assert!(output.ends_with(&tile), "{} bytes", output.len());
    println!("TILES CHECKED");
}

#[test]
fn every_thread_gets_the_users_and_groups_of_the_program() {
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    let id = lab.seal(|lab, store| {
        let mut image = sample(lab, store);
        image.processes[0].uids = [1001, 1002, 1003, 1002];
        image.processes[0].gids = [2001, 2002, 2003, 2002];
        image.processes[0].groups = vec![7, 5000];
        // An ordinary user has none, whatever the restarter has.
        let bounding = image.processes[0].capabilities.bounding;
        image.processes[0].capabilities = Capabilities { bounding, ..Capabilities::default() };
        image.processes[0].no_new_privs = true;
        image.processes[0].personality = 0x0040_0000; // READ_IMPLIES_EXEC
        image
    });
    let rebuilt = rebuild(&lab.store, id, &RestoreOptions::default(), &mut |_, _, _| {}).unwrap();
    check_from_outside(&rebuilt);
    let pid = rebuilt.pid();
    for thread in &rebuilt.image().threads {
        let status = fs::read_to_string(format!("/proc/{pid}/task/{}/status", thread.tid)).unwrap();
        for line in
            ["Uid:\t1001\t1002\t1003\t1002", "Gid:\t2001\t2002\t2003\t2002", "Groups:\t7 5000", "NoNewPrivs:\t1"]
        {
            assert!(status.contains(line), "{line} in {status}");
        }
        assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
        let personality = fs::read_to_string(format!("/proc/{pid}/task/{}/personality", thread.tid)).unwrap();
        assert_eq!(personality, "00400000\n");
    }
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(format!("/proc/{pid}")).unwrap());
    assert_eq!(owner, 1002, "the process can be traced by its user");
    rebuilt.release(&mut |_, _, _| {}).unwrap();
    assert_eq!(libc::WEXITSTATUS(wait_for_exit(pid)), 7);
}

#[test]
fn a_file_that_cannot_be_opened_is_named_by_the_child() {
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    let id = lab.seal(|lab, store| {
        let mut image = sample(lab, store);
        image.objects.pipes[0].capacity = u32::MAX;
        image
    });
    let error = rebuild(&lab.store, id, &RestoreOptions::default(), &mut |_, _, _| {}).unwrap_err();
    assert!(error.to_string().contains("pipe 0"), "{error}");
}

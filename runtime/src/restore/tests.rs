//! Rebuilds a hand-made program and watches it run.
//!
//! The program is a page of machine code at a fixed address with two threads. What it writes into its file proves
//! one property each: registers, extended state, queued signal and its stack, eventfd, offset of a file, pipe content,
//! epoll data. It needs root and says so where it is skipped.

use std::arch::global_asm;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ckpt_store::{AttemptEnd, AttemptStart, PAGE_BYTES, PageList, PageListRef, Store};
use serde_bytes::ByteBuf;

use super::host::Machine;
use super::sample::{self, ScratchDir};
use super::{RestoreOptions, rebuild};
use crate::error::Error;
use crate::image::*;

const CODE: u64 = 0x1000_0000;
const DATA: u64 = 0x2000_0000;
const SHARED: u64 = 0x3000_0000;
const READ_ONLY: u64 = 0x4000_0000;
const STACK: u64 = 0x5000_0000;
const STACK_BYTES: u64 = 0x4000;

global_asm!(
    ".pushsection .rodata",
    ".set DATA, 0x20000000",
    ".macro call number, a, b, c, d=0",
    "mov eax, \\number",
    "mov edi, \\a",
    "mov esi, \\b",
    "mov edx, \\c",
    "mov r10d, \\d",
    "syscall",
    ".endm",
    ".global ckpt_sample_start, ckpt_sample_thread, ckpt_sample_handler, ckpt_sample_restorer, ckpt_sample_end",
    "ckpt_sample_start:",
    "2: call 1, 1, DATA, 8", // write(1, "tick...\n") as often as r12 says
    "dec r12",
    "jnz 2b",
    "3: mov eax, 24", // sched_yield until the other thread has spoken
    "syscall",
    "cmp qword ptr [DATA+64], 0",
    "je 3b",
    "call 1, 1, DATA+64, 8",  // what the eventfd counted
    "call 0, 6, DATA+256, 4", // four bytes of the file from its offset
    "call 1, 1, DATA+256, 4",
    "movq qword ptr [DATA+512], xmm5",
    "call 1, 1, DATA+512, 8",
    "call 232, 8, DATA+768, 1, 1000", // epoll_wait
    "mov rax, [DATA+772]",
    "mov [DATA+800], rax",
    "call 1, 1, DATA+800, 8", // the user data of the watched pipe
    "call 0, 7, DATA+1024, 5",
    "call 1, 1, DATA+1024, 5",  // the content of the pipe
    "call 1, 1, 0x30000000, 6", // shared memory
    "call 1, 1, 0x40000000, 6", // memory that cannot be written
    "call 1, 1, DATA+608, 16",  // value of the signal, stack of its handler
    "call 231, 7, 0, 0",        // exit_group(7)
    "ckpt_sample_thread:",
    "call 0, 5, DATA+128, 8",
    "mov rax, [DATA+128]",
    "mov [DATA+64], rax",
    "4: mov eax, 34", // pause
    "syscall",
    "jmp 4b",
    "ckpt_sample_handler:",
    "mov rax, [rsi+24]", // si_value
    "mov [DATA+608], rax",
    "mov [DATA+616], rsp",
    "call 1, 1, DATA+16, 8", // write(1, "signal!\n")
    "ret",
    "ckpt_sample_restorer:",
    "mov eax, 15", // rt_sigreturn
    "syscall",
    "ckpt_sample_end:",
    ".popsection",
);

unsafe extern "C" {
    static ckpt_sample_start: u8;
    static ckpt_sample_thread: u8;
    static ckpt_sample_handler: u8;
    static ckpt_sample_restorer: u8;
    static ckpt_sample_end: u8;
}

/// The forks and their process ids are one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn code() -> Vec<u8> {
    let start = &raw const ckpt_sample_start;
    let bytes = &raw const ckpt_sample_end as usize - start as usize;
    // SAFETY: the assembly above lies between the two labels, in memory that never changes.
    unsafe { std::slice::from_raw_parts(start, bytes) }.to_vec()
}

fn address_of(label: *const u8) -> u64 {
    CODE + (label as usize - &raw const ckpt_sample_start as usize) as u64
}

/// Two ids that nobody has.
fn free_ids() -> (i32, i32) {
    let mut free = (20_000..32_000).rev().filter(|id| !Path::new("/proc").join(id.to_string()).exists());
    (free.next().unwrap(), free.next().unwrap())
}

struct Lab {
    dir: ScratchDir,
    store: Store,
}

impl Lab {
    fn new() -> Option<Lab> {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIPPED: rebuilding a process with its own pid needs root");
            return None;
        }
        let dir = ScratchDir::new();
        let store = Store::create_or_open(&dir.path().join("store")).unwrap();
        Some(Lab { dir, store })
    }

    fn seal(&self, build: impl FnOnce(&Lab, &mut dyn FnMut(&[u8]) -> PageListRef) -> ProcessImage) -> u64 {
        let start = AttemptStart {
            job: "0123456789abcdef".into(),
            name: "sample".into(),
            trigger: "test".into(),
            started_unix_ms: 0,
            processes: 1,
        };
        let mut attempt = self.store.begin(start).unwrap();
        let image = build(self, &mut |content| {
            let mut padded = content.to_vec();
            padded.resize(content.len().next_multiple_of(PAGE_BYTES), 0);
            let keys = attempt.write_pages(&padded).unwrap();
            let mut list = PageList::new();
            list.set_run(0, &keys);
            attempt.write_page_list(&list).unwrap()
        });
        let end = AttemptEnd { memory_bytes: 0, stop_ms: 0.0, total_ms: 0.0, processes: 1 };
        attempt.seal(end, &encode(&image)).unwrap().id
    }

    fn path(&self, name: &str) -> Vec<u8> {
        self.dir.path().join(name).into_os_string().into_encoded_bytes()
    }

    fn regular(&self, name: &str, flags: i32, size: u64, offset: u64) -> OpenFile {
        let modified_ns = {
            use std::os::unix::fs::MetadataExt;
            let metadata = fs::metadata(self.dir.path().join(name)).unwrap();
            metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec()
        };
        let inode = name.len() as u64;
        let kind = FileKind::Regular { path: self.path(name), device: (0, 0), inode, size, offset, modified_ns };
        OpenFile { kind, flags }
    }
}

fn region(address: u64, bytes: u64, protection: i32, backing: Backing, pages: PageListRef) -> Region {
    let advice = Advice::default();
    Region { address, bytes, protection, backing, advice, name: Vec::new(), pages, own_pages: Vec::new() }
}

fn data_page() -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    page[..8].copy_from_slice(b"tick...\n");
    page[16..24].copy_from_slice(b"signal!\n");
    page
}

fn extended_state(xmm5: u64) -> Vec<u8> {
    let mut state = vec![0; 2696];
    state[..2].copy_from_slice(&0x37fu16.to_le_bytes()); // x87 control word
    state[24..28].copy_from_slice(&0x1f80u32.to_le_bytes()); // mxcsr
    state[160 + 5 * 16..160 + 5 * 16 + 8].copy_from_slice(&xmm5.to_le_bytes());
    state[512] = 0b11;
    state
}

/// Registers that begin at `rip` with a stack; the segments are those of every 64-bit program.
fn registers(rip: u64, rsp: u64, r12: u64) -> Vec<u64> {
    let mut words = vec![0; 27];
    (words[3], words[15], words[16], words[17]) = (r12, u64::MAX, rip, 0x33);
    (words[18], words[19], words[20]) = (0x202, rsp, 0x2b);
    words
}

fn queued_signal(signal: i32, value: u64) -> ByteBuf {
    let mut siginfo = vec![0; 128];
    siginfo[..4].copy_from_slice(&signal.to_ne_bytes());
    siginfo[8..12].copy_from_slice(&(-1i32).to_ne_bytes()); // SI_QUEUE
    siginfo[24..32].copy_from_slice(&value.to_ne_bytes());
    ByteBuf::from(siginfo)
}

/// The sample program in the middle of its life.
fn sample(lab: &Lab, store: &mut dyn FnMut(&[u8]) -> PageListRef) -> ProcessImage {
    let machine = Machine::this().unwrap();
    let mut image = sample::image(&machine);
    let (pid, tid) = free_ids();
    image.pid = pid;
    image.working_directory = lab.path("");
    lab.dir.file("output", b"before|");
    lab.dir.file("input", b"0123456789");
    image.files = vec![
        lab.regular("output", libc::O_WRONLY | libc::O_APPEND, 7, 7),
        OpenFile { kind: FileKind::Standard { stream: 2, was: b"/dev/pts/0".to_vec() }, flags: libc::O_RDWR },
        OpenFile { kind: FileKind::EventFd { count: 42, semaphore: false }, flags: libc::O_RDWR },
        lab.regular("input", libc::O_RDONLY, 10, 3),
        OpenFile { kind: FileKind::Pipe { pipe: 0 }, flags: libc::O_RDONLY | libc::O_NONBLOCK },
        OpenFile {
            kind: FileKind::Epoll {
                targets: vec![EpollTarget { number: 7, events: libc::EPOLLIN as u32, data: 0x1122_3344_5566_7788 }],
            },
            flags: libc::O_RDWR,
        },
        OpenFile { kind: FileKind::Pipe { pipe: 0 }, flags: libc::O_WRONLY },
        OpenFile { kind: FileKind::Pipe { pipe: 0 }, flags: libc::O_WRONLY | libc::O_NONBLOCK },
        OpenFile { kind: FileKind::Device { path: b"/dev/null".to_vec() }, flags: libc::O_RDWR },
    ];
    let numbers = [(1, 0), (2, 1), (5, 2), (6, 3), (7, 4), (8, 5), (40, 6), (41, 7), (0, 8), (90, 0)];
    image.descriptors = numbers.map(|(number, file)| Descriptor { number, file, close_on_exec: number == 40 }).to_vec();
    image.pipes = vec![PipeContent { capacity: 8192, content: b"piped".to_vec(), has_reader: true, has_writer: true }];

    let read_write = libc::PROT_READ | libc::PROT_WRITE;
    let object = Backing::SharedObject { object: 0, offset: 4096 };
    image.shared_objects = vec![SharedObject { name: b"together".to_vec(), bytes: 8192 }];
    image.regions = vec![
        region(CODE, 0x1000, libc::PROT_READ | libc::PROT_EXEC, Backing::Anonymous, store(&code())),
        region(DATA, 0x1000, read_write, Backing::Anonymous, store(&data_page())),
        region(SHARED, 0x1000, libc::PROT_READ, object, store(b"shared")),
        region(READ_ONLY, 0x1000, libc::PROT_READ, Backing::Anonymous, store(b"sealed")),
        region(STACK, STACK_BYTES, read_write, Backing::Anonymous, store(&[])),
    ];
    let action = SignalAction {
        signal: libc::SIGUSR1,
        handler: address_of(&raw const ckpt_sample_handler),
        flags: (libc::SA_SIGINFO | libc::SA_ONSTACK | 0x0400_0000) as u64,
        restorer: address_of(&raw const ckpt_sample_restorer),
        mask: 0,
    };
    image.signal_actions = vec![action];
    image.queued_signals = vec![queued_signal(libc::SIGUSR1, 0xfeed)];
    image.limits = vec![Limit { resource: libc::RLIMIT_NOFILE, soft: 100, hard: 200 }];
    image.layout = Layout {
        start_code: CODE,
        end_code: CODE + 0x1000,
        start_data: DATA,
        end_data: DATA + 0x1000,
        start_brk: DATA + 0x1000,
        brk: DATA + 0x1000,
        start_stack: STACK + STACK_BYTES,
        arg_start: STACK,
        arg_end: STACK + 8,
        env_start: STACK + 8,
        env_end: STACK + 16,
    };

    let mut main = sample::thread(pid);
    main.registers = registers(address_of(&raw const ckpt_sample_start), STACK + 0x1000, 3);
    main.extended_state = extended_state(0x0102_0304_0506_0708);
    main.alternate_stack = AlternateStack { address: STACK + 0x2000, flags: 0, bytes: 0x2000 };
    main.name = b"the main one".to_vec();
    let mut second = sample::thread(tid);
    second.registers = registers(address_of(&raw const ckpt_sample_thread), STACK + 0x800, 0);
    second.extended_state = extended_state(0);
    second.signal_mask = u64::MAX;
    second.name = b"the second".to_vec();
    second.scheduling.nice = 5;
    image.threads = vec![main, second];
    image
}

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
    assert_eq!(stages, [super::Stage::Reading, super::Stage::Verifying, super::Stage::Mapping, super::Stage::Threads]);
    let pid = rebuilt.pid();
    check_from_outside(&rebuilt);
    rebuilt.release().unwrap();

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
    assert!((STACK + 0x2000..STACK + 0x4000).contains(&stack), "handler ran at {stack:#x}");
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
            for mapping in &mut image.special_mappings {
                mapping.address = mapping.address.wrapping_add_signed(shift);
            }
            image
        });
        let rebuilt = rebuild(&lab.store, id, &RestoreOptions::default(), &mut |_, _, _| {}).unwrap();
        let pid = rebuilt.pid();
        check_from_outside(&rebuilt);
        rebuilt.release().unwrap();
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
        image.threads[1].alternate_stack = AlternateStack { address: STACK, flags: 0, bytes: 16 };
        pid = image.pid;
        image
    });
    fs::write(lab.dir.path().join("output"), b"before|after").unwrap();
    let error = rebuild(&lab.store, id, &RestoreOptions::default(), &mut |_, _, _| {}).unwrap_err();
    assert!(matches!(error, Error::RemoteCall { call: "sigaltstack", .. }), "{error}");
    assert!(!exists(pid));
    assert_eq!(fs::read(lab.dir.path().join("output")).unwrap(), b"before|after");
}

/// Adds the mapping of a file to the sample at `READ_ONLY + 0x10000`, changes the file, and rebuilds.
fn rebuilt_over_a_changed_file(
    lab: &Lab,
    content: &[u8],
    changed: &[u8],
    map: impl FnOnce(FileIdentity, PageListRef) -> Region,
) -> super::Rebuilt {
    let path = lab.dir.file("mapped", content);
    let id = lab.seal(|lab, store| {
        let mut image = sample(lab, store);
        let identity = FileIdentity {
            path: lab.path("mapped"),
            deleted: false,
            device: (0, 0),
            inode: 1,
            size: content.len() as u64,
            mode: 0o600,
            offset: 0,
        };
        image.regions.insert(4, map(identity, store(content)));
        image
    });
    fs::write(path, changed).unwrap();
    rebuild(&lab.store, id, &RestoreOptions::default(), &mut |_, _, _| {}).unwrap()
}

const MAPPED: u64 = READ_ONLY + 0x10000;

/// Name of the mapping at `MAPPED`, and its bytes.
fn mapped(rebuilt: &super::Rebuilt, bytes: usize) -> (String, Vec<u8>) {
    let maps = fs::read_to_string(format!("/proc/{}/maps", rebuilt.pid())).unwrap();
    let line = maps.lines().find(|line| line.starts_with(&format!("{MAPPED:x}-"))).unwrap();
    let mut content = vec![0; bytes];
    crate::ptrace::read_memory(rebuilt.pid(), MAPPED, &mut content).unwrap();
    (line.split_ascii_whitespace().nth(5).unwrap_or_default().to_owned(), content)
}

#[test]
fn a_private_mapping_shows_the_file_while_it_is_what_it_was() {
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    let content = [[1u8; PAGE_BYTES], [2; PAGE_BYTES]].concat();
    let map = |identity, pages| {
        let mut region = region(MAPPED, 0x2000, libc::PROT_READ, Backing::PrivateFile(identity), pages);
        region.own_pages = vec![PageRange { first: 1, count: 1 }];
        region
    };
    // The second page is the program's own: the file may say what it likes there.
    let changed = [[1u8; PAGE_BYTES], [3; PAGE_BYTES]].concat();
    let rebuilt = rebuilt_over_a_changed_file(&lab, &content, &changed, map);
    let (name, found) = mapped(&rebuilt, content.len());
    assert!(name.ends_with("/mapped"), "{name}");
    assert!(found == content);
    drop(rebuilt);
    for changed in [[[4u8; PAGE_BYTES], [2; PAGE_BYTES]].concat(), content[..PAGE_BYTES].to_vec(), Vec::new()] {
        let rebuilt = rebuilt_over_a_changed_file(&lab, &content, &changed, map);
        let (name, found) = mapped(&rebuilt, content.len());
        assert_eq!(name, "");
        assert!(found == content);
    }
}

#[test]
fn a_shared_file_gets_its_pages_and_its_size_back() {
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    let content = [vec![1u8; PAGE_BYTES], vec![2; 100]].concat();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    for changed in [b"short".to_vec(), vec![9; content.len()], content.clone()] {
        let rebuilt = rebuilt_over_a_changed_file(&lab, &content, &changed, |file, pages| {
            region(MAPPED, 0x2000, protection, Backing::SharedFile { file, may_write: true }, pages)
        });
        let (name, found) = mapped(&rebuilt, content.len());
        assert!(name.ends_with("/mapped"), "{name}");
        assert!(found == content);
        assert!(fs::read(lab.dir.path().join("mapped")).unwrap() == content);
    }
}

#[test]
fn every_thread_gets_the_users_and_groups_of_the_program() {
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    let id = lab.seal(|lab, store| {
        let mut image = sample(lab, store);
        image.uids = [1001, 1002, 1003, 1002];
        image.gids = [2001, 2002, 2003, 2002];
        image.groups = vec![7, 5000];
        image.no_new_privs = true;
        image.personality = 0x0040_0000; // READ_IMPLIES_EXEC
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
    rebuilt.release().unwrap();
    assert_eq!(libc::WEXITSTATUS(wait_for_exit(pid)), 7);
}

#[test]
fn a_file_that_cannot_be_opened_is_named_by_the_child() {
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    let id = lab.seal(|lab, store| {
        let mut image = sample(lab, store);
        image.pipes[0].capacity = u32::MAX;
        image
    });
    let error = rebuild(&lab.store, id, &RestoreOptions::default(), &mut |_, _, _| {}).unwrap_err();
    assert!(error.to_string().contains("pipe 0"), "{error}");
}

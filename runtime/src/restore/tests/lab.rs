//! The program of the tests, and what seals and rebuilds it.

use std::arch::global_asm;
use std::fs::{self, File};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ckpt_store::{AttemptEnd, AttemptStart, PAGE_BYTES, PageList, PageListRef, Store};
use serde_bytes::ByteBuf;

use crate::image::*;
use crate::restore::host::Machine;
use crate::restore::sample::{self, ScratchDir};

pub const CODE: u64 = 0x1000_0000;
pub const DATA: u64 = 0x2000_0000;
pub const SHARED: u64 = 0x3000_0000;
pub const READ_ONLY: u64 = 0x4000_0000;
pub const STACK: u64 = 0x5000_0000;
pub const STACK_BYTES: u64 = 0x8000;

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
    ".global ckpt_sample_start, ckpt_sample_thread, ckpt_sample_handler, ckpt_sample_restorer",
    ".global ckpt_sample_tiles, ckpt_sample_end",
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
    "ckpt_sample_tiles:",
    "mov ebx, 64",
    "mov eax, DATA+2048",
    ".byte 0xc4, 0xe2, 0x7a, 0x4b, 0x04, 0x18", // tilestored [rax+rbx], tmm0
    "call 1, 1, DATA+2048, 1024",
    "call 231, 7, 0, 0",
    "ckpt_sample_end:",
    ".popsection",
);

unsafe extern "C" {
    pub static ckpt_sample_start: u8;
    static ckpt_sample_thread: u8;
    static ckpt_sample_handler: u8;
    static ckpt_sample_restorer: u8;
    pub static ckpt_sample_tiles: u8;
    static ckpt_sample_end: u8;
}

/// Holds the tests apart: threads of one process by the mutex, processes by the lock of a file.
pub struct Alone {
    file: File,
    _threads: MutexGuard<'static, ()>,
}

impl Drop for Alone {
    fn drop(&mut self) {
        // Explicitly: a child that a test has left behind may hold a copy of the descriptor.
        let _ = self.file.unlock();
    }
}

/// The forks and their process ids are one at a time.
pub fn alone() -> Alone {
    static ALONE: Mutex<()> = Mutex::new(());
    let threads = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let name = format!("ckpt-restore-tests-{}.lock", nix::unistd::geteuid());
    let file = File::create(std::env::temp_dir().join(name)).unwrap();
    file.lock().unwrap();
    Alone { file, _threads: threads }
}

fn code() -> Vec<u8> {
    let start = &raw const ckpt_sample_start;
    let bytes = &raw const ckpt_sample_end as usize - start as usize;
    // SAFETY: the assembly above lies between the two labels, in memory that never changes.
    unsafe { std::slice::from_raw_parts(start, bytes) }.to_vec()
}

pub fn address_of(label: *const u8) -> u64 {
    CODE + (label as usize - &raw const ckpt_sample_start as usize) as u64
}

/// Two ids that nobody has.
pub fn free_ids() -> (i32, i32) {
    let mut free = (20_000..32_000).rev().filter(|id| !Path::new("/proc").join(id.to_string()).exists());
    (free.next().unwrap(), free.next().unwrap())
}

pub struct Lab {
    pub dir: ScratchDir,
    pub store: Store,
}

impl Lab {
    pub fn new() -> Option<Lab> {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIPPED: rebuilding a process with its own pid needs root");
            return None;
        }
        let dir = ScratchDir::new();
        let store = Store::create_or_open(&dir.path().join("store")).unwrap();
        Some(Lab { dir, store })
    }

    pub fn seal(&self, build: impl FnOnce(&Lab, &mut dyn FnMut(&[u8]) -> PageListRef) -> JobImage) -> u64 {
        let start = AttemptStart {
            job: "0123456789abcdef".into(),
            name: "sample".into(),
            trigger: "test".into(),
            processes: 1,
            ..Default::default()
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
        let end = AttemptEnd { processes: 1, ..AttemptEnd::default() };
        attempt.seal(end, &encode(&image)).unwrap().id
    }

    pub fn path(&self, name: &str) -> Vec<u8> {
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

pub fn region(address: u64, bytes: u64, protection: i32, backing: Backing, pages: PageListRef) -> Region {
    let advice = Advice::default();
    Region {
        address,
        bytes,
        protection,
        backing,
        advice,
        name: Vec::new(),
        pages,
        own_pages: Vec::new(),
        follows: None,
        guards: Vec::new(),
        pending: None,
        in_differences: false,
    }
}

fn data_page() -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    page[..8].copy_from_slice(b"tick...\n");
    page[16..24].copy_from_slice(b"signal!\n");
    page
}

pub fn extended_state(xmm5: u64) -> Vec<u8> {
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
pub fn sample(lab: &Lab, store: &mut dyn FnMut(&[u8]) -> PageListRef) -> JobImage {
    let machine = Machine::this().unwrap();
    let mut job = sample::job(&machine);
    let objects = &mut job.objects;
    let image = &mut job.processes[0];
    let (pid, tid) = free_ids();
    image.pid = pid;
    image.working_directory = lab.path("");
    lab.dir.file("output", b"before|");
    lab.dir.file("input", b"0123456789");
    objects.files = vec![
        lab.regular("output", libc::O_WRONLY | libc::O_APPEND, 7, 7),
        OpenFile { kind: FileKind::Standard { stream: 2, was: b"/dev/pts/0".to_vec() }, flags: libc::O_RDWR },
        OpenFile { kind: FileKind::EventFd { count: 42, semaphore: false }, flags: libc::O_RDWR },
        lab.regular("input", libc::O_RDONLY, 10, 3),
        OpenFile { kind: FileKind::Pipe { pipe: 0 }, flags: libc::O_RDONLY | libc::O_NONBLOCK },
        OpenFile {
            kind: FileKind::Epoll {
                targets: vec![EpollTarget {
                    number: 7,
                    events: libc::EPOLLIN as u32,
                    data: 0x1122_3344_5566_7788,
                    file: None,
                }],
            },
            flags: libc::O_RDWR,
        },
        OpenFile { kind: FileKind::Pipe { pipe: 0 }, flags: libc::O_WRONLY },
        OpenFile { kind: FileKind::Pipe { pipe: 0 }, flags: libc::O_WRONLY | libc::O_NONBLOCK },
        OpenFile { kind: FileKind::Device { path: b"/dev/null".to_vec() }, flags: libc::O_RDWR },
    ];
    let numbers = [(1, 0), (2, 1), (5, 2), (6, 3), (7, 4), (8, 5), (40, 6), (41, 7), (0, 8), (90, 0)];
    image.descriptors = numbers.map(|(number, file)| Descriptor { number, file, close_on_exec: number == 40 }).to_vec();
    objects.pipes = vec![PipeContent {
        capacity: 8192,
        content: b"piped".to_vec(),
        has_reader: true,
        has_writer: true,
        ..PipeContent::default()
    }];

    let read_write = libc::PROT_READ | libc::PROT_WRITE;
    let object = Backing::SharedObject { object: 0, offset: 4096 };
    objects.memory = vec![SharedObject { name: b"together".to_vec(), bytes: 8192, ..SharedObject::default() }];
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
    main.alternate_stack = AlternateStack { address: STACK + 0x2000, flags: 0, bytes: STACK_BYTES - 0x2000 };
    main.name = b"the main one".to_vec();
    let mut second = sample::thread(tid);
    second.registers = registers(address_of(&raw const ckpt_sample_thread), STACK + 0x800, 0);
    second.extended_state = extended_state(0);
    second.signal_mask = u64::MAX;
    second.name = b"the second".to_vec();
    second.scheduling.nice = 5;
    image.threads = vec![main, second];
    job
}

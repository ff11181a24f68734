//! How the agent holds a program's devices still, and has their memory read.
//!
//! Content of device memory that nobody may change meanwhile: for that libckpt.so has a **gate** before every call that
//! changes device memory, allocates or frees it, and a **keeper**, a thread of its own that sleeps until it is asked. The
//! agent writes [`Hold::socket`] and then a new [`Hold::request`] into the program, and interrupts the keeper's sleep (a
//! stop by ptrace restarts its wait, which finds another number). The keeper connects to the socket, closes the gate, waits
//! until what the program had started is done, and sends a [`Held`]. From then on it does what it is told, one
//! [`Command`] and one [`Answer`] at a time, until it is told to open the gate, or the connection ends: when the agent
//! dies, the gate opens. The agent may say so at any time, without waiting for an answer, and is obeyed at once. What it has
//! not closed or given back, the keeper takes away at the end.
//!
//! The socket keeps the borders of messages (`SOCK_SEQPACKET`). Descriptors that the driver makes are in the program's own
//! table, and are closed again as soon as the agent has a copy (`pidfd_getfd`).
//!
//! Device memory that libckpt.so has backed by physical memory of its own is in **pieces** ([`PieceBlock`]), which the
//! agent imports. What is in no piece is first copied into one, on the device.
//!
//! For a checkpoint that a program can be restarted from, the agent has its devices **suspended** ([`COMMAND_SUSPEND`]): the
//! driver moves what they hold to the memory of the host and lets them go. The answer ends the connection, and the gate stays
//! closed; nothing of a device is left in the process, and nothing of ours but the keeper, which waits. A new request brings
//! it back to the agent, or, in its next life, to whoever restarts it; that one's [`COMMAND_RESUME`] gives the devices back. If
//! nobody is there who could ask for it, the keeper does it by itself.
//!
//! What is in pieces does not take that way. The agent reads it while the devices are held, hands descriptors of the physical
//! memory to a process that does nothing but keep them ([`Hold::kept_by`], [`Piece::kept`]), and the keeper takes the pieces
//! from behind their addresses before the driver's checkpoint, and puts them back afterwards. In the next life it makes new
//! memory for them, which whoever restarts the program fills ([`COMMAND_FILLED`]).
//!
//! The driver does not suspend managed memory ([`COMMAND_EVACUATE`]): its content is copied to ordinary memory of the host, it is
//! freed, and that memory takes its place, at the same address. The program's threads use it without any call, so all of them but
//! the keeper and the line have to stand still meanwhile, which is the agent's business; and since the driver must not wait for a
//! lock that one of them holds, the keeper tries it first ([`COMMAND_TRY`]). When the devices are there again the memory becomes
//! the driver's again ([`COMMAND_BRING_BACK`]), or if that does not give it the same address any more, or if nobody holds the
//! threads still, it stays where it is and the driver pins it there, so that devices reach it all the same.
//!
//! Device code brings variables that the program need not ever ask for. libckpt.so says what code is loaded ([`CodeBlock`]);
//! the agent reads the variables' names there, and has the keeper record them ([`COMMAND_VARIABLE`]).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a socket's path, the terminating zero included: as many as the kernel takes.
pub const SOCKET_BYTES: usize = 108;

/// In the program's memory.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Hold {
    /// The keeper sleeps (`FUTEX_WAIT`) until it is another number than the last one.
    pub request: u32,
    /// The keeper's thread; 0 while there is none, because the program does not use the driver yet.
    pub keeper: i32,
    /// How long the program's own work on its devices may take to end, in milliseconds.
    pub quiet_within_ms: u32,
    /// `DEVICES_*`: where the program's devices are.
    pub devices: u32,
    /// Path of the agent's socket.
    pub socket: [u8; SOCKET_BYTES],
    /// The thread that is connected to the agent; 0 while there is none. It has descriptors of its own.
    pub line: u32,
    /// An address in the driver that the program uses; 0 for none. Its file can be found by it.
    pub driver: u64,
    /// Address of the newest [`PieceBlock`]; 0 for none.
    pub pieces: u64,
    /// Address of the newest [`CodeBlock`]; 0 for none.
    pub code: u64,
    /// How many contexts have come so far: a library is loaded into each anew, and with it its variables.
    pub contexts: u64,
    /// Pid of the process that keeps the memory of pieces while the devices are suspended, written by the agent; 0 for none,
    /// also in the next life: then there is new memory for them.
    pub kept_by: i32,
    /// How long the program waits for devices that it cannot have back, in milliseconds.
    pub wait_ms: u32,
    /// `*_HANDED_OUT`: what other processes may have of the program's, or it has of theirs, beside memory.
    pub handed_out: u32,
    /// Zero.
    pub reserved: u32,
}

/// [`Hold::handed_out`]: there has been a handle of an event (`cuIpcGetEventHandle`, `cuIpcOpenEventHandle`).
pub const EVENTS_HANDED_OUT: u32 = 1;
/// [`Hold::handed_out`]: there has been one of a pool (`cuMemPoolExportToShareableHandle`, `cuMemPoolImportFromShareableHandle`).
pub const POOLS_HANDED_OUT: u32 = 2;

/// [`Hold::devices`]: they are the program's.
pub const DEVICES_THERE: u32 = 0;
/// [`Hold::devices`]: the driver is letting them go, or giving them back.
pub const DEVICES_ON_THEIR_WAY: u32 = 1;
/// [`Hold::devices`]: the driver has let them go, and the gate is closed.
pub const DEVICES_SUSPENDED: u32 = 2;
/// [`Hold::devices`]: the driver could not give them back, and never can. The program ends.
pub const DEVICES_LOST: u32 = 3;
/// [`Hold::devices`]: they are there again, with new memory in pieces, which is still to be filled. If nobody does, the program
/// ends.
pub const DEVICES_EMPTY: u32 = 4;

/// [`Hold::devices`]: they are there again, and managed memory is still ordinary memory of the host.
pub const DEVICES_EVACUATED: u32 = 5;

/// [`Hold::devices`]: they are there, and managed memory is on its way: threads that stand still must not go on.
pub const DEVICES_MOVING: u32 = 6;

/// Physical memory that libckpt.so has mapped, in no order.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PieceBlock {
    /// Address of the next older block; 0 for none.
    pub next: u64,
    unused: [u64; 3],
    /// The pieces; an entry with id 0 is free. The id is cleared first and set last.
    pub pieces: [Piece; PIECES],
}

/// Pieces of a [`PieceBlock`].
pub const PIECES: usize = 127;

/// Memory at addresses that follow one another, which can be exported as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Piece {
    /// Its number, which no other piece of the program ever has.
    pub id: u64,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// The device's number.
    pub device: i32,
    /// While the devices are suspended, or about to be: the number of its descriptor in [`Hold::kept_by`], written by the agent;
    /// 0 if it stays the driver's.
    pub kept: u32,
}

/// Device code that the program has loaded, in no order.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CodeBlock {
    /// Address of the next older block; 0 for none.
    pub next: u64,
    unused: [u64; 7],
    /// The code; an entry with id 0 is free. The id is cleared first and set last.
    pub code: [LoadedCode; CODES],
}

/// Entries of a [`CodeBlock`].
pub const CODES: usize = 63;

/// A module or a library, and what it was loaded from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LoadedCode {
    /// Its number, which nothing else of the program ever has.
    pub id: u64,
    /// The driver's handle.
    pub handle: u64,
    /// The context of a module; 0 for a library, which is in all.
    pub context: u64,
    /// Address of the image, or of the path of its file, which ends with a zero; 0 if it could not be kept.
    pub image: u64,
    /// Bytes of either; of an image that could not be kept, as many as it had, or 0 if nobody knows.
    pub bytes: u64,
    /// [`CODE_MODULE`] or [`CODE_LIBRARY`].
    pub kind: u32,
    /// [`CODE_IN_PLACE`], [`CODE_COPY`] or [`CODE_FILE`].
    pub place: u32,
    /// 0.
    pub unused: [u64; 2],
}

/// [`LoadedCode::kind`]: a `CUmodule`.
pub const CODE_MODULE: u32 = 1;
/// [`LoadedCode::kind`]: a `CUlibrary`.
pub const CODE_LIBRARY: u32 = 2;
/// [`LoadedCode::place`]: the image lies where the program has it, in memory that nobody writes.
pub const CODE_IN_PLACE: u32 = 1;
/// [`LoadedCode::place`]: a copy of libckpt.so's.
pub const CODE_COPY: u32 = 2;
/// [`LoadedCode::place`]: a file; its path is absolute, as the program sees it.
pub const CODE_FILE: u32 = 3;

/// The keeper's first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Held {
    /// The request that it is about.
    pub request: u32,
    /// [`HELD`], or why the gate is open again.
    pub outcome: u32,
    /// The driver's error, if it was one.
    pub error: i32,
    /// How many devices the program sees.
    pub devices: u32,
    /// How long it took until everything was quiet, in ns.
    pub quiet_ns: u64,
}

/// [`Held::outcome`]: nothing changes device memory any more.
pub const HELD: u32 = 0;
/// [`Held::outcome`]: a call of the program's did not end in time.
pub const HELD_CALL_GOES_ON: u32 = 1;
/// [`Held::outcome`]: a stream is being captured.
pub const HELD_CAPTURE: u32 = 2;
/// [`Held::outcome`]: the program's work on a device failed, or cannot be waited for.
pub const HELD_DRIVER: u32 = 3;
/// [`Held::outcome`]: work that the program had given to a device did not end in time.
pub const HELD_WORK_GOES_ON: u32 = 4;

/// [`Held::outcome`]: the devices are suspended, as they were before the request.
pub const HELD_SUSPENDED: u32 = 5;

/// [`Held::outcome`]: the devices are not there, because the program (or somebody else) has had its driver checkpoint it. Such a
/// hold is good for [`COMMAND_SUSPEND`] alone, which asks nothing of the driver, nor does the [`COMMAND_RESUME`] after it.
pub const HELD_ELSEWHERE: u32 = 6;

/// What the agent wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Command {
    /// `COMMAND_*`.
    pub what: u32,
    /// The device's number, where one is needed.
    pub device: i32,
    /// See the command.
    pub address: u64,
    /// See the command.
    pub to: u64,
    /// See the command.
    pub bytes: u64,
}

/// What has come of a command. It is as long as a [`Held`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Answer {
    /// 0, or the driver's error (or the negative error number of a system call).
    pub error: i32,
    /// 0.
    pub unused: u32,
    /// See the command.
    pub values: [u64; 2],
}

/// Opens the gate. The answer is the last; it does not come if the program ends in that moment.
pub const COMMAND_OPEN: u32 = 0;
/// Which device it is: 16 bytes, as the driver names it in every process.
pub const COMMAND_IDENTIFY: u32 = 1;
/// A descriptor for the physical memory that is mapped at `address`: its number, in the program's table.
pub const COMMAND_EXPORT: u32 = 2;
/// Closes the descriptor that the last export has made.
pub const COMMAND_CLOSE: u32 = 3;
/// A new piece of at least `bytes` on a device, for copies: its address, and how many bytes it has.
pub const COMMAND_STAGE: u32 = 4;
/// Gives the piece at `address` back that was made for copies.
pub const COMMAND_UNSTAGE: u32 = 5;
/// Copies `bytes` from `address` to `to`, and waits for it. The driver knows what kind of memory both are.
pub const COMMAND_COPY: u32 = 6;
/// Records a variable of loaded code as if the program had asked for it, in every context that the code is in: `to` is the
/// code's id, `address` that of the variable's name in the program, which ends with a zero. How many were found, and how many
/// of them were not recorded yet. None is no error: code for another device may have others. An error is that of a context that
/// could not be asked; in the others the variable is recorded all the same.
pub const COMMAND_VARIABLE: u32 = 7;
/// Suspends the devices: the driver's Lock, which may wait `bytes` milliseconds, and Checkpoint. What the keeper has made for the
/// agent it has taken away before. If there is no error the answer is the last, and the gate stays closed. If there is one, the
/// driver is as it was, and the hold goes on; `values[0]` is the [`STEP_MEMORY`], [`STEP_LOCK`] or [`STEP_CHECKPOINT`] that
/// failed.
pub const COMMAND_SUSPEND: u32 = 8;
/// Gives suspended devices back: the driver's Restore and Unlock. At `address` in the program are `bytes` / 32 pairs of 16 bytes
/// each, which say what device (as in [`COMMAND_IDENTIFY`]) is to stand for which; none if each stands for itself. The gate
/// stays closed: what follows is a hold like any other. If `to` is [`BRINGS_BACK`], evacuated memory waits for its command
/// ([`DEVICES_EVACUATED`]); otherwise the driver pins it where it is. If there is an error, `values[0]` is the [`STEP_RESTORE`],
/// [`STEP_UNLOCK`], [`STEP_MEMORY`] or [`STEP_MANAGED`] that failed, and the keeper is suspended still, or the devices are lost ([`DEVICES_LOST`]). If pieces
/// have new memory ([`DEVICES_EMPTY`]), `values[0]` of a good answer is how many.
pub const COMMAND_RESUME: u32 = 9;
/// Memory of the host, zeros, of `bytes`, for as long as the hold lasts: its address.
pub const COMMAND_BUFFER: u32 = 10;
/// The new memory of pieces has its content ([`DEVICES_EMPTY`]).
pub const COMMAND_FILLED: u32 = 11;

/// Tries whether the driver can work while all other threads stand still: takes locks that it may wait for, and has it
/// allocate and free managed memory, and pin some. If a thread that stands still holds one of them, the answer comes when it goes on.
pub const COMMAND_TRY: u32 = 12;
/// Makes all managed memory ordinary memory of the host. All other threads stand still. If there is an error, some of it may be:
/// [`COMMAND_BRING_BACK`] puts that right.
pub const COMMAND_EVACUATE: u32 = 13;
/// Makes it managed memory again; pins it where it is if `bytes` is 0, or where the driver gives another address. If `bytes` is 1,
/// all other threads stand still. How many bytes are pinned then. The error's `values[0]` is [`STEP_MANAGED`].
pub const COMMAND_BRING_BACK: u32 = 14;
/// Copies the memory of pieces that was kept, and is imported since it came back, to memory that can be exported. How many there
/// was no room for: they are tried again when they are to be exported.
pub const COMMAND_RENEW: u32 = 15;

/// [`Command::to`] of [`COMMAND_RESUME`]: there will be a [`COMMAND_BRING_BACK`].
pub const BRINGS_BACK: u64 = 1;

/// A step of the driver's: its process is locked.
pub const STEP_LOCK: u64 = 1;
/// It is checkpointed.
pub const STEP_CHECKPOINT: u64 = 2;
/// It is restored.
pub const STEP_RESTORE: u64 = 3;
/// It is unlocked.
pub const STEP_UNLOCK: u64 = 4;
/// Memory is taken from behind the addresses of pieces, or put back there: first of all, or last.
pub const STEP_MEMORY: u64 = 5;

/// Managed memory is evacuated, or comes back.
pub const STEP_MANAGED: u64 = 6;

/// What a step is called.
pub fn step_name(step: u64) -> &'static str {
    match step {
        STEP_LOCK => "lock",
        STEP_CHECKPOINT => "checkpoint",
        STEP_RESTORE => "restore",
        STEP_UNLOCK => "unlock",
        STEP_MEMORY => "memory",
        STEP_MANAGED => "managed memory",
        _ => "none",
    }
}

const _: () = {
    assert!(size_of::<Hold>() == 176 && size_of::<Piece>() == 32 && size_of::<PieceBlock>() == 1 << 12);
    assert!(size_of::<LoadedCode>() == 64 && size_of::<CodeBlock>() == 1 << 12);
    assert!(size_of::<Held>() == 24 && size_of::<Command>() == 32 && size_of::<Answer>() == 24);
};

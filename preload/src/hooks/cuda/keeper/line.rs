//! The line: the connection to the agent that a hold has.
//!
//! A program may close any descriptor, and open its own under that number. So the socket is in a descriptor table that is
//! not the program's: that of a thread that is cloned for the hold and ends with it. It shares the memory, has a stack of
//! its own, and nothing that libc has made: it makes system calls alone. It passes messages between the socket and the
//! keeper, who take turns. When the agent wants the gate open, or has gone, or time is up before all is quiet, it opens the
//! gate at once, whatever the keeper is doing.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use ckpt_wire::device::{Answer, COMMAND_OPEN, Command, HELD, HELD_ELSEWHERE, HELD_SUSPENDED, Held, SOCKET_BYTES};
use zerocopy::{FromZeros, IntoBytes};

use super::super::{gate, hold};
use super::{NO_ANSWER, suspend};
use crate::child::{self, Stack};
use crate::shared::Shared;
use crate::sys::{self, in_thread};

/// Whose turn it is: of [`CONNECTING`] and the others.
static TURN: AtomicU32 = AtomicU32::new(OVER);
/// The line has not reached the agent yet.
const CONNECTING: u32 = 0;
/// The keeper works, and will leave a message.
const KEEPER: u32 = 1;
/// The line has a message to send, and then waits for one.
const LINE: u32 = 2;
/// The hold is over, and the line has gone or goes.
const OVER: u32 = 3;

static STACK: Shared<Stack> = Shared::new(Stack::new());

/// Path of the agent's socket. Written before the line starts.
static SOCKET: Shared<[u8; SOCKET_BYTES]> = Shared::new([0; SOCKET_BYTES]);
static REQUEST: AtomicU32 = AtomicU32::new(0);
/// When all must be quiet (`sys::now_ns`), as long as it is not.
static DEADLINE_NS: AtomicU64 = AtomicU64::new(0);
/// What to say if it is not.
static WAITS_FOR: AtomicU32 = AtomicU32::new(0);

const MESSAGE_BYTES: usize = size_of::<Held>();
const _: () = assert!(MESSAGE_BYTES == size_of::<Answer>());
/// What to send. Written by the keeper in its turn, read by the line in its own.
static MESSAGE: Shared<[u8; MESSAGE_BYTES]> = Shared::new([0; MESSAGE_BYTES]);
/// Whether it is the last.
static IS_LAST: AtomicI32 = AtomicI32::new(0);
/// What has come. The other way round.
static COMMAND: Shared<Command> = Shared::new(Command { what: 0, device: 0, address: 0, to: 0, bytes: 0 });

/// How long the line leaves its socket alone while the keeper works.
const LOOK_EVERY_MS: u32 = 10;

/// Connects to the agent. False if that is not to be had.
pub fn start(socket: [u8; SOCKET_BYTES], request: u32, deadline_ns: u64) -> bool {
    // SAFETY: there is no line.
    unsafe { SOCKET.get().write(socket) };
    REQUEST.store(request, Ordering::Relaxed);
    DEADLINE_NS.store(deadline_ns, Ordering::Relaxed);
    IS_LAST.store(0, Ordering::Relaxed);
    TURN.store(CONNECTING, Ordering::Release);
    // SAFETY: the line before has ended (`end`), so the stack is free; `run` ends as it is to.
    if unsafe { child::start_thread(&STACK, run, hold::line()) }.is_err() {
        TURN.store(OVER, Ordering::Release);
        return false;
    }
    wait_while(CONNECTING);
    if is_over() {
        end();
        return false;
    }
    true
}

/// In a child of fork, where no line is.
pub fn begin_anew() {
    TURN.store(OVER, Ordering::Release);
    hold::line().store(0, Ordering::Release);
}

/// Whether somebody listens at this socket, who is told nothing.
pub fn is_somebody_there(socket: [u8; SOCKET_BYTES]) -> bool {
    let is_there = start(socket, 0, u64::MAX);
    if is_there {
        end();
    }
    is_there
}

/// Whether the agent does not want this hold any more.
pub fn is_over() -> bool {
    TURN.load(Ordering::SeqCst) == OVER
}

/// What it is that the keeper waits for: the outcome if the time is up.
pub fn waits_for(outcome: u32) {
    WAITS_FOR.store(outcome, Ordering::Release);
}

/// Tells the agent what has come of its request; the first command, if there is to be one.
pub fn say_held(held: Held) -> Option<Command> {
    let goes_on = matches!(held.outcome, HELD | HELD_SUSPENDED | HELD_ELSEWHERE);
    IS_LAST.store(i32::from(!goes_on), Ordering::Relaxed);
    DEADLINE_NS.store(u64::MAX, Ordering::Relaxed);
    exchange(held.as_bytes())
}

/// Tells it what has come of the last command; the next one, if there is to be one.
pub fn answer(answer: Answer) -> Option<Command> {
    exchange(answer.as_bytes())
}

/// The same for the last one: the connection ends.
pub fn answer_last(answer: Answer) {
    IS_LAST.store(1, Ordering::Relaxed);
    exchange(answer.as_bytes());
}

fn exchange(message: &[u8]) -> Option<Command> {
    if is_over() {
        return None;
    }
    // SAFETY: the keeper's turn: the line reads it in its own.
    unsafe { (*MESSAGE.get()).copy_from_slice(message) };
    TURN.compare_exchange(KEEPER, LINE, Ordering::SeqCst, Ordering::SeqCst).ok()?;
    sys::futex_wake(&TURN);
    wait_while(LINE);
    // SAFETY: the keeper's turn again: the line has written it.
    (!is_over()).then(|| unsafe { COMMAND.get().read() })
}

/// Waits until the line has gone, after the hold is over.
pub fn end() {
    finish();
    loop {
        match hold::line().load(Ordering::Acquire) {
            0 => return,
            tid => sys::futex_wait_for_kernel(hold::line(), tid),
        }
    }
}

fn wait_while(turn: u32) {
    while TURN.load(Ordering::SeqCst) == turn {
        sys::futex_wait(&TURN, turn, None);
    }
}

fn finish() {
    TURN.swap(OVER, Ordering::SeqCst);
    sys::futex_wake(&TURN);
}

/// The line's life.
unsafe extern "C" fn run() -> ! {
    sys::set_mask(sys::MASK_ALL);
    sys::name_thread(c"ckpt-line");
    // SAFETY: this thread was cloned without CLONE_FILES: the table is its own.
    if unsafe { sys::in_child::close_all() }.is_ok() {
        // SAFETY: as above; the path is written before the line starts.
        if let Ok(socket) = unsafe { in_thread::connect(&*SOCKET.get()) } {
            TURN.store(KEEPER, Ordering::SeqCst);
            sys::futex_wake(&TURN);
            talk(socket);
        }
    }
    open_gate();
    in_thread::exit()
}

/// Ends the hold and opens the gate, unless the devices are not there: then it is the keeper's, who gives them back first. In this order,
/// as the keeper says that they are on their way and then asks whether the hold is over: one of the two sees the other.
fn open_gate() {
    finish();
    if !suspend::are_away() {
        gate::open();
    }
}

/// Passes messages on until the hold is over.
fn talk(socket: i32) {
    loop {
        if !wait_for_keeper(socket) {
            return;
        }
        // SAFETY: the line's turn.
        let sent = in_thread::send(socket, unsafe { &*MESSAGE.get() });
        if sent.is_err() || IS_LAST.load(Ordering::Relaxed) != 0 {
            return;
        }
        let Some(command) = receive(socket, true).ok().flatten() else { return };
        // SAFETY: the line's turn.
        unsafe { COMMAND.get().write(command) };
        if TURN.compare_exchange(LINE, KEEPER, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return;
        }
        sys::futex_wake(&TURN);
    }
}

/// Waits for the keeper's message. False when the hold is over before.
fn wait_for_keeper(socket: i32) -> bool {
    loop {
        sys::futex_wait(&TURN, KEEPER, Some(LOOK_EVERY_MS));
        match TURN.load(Ordering::SeqCst) {
            LINE => return true,
            KEEPER => {}
            _ => return false,
        }
        if sys::now_ns() > DEADLINE_NS.load(Ordering::Relaxed) {
            give_up(socket);
            return false;
        }
        match receive(socket, false) {
            Err(Nothing) => {}
            // It does not wait for answers any more. What it wants, it may not have.
            Ok(_) => return false,
        }
    }
}

/// Time is up. If the keeper has its message in the same moment, the agent gets this one all the same.
fn give_up(socket: i32) {
    open_gate();
    let outcome = WAITS_FOR.load(Ordering::Acquire);
    let held = Held { request: REQUEST.load(Ordering::Relaxed), outcome, error: 0, devices: 0, quiet_ns: 0 };
    let _ = in_thread::send(socket, held.as_bytes());
}

/// There is no message yet.
struct Nothing;

/// The agent's next command. None at the end of the connection, and when the gate is to be opened, which is done.
fn receive(socket: i32, waits: bool) -> Result<Option<Command>, Nothing> {
    let mut command = Command::new_zeroed();
    match in_thread::receive(socket, command.as_mut_bytes(), waits) {
        Ok(bytes) if bytes == size_of::<Command>() && command.what != COMMAND_OPEN => Ok(Some(command)),
        Ok(bytes) if bytes == size_of::<Command>() => {
            open_gate();
            let _ = in_thread::send(socket, NO_ANSWER.as_bytes());
            Ok(None)
        }
        Err(error) if error.0 == libc::EAGAIN => Err(Nothing),
        _ => Ok(None),
    }
}

//! Giving a program the memory that it holds for us, in a way that survives our death at any instruction.
//!
//! To map memory, a thread of the program must make system calls, and until it has made them there is no stub for it to make
//! them in. But there is room for one: behind the end of the vdso, in its last page, where nothing is. Debuggers write
//! breakpoints there, so the kernel gives the program a copy of that page for ours. A stub with its frame is written there,
//! used for a handful of calls, and wiped out.

use ckpt_wire::Control;
use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader};
use zerocopy::{FromZeros, IntoBytes};

use super::resident::{self, BYTES, CODE_BYTES, DATA_BYTES, GUARD_BYTES, Stub};
use crate::capture::guest::{Guest, Seat};
use crate::capture::program::Program;
use crate::capture::threads::Captured;
use crate::capture::waiting_calls::WaitingCalls;
use crate::capture::{filters, stop, threads};
use crate::error::{Error, Result};
use crate::proc::maps;
use crate::ptrace::{ProcessMemory, Stopped, write_memory};

/// Code begins at such addresses.
const ALIGNMENT: u64 = 64;

/// Stops process `pid`, gives it `control`, the stub and what belongs to them, and lets it go. `calls` are those that it was
/// stopped in.
///
/// To be called on a thread that ends soon: the kernel lets go of what that thread has not.
pub fn inject(pid: i32, control: &Control, calls: &mut WaitingCalls) -> Result<()> {
    let memory = ProcessMemory::open(pid)?;
    let place = place_in_vdso(pid, &memory)?;
    let mut for_now = Box::new(Control::new_zeroed());
    place.enter_into(&mut for_now);

    calls.look(pid);
    let mut stopped = stop::stop(pid)?;
    if let Ok(adopted) = Program::find(pid) {
        // Somebody was faster, and threads may be where that one has them go on with their calls.
        return lead_home(pid, &stopped, &*adopted.control()?, calls).map(drop);
    }
    let ways = lead_home(pid, &stopped, &for_now, calls)?;
    // Only now: whoever else adopts it has something there for a moment.
    refuse_occupied(pid, &memory, place)?;
    filters::suspend(pid, &mut stopped, control.confinement())?;
    memory.write(place.start(), Stub::code())?;
    let mut write_frame = |address: u64, bytes: &[u8]| memory.write(address, bytes);
    let guest = Guest::enter_with(
        Seat::alone(&for_now),
        pid,
        &mut stopped[0],
        &for_now,
        ways[0].home,
        &ways[0].reissued,
        &mut write_frame,
    );
    let outcome = guest.and_then(|guest| map(pid, guest, control));
    let is_out = |rip: u64| rip < for_now.stub_start || rip >= for_now.stub_end;
    let wiped = match stopped[0].registers()? {
        registers if is_out(registers.0.rip) => memory.write(place.frame, &vec![0; Stub::bytes() as usize]),
        // It finds its way home by itself.
        _ => Ok(()),
    };
    let outcome = outcome.and_then(|(address, control)| {
        wiped?;
        // Now there is a place where calls go on for the time that is left.
        stopped.iter().zip(&ways).try_for_each(|(thread, way)| way.resume_call(pid, thread, &control, calls))?;
        // Last, so that whoever finds a control block finds nothing of ours elsewhere.
        write_memory(pid, address, resident::magic())
    });
    stopped.into_iter().try_for_each(|thread| thread.detach_if_alive().map(drop))?;
    outcome
}

/// Puts all threads on their ways home: what follows may fail, and they go on as if nothing had been.
fn lead_home(pid: i32, stopped: &[Stopped], control: &Control, calls: &mut WaitingCalls) -> Result<Vec<Captured>> {
    let main = stopped.first().ok_or(Error::ProgramGone { pid })?;
    let process_signals = threads::mask_of(&main.queued_process_signals()?);
    let lead = |thread: &Stopped| {
        let way = threads::way_home(pid, thread, control, process_signals, calls)?;
        way.lead_home(thread).map(|()| way)
    };
    let ways: Vec<Result<Captured>> = stopped.iter().map(lead).collect();
    ways.into_iter().collect()
}

/// Where a stub finds room behind the vdso of process `pid`.
fn place_in_vdso(pid: i32, memory: &ProcessMemory) -> Result<Stub> {
    let mappings = maps::outline(pid)?;
    let vdso =
        mappings.iter().find(|mapping| mapping.name == b"[vdso]").ok_or_else(|| no_place(pid, "it has no vdso"))?;
    let mut bytes = vec![0; vdso.bytes() as usize];
    memory.read(vdso.start, &mut bytes)?;
    let end = end_of_elf(&bytes).ok_or_else(|| no_place(pid, "its vdso is no ELF file"))?;
    let at = end.next_multiple_of(ALIGNMENT);
    if at + Stub::bytes() > vdso.bytes() {
        return Err(no_place(pid, "its vdso has no room"));
    }
    Ok(Stub { frame: vdso.start + at })
}

/// Refuses a place where something is. All threads are stopped.
fn refuse_occupied(pid: i32, memory: &ProcessMemory, place: Stub) -> Result<()> {
    let mut room = vec![0; Stub::bytes() as usize];
    memory.read(place.frame, &mut room)?;
    let code = &room[(place.start() - place.frame) as usize..];
    // What an agent left that died here is as good as nothing.
    if room.iter().all(|&byte| byte == 0) || code == Stub::code() {
        return Ok(());
    }
    Err(no_place(pid, "its vdso is followed by something"))
}

fn no_place(pid: i32, why: &str) -> Error {
    Error::unsupported(
        format!("process {pid}, which has no libckpt.so,"),
        format!("{why}, where the first call inside a program is made"),
        "link it dynamically",
    )
}

/// Where all that the headers of an ELF file tell of ends.
fn end_of_elf(bytes: &[u8]) -> Option<u64> {
    let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, bytes).ok()?;
    let loaded = segments.iter().map(|segment| segment.p_offset(endian) + segment.p_filesz(endian)).max()?;
    let table = u64::from(header.e_shnum(endian)) * u64::from(header.e_shentsize(endian));
    Some(loaded.max(header.e_shoff(endian) + table))
}

/// Maps the memory and fills it, by calls of `guest`, who then goes home; gives what is to become the control block, and its
/// address.
fn map(pid: i32, mut guest: Guest<'_>, control: &Control) -> Result<(u64, Box<Control>)> {
    let purpose = "making room for the control block";
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let none = [0, BYTES, libc::PROT_NONE as u64, flags, u64::MAX, 0];
    let base = guest.call("mmap", purpose, libc::SYS_mmap, none)?;
    let filled = fill(pid, &mut guest, base, control);
    if filled.is_err()
        && let Err(error) = guest.call("munmap", purpose, libc::SYS_munmap, [base, BYTES, 0, 0, 0, 0])
    {
        log::warn!("{error}; {BYTES} bytes stay mapped");
    }
    guest.leave().and(filled)
}

fn fill(pid: i32, guest: &mut Guest<'_>, base: u64, control: &Control) -> Result<(u64, Box<Control>)> {
    let (data, code) = (base + GUARD_BYTES, base + GUARD_BYTES + DATA_BYTES);
    let mut protect = |address: u64, bytes: u64, protection: i32| {
        let arguments = [address, bytes, protection as u64, 0, 0, 0];
        guest.call("mprotect", "protecting the stub", libc::SYS_mprotect, arguments)
    };
    protect(data, DATA_BYTES + CODE_BYTES, libc::PROT_READ | libc::PROT_WRITE)?;
    let (content, stub) = resident::content(base, control);
    write_memory(pid, data, content.as_bytes())?;
    write_memory(pid, stub.start(), Stub::code())?;
    protect(code, CODE_BYTES, libc::PROT_READ | libc::PROT_EXEC)?;
    Ok((data, content))
}

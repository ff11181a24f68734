//! Whether managed memory can be taken away from a driver for a checkpoint and given back after: tried with the driver itself,
//! because none says so.
//!
//! The driver does not checkpoint a process with managed memory. So its content is copied to ordinary memory, it is freed, and the
//! ordinary memory takes its place while the driver does its part. Afterwards either the driver gives managed memory at the same
//! addresses again, or the ordinary memory stays there, registered.

mod mappings;
mod pages;

use std::ffi::{c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::path::Path;
use std::process;
use std::ptr;

use super::entry_points::{Address, CheckpointEntryPoints, LockArguments, ManagedEntryPoints};
use super::error::{Error, Result};
use mappings::{Mapped, mapped_in};
use pages::{Ordinary, overlap, pages_of, place, protect};

/// Small ones share what a driver hands out at once, and some of them a page; large ones have their own.
const SIZES: [usize; 6] = [8 << 10, 8 << 10, 1000, 1000, 4 << 20, 36 << 20];
/// How often memory is allocated again in the hope of the same addresses.
const TRIES: usize = 4;
/// `CU_MEM_ATTACH_GLOBAL`.
const GLOBAL: c_uint = 1;
/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
const FOR_ALL_DEVICES: c_uint = 3;
/// How long the driver may take to lock an idle process.
const LOCK_MS: c_uint = 10_000;

/// What a driver lets be done with managed memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedTrial {
    /// When it is freed its addresses are free, ordinary memory can lie there, and a checkpoint and a restore of the process leave
    /// that as it is.
    pub leaves: bool,
    /// It comes back at the same addresses afterwards, if need be after [a few tries](TRIES).
    pub comes_back: bool,
    /// Ordinary memory in its place can be used by devices at the same addresses, nothing that is allocated later comes to lie
    /// there, and it survives another checkpoint.
    pub can_be_registered: bool,
    /// The first step that was not as it is needed, and how, if there is one.
    pub why: Option<String>,
}

/// Tries it with this driver and the device of this number. The calling process is expendable: memory of its own is moved about, and
/// what the trial leaves behind, which may be a locked driver, ends with the process.
///
/// # Errors
/// Without a driver or the device, or when it cannot be used at all. That it does not let managed memory be taken away is no
/// error.
pub fn try_managed(driver: &Path, device: i32) -> Result<ManagedTrial> {
    let calls = ManagedEntryPoints::load(driver)?;
    let (mut there, mut context) = (0, ptr::null_mut());
    // SAFETY: each writes where it is told to.
    unsafe {
        calls.init(0)?;
        calls.device_get(&raw mut there, device)?;
        calls.context_retain(&raw mut context, there)?;
        calls.context_set(context)?;
    }
    let mut trial = ManagedTrial::default();
    // To close a driver that is in use, and may be locked, might never return.
    let calls = ManuallyDrop::new(calls);
    match CheckpointEntryPoints::load(driver).map(ManuallyDrop::new) {
        Ok(checkpoint) => {
            let driver = Driver { calls: &calls, checkpoint: &checkpoint };
            trial.why = driver.find_out(&mut trial).err().map(|Step(why)| why);
        }
        Err(Error::NoDriver { why, .. }) => {
            trial.why = Some(format!("the driver has no calls that checkpoint a process: {why}"));
        }
        Err(error) => return Err(error),
    }
    Ok(trial)
}

/// A step that was not as it is needed, and how.
struct Step(String);

type Done<T = ()> = std::result::Result<T, Step>;

/// Says at which step something failed.
trait At<T> {
    fn at(self, step: &str) -> Done<T>;
}

impl<T, E: std::fmt::Display> At<T> for std::result::Result<T, E> {
    fn at(self, step: &str) -> Done<T> {
        self.map_err(|error| Step(format!("{step}: {error}")))
    }
}

fn expect(is_so: bool, otherwise: impl FnOnce() -> String) -> Done {
    if is_so { Ok(()) } else { Err(Step(otherwise())) }
}

/// What the byte is at this offset of an allocation of this number.
fn pattern(number: usize, offset: usize) -> u8 {
    (offset * 31 + offset / 4096 * 7 + number * 17 + 3) as u8
}

/// The bytes of an allocation, each as the pattern is.
fn patterned(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|offset| pattern(number, offset)).collect()
}

struct Driver<'a> {
    calls: &'a ManagedEntryPoints,
    checkpoint: &'a CheckpointEntryPoints,
}

/// The addresses of allocations, in the order of [`SIZES`].
type Places = Vec<Range<Address>>;

fn range_of(address: Address, bytes: usize) -> Range<Address> {
    address..address + bytes as u64
}

impl Driver<'_> {
    fn find_out(&self, trial: &mut ManagedTrial) -> Done {
        let places = self.allocate_all()?;
        let mut ordinary = self.replace(&places)?;
        self.checkpoint_and_restore().at("with ordinary memory in place of managed memory")?;
        expect_content(&places, "after a restore, ordinary memory in place of managed memory")?;
        trial.leaves = true;

        for one in &mut ordinary {
            // SAFETY: it is there.
            unsafe { one.move_away() }.at("moving ordinary memory away again")?;
        }
        let came_back = self.comes_back(&places, &ordinary);
        trial.comes_back = came_back.is_ok();
        let registered = self.can_be_registered(&places, &mut ordinary);
        trial.can_be_registered = registered.is_ok();
        came_back.and(registered)
    }

    fn allocate_managed(&self, bytes: usize) -> Done<Range<Address>> {
        let mut address = 0;
        // SAFETY: it writes where it is told to.
        unsafe { self.calls.allocate_managed(&raw mut address, bytes, GLOBAL) }.at("allocating managed memory")?;
        Ok(range_of(address, bytes))
    }

    fn free(&self, place: &Range<Address>) -> Done {
        // SAFETY: it was allocated, and nobody uses it any more.
        unsafe { self.calls.free(place.start) }.at("freeing memory")
    }

    /// All of them, with the pattern.
    fn allocate_all(&self) -> Done<Places> {
        let places = SIZES.iter().map(|bytes| self.allocate_managed(*bytes)).collect::<Done<Places>>()?;
        for (number, range) in places.iter().enumerate() {
            let content = patterned(number, SIZES[number]);
            // SAFETY: the host may write there, and nobody else does.
            unsafe { ptr::copy_nonoverlapping(content.as_ptr(), place(range.start).cast::<u8>(), content.len()) };
        }
        Ok(places)
    }

    /// Puts ordinary memory in their place.
    fn replace(&self, places: &Places) -> Done<Vec<Ordinary>> {
        let pages = pages_of(places.iter().cloned());
        for range in &pages {
            // SAFETY: nobody writes there from now on.
            unsafe { protect(range) }.at("protecting managed memory")?;
        }
        expect_content(places, "managed memory that is protected")?;
        // SAFETY: it can be read, as was just seen.
        let copies = pages.iter().map(|range| unsafe { Ordinary::copy_of(range) });
        let mut ordinary = copies.collect::<std::io::Result<Vec<_>>>().at("copying managed memory")?;
        for place in places {
            self.free(place)?;
        }
        take_place(&mut ordinary)?;
        Ok(ordinary)
    }

    fn checkpoint_and_restore(&self) -> Result<()> {
        let pid = process::id() as c_int;
        let mut how = LockArguments { timeout_ms: LOCK_MS, ..LockArguments::default() };
        let (mut zeros, mut more_zeros) = ([0; 8], [0; 9]);
        // SAFETY: the arguments are as cuda.h has them, and stay; the process is the calling one.
        unsafe {
            self.checkpoint.lock(pid, &raw mut how)?;
            self.checkpoint.checkpoint(pid, &raw mut zeros).inspect_err(|_| {
                drop(self.checkpoint.unlock(pid, &raw mut zeros));
            })?;
            self.checkpoint.restore(pid, &raw mut more_zeros)?;
            self.checkpoint.unlock(pid, &raw mut zeros)
        }
    }

    /// Managed memory gets its addresses again while ordinary memory is elsewhere, and is freed once more.
    fn comes_back(&self, places: &Places, ordinary: &[Ordinary]) -> Done {
        let mut got = Places::new();
        for _ in 0..TRIES {
            for wanted in places {
                if !got.contains(wanted) {
                    got.push(self.allocate_managed((wanted.end - wanted.start) as usize)?);
                }
            }
        }
        let all_are_there = places.iter().all(|wanted| got.contains(wanted));
        let content = if all_are_there { self.copy_back(places, ordinary) } else { Ok(()) };
        for place in &got {
            self.free(place)?;
        }
        let otherwise = || format!("managed memory does not come back at the same addresses, in {TRIES} tries");
        expect(all_are_there, otherwise).and(content)
    }

    fn copy_back(&self, places: &Places, ordinary: &[Ordinary]) -> Done {
        for one in ordinary {
            // SAFETY: managed memory is there again, which nobody else knows of.
            unsafe { one.copy_there() };
        }
        expect_content(places, "managed memory that has come back")?;
        self.expect_content_for_device(places, "managed memory that has come back")
    }

    /// Ordinary memory takes the place of managed memory for good.
    fn can_be_registered(&self, places: &Places, ordinary: &mut [Ordinary]) -> Done {
        let what = "ordinary memory that is registered in place of managed memory";
        take_place(ordinary)?;
        for one in ordinary.iter() {
            self.register(one.pages())?;
        }
        self.expect_content_for_device(places, what)?;
        self.is_left_alone(ordinary)?;
        expect_content(places, what)?;
        self.checkpoint_and_restore().at(&format!("with {what}"))?;
        expect_content(places, what)?;
        self.expect_content_for_device(places, what)
    }

    fn register(&self, pages: &Range<Address>) -> Done {
        let (start, mut address) = (place(pages.start), 0);
        let bytes = (pages.end - pages.start) as usize;
        // SAFETY: ordinary memory of this length is there, and stays; the second writes where it is told to.
        unsafe {
            self.calls
                .register(start, bytes, FOR_ALL_DEVICES)
                .at("registering ordinary memory in place of managed memory")?;
            self.calls.device_address(&raw mut address, start, 0).at("asking for the address that devices use")?;
        }
        expect(address == pages.start, || {
            format!("devices have memory that is registered at {:#x} at another address, {address:#x}", pages.start)
        })
    }

    /// What is allocated now lies elsewhere.
    fn is_left_alone(&self, ordinary: &[Ordinary]) -> Done {
        let mut later = Places::new();
        for bytes in SIZES {
            let mut address = 0;
            // SAFETY: it writes where it is told to.
            unsafe { self.calls.allocate(&raw mut address, bytes) }.at("allocating device memory")?;
            later.extend([range_of(address, bytes), self.allocate_managed(bytes)?]);
        }
        let lies_there = |one: &Range<Address>| ordinary.iter().any(|it| overlap(it.pages(), one));
        if let Some(Range { start, .. }) = later.iter().find(|one| lies_there(one)) {
            return Err(Step(format!(
                "what is allocated later, at {start:#x}, lies on memory that is registered in place of managed memory"
            )));
        }
        later.iter().try_for_each(|one| self.free(one))
    }

    fn expect_content_for_device(&self, places: &Places, what: &str) -> Done {
        for (number, range) in places.iter().enumerate() {
            let mut content = vec![0_u8; SIZES[number]];
            let to = content.as_mut_ptr().cast::<c_void>();
            // SAFETY: both are as long.
            unsafe { self.calls.copy_out(to, range.start, content.len()) }.at(&format!("copying {what}"))?;
            expect(content == patterned(number, content.len()), || {
                format!("{what} does not have its content for the device, at {:#x}", range.start)
            })?;
        }
        Ok(())
    }
}

/// Moves ordinary memory to where managed memory was, which has been freed.
fn take_place(ordinary: &mut [Ordinary]) -> Done {
    for one in ordinary {
        let are_held = match mapped_in(one.pages()).at("looking at what is mapped")? {
            Mapped::Nothing => false,
            Mapped::Held => true,
            Mapped::Memory(line) => {
                return Err(Step(format!("managed memory stays mapped when it is freed: {line}")));
            }
        };
        // SAFETY: nothing is mapped there, or addresses that the driver holds and does not use.
        unsafe { one.move_there(are_held) }.at("moving ordinary memory to where managed memory was")?;
    }
    Ok(())
}

fn expect_content(places: &Places, what: &str) -> Done {
    for (number, range) in places.iter().enumerate() {
        // SAFETY: memory of this length is there, and nobody writes to it meanwhile.
        let content = unsafe { std::slice::from_raw_parts(place(range.start).cast::<u8>(), SIZES[number]) };
        expect(content == patterned(number, content.len()), || {
            format!("{what} does not have its content, at {:#x}", range.start)
        })?;
    }
    Ok(())
}

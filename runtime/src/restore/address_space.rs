//! Exchanges the child's memory for the program's.
//!
//! In order: the restartable-sequence registration of the C library goes (the kernel would write into it), every
//! mapping but vdso and vvar goes, these move to where the program has them, and the program's mappings come, each
//! with its final protection, because content can be written through any. Last comes what the kernel keeps about the
//! address space as a whole: the heap's end, the places of arguments and environment, the auxiliary vector and the
//! link to the executable, which the kernel changes only when nothing of the old one is mapped any more.

use std::fmt::Arguments;
use std::os::fd::RawFd;

use nix::errno::Errno;

use super::call_table::{self, Planned};
use super::copy_on_write::InCommon;
use super::host::Machine;
use super::huge_pages;
use super::io_urings;
use super::mapping_plan::{Source, first_protection};
use super::process::{Call, HalfBuilt, SCRATCH_BYTES};
use super::ranges::{Span, gaps, moves, room};
use super::sysv;
use super::vdso::VdsoPlan;
use crate::error::{Error, Result};
use crate::image::{Advice, Objects, ProcessImage, Region};
use crate::ptrace::write_memory;

const CLOSE_RANGE: Call = Call("close_range", libc::SYS_close_range);
const MADVISE: Call = Call("madvise", libc::SYS_madvise);
const MMAP: Call = Call("mmap", libc::SYS_mmap);
const MPROTECT: Call = Call("mprotect", libc::SYS_mprotect);
const MREMAP: Call = Call("mremap", libc::SYS_mremap);
const MUNMAP: Call = Call("munmap", libc::SYS_munmap);
const PERSONALITY: Call = Call("personality", libc::SYS_personality);
const PRCTL: Call = Call("prctl", libc::SYS_prctl);
const RSEQ: Call = Call("rseq", libc::SYS_rseq);

const RSEQ_FLAG_UNREGISTER: u64 = 1;
const MAP_DROPPABLE: i32 = 0x8;

/// Replaces the child's mappings by `image`'s, without content. `sources` and `executable` are what the mapping plan says of
/// this process; `first_file` is the number that the plan's first file has in it, and `common` is what it shares with others.
pub fn exchange(
    process: &mut HalfBuilt,
    (image, objects): (&ProcessImage, &Objects),
    (machine, vdso): (&Machine, &VdsoPlan),
    (sources, executable): (&[Source], Option<usize>),
    first_file: RawFd,
    common: InCommon<'_>,
) -> Result<()> {
    unregister_rseq(process)?;
    unmap_all(process, machine, common.span())?;
    move_special_mappings(process, image, (machine, vdso), common.span())?;
    process.map_scratch(scratch_address(image, vdso, common.span())?)?;
    map_old_vdso(process, vdso)?;
    sysv::attach(process, image, objects)?;
    io_urings::map(process, image, sources, first_file)?;
    let mut mapped = Vec::new();
    for (number, (region, &source)) in image.regions.iter().zip(sources).enumerate() {
        if !common.put(process, number, region)? {
            mapped.extend(mapping(region, source, first_file));
        }
    }
    call_table::make(process, &mapped)?;
    call_table::make(process, &image.regions.iter().flat_map(advice).collect::<Vec<_>>())?;
    image.regions.iter().try_for_each(|region| name(process, region))?;
    common.drop_rest(process)?;
    set_layout(process, image, executable.map(|file| first_file + file as RawFd))?;
    // After the mappings: READ_IMPLIES_EXEC would change their protection.
    process.call(0, PERSONALITY, &[u64::from(image.personality)], format_args!("{:#x}", image.personality)).map(drop)
}

/// Closes the descriptors that were kept for the mappings.
pub fn close_kept(process: &mut HalfBuilt, first_kept: RawFd) -> Result<()> {
    let purpose = format_args!("descriptors of the rebuild");
    process.call(0, CLOSE_RANGE, &[first_kept as u64, u64::from(u32::MAX), 0], purpose).map(drop)
}

fn unregister_rseq(process: &mut HalfBuilt) -> Result<()> {
    let Some(rseq) = process.thread(0)?.rseq_configuration()? else { return Ok(()) };
    let arguments = [rseq.address, u64::from(rseq.bytes), RSEQ_FLAG_UNREGISTER, u64::from(rseq.signature)];
    process.call(0, RSEQ, &arguments, format_args!("the restarter's own registration")).map(drop)
}

fn unmap_all(process: &mut HalfBuilt, machine: &Machine, staged: Option<Span>) -> Result<()> {
    let special = machine.special_mappings.iter().map(|mapping| Span::of(mapping.address, mapping.bytes));
    for gap in gaps(special.chain(staged).collect()) {
        process.call(0, MUNMAP, &[gap.start, gap.end - gap.start], format_args!("the restarter's own memory"))?;
    }
    Ok(())
}

fn move_special_mappings(
    process: &mut HalfBuilt,
    image: &ProcessImage,
    (machine, vdso): (&Machine, &VdsoPlan),
    staged: Option<Span>,
) -> Result<()> {
    let steps = moves(&machine.special_mappings, &vdso.wanted, staged).ok_or_else(|| no_room(image))?;
    for step in steps {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let arguments = [step.from, step.bytes, step.bytes, flags as u64, step.to];
        process.call(0, MREMAP, &arguments, format_args!("vdso or vvar to {:#x}", step.to))?;
        if step.is_vdso {
            process.move_site(step.to + machine.vdso_syscall_offset);
        }
    }
    Ok(())
}

/// Another kernel's vdso, in the place where the program looks for it.
fn map_old_vdso(process: &mut HalfBuilt, vdso: &VdsoPlan) -> Result<()> {
    let Some((address, content)) = &vdso.old else { return Ok(()) };
    let (bytes, purpose) = (content.len() as u64, format_args!("the vdso of the other kernel at {address:#x}"));
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let writable = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    process.call(0, MMAP, &[*address, bytes, writable, flags as u64, u64::MAX, 0], purpose)?;
    write_memory(process.pid(), *address, content)?;
    let executable = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    process.call(0, MPROTECT, &[*address, bytes, executable], purpose).map(drop)
}

fn scratch_address(image: &ProcessImage, vdso: &VdsoPlan, staged: Option<Span>) -> Result<u64> {
    let regions = image.regions.iter().map(|region| Span::of(region.address, region.bytes));
    let specials =
        image.special_mappings.iter().chain(&vdso.wanted).map(|mapping| Span::of(mapping.address, mapping.bytes));
    room(regions.chain(specials).chain(staged).collect(), SCRATCH_BYTES).ok_or_else(|| no_room(image))
}

fn no_room(image: &ProcessImage) -> Error {
    let what = format!("rebuilding process {}", image.pid);
    Error::unsupported(what, "its address space has no room for the rebuild", "please report this")
}

/// The call that maps `region`.
fn mapping(region: &Region, source: Source, first_file: RawFd) -> Option<Planned> {
    let number = |file: usize| (first_file + file as RawFd) as u64;
    let none = u64::MAX;
    if let Source::Ring { .. } = source {
        return None; // by [`io_urings::map`]
    }
    if let Source::Sysv { .. } = source {
        // It is attached; a part of it may have another protection than the whole.
        return Some(protection(region, first_protection(region)));
    }
    let (kind, file, offset) = match source {
        Source::Memory if region.advice.droppable => (MAP_DROPPABLE | libc::MAP_ANONYMOUS, none, 0),
        Source::Memory => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, none, 0),
        Source::SharedMemory => (libc::MAP_SHARED | libc::MAP_ANONYMOUS, none, 0),
        Source::PrivateFile { file, offset } => (libc::MAP_PRIVATE, number(file), offset),
        Source::Sysv { offset, .. } | Source::Ring { offset, .. } => (libc::MAP_SHARED, none, offset),
        Source::Object { file, offset } | Source::SharedFile { file, offset, .. } => {
            (libc::MAP_SHARED, number(file), offset)
        }
    };
    let grows_down = if region.advice.grows_down { libc::MAP_GROWSDOWN } else { 0 };
    let no_reserve = if region.advice.no_reserve { libc::MAP_NORESERVE } else { 0 };
    let huge = match (file, region.advice.huge_page_bytes) {
        (_, 0) => 0,
        (file, _) if file != none => 0, // its file is of such pages
        (_, page_bytes) => libc::MAP_HUGETLB | huge_pages::size_bits(page_bytes),
    };
    let flags = kind | grows_down | no_reserve | huge | libc::MAP_FIXED_NOREPLACE;
    let arguments = [region.address, region.bytes, first_protection(region) as u64, flags as u64, file, offset];
    let end = region.address + region.bytes;
    let name = String::from_utf8_lossy(&region.name);
    Some(Planned::must(MMAP, arguments, format_args!("{:#x}-{end:#x} {name}", region.address)))
}

fn protection(region: &Region, protection: i32) -> Planned {
    let arguments = [region.address, region.bytes, protection as u64, 0, 0, 0];
    Planned::must(MPROTECT, arguments, format_args!("protection of {:#x}", region.address))
}

/// Calls that repeat the lasting advice. Advice about speed may be refused (the kernel can be built without it).
fn advice(region: &Region) -> impl Iterator<Item = Planned> {
    let Advice {
        dont_fork,
        wipe_on_fork,
        dont_dump,
        huge_page,
        no_huge_page,
        mergeable,
        sequential,
        random,
        droppable,
        ..
    } = region.advice;
    let binding = [
        (dont_fork, libc::MADV_DONTFORK),
        (wipe_on_fork && !droppable, libc::MADV_WIPEONFORK),
        (dont_dump && !droppable, libc::MADV_DONTDUMP),
    ];
    let hints = [
        (huge_page, libc::MADV_HUGEPAGE),
        (no_huge_page, libc::MADV_NOHUGEPAGE),
        (mergeable, libc::MADV_MERGEABLE),
        (sequential, libc::MADV_SEQUENTIAL),
        (random, libc::MADV_RANDOM),
    ];
    let (address, bytes) = (region.address, region.bytes);
    let planned = move |plan: fn(Call, [u64; 6], Arguments) -> Planned, advice: i32| {
        plan(MADVISE, [address, bytes, advice as u64, 0, 0, 0], format_args!("advice {advice} for {address:#x}"))
    };
    let wanted = |(wanted, advice): (bool, i32)| wanted.then_some(advice);
    let binding = binding.into_iter().filter_map(wanted).map(move |advice| planned(Planned::must, advice));
    binding.chain(hints.into_iter().filter_map(wanted).map(move |advice| planned(Planned::may, advice)))
}

/// Gives back the name of `[anon:name]`, where the kernel keeps such names.
fn name(process: &mut HalfBuilt, region: &Region) -> Result<()> {
    const PR_SET_VMA: u64 = 0x5356_4d41;
    let name = region.name.strip_prefix(b"[anon:").and_then(|name| name.strip_suffix(b"]"));
    let Some(name) = name else { return Ok(()) };
    let address = process.put(&[name, b"\0"].concat())?;
    if let Err(errno) = process.try_call(0, PRCTL, &[PR_SET_VMA, 0, region.address, region.bytes, address])? {
        log::debug!("name of {:#x}: {errno}", region.address);
    }
    Ok(())
}

/// Bytes of `struct prctl_mm_map`.
const LAYOUT_BYTES: u64 = 13 * 8;

/// `PR_SET_MM_MAP`: all that the kernel keeps about the address space, in one call. If the executable is no longer
/// one (no right to execute it, say), the link keeps leading to ckpt, which only people and debuggers notice.
fn set_layout(process: &mut HalfBuilt, image: &ProcessImage, executable: Option<RawFd>) -> Result<()> {
    let purpose = format_args!("PR_SET_MM_MAP: heap, arguments, auxiliary vector");
    let refusal = match try_set_layout(process, image, executable)? {
        Ok(_) => return Ok(()),
        Err(refusal) if executable.is_none() => return Err(process.refused(PRCTL, purpose, refusal)),
        Err(refusal) => refusal,
    };
    let result = try_set_layout(process, image, None)?;
    result.map_err(|errno| process.refused(PRCTL, purpose, errno))?;
    let path = String::from_utf8_lossy(&image.executable);
    log::warn!("/proc/{}/exe cannot lead to {path} ({refusal}): it leads to ckpt", image.pid);
    Ok(())
}

fn try_set_layout(
    process: &mut HalfBuilt,
    image: &ProcessImage,
    executable: Option<RawFd>,
) -> Result<Result<u64, Errno>> {
    let start = process.scratch()?.start;
    process.put(&layout_argument(image, executable, start))?;
    let arguments = [libc::PR_SET_MM as u64, libc::PR_SET_MM_MAP as u64, start, LAYOUT_BYTES, 0];
    process.try_call(0, PRCTL, &arguments)
}

/// `struct prctl_mm_map` for `address`, with the auxiliary vector behind it.
fn layout_argument(image: &ProcessImage, executable: Option<RawFd>, address: u64) -> Vec<u8> {
    let layout = &image.layout;
    let words = [
        layout.start_code,
        layout.end_code,
        layout.start_data,
        layout.end_data,
        layout.start_brk,
        layout.brk,
        layout.start_stack,
        layout.arg_start,
        layout.arg_end,
        layout.env_start,
        layout.env_end,
        address + LAYOUT_BYTES,
    ];
    let auxv_bytes = image.auxv.len() * 8;
    let mut argument: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    argument.extend((auxv_bytes as u32).to_ne_bytes());
    argument.extend(executable.unwrap_or(-1).to_ne_bytes());
    argument.extend(image.auxv.iter().flat_map(|word| word.to_ne_bytes()));
    argument
}

/// What has to wait for the content: the final protection of some regions, and locks.
pub fn complete(process: &mut HalfBuilt, image: &ProcessImage) -> Result<()> {
    const MLOCK2: Call = Call("mlock2", libc::SYS_mlock2);
    let late = image.regions.iter().filter(|region| first_protection(region) != region.protection);
    let protected: Vec<Planned> = late.map(|region| protection(region, region.protection)).collect();
    call_table::make(process, &protected)?;
    let locked = image.regions.iter().filter(|region| region.advice.locked).map(|region| {
        // What cannot be read cannot be brought in either; it is locked as it comes.
        let on_fault = if region.protection == 0 || region.advice.locked_on_fault { libc::MLOCK_ONFAULT } else { 0 };
        let arguments = [region.address, region.bytes, on_fault as u64, 0, 0, 0];
        Planned::must(MLOCK2, arguments, format_args!("lock {:#x}", region.address))
    });
    call_table::make(process, &locked.collect::<Vec<_>>())
}

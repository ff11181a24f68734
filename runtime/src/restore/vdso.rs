//! The program has pointers into the vdso of the kernel that it was captured under. Under the same kernel that vdso moves to
//! where the program had it. Under another one the old vdso comes back as ordinary memory, and each of its functions leads to
//! the one of that name in this kernel's vdso, or to the system call that it stands for.
//!
//! The old code itself never runs again: it would read the kernel's clocks from where the old kernel had them.

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSymbol, SymbolKind};

use super::host::Machine;
use super::ranges::{Span, room};
use crate::error::{Error, Result};
use crate::image::{Host, ProcessImage, SpecialMapping, ThreadImage};

const VDSO: &str = "[vdso]";
const WHAT: &str = "restart on this kernel";
/// `mov rax, imm64; jmp rax` has so many bytes.
const JUMP_BYTES: usize = 12;

/// Where the kernel's mappings go, and what is in the place of the old vdso.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VdsoPlan {
    /// Each of the machine's special mappings at its new address.
    pub wanted: Vec<SpecialMapping>,
    /// Address and content of the old vdso, where this kernel has another one.
    pub old: Option<(u64, Vec<u8>)>,
}

impl VdsoPlan {
    /// The plan for `image`, which was captured on `host`.
    ///
    /// # Errors
    /// When this kernel's vdso is another one, and the old one cannot be led to it: its content is not in the checkpoint, a
    /// thread is just executing it, or there is no room.
    pub fn new(image: &ProcessImage, host: &Host, machine: &Machine) -> Result<VdsoPlan> {
        if is_the_same(&image.special_mappings, &machine.special_mappings) {
            return Ok(VdsoPlan { wanted: image.special_mappings.clone(), old: None });
        }
        let refused = |why: String| {
            let kernels = (&host.kernel_release, &machine.host.kernel_release);
            let why = format!(
                "the program was captured under {}, this is {}, with another vdso: {why}",
                kernels.0, kernels.1
            );
            Error::environment(WHAT, why, "restart another checkpoint, or boot the kernel of this one")
        };
        let Some(old) = vdso_of(&image.special_mappings) else {
            // It has unmapped its own, and gets one that it does not know of: calls are made in there until it is complete.
            let wanted = moved_together(image, machine).ok_or_else(|| refused("there is no room for one".into()))?;
            return Ok(VdsoPlan { wanted, old: None });
        };
        let content = old.content.as_ref().ok_or_else(|| refused("the old one is not in the checkpoint".into()))?;
        let inside =
            |thread: &&ThreadImage| (old.address..old.address + old.bytes).contains(&thread.instruction_pointer());
        if let Some(thread) = image.threads.iter().find(inside) {
            return Err(refused(format!("thread {} is just executing the old one", thread.tid)));
        }
        let wanted = moved_together(image, machine).ok_or_else(|| refused("there is no room for both".into()))?;
        let new = vdso_of(&wanted).ok_or_else(|| refused("this kernel has none".into()))?;
        let patched = led_to(content, new).map_err(refused)?;
        Ok(VdsoPlan { wanted, old: Some((old.address, patched)) })
    }
}

fn vdso_of(mappings: &[SpecialMapping]) -> Option<&SpecialMapping> {
    mappings.iter().find(|mapping| mapping.name == VDSO)
}

fn is_the_same(one: &[SpecialMapping], other: &[SpecialMapping]) -> bool {
    let same = |a: &SpecialMapping, b: &SpecialMapping| (&a.name, a.bytes, a.digest) == (&b.name, b.bytes, b.digest);
    let within =
        |a: &[SpecialMapping], b: &[SpecialMapping]| a.iter().all(|one| b.iter().any(|other| same(one, other)));
    within(one, other) && within(other, one)
}

/// The machine's mappings where the program has nothing, as far from each other as they are: the vdso's code counts on it.
fn moved_together(image: &ProcessImage, machine: &Machine) -> Option<Vec<SpecialMapping>> {
    let first = machine.special_mappings.iter().map(|mapping| mapping.address).min()?;
    let end = machine.special_mappings.iter().map(|mapping| mapping.address + mapping.bytes).max()?;
    let regions = image.regions.iter().map(|region| Span::of(region.address, region.bytes));
    let specials = |mappings: &[SpecialMapping]| {
        mappings.iter().map(|mapping| Span::of(mapping.address, mapping.bytes)).collect::<Vec<_>>()
    };
    let taken = regions.chain(specials(&image.special_mappings)).chain(specials(&machine.special_mappings));
    let start = room(taken.collect(), end - first)?;
    let moved =
        |mapping: &SpecialMapping| SpecialMapping { address: start + (mapping.address - first), ..mapping.clone() };
    Some(machine.special_mappings.iter().map(moved).collect())
}

/// The functions of a vdso: names and offsets.
fn functions(content: &[u8]) -> std::result::Result<Vec<(String, usize)>, String> {
    let unreadable = |error: object::Error| format!("it cannot be read: {error}");
    let file = ElfFile64::<LittleEndian>::parse(content).map_err(unreadable)?;
    let base = file.relative_address_base();
    let mut functions = Vec::new();
    for symbol in file.dynamic_symbols() {
        if symbol.kind() == SymbolKind::Text && symbol.is_definition() {
            let name = symbol.name().map_err(unreadable)?.to_owned();
            functions.push((name, symbol.address().wrapping_sub(base) as usize));
        }
    }
    Ok(functions)
}

/// The old vdso with each function leading to the new one.
fn led_to(old: &[u8], new: &SpecialMapping) -> std::result::Result<Vec<u8>, String> {
    let new_functions = functions(new.content.as_deref().ok_or("the new one cannot be read")?)?;
    let mut patched = old.to_vec();
    for (name, offset) in functions(old)? {
        let target = new_functions.iter().find(|(known, _)| *known == name && may_be_replaced(&name));
        let code = match target {
            Some((_, target)) => jump_to(new.address + *target as u64),
            None => stand_in(&name),
        };
        let place = patched.get_mut(offset..offset + JUMP_BYTES).ok_or_else(|| format!("{name} lies outside of it"))?;
        place[..code.len()].copy_from_slice(&code);
    }
    Ok(patched)
}

/// `__vdso_getrandom` keeps a state in the program's memory, whose layout is the kernel's own.
fn may_be_replaced(name: &str) -> bool {
    !name.ends_with("getrandom")
}

fn jump_to(address: u64) -> Vec<u8> {
    [&[0x48, 0xb8][..], &address.to_le_bytes(), &[0xff, 0xe0]].concat()
}

/// What a function does for which this kernel has none: its system call, or nothing, with an error.
fn stand_in(name: &str) -> Vec<u8> {
    let calls = [
        ("clock_gettime", libc::SYS_clock_gettime),
        ("clock_getres", libc::SYS_clock_getres),
        ("gettimeofday", libc::SYS_gettimeofday),
        ("time", libc::SYS_time),
        ("getcpu", libc::SYS_getcpu),
        ("getrandom", libc::SYS_getrandom),
    ];
    let plain = name.strip_prefix("__vdso_").unwrap_or(name);
    let load = |value: i32| [&[0x48, 0xc7, 0xc0][..], &value.to_le_bytes()].concat(); // mov rax, imm32
    match calls.into_iter().find(|(known, _)| *known == plain) {
        Some((_, number)) => [load(number as i32), vec![0x0f, 0x05, 0xc3]].concat(), // syscall; ret
        None => [load(-libc::ENOSYS), vec![0xc3]].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::sample;

    fn captured_elsewhere(machine: &Machine) -> ProcessImage {
        let mut image = sample::process(machine);
        for mapping in image.special_mappings.iter_mut().filter(|mapping| mapping.name == VDSO) {
            mapping.digest = Some([7; 20]);
        }
        image
    }

    fn elsewhere(machine: &Machine) -> Host {
        Host { kernel_release: "5.10.0-old".into(), ..machine.host.clone() }
    }

    #[test]
    fn under_the_same_kernel_the_vdso_moves_to_where_it_was() {
        let machine = Machine::this().unwrap();
        let mut image = sample::process(&machine);
        image.special_mappings.iter_mut().for_each(|mapping| mapping.address += 0x10_0000);
        let plan = VdsoPlan::new(&image, &machine.host, &machine).unwrap();
        assert_eq!(plan, VdsoPlan { wanted: image.special_mappings, old: None });
    }

    #[test]
    fn each_function_of_another_vdso_leads_to_the_one_of_its_name() {
        let machine = Machine::this().unwrap();
        let plan = VdsoPlan::new(&captured_elsewhere(&machine), &elsewhere(&machine), &machine).unwrap();
        let (address, content) = plan.old.unwrap();
        assert_eq!(address, vdso_of(&machine.special_mappings).unwrap().address);
        let new = vdso_of(&plan.wanted).unwrap();
        let all = functions(new.content.as_deref().unwrap()).unwrap();
        assert!(all.iter().any(|(name, _)| name == "__vdso_clock_gettime"), "{all:?}");
        for (name, offset) in all {
            let code = &content[offset..offset + JUMP_BYTES];
            let leads_there = code == jump_to(new.address + offset as u64);
            assert!(leads_there || code.starts_with(&stand_in(&name)) && !may_be_replaced(&name), "{name}: {code:x?}");
        }
        let distance = |of: &[SpecialMapping]| of[0].address.abs_diff(of[of.len() - 1].address);
        assert_eq!(distance(&plan.wanted), distance(&machine.special_mappings));
    }

    #[test]
    fn a_function_that_this_kernel_lacks_makes_its_system_call() {
        assert_eq!(stand_in("__vdso_getcpu"), [0x48, 0xc7, 0xc0, 0x35, 1, 0, 0, 0x0f, 0x05, 0xc3]);
        assert_eq!(stand_in("__vdso_unheard_of"), [0x48, 0xc7, 0xc0, 0xda, 0xff, 0xff, 0xff, 0xc3]);
    }

    #[test]
    fn what_cannot_be_led_to_another_kernel_is_refused_with_both_named() {
        let machine = Machine::this().unwrap();
        let host = elsewhere(&machine);
        let message = |image: &ProcessImage| VdsoPlan::new(image, &host, &machine).unwrap_err().to_string();
        let mut image = captured_elsewhere(&machine);
        let vdso = vdso_of(&image.special_mappings).unwrap().address;
        image.threads[0].registers[16] = vdso + 100;
        let refusal = message(&image);
        assert!(refusal.contains("5.10.0-old") && refusal.contains(&machine.host.kernel_release), "{refusal}");
        assert!(refusal.contains("is just executing"), "{refusal}");
        image.threads[0].registers[16] = 0x1000;
        image.special_mappings.iter_mut().for_each(|mapping| mapping.content = None);
        assert!(message(&image).contains("not in the checkpoint"), "{}", message(&image));
    }
}

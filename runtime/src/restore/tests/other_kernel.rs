//! A program that was captured under another kernel.

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol};

use super::lab::*;
use super::wait_for_exit;
use crate::image::*;
use crate::restore::host::Machine;
use crate::restore::options::RestoreOptions;
use crate::restore::rebuild;

const CALLER: u64 = 0x6000_0000;
const OLD_VDSO: u64 = 0x6100_0000;

/// The vdso of this kernel with traps in the place of its code: whoever executes any of it is killed.
fn trapped_vdso() -> Vec<u8> {
    let machine = Machine::this().unwrap();
    let vdso = machine.special_mappings.iter().find(|mapping| mapping.name == "[vdso]").unwrap();
    let mut content = vdso.content.clone().unwrap().into_vec();
    let file = ElfFile64::<LittleEndian>::parse(content.as_slice()).unwrap();
    let base = file.relative_address_base();
    let text = file.sections().find(|section| section.name() == Ok(".text")).unwrap();
    let (start, bytes) = ((text.address() - base) as usize, text.size() as usize);
    content[start..start + bytes].fill(0xcc);
    content
}

fn offset_of(content: &[u8], name: &str) -> u64 {
    let file = ElfFile64::<LittleEndian>::parse(content).unwrap();
    let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name)).unwrap();
    symbol.address() - file.relative_address_base()
}

/// Calls the function at `address` with 0, and ends the process: with 7 if that gives more than a billion, the seconds of the year
/// 2001, else with 1.
fn caller(address: u64) -> Vec<u8> {
    let call: [&[u8]; 3] = [&[0x48, 0xb8], &address.to_le_bytes(), &[0x31, 0xff, 0xff, 0xd0]]; // mov rax; xor edi, edi; call rax
    let compare = [0x48, 0x3d, 0x00, 0xca, 0x9a, 0x3b]; // cmp rax, 1000000000
    let status = [0xbf, 7, 0, 0, 0, 0x7f, 5, 0xbf, 1, 0, 0, 0]; // mov edi, 7; jg over; mov edi, 1
    let exit = [0xb8, 231, 0, 0, 0, 0x0f, 0x05]; // exit_group
    [&call.concat()[..], &compare, &status, &exit].concat()
}

#[test]
fn a_function_of_the_old_vdso_does_what_this_kernels_does() {
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    let old = trapped_vdso();
    for name in ["__vdso_time", "time"] {
        let id = lab.seal(|lab, store| {
            let mut image = sample(lab, store);
            for mapping in image.processes[0].special_mappings.iter_mut().filter(|mapping| mapping.name == "[vdso]") {
                (mapping.address, mapping.digest) = (OLD_VDSO, Some([7; 20]));
                mapping.content = Some(old.clone().into());
            }
            // An old kernel knows fewer kinds.
            image.processes[0].special_mappings.retain(|mapping| mapping.name != "[vvar_vclock]");
            let executable = libc::PROT_READ | libc::PROT_EXEC;
            let pages = store(&caller(OLD_VDSO + offset_of(&old, name)));
            image.processes[0].regions.push(region(CALLER, 0x1000, executable, Backing::Anonymous, pages));
            image.processes[0].regions.sort_by_key(|region| region.address);
            image.processes[0].threads[0].registers[16] = CALLER;
            image
        });
        let rebuilt = rebuild(&lab.store, id, &RestoreOptions::default(), &mut |_, _, _| {}).unwrap();
        let pid = rebuilt.pid();
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let of_old = maps.lines().find(|line| line.starts_with(&format!("{OLD_VDSO:x}-"))).unwrap();
        assert!(of_old.contains("r-xp") && !of_old.contains("[vdso]") && maps.contains("[vdso]"), "{maps}");
        rebuilt.release(&mut |_, _, _| {}).unwrap();
        let status = wait_for_exit(pid);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{name}: {status:#x}");
    }
}

//! Variables of a cubin: an ELF file for the device.
//!
//! A variable is a symbol of type object in a section that is loaded for the whole module: `.nv.global` (zeros),
//! `.nv.global.init`, `.nv.constant3`. That it is managed is a bit of its symbol. Kernels have sections of their own
//! (`.nv.constant0.KERNEL`, `.nv.shared.KERNEL`), and what they name has no address outside them. NVIDIA documents none of
//! this; it is what ptxas and nvlink of CUDA 13.0 write, which the tests compare with the sources.

use object::LittleEndian as Le;
use object::SymbolIndex;
use object::elf::{EM_CUDA, FileHeader64, SHT_SYMTAB, SymbolType};
use object::read::elf::{FileHeader, SectionTable, Sym, SymbolTable};

use super::variable::Kind;
use super::{Defect, Found};

/// The first bytes of an ELF file.
pub(super) const MAGIC: [u8; 4] = *b"\x7fELF";

/// `STT_OBJECT`, and `STT_CUDA_OBJECT`, which cuda-gdb knows.
const OBJECTS: [SymbolType; 2] = [SymbolType(1), SymbolType(13)];
/// Of `e_machine` in the header.
const MACHINE_OFFSET: usize = 18;
/// `STO_CUDA_MANAGED`, a bit of `st_other`.
const MANAGED: u8 = 4;

type Header = FileHeader64<Le>;

/// Bytes of the file that begins with `head`, if `head` has its header: tables are the last that it has. (Too few for
/// more than 65,279 sections, the number of which would not be in the header; such a file is refused for its length.)
pub(super) fn length(head: &[u8]) -> Option<u64> {
    let header = Header::parse(head).ok()?;
    let end = |start: u64, count: u16, each: u16| start.checked_add(u64::from(count) * u64::from(each));
    let sections = end(header.e_shoff(Le), header.e_shnum(Le), header.e_shentsize(Le))?;
    let segments = end(header.e_phoff(Le), header.e_phnum(Le), header.e_phentsize(Le))?;
    Some(sections.max(segments))
}

/// Adds the variables of the cubin that `file` begins with.
pub(super) fn variables(file: &[u8], found: &mut Found) -> Result<(), Defect> {
    let header = Header::parse(file).map_err(unreadable)?;
    header.endian().map_err(unreadable)?;
    if header.e_machine(Le) != EM_CUDA {
        return Err(Defect::at(MACHINE_OFFSET, "an ELF file for another machine"));
    }
    if length(file).is_none_or(|bytes| bytes > file.len() as u64) {
        return Err(Defect::at(file.len(), "it is cut short"));
    }
    let sections = header.sections(Le, file).map_err(unreadable)?;
    let symbols = sections.symbols(Le, file, SHT_SYMTAB).map_err(unreadable)?;
    if symbols.is_empty() {
        return Err(Defect::at(0, "it has no symbols"));
    }
    for (index, symbol) in symbols.enumerate() {
        if OBJECTS.contains(&symbol.st_type())
            && let Some(kind) = kind(index, &symbols, &sections)?
        {
            let name = symbols.symbol_name(Le, symbol).map_err(unreadable)?;
            found.add(name, kind, Some(symbol.st_size(Le))).map_err(|why| Defect::at(0, why))?;
        }
    }
    Ok(())
}

/// What the object with this symbol is, if it is a variable that is defined here.
fn kind(
    index: SymbolIndex,
    symbols: &SymbolTable<Header>,
    sections: &SectionTable<Header>,
) -> Result<Option<Kind>, Defect> {
    let symbol = symbols.symbol(index).map_err(unreadable)?;
    let global = if symbol.st_other().0 & MANAGED != 0 { Kind::Managed } else { Kind::Global };
    if symbol.is_common(Le) {
        return Ok(Some(global));
    }
    let Some(section) = symbols.symbol_section(Le, symbol, index).map_err(unreadable)? else { return Ok(None) };
    let section = sections.section(section).map_err(unreadable)?;
    Ok(match sections.section_name(Le, section).map_err(unreadable)? {
        b".nv.global" | b".nv.global.init" => Some(global),
        name if bank(name) => Some(Kind::Constant),
        _ => None,
    })
}

/// Whether a section is a constant bank of the whole module: one of a kernel has the kernel's name behind the number.
fn bank(section: &[u8]) -> bool {
    let number = section.strip_prefix(b".nv.constant");
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

fn unreadable(error: object::Error) -> Defect {
    Defect::at(0, error.to_string())
}

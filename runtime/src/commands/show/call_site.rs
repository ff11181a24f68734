//! From the address that a call returns to, to words: module and offset, function, source line.
//!
//! It is done offline, from the files as they are now. One that has changed since the checkpoint could name another
//! function, so names are given only for files that are as they were.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, ReadCache};
use serde::Serialize;

/// Where an allocation was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallSite {
    /// File that the code is in; empty if it is in none.
    pub module: String,
    /// Offset in that file, or the address where there is no file. Hexadecimal, with 0x.
    pub offset: String,
    /// The function, if the file names it.
    pub function: Option<String>,
    /// `FILE:LINE`, if the file has debug information.
    pub source: Option<String>,
}

/// Code that is mapped from a file.
#[derive(Clone, Debug)]
pub struct Code {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// The file.
    pub path: Vec<u8>,
    /// Offset of the first address in the file.
    pub offset: u64,
    /// Inode number of the file.
    pub inode: u64,
    /// Its size, where that is known.
    pub size: Option<u64>,
}

/// Names call sites, and keeps what it has read of each file.
pub struct CallSites {
    code: Vec<Code>,
    modules: HashMap<PathBuf, Option<Module>>,
}

/// What a file says about its code.
struct Module {
    loader: Loader,
    /// File offset, bytes in the file and address in the file's own count of each segment.
    segments: Vec<[u64; 3]>,
}

impl CallSites {
    /// For a program whose code is mapped so.
    pub fn new(code: Vec<Code>) -> CallSites {
        CallSites { code, modules: HashMap::new() }
    }

    /// The call site that returns to `address`.
    pub fn name(&mut self, address: u64) -> CallSite {
        let Some(code) = self.code.iter().find(|code| (code.start..code.end).contains(&address)) else {
            let offset = format!("{address:#x}");
            return CallSite { module: String::new(), offset, function: None, source: None };
        };
        let offset = address - code.start + code.offset;
        let path = PathBuf::from(OsStr::from_bytes(&code.path));
        let module = self.modules.entry(path).or_insert_with_key(|path| Module::open(path, code).ok());
        let (function, source) = module.as_ref().map_or((None, None), |module| module.name(offset));
        CallSite {
            module: String::from_utf8_lossy(&code.path).into_owned(),
            offset: format!("{offset:#x}"),
            function,
            source,
        }
    }
}

impl Module {
    fn open(path: &Path, code: &Code) -> Result<Module, Box<dyn std::error::Error>> {
        let file = std::fs::File::open(path)?;
        let now = file.metadata()?;
        if now.ino() != code.inode || code.size.is_some_and(|size| size != now.len()) {
            return Err("it is another file now".into());
        }
        let cache = ReadCache::new(file);
        let header = FileHeader64::<LittleEndian>::parse(&cache)?;
        let headers = header.program_headers(LittleEndian, &cache)?;
        let loaded = headers.iter().filter(|segment| segment.p_type(LittleEndian) == PT_LOAD);
        let segments = loaded.map(|segment| {
            let (offset, bytes) = segment.file_range(LittleEndian);
            [offset, bytes, segment.p_vaddr(LittleEndian)]
        });
        Ok(Module { segments: segments.collect(), loader: Loader::new(path)? })
    }

    /// Function and source line of the call that returns to the code at `offset` of the file.
    fn name(&self, offset: u64) -> (Option<String>, Option<String>) {
        let within = |segment: &&[u64; 3]| (segment[0]..segment[0] + segment[1]).contains(&offset);
        let Some([first, _, address]) = self.segments.iter().find(within) else { return (None, None) };
        // The call itself is in front of where it returns to: at the end of a function, that is in another one.
        let call = (offset - first + address).saturating_sub(1);
        let demangled = |name: &str| addr2line::demangle_auto(name.into(), None).into_owned();
        let function = self.loader.find_symbol(call).map(demangled);
        (function, self.source(call))
    }

    /// The line of the function itself: of functions inlined into it, the line where it uses them.
    fn source(&self, call: u64) -> Option<String> {
        let mut frames = self.loader.find_frames(call).ok()?;
        let mut outermost = None;
        while let Ok(Some(frame)) = frames.next() {
            outermost = frame.location.or(outermost);
        }
        let location = outermost?;
        Some(format!("{}:{}", location.file?, location.line?))
    }
}

/// Characters of a function's name in a table: what templates make of one fills screens.
const NAME_MAX: usize = 80;

/// The name with the end cut off if that is long.
fn short(name: &str) -> String {
    match name.char_indices().nth(NAME_MAX) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_owned(),
    }
}

impl CallSite {
    /// In one cell of a table. `--json` has the whole name.
    pub fn text(&self) -> String {
        let place = match self.module.rsplit('/').next() {
            Some("") | None => self.offset.clone(),
            Some(file) => format!("{file}+{}", self.offset),
        };
        match (&self.function, &self.source) {
            (Some(function), Some(source)) => format!("{} ({source})", short(function)),
            (Some(function), None) => format!("{} ({place})", short(function)),
            (None, _) => place,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::maps;

    /// What the test's own code is mapped from.
    fn own_code() -> Vec<Code> {
        let of = |mapping: maps::Mapping| Code {
            start: mapping.start,
            end: mapping.end,
            path: mapping.name,
            offset: mapping.offset,
            inode: mapping.inode,
            size: None,
        };
        maps::outline(std::process::id() as i32).unwrap().into_iter().filter(|it| it.inode != 0).map(of).collect()
    }

    #[test]
    fn a_long_name_is_cut_in_a_table() {
        let site = |name: String| CallSite {
            module: "/lib/a.so".to_owned(),
            offset: "0x10".to_owned(),
            function: Some(name),
            source: None,
        };
        assert_eq!(site("f".to_owned()).text(), "f (a.so+0x10)");
        assert_eq!(site("é".repeat(500)).text(), format!("{}... (a.so+0x10)", "é".repeat(80)));
    }

    #[test]
    fn an_address_of_this_test_has_its_name_and_its_source() {
        // One byte into the function, as if a call before it returned there.
        let address = an_address_of_this_test_has_its_name_and_its_source as *const () as u64 + 1;
        let site = CallSites::new(own_code()).name(address);
        let function = site.function.clone().unwrap();
        assert!(function.contains("an_address_of_this_test_has_its_name_and_its_source"), "{function}");
        assert!(site.source.clone().unwrap().contains("call_site.rs:"), "{site:?}");
        assert!(site.text().contains("call_site.rs:"), "{}", site.text());
    }

    #[test]
    fn a_file_that_is_another_one_now_names_nothing() {
        let address = own_code as *const () as u64 + 1;
        let changed = own_code().into_iter().map(|code| Code { inode: code.inode + 1, ..code }).collect();
        let site = CallSites::new(changed).name(address);
        assert_eq!((site.function.as_deref(), site.source.as_deref()), (None, None));
        assert!(!site.module.is_empty() && site.text().contains("+0x"), "{}", site.text());
    }

    #[test]
    fn an_address_in_no_file_stands_for_itself() {
        let site = CallSites::new(Vec::new()).name(0x1234);
        assert_eq!((site.module.as_str(), site.text().as_str()), ("", "0x1234"));
    }
}

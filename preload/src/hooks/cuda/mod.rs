//! Hooks over the CUDA driver: which memory it has allocated for the program, and of what kind.
//!
//! A program has four ways to the driver, and each leads through here. Its own references are bound to our exports, which
//! bear the driver's names (`memory`, `pools`, ...). What it looks up with `dlsym` and `dlvsym` (`lookups`), as the
//! static runtime does with its one first function, and through the driver's own `cuGetProcAddress` (`proc_address`),
//! as every runtime does with all others, is replaced by the hook of that name where there is one. The runtime's
//! `cudaGetDriverEntryPoint` asks `cuGetProcAddress` in turn. So the real lookup always comes first, and a hook takes
//! the place of what has been found, never of nothing.
//!
//! A hook calls the real function and records what has come of it (`records`). It changes no argument and no result, but for
//! plain memory, which is mapped in place of allocated (`backing`), and for managed memory if the user wants it pinned (`managed`). Functions that change no device memory (`launches`,
//! `copies`, `fills`, ... do nothing else), and neither allocate nor free, are not hooked. Names that no CUDA up to 13.0 has
//! are passed on untouched and counted: they may allocate in ways that we do not know.
//!
//! Variables of modules that the program never asks for are found by what it has loaded (`code`).
//!
//! Before the real function a call passes the `gate`, which the `keeper` closes when the agent wants devices to stand still.

mod advice;
mod arrays;
mod attributes;
mod backing;
mod call_site;
mod captures;
mod children;
mod code;
mod contexts;
mod copies;
mod driver;
mod fills;
mod gate;
mod graphs;
mod handed_out;
mod hold;
mod index;
mod keeper;
mod known;
mod launches;
mod loading;
mod lock;
mod lookups;
mod managed;
mod mappings;
mod memory;
mod modules;
mod pointers;
mod pools;
mod proc_address;
mod records;
mod runtime;
mod virtual_memory;

pub use attributes::known_to_driver;
pub use backing::switch as back_allocations;
pub use children::forked;
pub use hold::HOLD;
pub use keeper::wait_for_devices;
pub use lookups::resolve;
pub use managed::switch as pin_managed_memory;
pub use records::containing;

//! Hooks over the functions of the heap, which record the large allocations: which there are, of how many bytes, and
//! what asked for them.
//!
//! The functions are those of C (`c`) and C++ (`cxx`), in front of whichever allocator the program has: glibc's,
//! jemalloc, tcmalloc. Nearly every call is about a small allocation and goes on to that allocator by one jump, as it
//! came; that costs about a nanosecond a pair (docs/performance.md). Large ones are recorded in a `table` without
//! locks, so a fork, a signal handler and a constructor that runs before ours are nothing special.
//!
//! The functions are assembly for two reasons. The call must look to the allocator as it looked to us, whatever
//! arguments it has. And `operator new` throws: an exception may pass frames of these, and none of Rust.
//!
//! Not seen: allocators under names of their own (`mi_malloc`, jemalloc's `mallocx`, those inside a program that is
//! linked statically with one), and memory that the program maps itself.

mod c;
mod cxx;
pub(super) mod next;
mod shapes;
mod table;

pub(super) use next::next;
pub use next::resolve_usual;
pub use table::containing;

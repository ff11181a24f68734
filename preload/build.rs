//! Link options of libckpt.so.

fn main() {
    for option in [
        // No constructors or weak references of the C start files: each costs every program a symbol lookup.
        "-nostartfiles",
        // The signal handler must stay mapped even if the library was dlopen'ed and is closed again.
        "-Wl,-z,nodelete",
        "-Wl,-z,noexecstack",
        "-Wl,-z,norelro",
        "-Wl,-z,now",
        // The library is inside every process of a job: line tables would be most of the file.
        "-Wl,--strip-debug",
    ] {
        println!("cargo:rustc-cdylib-link-arg={option}");
    }
    let layout = concat!(env!("CARGO_MANIFEST_DIR"), "/layout.ld");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-T,{layout}");
    println!("cargo:rerun-if-changed={layout}");
    println!("cargo:rerun-if-changed=build.rs");
}

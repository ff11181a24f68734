//! Programs that use CUDA, and the double of the driver that they run on where there is no GPU (tests/cuda).
//!
//! Both are compiled once for a target directory, with the real `cuda.h`, which is fetched with CUDA's compiler if need be.
//! A program that is run with `LD_LIBRARY_PATH` on another `libcuda.so.1` uses that one.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::fs;
use std::mem::transmute;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::product;
use crate::program::{lock, newer_than_all, victims_folder};
use crate::{Launch, Life, Program, Scene, Stdout, code_of};

/// The parts of the driver for the CPU (kernels/cuda/on_cpu) that the double is built on.
const SHARED: [&str; 3] = ["grid.cc", "kernels.cc", "engine.cc"];

/// The folder with the double's `libcuda.so.1`.
pub fn library() -> PathBuf {
    let (double, on_cpu) =
        (product::repository().join("tests/cuda"), product::repository().join("kernels/cuda/on_cpu"));
    let folder = victims_folder().join("cuda");
    fs::create_dir_all(&folder).expect("target is writable");
    let mut sources = with_extension(&double, "cc");
    sources.extend(SHARED.map(|source| on_cpu.join(source)));
    let mut all = sources.clone();
    for part in [&double, &on_cpu] {
        all.extend(["h", "cu", "map"].iter().flat_map(|extension| with_extension(part, extension)));
    }
    build(&folder.join("libcuda.so.1"), &all, |compiler| {
        // With this, cuda.h declares the entry points of every version, also those that programs get by another name.
        compiler.args(["-shared", "-fPIC", "-Wno-unknown-pragmas", "-D__CUDA_API_VERSION_INTERNAL"]);
        // As the real one: its own calls do not meet what stands in front of it.
        compiler.args(["-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-Wl,-z,defs"]);
        compiler.arg(format!("-Wl,--version-script={}", double.join("exports.map").display()));
        compiler.arg("-I").arg(&double).arg("-I").arg(&on_cpu).args(&sources);
    });
    folder
}

/// A program among tests/victims/cuda, which finds the double. It is the file of that name, and the folder if there is one.
pub fn program(name: &str) -> Program {
    let sources = product::repository().join("tests/victims/cuda");
    if !sources.is_dir() {
        // An ordinary user has what was compiled before.
        let folder = victims_folder().join("cuda");
        return Program::at(folder.join(name)).variable("LD_LIBRARY_PATH", folder);
    }
    let double = library();
    let (folder, binary) = (sources.join(name), double.join(name));
    let mut own = vec![sources.join(format!("{name}.cc"))];
    let mut all = with_extension(&sources, "h");
    if folder.is_dir() {
        own.extend(with_extension(&folder, "cc"));
        all.extend(with_extension(&folder, "h"));
    }
    all.extend(own.clone());
    all.extend([double.join("libcuda.so.1"), product::repository().join("tests/cuda/controls.h")]);
    build(&binary, &all, |compiler| {
        compiler.arg("-I").arg(product::repository().join("tests/cuda"));
        compiler.args(&own).arg("-L").arg(&double).args(["-l:libcuda.so.1", "-ldl"]);
    });
    Program::at(binary).variable("LD_LIBRARY_PATH", double)
}

/// The program `by_runtime`, whose runtime is a small one in a library of its own and calls the double.
pub fn program_by_small_runtime() -> Program {
    let (double, sources) = (library(), product::repository().join("tests/victims/cuda"));
    let folder = victims_folder().join("small-runtime");
    fs::create_dir_all(&folder).expect("target is writable");
    let (runtime, binary) = (folder.join("libcudart.so.13"), folder.join("by_runtime"));
    let source = sources.join("small_runtime.cc");
    build(&runtime, std::slice::from_ref(&source), |compiler| {
        compiler.args(["-shared", "-fPIC", "-Wl,-soname,libcudart.so.13"]).arg(&source).arg("-ldl");
    });
    let source = sources.join("by_runtime.cc");
    build(&binary, &[source.clone(), sources.join("waits.h"), runtime.clone()], |compiler| {
        compiler.arg(&source).arg(&runtime).arg("-L").arg(&double).args(["-l:libcuda.so.1", "-ldl"]);
    });
    let path = std::env::join_paths([folder, double]).expect("paths without colons");
    Program::at(binary).variable("LD_LIBRARY_PATH", path)
}

/// The content of memory of the double's that another process has exported, through the double as this process has it.
pub fn import(descriptor: OwnedFd, bytes: usize) -> Vec<u8> {
    static DOUBLE: OnceLock<Double> = OnceLock::new();
    DOUBLE.get_or_init(Double::load).content(&descriptor, bytes)
}

/// The double in this process, as far as importing memory needs it.
struct Double {
    import: unsafe extern "C" fn(*mut u64, *mut c_void, c_int) -> c_int,
    reserve: unsafe extern "C" fn(*mut u64, usize, usize, u64, u64) -> c_int,
    map: unsafe extern "C" fn(u64, usize, usize, u64, u64) -> c_int,
    set_access: unsafe extern "C" fn(u64, usize, *const [c_int; 3], usize) -> c_int,
    unmap: unsafe extern "C" fn(u64, usize) -> c_int,
    free: unsafe extern "C" fn(u64, usize) -> c_int,
    release: unsafe extern "C" fn(u64) -> c_int,
}

impl Double {
    #[allow(clippy::missing_transmute_annotations, reason = "the fields have the types")]
    fn load() -> Double {
        let path = CString::new(library().join("libcuda.so.1").into_os_string().into_encoded_bytes()).expect("a path");
        // SAFETY: a zero-terminated path. It stays for ever.
        let driver = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!driver.is_null(), "{path:?} cannot be loaded");
        // SAFETY: a live handle and zero-terminated names; the types are those of cuda.h.
        unsafe {
            let find =
                |name: &CStr| NonNull::new(libc::dlsym(driver, name.as_ptr())).expect("a function of the driver");
            let begin: unsafe extern "C" fn(c_uint) -> c_int = transmute(find(c"cuInit"));
            assert_eq!(begin(0), 0);
            Double {
                import: transmute(find(c"cuMemImportFromShareableHandle")),
                reserve: transmute(find(c"cuMemAddressReserve")),
                map: transmute(find(c"cuMemMap")),
                set_access: transmute(find(c"cuMemSetAccess")),
                unmap: transmute(find(c"cuMemUnmap")),
                free: transmute(find(c"cuMemAddressFree")),
                release: transmute(find(c"cuMemRelease")),
            }
        }
    }

    fn content(&self, descriptor: &OwnedFd, bytes: usize) -> Vec<u8> {
        let (mut memory, mut address) = (0, 0);
        // A device's location, its number, and the right to read and write.
        let access = [1, 0, 3];
        // SAFETY: places to write to; what is mapped is as long as it is read, and goes at the end.
        unsafe {
            assert_eq!((self.import)(&raw mut memory, descriptor.as_raw_fd() as usize as *mut c_void, 1), 0);
            assert_eq!((self.reserve)(&raw mut address, bytes, 0, 0, 0), 0);
            assert_eq!((self.map)(address, bytes, 0, memory, 0), 0);
            assert_eq!((self.set_access)(address, bytes, &raw const access, 1), 0);
            let content = std::slice::from_raw_parts(address as *const u8, bytes).to_vec();
            assert_eq!((self.unmap)(address, bytes), 0);
            assert_eq!((self.free)(address, bytes), 0);
            assert_eq!((self.release)(memory), 0);
            content
        }
    }
}

/// A folder with another `libcuda.so.1`, which only writes down what it is asked for (tests/victims/cuda/asked.cc).
pub fn asked() -> PathBuf {
    let folder = victims_folder().join("asked");
    fs::create_dir_all(&folder).expect("target is writable");
    let source = product::repository().join("tests/victims/cuda/asked.cc");
    build(&folder.join("libcuda.so.1"), std::slice::from_ref(&source), |compiler| {
        compiler.args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic"]).arg(&source).arg("-ldl");
    });
    folder
}

/// A folder with another `libcuda.so.1`, which keeps what it is called with (tests/victims/cuda/echo.cc).
pub fn echo() -> PathBuf {
    let folder = victims_folder().join("echo");
    fs::create_dir_all(&folder).expect("target is writable");
    let sources = product::repository().join("tests/victims/cuda");
    let names = product::repository().join("preload/src/hooks/cuda/known_names.txt");
    let all = [sources.join("echo.cc"), sources.join("echo.h"), names.clone()];
    build(&folder.join("libcuda.so.1"), &all, |compiler| {
        let names = fs::read_to_string(&names).expect("a list");
        let functions: String =
            names.lines().filter(|&name| name != "cuGetProcAddress_v2").map(|name| format!("X({name})\n")).collect();
        fs::write(folder.join("echo_names.h"), functions).expect("target is writable");
        compiler.args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-I"]).arg(&folder);
        compiler.arg(sources.join("echo.cc"));
    });
    folder
}

/// How a program has the CUDA runtime.
#[derive(Clone, Copy, Debug)]
pub enum Runtime {
    /// In its own executable, as nvcc has it unless it is told otherwise.
    Static,
    /// As a library.
    Shared,
}

/// A program among tests/victims/cuda that calls the CUDA runtime.
pub fn program_with_runtime(name: &str, runtime: Runtime) -> Program {
    let folder = victims_folder().join("cuda");
    fs::create_dir_all(&folder).expect("target is writable");
    let source = product::repository().join(format!("tests/victims/cuda/{name}.cc"));
    let binary = folder.join(format!("{name}-{runtime:?}"));
    let libraries = headers().with_file_name("lib");
    build(&binary, std::slice::from_ref(&source), |compiler| {
        compiler.arg(&source);
        match runtime {
            Runtime::Static => compiler.arg(libraries.join("libcudart_static.a")).args(["-ldl", "-lrt"]),
            Runtime::Shared => {
                compiler.arg(libraries.join("libcudart.so.13")).arg(format!("-Wl,-rpath,{}", libraries.display()))
            }
        };
    });
    Program::at(binary)
}

/// The text of `cuda.h`.
pub fn header() -> String {
    fs::read_to_string(headers().join("cuda.h")).expect("the header is there")
}

/// The kernels of these programs, as PTX.
pub fn kernels() -> PathBuf {
    product::repository().join("tests/cuda/built/kernels.ptx")
}

/// Those of them that change words, in a module that has no variables.
pub fn kernels_without_variables() -> PathBuf {
    product::repository().join("tests/cuda/built/words.ptx")
}

/// Compiles what is older than its sources.
fn build(binary: &Path, sources: &[PathBuf], complete: impl Fn(&mut Command)) {
    let _lock = lock(&binary.with_extension("lock"));
    if newer_than_all(binary, sources) {
        return;
    }
    let unfinished = binary.with_extension("new");
    let mut compiler = Command::new("g++");
    compiler.args(["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-isystem"]).arg(headers());
    complete(&mut compiler);
    let output = compiler.arg("-o").arg(&unfinished).output().expect("g++ is missing; scripts/test installs it");
    assert!(output.status.success(), "{compiler:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(&unfinished, binary).expect("both lie in one folder");
}

/// The folder of `cuda.h`.
fn headers() -> PathBuf {
    let script = product::repository().join("scripts/cuda-compiler");
    let _lock = lock(&product::target().join("cuda-compiler.lock"));
    let output = Command::new(&script).output().expect("scripts/cuda-compiler can be run");
    assert!(output.status.success(), "{}: {}", script.display(), String::from_utf8_lossy(&output.stderr));
    let folder = String::from_utf8(output.stdout).expect("a path in UTF-8");
    PathBuf::from(folder.trim()).join("include")
}

fn with_extension(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry of a folder").path());
    let mut found: Vec<_> = paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    found.sort();
    found
}

/// Runs a program to its end, which must be good; what libckpt.so has written into its log.
pub fn ends_well(program: &Program, launch: &Launch) -> String {
    let scene = Scene::new();
    let log = scene.path().join("log");
    let mut life = Life::start(&scene, "life", &program.clone().variable("CKPT_LOG", &log), launch, Stdout::File);
    assert_eq!((code_of(life.wait()), life.errors().as_str()), (0, ""), "{program:?} {launch:?}");
    fs::read_to_string(&log).unwrap_or_default()
}

/// A test for each case of a program, which `holds` runs with these variables.
#[macro_export]
macro_rules! cases {
    ($holds:path: $($name:ident $(($variable:literal = $value:literal))*;)*) => { $(
        #[test]
        fn $name() {
            $holds(stringify!($name), &[$(($variable, $value)),*]);
        }
    )* };
}

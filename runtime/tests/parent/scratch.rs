//! A directory with ckpt, an empty libckpt.so and the compiled victims.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The directory; made once.
pub fn dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("parent");
        std::fs::create_dir_all(&dir).unwrap();
        make(&dir, "ckpt", |path| std::fs::hard_link(env!("CARGO_BIN_EXE_ckpt"), path).unwrap());
        make(&dir, "empty.c", |path| std::fs::write(path, "").unwrap());
        make(&dir, "libckpt.so", |path| compile(&["-shared"], &dir.join("empty.c"), path));
        let victims = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/victims");
        for name in ["tell_signals", "job_shell"] {
            make(&dir, name, |path| compile(&["-Wall", "-Werror"], &victims.join(name).with_extension("c"), path));
        }
        dir
    })
}

/// Puts a new file into place in one step: another run of the tests may be using the old one.
fn make(dir: &Path, name: &str, write: impl FnOnce(&Path)) {
    let unfinished = dir.join(format!("{name}.{}", std::process::id()));
    write(&unfinished);
    std::fs::rename(&unfinished, dir.join(name)).unwrap();
    // A rename onto another link of the same file does nothing.
    let _ = std::fs::remove_file(&unfinished);
}

fn compile(options: &[&str], source: &Path, program: &Path) {
    let compiled = Command::new("cc").args(options).arg("-o").arg(program).args(["-x", "c"]).arg(source).status();
    assert!(compiled.unwrap().success(), "cc {}", source.display());
}

/// The path of `name` in the directory.
pub fn path(name: &str) -> String {
    dir().join(name).to_str().unwrap().to_owned()
}

//! A directory with ckpt, an empty libckpt.so and the compiled victims.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The directory; made once.
pub fn dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("parent-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::hard_link(env!("CARGO_BIN_EXE_ckpt"), dir.join("ckpt")).unwrap();
        std::fs::write(dir.join("empty.c"), "").unwrap();
        compile(&["-shared"], &dir.join("empty.c"), &dir.join("libckpt.so"));
        let victims = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/victims");
        for name in ["tell_signals", "job_shell"] {
            compile(&["-Wall", "-Werror"], &victims.join(name).with_extension("c"), &dir.join(name));
        }
        dir
    })
}

fn compile(options: &[&str], source: &Path, program: &Path) {
    let compiled = Command::new("cc").args(options).arg("-o").arg(program).arg(source).status().unwrap();
    assert!(compiled.success(), "cc {}", source.display());
}

/// The path of `name` in the directory.
pub fn path(name: &str) -> String {
    dir().join(name).to_str().unwrap().to_owned()
}

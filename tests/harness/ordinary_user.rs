//! Tests that an ordinary user runs, in a home directory of his own that nobody else may look into.
//!
//! The test is executed once more as that user: everything that the harness does, it then does with his rights. What he
//! needs is copied into his home, because the repository may lie where he may not look.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::unistd::geteuid;

use crate::program::{Program, source, victims_folder};
use crate::scene::{skip, test_name};
use crate::{cuda, product};

/// The user, who is his own group and in no other: "nobody", whom every machine has.
pub const USER: u32 = 65534;

/// Environment variable by which the test knows that it is the second execution.
const IS_HE: &str = "CKPT_TESTS_ORDINARY_USER";

/// Runs `test` as an ordinary user. It may use these victims in C, or programs that use CUDA (`cuda/NAME`), and these scripts.
///
/// # Panics
/// If it fails, or if this is not root, who alone can become somebody else.
pub fn as_ordinary_user(victims: &[&str], scripts: &[&str], test: impl FnOnce()) {
    if std::env::var_os(IS_HE).is_some() {
        assert_eq!(geteuid().as_raw(), USER, "the test is the user's");
        return test();
    }
    assert!(geteuid().is_root(), "only root can run a test as another user");
    let home = tempfile::Builder::new().prefix("ckpt-home-").tempdir().expect("a temporary directory");
    furnish(home.path(), victims, scripts);
    let name = test_name();
    let own = home.path().join("test");
    fs::copy(std::env::current_exe().expect("it runs"), &own).expect("a copy of this test");
    give(home.path());
    let mut command = Command::new(own);
    command.args(["--exact", &name, "--nocapture", "--include-ignored"]);
    command.env_remove(crate::scene::MARK).env_remove("CKPT_TESTS_SKIPPED");
    command.env(IS_HE, "yes").env("HOME", home.path()).env("TMPDIR", home.path()).current_dir(home.path());
    command.env("CARGO_TARGET_DIR", home.path().join("target"));
    command.env(product::REPOSITORY, home.path().join("repository"));
    command.uid(USER).gid(USER);
    let output = command.output().expect("the copy can be executed");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "as user {USER}: {:?}\n{stdout}{stderr}", output.status);
    assert!(stdout.contains("1 passed"), "exactly this test was run: {stdout}{stderr}");
    // He may not write to the list of what was skipped.
    let said = |line: &str| line.strip_prefix("SKIPPED ")?.split_once(": ").map(|(_, reason)| reason.to_owned());
    stderr.lines().filter_map(said).for_each(|reason| skip(&reason));
}

/// Puts there what the test needs: the product, victims and scripts.
fn furnish(home: &Path, victims: &[&str], scripts: &[&str]) {
    let copy = |from: &Path, folder: &str| {
        let to = home.join(folder);
        fs::create_dir_all(&to).expect("the home is writable");
        fs::copy(from, to.join(from.file_name().expect("a file"))).expect("a copy");
    };
    copy(&product::ckpt(), "target/release");
    copy(&product::library(), "target/release");
    for script in scripts {
        copy(&source(script), "repository/tests/victims");
    }
    for victim in victims {
        if let Some(name) = victim.strip_prefix("cuda/") {
            copy(&cuda::program(name).executable, "target/victims/cuda");
            copy(&cuda::library().join("libcuda.so.1"), "target/victims/cuda");
            copy(&cuda::kernels_without_variables(), "repository/tests/cuda/built");
            continue;
        }
        // Sources first: a victim older than its source would be compiled again.
        copy(&source(&format!("{victim}.c")), "repository/tests/victims");
        copy(&source("victim.h"), "repository/tests/victims");
        Program::victim(victim);
        copy(&victims_folder().join(victim), "target/victims");
    }
}

/// Makes everything below `path` the user's, and closed to all others.
fn give(path: &Path) {
    chown(path, Some(USER), Some(USER)).expect("root may");
    if path.is_dir() {
        fs::set_permissions(path, Permissions::from_mode(0o700)).expect("root may");
        for entry in fs::read_dir(path).expect("it exists") {
            give(&entry.expect("it exists").path());
        }
    }
}

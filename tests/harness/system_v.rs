//! System V objects, which outlive the programs that make them.

use std::fs;

use crate::scene::Scene;

/// Removes at its end what the victims of a scene have left behind that did not come to theirs. A victim says in its file
/// `system_v` what it makes: `sem` or `msg`, and the id.
pub struct Objects<'a>(&'a Scene);

impl<'a> Objects<'a> {
    /// Those of the victims of `scene`.
    pub fn of(scene: &'a Scene) -> Objects<'a> {
        Objects(scene)
    }
}

impl Drop for Objects<'_> {
    fn drop(&mut self) {
        for life in fs::read_dir(self.0.path()).into_iter().flatten().flatten() {
            let text = fs::read_to_string(life.path().join("system_v")).unwrap_or_default();
            for (kind, id) in text.lines().filter_map(|line| line.split_once(' ')) {
                let Ok(id) = id.parse() else { continue };
                // SAFETY: removing takes numbers only; one that is gone already is refused. Nobody else has made them.
                unsafe {
                    match kind {
                        "sem" => libc::semctl(id, 0, libc::IPC_RMID),
                        _ => libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut()),
                    };
                }
            }
        }
    }
}

//! May this user rebuild it, and are its process ids free.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::unistd::{Uid, getegid, geteuid};

use crate::error::{Error, Result};
use crate::image::ProcessImage;
use crate::restore::spawn::REAPING_TIMEOUT;

/// Checks users, groups and process ids.
pub fn check(image: &ProcessImage) -> Result<()> {
    check_user(image, geteuid(), getegid().as_raw())?;
    image.threads.iter().try_for_each(|thread| check_free(thread.tid))
}

fn check_user(image: &ProcessImage, user: Uid, group: u32) -> Result<()> {
    if user.is_root() {
        return Ok(());
    }
    let own = image.uids.iter().all(|&uid| uid == user.as_raw()) && image.gids.iter().all(|&gid| gid == group);
    if own {
        return Ok(());
    }
    let what = format!("restart a program of user {} and group {}", image.uids[0], image.gids[0]);
    let why = format!("you are user {user} and group {group}");
    Err(Error::environment(what, why, "restart it as the same user, or as root"))
}

/// Refuses an id that is in use. A process that has ended keeps its id until its parent notices, which an init
/// that polls does within a second or two: that is waited for.
fn check_free(tid: i32) -> Result<()> {
    let deadline = Instant::now() + REAPING_TIMEOUT;
    loop {
        let Some((name, ended)) = holder(tid) else { return Ok(()) };
        if !ended || Instant::now() >= deadline {
            let advice = match ended {
                true => "it has ended; restart once its parent has noticed",
                false if tid == std::process::id() as i32 => "that is this command; give it again",
                false => "wait until it ends, or end it",
            };
            return Err(Error::environment("restart", format!("pid {tid} is in use by `{name}`"), advice));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The name of the process or thread that has the id, and whether it has ended.
fn holder(tid: i32) -> Option<(String, bool)> {
    let directory = Path::new("/proc").join(tid.to_string());
    let status = fs::read_to_string(directory.join("status")).ok()?;
    let name = fs::read_to_string(directory.join("comm")).unwrap_or_default();
    let ended = status.lines().any(|line| line.starts_with("State:") && line.contains("zombie"));
    Some((name.trim_end().to_owned(), ended))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::host::Machine;
    use crate::restore::sample;

    #[test]
    fn a_pid_in_use_is_refused_with_its_holder() {
        let message = check_free(1).unwrap_err().to_string();
        let holder = fs::read_to_string("/proc/1/comm").unwrap();
        assert!(message.contains("pid 1 is in use") && message.contains(holder.trim_end()), "{message}");
        check_free(i32::MAX).unwrap();
    }

    #[test]
    fn only_root_restores_somebody_else() {
        let mut image = sample::image(&Machine::this().unwrap());
        image.uids = [1000; 4];
        image.gids = [1000; 4];
        check_user(&image, Uid::from_raw(0), 0).unwrap();
        check_user(&image, Uid::from_raw(1000), 1000).unwrap();
        check_user(&image, Uid::from_raw(1001), 1000).unwrap_err();
        image.uids[2] = 0;
        check_user(&image, Uid::from_raw(1000), 1000).unwrap_err();
    }
}

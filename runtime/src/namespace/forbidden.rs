//! Why namespaces cannot be made here: the settings by which distributions and administrators forbid them.

use std::fmt::Write;

use nix::errno::Errno;

use crate::error::Error;

/// A setting, and what it is where namespaces may be made.
struct Setting {
    name: &'static str,
    forbids: fn(u64) -> bool,
    allowing: &'static str,
}

const NONE: fn(u64) -> bool = |limit| limit == 0;

const FOR_ALL: [Setting; 2] = [
    Setting { name: "user.max_pid_namespaces", forbids: NONE, allowing: "1000" },
    Setting { name: "user.max_mnt_namespaces", forbids: NONE, allowing: "1000" },
];

const FOR_ORDINARY_USERS: [Setting; 3] = [
    Setting { name: "user.max_user_namespaces", forbids: NONE, allowing: "1000" },
    Setting { name: "kernel.unprivileged_userns_clone", forbids: NONE, allowing: "1" },
    Setting {
        name: "kernel.apparmor_restrict_unprivileged_userns",
        forbids: |restricts| restricts != 0,
        allowing: "0",
    },
];

/// The error for `step`, which the kernel has refused with `errno`, for root (`user` false) or an ordinary user.
pub fn refused(step: &str, errno: Errno, user: bool) -> Error {
    refused_under(step, errno, user, &|name| {
        let text = std::fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()?;
        text.trim().parse().ok()
    })
}

fn refused_under(step: &str, errno: Errno, user: bool, value: &dyn Fn(&str) -> Option<u64>) -> Error {
    let for_ordinary_users = FOR_ORDINARY_USERS.iter().filter(|_| user);
    let guilty = FOR_ALL.iter().chain(for_ordinary_users).find_map(|setting| {
        let found = value(setting.name)?;
        (setting.forbids)(found).then_some((setting, found))
    });
    let mut why = format!("{step}: {}", errno.desc());
    let advice = match guilty {
        Some((setting, found)) => {
            // Writing to a String cannot fail.
            let _ = write!(why, "; {} is {found}", setting.name);
            format!(
                "root allows it with sysctl {}={}, or gives you CAP_CHECKPOINT_RESTORE",
                setting.name, setting.allowing
            )
        }
        None => "no setting known to ckpt forbids it, so a container or a security module does: \
                 restart as root or with CAP_CHECKPOINT_RESTORE, outside of it"
            .to_owned(),
    };
    Error::environment("make a pid namespace for the program", why, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(user: bool, settings: &[(&str, u64)]) -> String {
        let value = |name: &str| settings.iter().find(|(known, _)| *known == name).map(|&(_, value)| value);
        refused_under("unshare", Errno::EPERM, user, &value).to_string()
    }

    #[test]
    fn the_setting_that_forbids_namespaces_is_named_with_the_command_that_allows_them() {
        for (name, forbidding, allowing) in [
            ("user.max_user_namespaces", 0, 1000),
            ("kernel.unprivileged_userns_clone", 0, 1),
            ("kernel.apparmor_restrict_unprivileged_userns", 1, 0),
        ] {
            let found = message(true, &[("user.max_pid_namespaces", 96365), (name, forbidding)]);
            assert!(found.contains(&format!("{name} is {forbidding}")), "{found}");
            assert!(found.contains(&format!("sysctl {name}={allowing}")), "{found}");
            assert!(message(true, &[(name, allowing)]).contains("security module"), "it is innocent");
            assert!(!message(false, &[(name, forbidding)]).contains(name), "root needs no user namespace");
        }
        assert!(message(false, &[("user.max_pid_namespaces", 0)]).contains("user.max_pid_namespaces is 0"));
    }
}

//! Where the process is that rebuilds a program, and what holds for that from now on.

/// Where the process that rebuilds is.
#[derive(Clone, Debug, Default)]
pub enum Place {
    /// Where the user has started it.
    #[default]
    AsStarted,
    /// It is the first process of a pid namespace made for the program, and of a user namespace too if the groups of
    /// whoever made that are given.
    OwnNamespace {
        /// The maker's supplementary groups, which all in the user namespace have and nobody in there can change.
        groups: Option<Vec<u32>>,
    },
}

impl Place {
    /// Whether it is in a pid namespace made for the program.
    pub fn is_own_namespace(&self) -> bool {
        matches!(self, Place::OwnNamespace { .. })
    }

    /// Whether it is in a user namespace made for the program.
    pub fn is_own_user_namespace(&self) -> bool {
        matches!(self, Place::OwnNamespace { groups: Some(_) })
    }
}

/// What holds for a program from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lasting {
    /// How many times it has been restarted.
    pub generation: u64,
    /// The id of its job.
    pub job: u64,
    /// Which copy it is, if it is one.
    pub copy: Option<String>,
}

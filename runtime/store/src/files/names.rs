//! The names of a store's files. A file's name says what it is and which attempt it belongs to.
//!
//! Names are only ever made and read here. One that does not read back as itself is not ours: `+1`, other widths and
//! other endings are passed by.

pub(crate) const HEADER: &str = "header";
pub(crate) const HEADER_NEW: &str = "header.new";
pub(crate) const LOCK: &str = "lock";
/// The lock of whoever reclaims space.
pub(crate) const RECLAIM_LOCK: &str = "reclaim.lock";
pub(crate) const PACKS: &str = "packs";
pub(crate) const MANIFESTS: &str = "manifests";
pub(crate) const ATTEMPTS: &str = "attempts";
/// Of an encrypted store alone: a file for each key that opens it.
pub(crate) const KEYS: &str = "keys";
pub(crate) const DIRECTORIES: [&str; 3] = [PACKS, MANIFESTS, ATTEMPTS];

/// What a file in one of the directories is, by the end of its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kind {
    /// `manifests/ID.manifest`: a sealed checkpoint.
    Manifest,
    /// `manifests/ID.new`: a manifest that is being written.
    ManifestNew,
    /// `manifests/ID.retired`: a manifest that makes no checkpoint, or none any more; the attempt's packs count.
    Retired,
    /// `manifests/ID.condemned`: packs that attempts after ID do not share from.
    Condemned,
    /// `manifests/ID.condemning`: a list of the last kind that is being written.
    Condemning,
    /// `attempts/ID.new`: the row of an attempt that is just beginning.
    RowNew,
    /// `attempts/ID.writing`: the row of an attempt, held by its writer.
    Writing,
    /// `attempts/ID.failing`: a final row that is being written.
    Failing,
    /// `attempts/ID.failed`: the row of a failed attempt.
    Failed,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Manifest,
        Self::ManifestNew,
        Self::Retired,
        Self::Condemned,
        Self::Condemning,
        Self::RowNew,
        Self::Writing,
        Self::Failing,
        Self::Failed,
    ];

    /// Whether the packs of an attempt that has such a file count.
    pub fn makes_packs_count(self) -> bool {
        matches!(self, Self::Manifest | Self::Retired)
    }

    fn parts(self) -> (&'static str, &'static str) {
        match self {
            Self::Manifest => (MANIFESTS, "manifest"),
            Self::ManifestNew => (MANIFESTS, "new"),
            Self::Retired => (MANIFESTS, "retired"),
            Self::Condemned => (MANIFESTS, "condemned"),
            Self::Condemning => (MANIFESTS, "condemning"),
            Self::RowNew => (ATTEMPTS, "new"),
            Self::Writing => (ATTEMPTS, "writing"),
            Self::Failing => (ATTEMPTS, "failing"),
            Self::Failed => (ATTEMPTS, "failed"),
        }
    }

    /// The file's name for attempt `id`.
    pub fn name(self, id: u64) -> String {
        let (dir, end) = self.parts();
        format!("{dir}/{id:010}.{end}")
    }

    /// The attempt and the kind of the file `name` in `dir`.
    pub fn parse(dir: &str, name: &str) -> Option<(u64, Self)> {
        let (id, end) = name.split_once('.')?;
        let (id, kind) = (id.parse().ok()?, Self::of(dir, end)?);
        (kind.name(id).strip_prefix(dir)? == format!("/{name}")).then_some((id, kind))
    }

    fn of(dir: &str, end: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.parts() == (dir, end))
    }
}

/// The number of an attempt and of one of its packs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct PackName {
    pub attempt: u64,
    pub sequence: u32,
}

impl PackName {
    pub fn name(self) -> String {
        format!("{PACKS}/{:010}-{:04}.pack", self.attempt, self.sequence)
    }

    pub fn parse(name: &str) -> Option<Self> {
        let (attempt, sequence) = name.strip_suffix(".pack")?.split_once('-')?;
        let found = Self { attempt: attempt.parse().ok()?, sequence: sequence.parse().ok()? };
        (found.name().strip_prefix(PACKS)? == format!("/{name}")).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_name_is_read_back_and_other_names_are_not_packs() {
        let name = PackName { attempt: 12, sequence: 3 };
        assert_eq!(name.name(), "packs/0000000012-0003.pack");
        assert_eq!(PackName::parse("0000000012-0003.pack"), Some(name));
        for other in [
            "12-3.pack",
            "12-0003.pack",
            "000000012-0003.pack",
            "0000000012-0003.pack2",
            "0000000012.pack",
            "+000000012-0003.pack",
            "x",
        ] {
            assert_eq!(PackName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_name_with_fewer_zeros_than_the_store_writes_is_not_that_of_a_manifest() {
        assert_eq!(Kind::parse(MANIFESTS, "0000000007.manifest"), Some((7, Kind::Manifest)));
        assert_eq!(Kind::parse(MANIFESTS, "12345678901.new"), Some((12345678901, Kind::ManifestNew)));
        for other in ["7.manifest", "00000000007.manifest", "+000000007.manifest", "0000000007.failed", "manifest"] {
            assert_eq!(Kind::parse(MANIFESTS, other), None, "{other}");
        }
    }
}

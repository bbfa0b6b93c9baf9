//! The sources of a task's restored state.

use super::Restart;

/// The source of a task's restored state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RestoreKind {
    /// The local copy was exact: no record was read, regardless of its size.
    Exact,
    /// The local copy was behind: the missing records were read from the changelog.
    Replayed,
    /// There was no usable local copy: the changelog was read from its front.
    Rebuilt,
    /// There was no state: the task starts for the first time.
    First,
}

impl RestoreKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Exact, Self::Replayed, Self::Rebuilt, Self::First];

    /// Its name, for logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Replayed => "replayed",
            Self::Rebuilt => "rebuilt",
            Self::First => "first",
        }
    }
}

impl Restart {
    /// The kind of restore that it leads to, if it ends well.
    #[must_use]
    pub const fn kind(&self) -> RestoreKind {
        match self {
            Self::Exact => RestoreKind::Exact,
            Self::Replay(_) => RestoreKind::Replayed,
            Self::Rebuild { .. } => RestoreKind::Rebuilt,
            // Any record in the changelog is then a reason to stop.
            Self::First { .. } | Self::FirstIfEmpty { .. } => RestoreKind::First,
        }
    }
}

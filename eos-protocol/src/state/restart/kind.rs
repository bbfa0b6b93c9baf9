//! What a task's state was made whole from.

use super::Restart;

/// How a task's state was made whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RestoreKind {
    /// The local copy was exact: nothing was read, whatever its size.
    Exact,
    /// The local copy was behind: what it lacked was read from the changelog.
    Replayed,
    /// There was no local copy, or none that could be used: the changelog was read from its front.
    Rebuilt,
    /// There was no state anywhere: the task starts for the first time.
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
    /// What kind of restore it leads to, if it ends well.
    #[must_use]
    pub const fn kind(&self) -> RestoreKind {
        match self {
            Self::Exact => RestoreKind::Exact,
            Self::Replay(_) => RestoreKind::Replayed,
            Self::Rebuild { .. } => RestoreKind::Rebuilt,
            // Whatever the changelog holds then is a reason to stop.
            Self::First { .. } | Self::FirstIfEmpty { .. } => RestoreKind::First,
        }
    }
}

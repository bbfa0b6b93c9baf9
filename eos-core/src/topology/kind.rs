//! The kinds of nodes, by the methods that declare them.

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Map,
    TryMap,
    FilterMap,
    Filter,
    FlatMap,
    TryFlatMap,
    KeyBy,
    Peek,
    Branch,
    Tee,
    Process,
    /// The output that it writes to.
    To(usize),
}

impl Kind {
    /// The method of a stream that declares it.
    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::TryMap => "try_map",
            Self::FilterMap => "filter_map",
            Self::Filter => "filter",
            Self::FlatMap => "flat_map",
            Self::TryFlatMap => "try_flat_map",
            Self::KeyBy => "key_by",
            Self::Peek => "peek",
            Self::Branch => "branch",
            Self::Tee => "tee",
            Self::Process => "process",
            Self::To(_) => "to",
        }
    }

    /// How many streams leave it.
    pub(crate) fn exits(self) -> usize {
        match self {
            Self::Process | Self::To(_) => 0,
            Self::Branch | Self::Tee => 2,
            _ => 1,
        }
    }
}

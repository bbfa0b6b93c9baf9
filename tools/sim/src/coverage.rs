//! The number of faults of each kind at each place.

use std::collections::BTreeMap;
use std::fmt;

use super::fault::{Fault, Kind, Place};

/// The faults of many runs, counted by place and kind.
#[derive(Debug, Clone, Default)]
pub struct Coverage {
    hits: BTreeMap<(Place, Kind), u64>,
}

impl Coverage {
    /// Adds the faults of a run.
    pub fn add(&mut self, fired: &[Fault]) {
        for fault in fired {
            *self.hits.entry((fault.place, fault.kind)).or_default() += 1;
        }
    }

    /// Adds the faults of other runs.
    pub fn merge(&mut self, other: Coverage) {
        for (pair, hits) in other.hits {
            *self.hits.entry(pair).or_default() += hits;
        }
    }

    /// Returns how often this kind of fault hit this place.
    #[must_use]
    pub fn hits(&self, place: Place, kind: Kind) -> u64 {
        self.hits.get(&(place, kind)).copied().unwrap_or(0)
    }

    /// Returns every possible pair, and how often it was hit.
    pub fn pairs(&self) -> impl Iterator<Item = (Place, Kind, u64)> + '_ {
        let places = Place::all().into_iter();
        let possible = places.flat_map(|place| {
            let kinds = Kind::ALL.into_iter().filter(move |kind| kind.fits(place));
            kinds.map(move |kind| (place, kind))
        });
        possible.map(|(place, kind)| (place, kind, self.hits(place, kind)))
    }
}

/// Formats a table in Markdown: places by kinds, with a dash where a kind cannot happen.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| |")?;
        for kind in Kind::ALL {
            write!(f, " {kind:?} |")?;
        }
        write!(f, "\n|---|")?;
        for _ in Kind::ALL {
            write!(f, "---|")?;
        }
        for place in Place::all() {
            write!(f, "\n| {place} |")?;
            for kind in Kind::ALL {
                if kind.fits(place) {
                    write!(f, " {} |", self.hits(place, kind))?;
                } else {
                    write!(f, " – |")?;
                }
            }
        }
        writeln!(f)
    }
}

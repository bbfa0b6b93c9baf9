//! The search for the first entry of a clock in the index.

use std::collections::VecDeque;

use eos_protocol::Place;

/// The largest number of entries of the index that one scan reads.
const READ_AHEAD: usize = 64;

/// The search for the first entry of a clock in the index.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// The place from which a scan begins. The index has no entry before it.
    from: From,
    /// The first entries of the index, in order, with none missing in between. A scan is slow to begin, so it reads more
    /// than one.
    ahead: VecDeque<Place>,
    /// The maximum number of entries of the last scan. It begins at one and doubles, because a failed record drops the
    /// entries that were read ahead.
    length: usize,
}

/// The place from which a search of a clock begins.
#[derive(Debug, Default)]
pub(super) enum From {
    /// Behind the mark. Without a mark, the beginning of the index.
    #[default]
    Mark,
    At(Place),
    /// The index has no entry.
    End,
}

impl Search {
    pub(super) fn from(&self) -> &From {
        &self.from
    }

    /// Returns whether a scan has to read entries before the first one is known.
    pub(super) fn needs_scan(&self) -> bool {
        self.ahead.is_empty()
    }

    /// Forgets the entries that were read ahead. The next scan begins with one entry.
    pub(super) fn forget_ahead(&mut self) {
        self.ahead.clear();
        self.length = 0;
    }

    /// Takes the first entries of a scan.
    pub(super) fn read<E>(
        &mut self,
        mut next: impl FnMut() -> Result<Option<Place>, E>,
    ) -> Result<(), E> {
        self.length = (2 * self.length).clamp(1, READ_AHEAD);
        while self.ahead.len() < self.length
            && let Some(place) = next()?
        {
            self.ahead.push_back(place);
        }
        Ok(())
    }

    /// Returns the first entry. The next scan begins there.
    pub(super) fn first(&mut self) -> Option<Place> {
        let first = self.ahead.front().cloned();
        self.from = first.clone().map_or(From::End, From::At);
        first
    }

    /// Makes the search find an entry at this place.
    pub(super) fn list(&mut self, place: Place) {
        if self.ahead.back().is_some_and(|last| place <= *last)
            && let Err(at) = self.ahead.binary_search(&place)
        {
            self.ahead.insert(at, place.clone());
            // The list may end before the index does, so it may be cut at any entry.
            self.ahead.truncate(self.length);
        }
        match &self.from {
            From::Mark => {}
            From::At(from) if *from <= place => {}
            From::At(_) | From::End => self.from = From::At(place),
        }
    }

    /// Notes that there is no entry at this place.
    pub(super) fn unlist(&mut self, place: &Place) {
        if let Ok(at) = self.ahead.binary_search(place) {
            self.ahead.remove(at);
        }
    }

    /// Continues behind this place, although the index still lists it.
    pub(super) fn skip(&mut self, place: &Place) {
        self.unlist(place);
        let mut behind = place.clone();
        behind.key.push(0);
        self.from = From::At(behind);
    }
}

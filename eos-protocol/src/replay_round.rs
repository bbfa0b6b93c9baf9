//! Rounds of a replay: which waiting letters a round reads, and which letters the later rounds do not read again.
//!
//! ```text
//! rows:   late  stuck │ soon  stuck  late │ ready ..
//!                     └ place             └ cut
//! ```
//!
//! This start writes no letter before the *place*. The place is stored with the letters. An arriving letter moves
//! it back to the begin of its episode.
//!
//! A round is cut if it has read as many rows as it may, or has written no letter. The next round then begins at the *cut*, so
//! that many letters before it do not hide the letters behind it. The cut is in memory only.
//!
//! A late row between two letters of a key may cause a cut between them. The replay then writes the second letter first, and the
//! app parks it again. This happens only if the clocks of two machines disagree.

/// The bounds of a round.
#[derive(Debug, Clone, Copy)]
pub struct RoundLimits {
    /// The maximum number of letters that a round reads, including those that it does not write.
    pub read: usize,
    /// The maximum number of letters that a round writes.
    pub letters: usize,
    /// The size of the keys and values at which a round ends, in bytes.
    pub bytes: usize,
}

/// The progress of one round.
#[derive(Debug)]
pub struct Round {
    limits: RoundLimits,
    /// The first key of the round, and then the first key behind the rows that it has read.
    next: Vec<u8>,
    place: Vec<u8>,
    /// The first key behind the last row that stays.
    behind_left: Vec<u8>,
    /// Whether a letter behind the place waits for a later round. The place stays in front of it.
    waits: bool,
    read: usize,
    letters: usize,
    bytes: usize,
}

impl Round {
    /// Begins a round at the place of this start, or at the cut of the last round.
    #[must_use]
    pub fn new(place: Vec<u8>, cut: Vec<u8>, limits: RoundLimits) -> Self {
        let next = place.clone().max(cut);
        Self {
            limits,
            // The rows between the place and the cut are not read, so the place stays.
            waits: next > place,
            behind_left: next.clone(),
            next,
            place,
            read: 0,
            letters: 0,
            bytes: 0,
        }
    }

    /// The first key that the round reads, and later the first key behind the rows that it has read.
    #[must_use]
    pub fn next(&self) -> &[u8] {
        &self.next
    }

    /// Returns whether the round ends.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.read >= self.limits.read
            || self.letters >= self.limits.letters
            || self.bytes >= self.limits.bytes
    }

    /// Notes that the round has written a letter of this size. Its row is deleted.
    pub fn writes(&mut self, bytes: usize, next: Vec<u8>) {
        self.letters += 1;
        self.bytes += bytes;
        self.read += 1;
        self.next = next;
    }

    /// Notes that the round has read a letter that a later round writes.
    pub fn leaves(&mut self, next: Vec<u8>) {
        self.waits = true;
        self.stays(next);
    }

    /// Notes that the round has read a letter that this start does not write. The place moves until the round writes or
    /// leaves a letter.
    pub fn passes(&mut self, next: Vec<u8>) {
        self.stays(next);
        if self.letters == 0 && !self.waits {
            self.place.clone_from(&self.next);
        }
    }

    fn stays(&mut self, next: Vec<u8>) {
        self.read += 1;
        self.behind_left.clone_from(&next);
        self.next = next;
    }

    /// Returns whether the round has written a letter.
    #[must_use]
    pub const fn has_written(&self) -> bool {
        self.letters > 0
    }

    /// Returns whether later rounds have no stored letter to write. `is_end`: whether the round has read the last row.
    #[must_use]
    pub const fn is_last(&self, is_end: bool) -> bool {
        is_end && self.letters == 0 && !self.waits
    }

    /// The key before which this start writes no letter.
    #[must_use]
    pub fn place(&self) -> &[u8] {
        &self.place
    }

    /// The key at which the next round begins, if it is not the place. `is_end`: whether the round has read the last row.
    ///
    /// Letters that were written behind the last row that stays are before the cut only after a commit, which deletes them.
    /// After an abort, the next round reads them again, so the letters of a key keep their order.
    #[must_use]
    pub fn cut(self, is_end: bool) -> Option<Vec<u8>> {
        let is_cut = self.letters == 0 || self.read >= self.limits.read;
        (!is_end && is_cut).then_some(self.behind_left)
    }
}

#[cfg(test)]
#[path = "replay_round_test.rs"]
mod tests;

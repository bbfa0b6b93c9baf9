//! The rows of the left side, and their transitions.

use super::{Fields, ForeignError, ForeignKind, VERSION, push_bytes, push_time};
use crate::Timestamp;

/// The format of left rows with a known right row, and the newest that this version reads.
const WITH_RIGHT: u8 = 2;

/// The key of the counter of tokens.
pub const COUNTER_KEY: &[u8] = &[0];
/// The first byte of the keys of left rows.
const ROW: u8 = 1;
const HAS_FOREIGN: u8 = 1;
const HAS_RESULT: u8 = 2;
const HAS_RIGHT: u8 = 4;
const HAS_NO_RIGHT: u8 = 8;

/// Replaces the content of `full` with the key of a left row in its store.
pub fn left_key(full: &mut Vec<u8>, key: &[u8]) {
    full.clear();
    full.push(ROW);
    full.extend_from_slice(key);
}

/// Returns the row of the last token that a task has given.
#[must_use]
pub fn token_row(token: u64) -> Vec<u8> {
    let mut row = vec![VERSION];
    row.extend_from_slice(&token.to_be_bytes());
    row
}

/// Reads the row of the last token.
///
/// # Errors
/// If the bytes are damaged or newer.
pub fn token_of_row(row: &[u8]) -> Result<u64, ForeignError> {
    let mut fields = Fields::of("the counter of a foreign-key join", row)?;
    let token = fields.token()?;
    fields.end()?;
    Ok(token)
}

/// An encoded value with its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// The time of the value.
    pub time: Option<Timestamp>,
    /// The encoded value.
    pub value: Vec<u8>,
}

/// The right row of a left row, as of the last answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Right {
    /// Unknown: no answer has arrived since the subscription, its value was too long to keep, an error policy gave an answer up,
    /// or the last answer was a replayed dead letter.
    #[default]
    Unknown,
    /// There is no right row.
    Missing,
    /// The right row.
    Known(Stamp),
}

impl Right {
    /// The right row of an answer with this time and value. A value of more than `most` bytes is not kept. If `most` is 0, nothing
    /// is kept.
    #[must_use]
    pub fn of_answer(time: Option<Timestamp>, value: Option<&[u8]>, most: usize) -> Self {
        match value {
            _ if most == 0 => Self::Unknown,
            None => Self::Missing,
            Some(value) if value.len() > most => Self::Unknown,
            Some(value) => Self::Known(Stamp {
                time,
                value: value.to_vec(),
            }),
        }
    }
}

/// The state that a join keeps for a left row.
///
/// ```text
/// version (1 byte) · token (8) · flags (1) [ · length (4) · foreign key ] [ · time (8) · length (4) · right value ]
///   [ · time (8) · result ]
/// ```
///
/// A row has version 2 if its right row is known, or is known to be missing. All others have version 1, which earlier
/// versions of this library wrote for all rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeftRow {
    /// The token of its subscription. Answers with another one do not count.
    pub token: u64,
    /// The encoded foreign key, if it has one.
    pub foreign: Option<Vec<u8>>,
    /// The right row of the foreign key. Each update of the right row sends an answer, so it is the newest one that has
    /// reached this row.
    pub right: Right,
    /// The result that is out, if any.
    pub result: Option<Stamp>,
}

impl LeftRow {
    /// The bytes of the row.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let flag = |there: bool, flag: u8| if there { flag } else { 0 };
        let (version, right) = match self.right {
            Right::Unknown => (VERSION, 0),
            Right::Missing => (WITH_RIGHT, HAS_NO_RIGHT),
            Right::Known(_) => (WITH_RIGHT, HAS_RIGHT),
        };
        let mut row = vec![version];
        row.extend_from_slice(&self.token.to_be_bytes());
        row.push(
            flag(self.foreign.is_some(), HAS_FOREIGN)
                | flag(self.result.is_some(), HAS_RESULT)
                | right,
        );
        if let Some(foreign) = &self.foreign {
            push_bytes(&mut row, foreign);
        }
        if let Right::Known(right) = &self.right {
            push_time(&mut row, right.time);
            push_bytes(&mut row, &right.value);
        }
        if let Some(result) = &self.result {
            push_time(&mut row, result.time);
            row.extend_from_slice(&result.value);
        }
        row
    }

    /// Reads the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// If the bytes are damaged or newer.
    pub fn decode(row: &[u8]) -> Result<Self, ForeignError> {
        let what = "a left row of a foreign-key join";
        let (version, mut fields) = Fields::up_to(WITH_RIGHT, what, row)?;
        let token = fields.token()?;
        let flags = fields.byte()?;
        let known = match version {
            VERSION => HAS_FOREIGN | HAS_RESULT,
            _ => HAS_FOREIGN | HAS_RESULT | HAS_RIGHT | HAS_NO_RIGHT,
        };
        if flags & !known != 0 {
            return Err(fields.damaged());
        }
        let foreign = match flags & HAS_FOREIGN != 0 {
            true => Some(fields.bytes()?.to_vec()),
            false => None,
        };
        let right = match flags & (HAS_RIGHT | HAS_NO_RIGHT) {
            0 => Right::Unknown,
            HAS_NO_RIGHT => Right::Missing,
            HAS_RIGHT => Right::Known(Stamp {
                time: fields.time()?,
                value: fields.bytes()?.to_vec(),
            }),
            _ => return Err(fields.damaged()),
        };
        let result = match flags & HAS_RESULT != 0 {
            true => Some(Stamp {
                time: fields.time()?,
                value: fields.rest().to_vec(),
            }),
            false => {
                fields.end()?;
                None
            }
        };
        Ok(Self {
            token,
            foreign,
            right,
            result,
        })
    }
}

/// Returns whether a row of the store of left rows has an emitted result. The counter, and rows that wait for their
/// first answer, have none. Damaged rows may have one.
#[must_use]
pub fn has_result(key: &[u8], row: &[u8]) -> bool {
    let waits = matches!(
        row,
        [VERSION | WITH_RIGHT, _, _, _, _, _, _, _, _, flags, ..] if flags & HAS_RESULT == 0
    );
    key.first() == Some(&ROW) && !waits
}

/// An update of a left row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftUpdate<'a> {
    /// The row is deleted.
    Deleted,
    /// The row has a value without a foreign key.
    NoKey,
    /// The row has this foreign key.
    Key(&'a [u8]),
}

/// The effects of an update of a left row. The messages are sent in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftStep {
    /// Whether the right task forgets the row's former foreign key.
    pub unsubscribes: bool,
    /// Whether the right task of the new foreign key keeps the row, and answers. Then the row needs a new token. `Some(true)` if
    /// it answers even without a right row.
    pub subscribes: Option<bool>,
    /// The result that is emitted at once.
    pub outcome: Outcome,
}

/// The result that is emitted at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// None. The emitted result remains.
    Unchanged,
    /// The result is deleted.
    Deleted,
    /// The result of the left value alone.
    Alone,
    /// The result of both values. The right one is that of the row.
    Joined,
}

/// Decides about an update of a left row. `row` is the stored state of the join.
///
/// - Deleted: the result is deleted at once, without the right task.
/// - Without a foreign key: an inner join deletes the result, a left join has the result of the left value alone.
/// - With the same foreign key as before, and a known right row: the result is sent at once. The subscription stays, so later
///   updates of the right row come as before.
/// - With another foreign key, or an unknown right row: the result waits for the answer to a new subscription. An answer
///   without a right value is needed if there is a result to delete, or in a left join.
#[must_use]
pub fn update_left(kind: ForeignKind, row: Option<&LeftRow>, update: LeftUpdate<'_>) -> LeftStep {
    let before = row.and_then(|row| row.foreign.as_deref());
    let right = row.map_or(&Right::Unknown, |row| &row.right);
    let is_out = row.is_some_and(|row| row.result.is_some());
    let deleted = if is_out {
        Outcome::Deleted
    } else {
        Outcome::Unchanged
    };
    match update {
        LeftUpdate::Deleted => LeftStep {
            unsubscribes: before.is_some(),
            subscribes: None,
            outcome: deleted,
        },
        LeftUpdate::NoKey => LeftStep {
            unsubscribes: before.is_some(),
            subscribes: None,
            outcome: match kind {
                ForeignKind::Inner => deleted,
                ForeignKind::Left => Outcome::Alone,
            },
        },
        LeftUpdate::Key(key) if before == Some(key) && right != &Right::Unknown => LeftStep {
            unsubscribes: false,
            subscribes: None,
            outcome: match (right, kind) {
                (Right::Known(_), _) => Outcome::Joined,
                (_, ForeignKind::Left) => Outcome::Alone,
                (_, ForeignKind::Inner) => deleted,
            },
        },
        LeftUpdate::Key(key) => LeftStep {
            unsubscribes: before.is_some_and(|before| before != key),
            subscribes: Some(kind == ForeignKind::Left || is_out),
            outcome: Outcome::Unchanged,
        },
    }
}

/// The effect of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// It belongs to a former subscription, and changes nothing.
    Stale,
    /// There is no result, and was none.
    Nothing,
    /// The result is deleted.
    Deleted,
    /// The result of both values, or of the left value alone.
    Result,
}

/// Decides about an answer with this token. `has_right`: whether it has a right value.
#[must_use]
pub fn resolve(kind: ForeignKind, row: Option<&LeftRow>, token: u64, has_right: bool) -> Reached {
    let Some(row) = row.filter(|row| row.token == token && row.foreign.is_some()) else {
        return Reached::Stale;
    };
    match (has_right, kind) {
        (true, _) | (false, ForeignKind::Left) => Reached::Result,
        (false, ForeignKind::Inner) if row.result.is_some() => Reached::Deleted,
        (false, ForeignKind::Inner) => Reached::Nothing,
    }
}

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn offset(offset: usize) -> Offset {
    Offset::new(i64::try_from(offset).unwrap()).unwrap()
}

fn plain(at: usize) -> PerFamily<Option<Offset>> {
    PerFamily {
        plain: Some(offset(at)),
        windowed: None,
    }
}

#[test]
fn an_lso_is_stored_with_the_next_transaction_that_commits() {
    let mut offsets = ChangelogOffsets::opened(plain(10));
    offsets.observe(Family::Plain, offset(20));
    assert_eq!(offsets.stored(), plain(10), "not by itself");
    offsets.sealed();
    assert_eq!(offsets.stored(), plain(10), "not before it committed");
    assert_eq!(offsets.committed(), plain(20));
}

#[test]
fn what_is_heard_after_the_seal_waits_for_the_transaction_after() {
    let mut offsets = ChangelogOffsets::opened(plain(10));
    offsets.sealed();
    offsets.observe(Family::Plain, offset(30));
    assert_eq!(offsets.committed(), plain(10));
    offsets.sealed();
    assert_eq!(offsets.committed(), plain(30));
}

#[test]
fn an_abort_stores_nothing_and_forgets_nothing() {
    let mut offsets = ChangelogOffsets::opened(plain(10));
    offsets.observe(Family::Plain, offset(20));
    offsets.sealed();
    offsets.discarded();
    assert_eq!(offsets.stored(), plain(10));
    assert_eq!(offsets.committed(), plain(10), "nothing is sealed");
    offsets.sealed();
    assert_eq!(offsets.committed(), plain(20));
}

#[test]
fn a_stored_offset_never_goes_back() {
    let mut offsets = ChangelogOffsets::opened(plain(10));
    offsets.observe(Family::Plain, offset(5));
    offsets.sealed();
    assert_eq!(offsets.committed(), plain(10));
}

#[test]
fn families_don_t_mix() {
    let mut offsets = ChangelogOffsets::opened(plain(10));
    offsets.observe(Family::Windowed, offset(7));
    offsets.sealed();
    let windowed = Some(offset(7));
    assert_eq!(
        offsets.committed(),
        PerFamily {
            windowed,
            ..plain(10)
        }
    );
}

type State = BTreeMap<u8, u64>;

/// A changelog whose transactions are committed as they are written: each sets some keys.
#[derive(Default)]
struct Log(Vec<(u8, u64)>);

impl Log {
    fn replay(&self, state: &mut State, from: Option<Offset>) {
        let from = usize::try_from(from.map_or(0, Offset::get)).unwrap();
        state.extend(self.0[from..].iter().copied());
    }

    fn state(&self) -> State {
        self.0.iter().copied().collect()
    }
}

/// The failure without the rule: this worker commits 1 and freezes. Another worker commits 2. This worker thaws,
/// reads the LSO, and stores it beside transaction 1.
#[test]
fn an_lso_stored_with_the_transaction_before_it_loses_what_a_successor_wrote() {
    let mut log = Log::default();
    let mut ours = State::new();
    log.0.push((1, 10));
    log.replay(&mut ours, None);
    log.0.push((1, 20));
    let lso = offset(log.0.len());

    let mut offsets = ChangelogOffsets::opened(PerFamily::default());
    offsets.observe(Family::Plain, lso);
    // The task returns to this worker at 1. The offsets name 2, so the changelog is read on.
    let mut by_the_rule = ours.clone();
    log.replay(&mut by_the_rule, offsets.stored().plain);
    assert_eq!(by_the_rule, log.state());

    let mut stored_with_1 = ours;
    log.replay(&mut stored_with_1, Some(lso));
    assert_ne!(stored_with_1, log.state(), "transaction 2 is lost");
}

/// One of two owners that take turns, with a copy of its own.
struct Owner {
    copy: State,
    offsets: ChangelogOffsets,
    /// The sealed transaction, and whether the broker committed it. The owner may not know yet.
    sealed: Option<((u8, u64), bool)>,
}

impl Owner {
    fn new() -> Self {
        Self {
            copy: State::new(),
            offsets: ChangelogOffsets::opened(PerFamily::default()),
            sealed: None,
        }
    }

    /// Applies the outcome of the owner's sealed transaction.
    fn learns(&mut self) {
        match self.sealed.take() {
            Some((write, true)) => {
                self.copy.extend([write]);
                self.offsets.committed();
            }
            _ => self.offsets.discarded(),
        }
    }
}

proptest! {
    /// Whenever an owner returns, its copy and the records from its stored offset are the whole state. LSOs may be
    /// observed at any time, also by a former owner. An owner may find out late that its transaction committed, and
    /// observe an LSO before that.
    #[test]
    fn a_copy_and_the_rest_of_the_log_are_always_the_whole_state(
        steps in proptest::collection::vec((0u8..6, 0usize..2, 0u8..4), 0..120),
    ) {
        let mut log = Log::default();
        let mut owners = [Owner::new(), Owner::new()];
        let mut current = 0;
        for (i, (what, who, key)) in steps.into_iter().enumerate() {
            match (what, &mut owners[who].sealed) {
                (0, sealed @ None) if who == current => {
                    *sealed = Some(((key, i as u64), false));
                    owners[who].offsets.sealed();
                }
                (1, Some((write, committed @ false))) if who == current => {
                    *committed = true;
                    log.0.push(*write);
                }
                (2, Some(_)) => owners[who].learns(),
                (3, _) if who != current => {
                    current = who;
                    let owner = &mut owners[who];
                    // The transaction was not applied: this copy is behind by it.
                    owner.sealed = None;
                    log.replay(&mut owner.copy, owner.offsets.stored().plain);
                    prop_assert_eq!(&owner.copy, &log.state());
                    owner.offsets = ChangelogOffsets::opened(plain(log.0.len()));
                }
                _ => owners[who].offsets.observe(Family::Plain, offset(log.0.len())),
            }
        }
    }
}

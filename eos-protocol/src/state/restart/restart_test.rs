use super::*;
use crate::ids::{Nonce, Partition, StageId};
use crate::name::LayoutHash;
use crate::state::Family;
use crate::state::identity::tests::sample as identity;
use crate::state::{StoresHash, TopicUuid};

const HOUR: i64 = 3_600_000;
/// The clock at the restart; the local state was committed an hour before.
const NOW: Timestamp = Timestamp(1_000 * HOUR);

pub(crate) fn offset(offset: i64) -> Offset {
    Offset::new(offset).unwrap()
}

pub(crate) fn inputs(at: i64) -> Vec<(TopicPartition, Offset)> {
    vec![(
        TopicPartition::new("in", Partition::new(3).unwrap()),
        offset(at),
    )]
}

/// Transaction `seq`, with `plain` as the last commit record.
pub(crate) fn name(seq: u64, nonce: u64, plain: Option<u64>) -> TransactionName {
    TransactionName {
        layout: LayoutHash(1),
        width: 6,
        seq: Seq(seq),
        nonce: Nonce(nonce),
        plain: plain.map(Seq),
        windowed: None,
        stream_time: Some(Timestamp(9)),
        topics: crate::state::PerFamily::default(),
        stores: crate::state::StoreNames::default(),
    }
}

pub(crate) fn at(seq: u64, nonce: u64, plain: Option<u64>, read: i64) -> Position {
    Position {
        identity: identity(),
        standing: Standing::At {
            seq: Seq(seq),
            nonce: Nonce(nonce),
            inputs: inputs(100),
            commit_records: PerFamily {
                plain: plain.map(Seq),
                windowed: None,
            },
            stream_time: Some(Timestamp(9)),
            wall_time: Timestamp(NOW.0 - HOUR),
        },
        changelogs: PerFamily {
            plain: Some(offset(read)),
            windowed: None,
        },
    }
}

fn restoring(read: i64) -> Position {
    Position {
        standing: Standing::Restoring {
            since: Timestamp(NOW.0 - HOUR),
            seen: PerFamily {
                plain: Some(Seq(2)),
                windowed: None,
            },
        },
        ..at(0, 0, None, read)
    }
}

/// A restart with defaults: transaction 5, attempt 50, at input offset 100; a plain changelog from 0 to 80 that names
/// its commit record 5.
pub(crate) struct Case {
    pub(crate) guarantee: Guarantee,
    pub(crate) local: Option<Position>,
    pub(crate) name: TransactionName,
    pub(crate) committed: Vec<(TopicPartition, Offset)>,
    pub(crate) identity: Identity,
    pub(crate) changelog: Bounds,
    pub(crate) width: u32,
    pub(crate) accepted: Vec<String>,
}

impl Case {
    pub(crate) fn with(local: Option<Position>) -> Self {
        Self {
            guarantee: Guarantee::ExactlyOnce,
            local,
            name: name(5, 50, Some(5)),
            committed: inputs(100),
            identity: identity(),
            changelog: Bounds {
                topic: "a-0-changelog".into(),
                start: offset(0),
                end: offset(80),
                delete_retention: Duration::from_secs(24 * 3600),
            },
            width: 6,
            accepted: Vec::new(),
        }
    }

    pub(crate) fn decide_with(&self, offsets: Offsets<'_>) -> Result<Restart, RestartError> {
        decide(&Situation {
            guarantee: self.guarantee,
            group: "g",
            identity: &self.identity,
            width: self.width,
            local: self.local.as_ref().map_or(Local::Nothing, Local::Position),
            windows_over: false,
            offsets,
            changelogs: PerFamily {
                plain: Some(self.changelog.clone()),
                windowed: None,
            },
            accepted: &self.accepted,
            now: NOW,
        })
    }

    pub(crate) fn decide(&self) -> Result<Restart, RestartError> {
        self.decide_with(Offsets::Named {
            name: &self.name,
            at: &self.committed,
        })
    }

    /// The first offset read from the plain changelog, and the commit record in the local state.
    fn replays(&self) -> (i64, Option<u64>) {
        match self.decide() {
            Ok(Restart::Replay(reading)) => {
                let part = reading.parts.plain.unwrap();
                (part.from.get(), part.seen.map(|s| s.0))
            }
            other => panic!("{other:?}"),
        }
    }

    fn rebuilds(&self) -> Why {
        match self.decide() {
            Ok(Restart::Rebuild { why, reading }) => {
                let part = reading.parts.plain.unwrap();
                assert_eq!(part.from, self.changelog.start, "everything is read");
                assert_eq!(part.seen, None, "nothing of it is kept");
                assert_eq!(reading.since, NOW, "reading begins now");
                why
            }
            other => panic!("{other:?}"),
        }
    }
}

#[track_caller]
fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in: {text}");
}

fn stops(found: Result<Restart, RestartError>) -> (RestartError, String) {
    let error = found.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("task 0_3: "), "{text}");
    (error, text)
}

#[test]
fn row_exact_nothing_is_read() {
    let mut case = Case::with(Some(at(5, 50, Some(5), 70)));
    assert_eq!(case.decide(), Ok(Restart::Exact));
    case.changelog.end = offset(70);
    assert_eq!(
        case.decide(),
        Ok(Restart::Exact),
        "the log ends at the position"
    );
    case.changelog.start = offset(75);
    case.changelog.end = offset(80);
    assert_eq!(
        case.decide(),
        Ok(Restart::Exact),
        "what is gone is not needed"
    );
    case.changelog.delete_retention = Duration::ZERO;
    assert_eq!(case.decide(), Ok(Restart::Exact), "its age does not matter");
}

#[test]
fn row_behind_reads_what_came_since() {
    let case = Case::with(Some(at(3, 7, Some(2), 40)));
    assert_eq!(
        case.replays(),
        (40, Some(2)),
        "another attempt at another number is normal"
    );
    let mut unread = at(3, 7, None, 0);
    unread.changelogs.plain = None;
    assert_eq!(Case::with(Some(unread)).replays(), (0, None));
}

#[test]
fn row_interrupted_restore_resumes() {
    let case = Case::with(Some(restoring(40)));
    assert_eq!(case.replays(), (40, Some(2)));
}

#[test]
fn row_no_local_state_rebuilds() {
    let why = Case::with(None).rebuilds();
    assert_eq!(why, Why::NoState);
    assert!(
        !why.is_loud(),
        "that is how every task begins on a new host"
    );
}

#[test]
fn row_another_attempt_at_the_same_number_rebuilds() {
    let why = Case::with(Some(at(5, 51, Some(5), 70))).rebuilds();
    assert_eq!(why, Why::OtherAttempt { seq: Seq(5) });
    assert!(why.is_loud());
}

#[test]
fn row_ahead_of_the_offsets_rebuilds() {
    let why = Case::with(Some(at(6, 60, Some(5), 70))).rebuilds();
    let (local, committed) = (Seq(6), Seq(5));
    assert_eq!(why, Why::Ahead { local, committed });
}

#[test]
fn row_changes_that_the_offsets_do_not_know_rebuild() {
    let mut case = Case::with(Some(at(4, 40, Some(4), 70)));
    case.name.plain = Some(Seq(3));
    let (family, local) = (Family::Plain, Seq(4));
    assert_eq!(case.rebuilds(), Why::UnknownChanges { family, local });
}

#[test]
fn row_other_identity_rebuilds() {
    // Even at the same number and attempt: the numbers of another cluster mean nothing here.
    let changed = |change: &dyn Fn(&mut Identity)| {
        let mut local = at(5, 50, Some(5), 70);
        change(&mut local.identity);
        match Case::with(Some(local)).rebuilds() {
            Why::Identity(difference) => difference,
            other => panic!("{other:?}"),
        }
    };
    assert!(changed(&|i| i.cluster = "c0".into()).is_foreign());
    assert!(changed(&|i| i.app = "b".into()).is_foreign());
    assert!(changed(&|i| i.task.stage = StageId(1)).is_foreign());
    assert!(!changed(&|i| i.stores = StoresHash(6)).is_foreign());
    // Its changelog may be shorter than a position of another cluster: that is no loss.
    let mut local = at(5, 50, Some(5), 1_000);
    local.identity.cluster = "c0".into();
    assert!(matches!(
        Case::with(Some(local)).rebuilds(),
        Why::Identity(_)
    ));
}

/// The name of a transaction that wrote to a changelog with this topic id.
fn name_of(seq: u64, plain: Option<u64>, changelog: u128) -> TransactionName {
    TransactionName {
        topics: PerFamily {
            plain: TopicUuid(changelog).digest(),
            windowed: None,
        },
        ..name(seq, 50, plain)
    }
}

fn recreated(case: &Case) {
    let (error, text) = stops(case.decide());
    assert!(
        matches!(
            error,
            RestartError::ChangelogRecreated {
                seq: Seq(5),
                now: TopicUuid(8),
                ..
            }
        ),
        "{error:?}"
    );
    assert_contains(&text, "accept.changelog=AAAAAAAAAAAAAAAAAAAACA");
}

#[test]
fn row_a_recreated_changelog_stops_with_any_local_copy() {
    // The topic has id 8 now. The copies: exact, behind, none; below, from before format 2.
    for local in [
        Some(at(5, 50, Some(5), 70)),
        Some(at(4, 40, Some(4), 70)),
        None,
    ] {
        let mut case = Case::with(local);
        case.name = name_of(5, Some(5), 9);
        recreated(&case);
    }
    let mut case = Case::with(Some(at(5, 50, Some(5), 70)));
    if let Some(local) = &mut case.local {
        local.identity.topics[1].id = TopicUuid(9);
    }
    recreated(&case);
    case.name = name_of(5, Some(5), 9);
    recreated(&case);
    // The operator declares that the topic is restored completely.
    case.accepted = vec![TopicUuid(8).to_string()];
    assert!(matches!(
        case.rebuilds(),
        Why::Identity(Difference::Recreated { .. })
    ));
}

#[test]
fn a_copy_from_before_a_changelog_was_replaced_is_rebuilt() {
    // The new topic has all commits since then.
    let mut case = Case::with(Some(at(3, 30, Some(3), 70)));
    case.name = name_of(5, Some(5), 8);
    if let Some(local) = &mut case.local {
        local.identity.topics[1].id = TopicUuid(9);
    }
    assert!(matches!(
        case.rebuilds(),
        Why::Identity(Difference::Recreated { .. })
    ));
}

#[test]
fn a_changelog_without_a_commit_record_may_be_recreated() {
    let mut case = Case::with(None);
    case.name = name_of(5, None, 9);
    assert_eq!(case.rebuilds(), Why::NoState);
}

#[test]
fn topics_without_ids_are_no_difference() {
    let mut case = Case::with(Some(at(5, 50, Some(5), 70)));
    case.identity.topics[1].id = TopicUuid(0);
    case.name = name_of(5, Some(5), 9);
    assert_eq!(case.decide(), Ok(Restart::Exact));
}

#[test]
fn row_damaged_rebuilds_and_newer_stops() {
    let case = Case::with(None);
    let (name, committed) = (case.name.clone(), case.committed.clone());
    let with = |error: &PositionError| {
        decide(&Situation {
            guarantee: Guarantee::ExactlyOnce,
            group: "g",
            identity: &case.identity,
            width: 6,
            local: Local::Unreadable(error),
            windows_over: false,
            offsets: Offsets::Named {
                name: &name,
                at: &committed,
            },
            changelogs: PerFamily {
                plain: Some(case.changelog.clone()),
                windowed: None,
            },
            accepted: &[],
            now: NOW,
        })
    };
    let damaged = Position::decode(b"?").unwrap_err();
    match with(&damaged) {
        Ok(Restart::Rebuild { why, .. }) => assert_eq!(why, Why::Damaged(damaged)),
        other => panic!("{other:?}"),
    }
    let (error, text) = stops(with(&PositionError::Newer { version: 2 }));
    assert!(matches!(error, RestartError::NewerState { .. }));
    assert_contains(&text, "newest version");
    assert_contains(&text, "delete");
}

#[test]
fn row_older_than_half_of_delete_retention_rebuilds() {
    for local in [at(3, 7, Some(2), 40), restoring(40)] {
        let mut case = Case::with(Some(local));
        case.changelog.delete_retention = Duration::from_secs(2 * 3600);
        assert_eq!(case.replays().0, 40, "just young enough");
        case.changelog.delete_retention -= Duration::from_millis(1);
        let why = case.rebuilds();
        assert!(matches!(why, Why::TooOld { .. }), "{why:?}");
        // The changelog has no record that the copy did not read, so none can be missing.
        case.changelog.end = offset(40);
        assert_eq!(case.replays().0, 40);
    }
}

#[test]
fn row_a_position_from_the_future_is_as_suspect_as_an_old_one() {
    let mut local = at(3, 7, Some(2), 40);
    let Standing::At { wall_time, .. } = &mut local.standing else {
        unreachable!()
    };
    wall_time.0 = NOW.0 + 13 * HOUR;
    let why = Case::with(Some(local)).rebuilds();
    assert!(matches!(why, Why::TooOld { .. }), "{why:?}");
}

#[test]
fn row_a_rebuild_from_a_changelog_without_its_front_stops() {
    for local in [Some(at(3, 7, Some(2), 40)), Some(restoring(40)), None] {
        let mut case = Case::with(local);
        let has_state = case.local.is_some();
        case.changelog.start = offset(40);
        if has_state {
            assert_eq!(case.replays().0, 40, "it holds what is gone");
        }
        case.changelog.start = offset(41);
        let (error, text) = stops(case.decide());
        assert!(matches!(error, RestartError::ChangelogPurged { .. }));
        assert_contains(&text, "a-0-changelog-3 begins at offset 41");
        assert!(text.contains("cleanup.policy"), "{text}");
    }
    let mut exact = Case::with(Some(at(5, 50, Some(5), 40)));
    exact.changelog.start = offset(41);
    assert_eq!(exact.decide(), Ok(Restart::Exact));
}

/// A restart whose windowed changelog begins here, and from which deletions go after this time.
fn with_windows(local: &Position, over: bool, start: i64, retention: Duration) -> Restart {
    let case = Case::with(None);
    decide(&Situation {
        guarantee: Guarantee::ExactlyOnce,
        group: "g",
        identity: &case.identity,
        width: case.width,
        local: Local::Position(local),
        windows_over: over,
        offsets: Offsets::Named {
            name: &case.name,
            at: &case.committed,
        },
        changelogs: PerFamily {
            plain: None,
            windowed: Some(Bounds {
                start: offset(start),
                delete_retention: retention,
                ..case.changelog.clone()
            }),
        },
        accepted: &[],
        now: NOW,
    })
    .unwrap()
}

/// At offset 40 of a windowed changelog: behind, and interrupted.
fn copies_with_windows() -> [Position; 2] {
    [at(3, 7, None, 0), restoring(0)].map(|local| Position {
        changelogs: PerFamily {
            plain: None,
            windowed: Some(offset(40)),
        },
        ..local
    })
}

const DAY: Duration = Duration::from_secs(24 * 3600);

#[test]
fn row_offset_below_the_start_of_a_windowed_changelog_rebuilds_while_a_window_is_live() {
    for local in copies_with_windows() {
        let row = |over, start| with_windows(&local, over, start, DAY).row();
        assert_eq!(row(false, 40), "replay");
        assert_eq!(row(false, 41), "trimmed");
    }
}

#[test]
fn row_offset_below_the_start_of_a_windowed_changelog_reads_what_is_left_if_all_is_over() {
    for local in copies_with_windows() {
        for (start, from) in [(39, 40), (40, 40), (41, 41), (80, 80)] {
            let Restart::Replay(reading) = with_windows(&local, true, start, DAY) else {
                panic!("{start}");
            };
            let part = reading.parts.windowed.unwrap();
            assert_eq!(part.from.get(), from, "all that is left of what it lacks");
        }
    }
}

#[test]
fn row_windows_that_are_over_are_too_old_like_any_others() {
    // The restore would take too long, because its local copy is as old.
    for local in copies_with_windows() {
        let row = |over| with_windows(&local, over, 0, Duration::from_secs(3600)).row();
        assert_eq!(row(false), "too_old");
        assert_eq!(row(true), "too_old");
    }
}

/// Expired windows prove nothing about keys without windows.
#[test]
fn row_plain_stores_need_their_changelog_regardless_of_the_windows() {
    let local = at(3, 7, Some(2), 40);
    let mut case = Case::with(Some(local));
    case.changelog.delete_retention = Duration::from_secs(3600);
    let restart = decide(&Situation {
        guarantee: Guarantee::ExactlyOnce,
        group: "g",
        identity: &case.identity,
        width: case.width,
        local: case.local.as_ref().map_or(Local::Nothing, Local::Position),
        windows_over: true,
        offsets: Offsets::Named {
            name: &case.name,
            at: &case.committed,
        },
        changelogs: PerFamily {
            plain: Some(case.changelog.clone()),
            windowed: None,
        },
        accepted: &[],
        now: NOW,
    });
    assert_eq!(restart.unwrap().row(), "too_old");
}

#[test]
fn row_log_end_before_the_position_stops() {
    for local in [at(5, 50, Some(5), 81), at(3, 7, Some(2), 81), restoring(81)] {
        let (error, text) = stops(Case::with(Some(local)).decide());
        assert!(matches!(error, RestartError::ChangelogShorter { .. }));
        assert!(text.contains("a-0-changelog-3 ends at offset 80"), "{text}");
        assert_contains(&text, "up to 81");
        assert_contains(&text, "lost data");
    }
}

#[test]
fn row_moved_offsets_that_kept_their_name_stop() {
    for moved in [99, 101] {
        let mut case = Case::with(Some(at(5, 50, Some(5), 70)));
        case.committed = inputs(moved);
        let (error, _) = stops(case.decide());
        assert!(matches!(error, RestartError::OffsetsMoved { .. }));
    }
}

#[test]
fn row_a_recreated_input_stops_if_the_offsets_are_of_the_old_one() {
    let mut case = Case::with(Some(at(5, 50, Some(5), 70)));
    case.identity.topics[0].id = TopicUuid(99);
    let (error, text) = stops(case.decide());
    assert!(matches!(error, RestartError::InputRecreated { .. }));
    assert_contains(&text, "topic in was deleted and created again");
    // A later owner may have known the new topic.
    case.name = name(6, 60, Some(5));
    assert!(matches!(case.rebuilds(), Why::Identity(_)));
}

#[test]
fn row_another_number_of_partitions_stops() {
    let mut case = Case::with(None);
    case.width = 8;
    let (error, text) = stops(case.decide());
    assert!(matches!(error, RestartError::PartitionsChanged { .. }));
    assert_contains(&text, "had 6 partitions");
    assert_contains(&text, "now it has 8");

    let mut case = Case::with(Some(at(5, 50, Some(5), 70)));
    case.identity.topics[0].partitions = 8;
    let (_, text) = stops(case.decide());
    assert!(text.contains("topic in had 6 partitions"), "{text}");
}

#[test]
fn row_a_first_start_has_nothing_anywhere() {
    let partition = &inputs(0)[0].0;
    let missing = Offsets::Missing { partition };
    let unnamed = Offsets::Unnamed {
        partition,
        metadata: "",
    };
    for offsets in [missing, unnamed] {
        let mut case = Case::with(None);
        case.changelog.end = offset(0);
        let first = Restart::First { discard: None };
        assert_eq!(case.decide_with(offsets), Ok(first));
        case.changelog.end = offset(3);
        let found = case.decide_with(offsets).unwrap();
        assert!(
            matches!(found, Restart::FirstIfEmpty { discard: None, .. }),
            "{found:?}"
        );
    }
}

#[test]
fn row_a_missing_offset_beside_state_stops() {
    let partition = &inputs(0)[0].0;
    for local in [at(5, 50, Some(5), 70), restoring(40)] {
        let mut case = Case::with(Some(local));
        case.changelog.end = offset(0);
        let (error, text) = stops(case.decide_with(Offsets::Missing { partition }));
        assert!(matches!(error, RestartError::OffsetGone { .. }));
        assert!(text.contains("no committed offset for in-3"), "{text}");
        assert!(text.contains("offsets.retention.minutes"), "{text}");
    }
}

#[test]
fn row_an_offset_without_our_name_beside_state_stops_and_names_the_command() {
    let partition = &inputs(0)[0].0;
    let reset = Offsets::Unnamed {
        partition,
        metadata: "x",
    };
    let case = Case::with(Some(at(5, 50, Some(5), 70)));
    let (error, text) = stops(case.decide_with(reset));
    assert!(matches!(error, RestartError::OffsetReset { .. }));
    assert_contains(&text, "kafka-consumer-groups.sh --reset-offsets");
    assert_contains(&text, "kafka-topics.sh --delete --topic a-0-changelog");
    assert!(text.contains("metadata \"x\""), "{text}");
}

#[test]
fn row_a_missing_offset_stops_also_beside_state_of_an_older_program() {
    let partition = &inputs(0)[0].0;
    let mut local = at(5, 50, Some(5), 70);
    local.identity.stores = StoresHash(6);
    let mut case = Case::with(Some(local));
    case.changelog.end = offset(0);
    let (error, _) = stops(case.decide_with(Offsets::Missing { partition }));
    assert!(matches!(error, RestartError::OffsetGone { .. }));
}

#[test]
fn row_state_of_something_else_does_not_hinder_a_first_start() {
    let partition = &inputs(0)[0].0;
    let mut local = at(5, 50, Some(5), 70);
    local.identity.cluster = "c0".into();
    let mut case = Case::with(Some(local));
    case.changelog.end = offset(0);
    match case.decide_with(Offsets::Missing { partition }) {
        Ok(Restart::First { discard: Some(why) }) => assert!(why.is_loud()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn at_least_once_an_interrupted_restore_begins_again() {
    let case = |guarantee| Case {
        guarantee,
        ..Case::with(Some(restoring(20)))
    };
    assert!(matches!(
        case(Guarantee::ExactlyOnce).decide(),
        Ok(Restart::Replay(_))
    ));
    assert!(matches!(
        case(Guarantee::AtLeastOnce).decide(),
        Ok(Restart::Rebuild {
            why: Why::Interrupted,
            ..
        })
    ));
}

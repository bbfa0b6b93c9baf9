use super::*;
use crate::ids::{Partition, StageId};
use crate::state::StoreId;
use proptest::prelude::*;

fn offset(n: i64) -> Offset {
    Offset::new(n).unwrap()
}

const NOTHING: PerFamily<bool> = PerFamily {
    plain: false,
    windowed: false,
};

fn two_inputs() -> TaskProgress {
    let p = Partition::new(3).unwrap();
    let inputs = [
        (TopicPartition::new("a", p), offset(10)),
        (TopicPartition::new("b", p), offset(20)),
    ];
    let task = TaskId {
        stage: StageId(0),
        partition: p,
    };
    TaskProgress::resume(task, LayoutHash(7), 6, inputs, None)
}

#[test]
fn rule_2_a_touched_task_commits_all_its_inputs_under_one_name() {
    let mut task = two_inputs();
    assert!(
        task.seal(Nonce(1), NOTHING).is_empty(),
        "an untouched task is not in the transaction"
    );

    task.advance(0, offset(10), Some(Timestamp(5)));
    let sealed = task.seal(Nonce(2), NOTHING);
    let at: Vec<_> = sealed
        .iter()
        .map(|(tp, o, _)| (tp.to_string(), o.get()))
        .collect();
    assert_eq!(at, [("a-3".into(), 11), ("b-3".into(), 20)]);
    assert_eq!(sealed[0].2, sealed[1].2);
    assert_eq!(
        sealed[0].2,
        "eos1;0000000000000007;6;1;0000000000000002;-;-;5"
    );
}

#[test]
fn each_attempt_has_another_name_but_only_a_commit_counts() {
    let mut task = two_inputs();
    task.touch();
    task.seal(Nonce(1), NOTHING);
    assert_eq!(task.discarded().len(), 2);
    task.touch();
    let retry = task.seal(Nonce(2), NOTHING);
    assert!(
        retry[0].2.contains(";1;0000000000000002;"),
        "{}",
        retry[0].2
    );
    task.committed();
    task.touch();
    assert!(
        task.seal(Nonce(3), NOTHING)[0]
            .2
            .contains(";2;0000000000000003;")
    );
}

#[test]
fn a_name_names_the_last_commit_record_of_each_changelog() {
    let mut task = two_inputs();
    let mut next = |plain, windowed, commits| {
        task.touch();
        task.seal(Nonce(1), PerFamily { plain, windowed });
        let named = task.sealed().unwrap().commit_records();
        if commits {
            task.committed();
        } else {
            task.discarded();
        }
        (named.plain.map(|s| s.0), named.windowed.map(|s| s.0))
    };
    assert_eq!(next(false, false, true), (None, None));
    assert_eq!(next(true, false, true), (Some(2), None));
    assert_eq!(
        next(false, false, true),
        (Some(2), None),
        "it stays the last one"
    );
    assert_eq!(next(true, true, false), (Some(4), Some(4)));
    assert_eq!(
        next(false, true, true),
        (Some(2), Some(4)),
        "4 was aborted before"
    );
}

#[test]
fn rule_9_an_abort_is_known_by_what_it_took() {
    let taken = |task: &TaskProgress| -> Vec<_> {
        let of = |t: Taken| (t.partition.to_string(), t.first.get(), t.next.get());
        task.taken().map(of).collect()
    };
    let mut task = two_inputs();
    task.touch();
    assert_eq!(taken(&task), []);
    task.advance(1, offset(25), None);
    task.advance(1, offset(26), None);
    assert_eq!(taken(&task), [("b-3".into(), 25, 27)]);
    task.discarded();
    assert_eq!(taken(&task), []);
    task.advance(1, offset(25), None);
    task.seal(Nonce(1), NOTHING);
    task.committed();
    task.advance(0, offset(10), None);
    assert_eq!(taken(&task), [("a-3".into(), 10, 11)]);
}

#[test]
fn rule_9_a_due_item_is_known_by_its_own_name() {
    let store = StoreId::due("timer");
    let item = |key: &[u8], due| ItemName::of(store, key, Timestamp(due));
    let mut task = two_inputs();
    let of = |item: ItemName| item.partition(task.task);
    let (one, other) = (of(item(b"k", 5)), of(item(b"k", 6)));
    assert_ne!(one, other);
    assert_ne!(one, of(item(b"l", 5)));
    assert_ne!(
        one,
        of(ItemName::of(StoreId::due("other"), b"k", Timestamp(5)))
    );
    assert!(ItemName::is_item(&one) && ItemName::is_item_of(&one, task.task));
    let input = task.inputs()[0].partition.clone();
    assert!(!ItemName::is_item(&input) && !ItemName::is_item_of(&input, task.task));
    let (mut stage, mut partition) = (task.task, task.task);
    stage.stage.0 += 1;
    partition.partition = Partition::ZERO;
    for elsewhere in [stage, partition] {
        assert!(!ItemName::is_item_of(&one, elsewhere));
    }
    let taken = |task: &TaskProgress| task.taken().map(|it| it.partition).collect::<Vec<_>>();
    task.handled_due(item(b"k", 5));
    task.discarded();
    assert_eq!(taken(&task), []);
    task.handled_due(item(b"k", 6));
    assert_eq!(taken(&task), [other]);
    task.seal(Nonce(1), NOTHING);
    task.committed();
    assert_eq!(taken(&task), []);
}

#[test]
fn an_idle_task_is_committed_again_as_it_is() {
    let mut task = two_inputs();
    assert_eq!(task.recommit(), [], "it has no name yet");
    task.advance(0, offset(10), None);
    let sealed = task.seal(Nonce(1), NOTHING);
    task.committed();
    assert_eq!(task.recommit(), sealed);
    let before = task.clone();
    task.committed();
    assert_eq!(task, before, "it is no part of that transaction");
    assert_eq!(task.discarded(), []);
    task.touch();
    assert_eq!(task.recommit(), [], "this transaction carries it");
}

#[test]
fn rule_8_a_rewind_goes_to_the_last_committed_offsets() {
    let mut task = two_inputs();
    task.advance(0, offset(10), None);
    task.seal(Nonce(1), NOTHING);
    task.committed();
    task.advance(0, offset(11), None);
    task.advance(1, offset(25), None);
    let back = task.discarded();
    assert_eq!(
        back.iter().map(|(_, o)| o.get()).collect::<Vec<_>>(),
        [11, 20]
    );
    assert!(
        task.discarded().is_empty(),
        "an untouched task is not rewound"
    );
    // The next transaction starts there, too, even if it reads no record.
    task.touch();
    let sealed = task.seal(Nonce(2), NOTHING);
    assert_eq!(
        sealed.iter().map(|(_, o, _)| o.get()).collect::<Vec<_>>(),
        [11, 20]
    );
}

#[test]
fn rule_8_nothing_is_delivered_twice_and_gaps_are_fine() {
    let mut task = two_inputs();
    assert_eq!(task.admit(0, offset(9)).unwrap_err().next, offset(10));
    let mut task = two_inputs();
    task.admit(0, offset(12)).unwrap();
    task.advance(0, offset(12), None);
    assert_eq!(task.admit(0, offset(12)), Ok(Admission::Repeated));
    assert_eq!(task.admit(0, offset(10)), Ok(Admission::Repeated));
    assert!(task.admit(0, offset(9)).is_err());
    task.admit(0, offset(13)).unwrap();
    task.discarded();
    assert!(task.admit(0, offset(9)).is_err());
    let mut task = two_inputs();
    task.advance(0, offset(12), None);
    task.discarded();
    task.admit(0, offset(10)).unwrap();
}

#[test]
fn rule_8_another_first_record_after_a_rewind_has_to_be_confirmed() {
    let mut task = two_inputs();
    task.advance(0, offset(10), None);
    task.discarded();
    // Fetched before the rewind took hold: the real one comes on the second try.
    assert_eq!(task.admit(0, offset(11)), Ok(Admission::Rewind(offset(10))));
    assert_eq!(task.admit(0, offset(10)), Ok(Admission::Process));
    task.advance(0, offset(10), None);
    assert_eq!(task.admit(0, offset(11)), Ok(Admission::Process));

    // Every later try has the same result until the log is confirmed to have lost the record.
    task.discarded();
    assert_eq!(task.admit(0, offset(14)), Ok(Admission::Rewind(offset(10))));
    for _ in 0..3 {
        assert_eq!(
            task.admit(0, offset(14)),
            Ok(Admission::Missing(offset(10)))
        );
    }
    let partition = task.inputs()[0].partition.clone();
    task.lost(&partition);
    assert_eq!(task.admit(0, offset(14)), Ok(Admission::Process));

    // After a second abort without a processed record, the task still has the first record's offset.
    task.touch();
    task.discarded();
    assert_eq!(task.admit(0, offset(14)), Ok(Admission::Rewind(offset(10))));
}

#[test]
fn stream_time_never_goes_back_except_with_its_transaction() {
    let mut task = two_inputs();
    task.advance(0, offset(10), Some(Timestamp(50)));
    task.advance(0, offset(11), Some(Timestamp(40)));
    assert!(task.seal(Nonce(1), NOTHING)[0].2.ends_with(";50"));
    task.discarded();
    task.advance(0, offset(10), Some(Timestamp(40)));
    assert!(task.seal(Nonce(2), NOTHING)[0].2.ends_with(";40"));
}

proptest! {
    /// The committed offset is always where the last committed transaction ended.
    #[test]
    fn committed_offsets_follow_committed_transactions_only(
        steps in proptest::collection::vec((0u8..3, 0usize..2, 0i64..5), 0..60),
    ) {
        let mut task = two_inputs();
        let mut truth = [10, 20];
        let mut seq = 0;
        for (what, input, gap) in steps {
            match what {
                0 => {
                    let at = offset(task.inputs()[input].next.get() + gap);
                    task.admit(input, at).unwrap();
                    task.advance(input, at, None);
                }
                1 => {
                    let sealed = task.seal(Nonce(0), NOTHING);
                    let next: Vec<i64> = task.inputs().iter().map(|i| i.next.get()).collect();
                    if !sealed.is_empty() {
                        seq += 1;
                        truth.copy_from_slice(&next);
                    }
                    task.committed();
                }
                _ => { task.discarded(); }
            }
            let committed: Vec<i64> = task.inputs().iter().map(|i| i.committed.get()).collect();
            prop_assert_eq!(&committed[..], &truth[..]);
            prop_assert_eq!(task.last().map_or(0, |n| n.seq.0), seq);
        }
    }
}

fn numbers(task: &mut TaskProgress) -> u64 {
    task.touch();
    task.seal(Nonce(1), NOTHING);
    task.sealed().unwrap().seq.0
}

fn restarted(task: &TaskProgress, guarantee: Guarantee) -> TaskProgress {
    let inputs = task.inputs().iter();
    let inputs: Vec<_> = inputs.map(|i| (i.partition.clone(), i.committed)).collect();
    let last = task.last().cloned();
    let task = TaskProgress::resume(task.task, LayoutHash(7), 6, inputs, last);
    match guarantee {
        Guarantee::AtLeastOnce => task.with_own_numbers(),
        _ => task,
    }
}

#[test]
fn at_least_once_no_attempt_takes_the_number_of_another() {
    let mut task = two_inputs().with_own_numbers();
    assert_eq!(numbers(&mut task), START_STEP);
    task.committed();
    assert_eq!(numbers(&mut task), START_STEP + 1);
    task.discarded();
    assert_eq!(
        numbers(&mut task),
        START_STEP + 2,
        "its records may be there"
    );
    task.committed();
    // A start leaves room for the attempts of an owner that has not noticed it yet, regardless of its last number.
    let last = START_STEP + 2;
    let mut next = restarted(&task, Guarantee::AtLeastOnce);
    assert_eq!(numbers(&mut next), last + START_STEP);
    next.committed();
    let mut next = restarted(&next, Guarantee::ExactlyOnce);
    assert_eq!(numbers(&mut next), last + START_STEP + 1);
}

#[test]
fn at_most_once_a_record_waits_for_the_commit_of_its_claim() {
    let mut task = two_inputs().with_guarantee(Guarantee::AtMostOnce);
    assert!(!task.is_claimed(0, offset(10)));
    task.claim(0, offset(15));
    let offsets = task.seal_claim(Nonce(1));
    assert_eq!((offsets[0].1, offsets[1].1), (offset(15), offset(20)));
    assert!(
        !task.is_claimed(0, offset(10)),
        "sent, but not acknowledged"
    );
    task.claimed();
    assert!(task.is_claimed(0, offset(14)) && !task.is_claimed(0, offset(15)));
    assert!(!task.is_claimed(1, offset(20)));
    task.advance(0, offset(10), None);
    assert!(!task.has_processed_claims());
    // The rest is returned.
    assert_eq!(task.seal(Nonce(2), NOTHING)[0].1, offset(11));
    task.committed();
    assert!(!task.is_claimed(0, offset(11)));
}

#[test]
fn at_most_once_a_discarded_transaction_repeats_nothing() {
    let mut task = two_inputs().with_guarantee(Guarantee::AtMostOnce);
    task.claim(0, offset(15));
    task.seal_claim(Nonce(1));
    assert!(task.discarded().is_empty());
    assert!(!task.is_claimed(0, offset(10)), "the claim failed");
    task.claim(0, offset(15));
    task.seal_claim(Nonce(2));
    task.claimed();
    task.advance(0, offset(10), None);
    assert!(task.discarded().is_empty());
    assert_eq!(task.inputs()[0].next, offset(11));
    // The discarded transaction may have given the rest back, so it is claimed again.
    assert!(!task.is_claimed(0, offset(11)));
    task.claim(0, offset(13));
    assert_eq!(task.seal_claim(Nonce(3))[0].1, offset(15), "never back");
    task.claimed();
    assert!(task.is_claimed(0, offset(11)) && task.is_claimed(0, offset(14)));
}

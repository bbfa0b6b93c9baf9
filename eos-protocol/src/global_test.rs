use super::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn partition(number: i32) -> Partition {
    Partition::new(number).unwrap()
}

fn offset(offset: i64) -> Offset {
    Offset::new(offset).unwrap()
}

fn mark() -> GlobalMark {
    GlobalMark {
        cluster: "c".into(),
        topic: "rates".into(),
        id: Some(TopicUuid(7)),
        types: "text".into(),
        current: Timestamp(1_000_000),
        next: vec![(partition(0), offset(10)), (partition(1), offset(20))],
    }
}

fn logs() -> [GlobalLog; 2] {
    let log = |number, first, end| GlobalLog {
        partition: partition(number),
        first: offset(first),
        end: offset(end),
    };
    [log(0, 3, 15), log(1, 20, 20)]
}

/// The start of this copy, after a change of the situation.
fn start(mark: Option<&GlobalMark>, change: impl FnOnce(&mut GlobalSituation<'_>)) -> GlobalStart {
    let (topic, logs) = ("rates".into(), logs());
    let mut situation = GlobalSituation {
        cluster: "c",
        topic: &topic,
        id: Some(TopicUuid(7)),
        types: "text",
        delete_retention: DAY,
        logs: &logs,
        mark,
        now: Timestamp(2_000_000),
    };
    change(&mut situation);
    situation.decide()
}

/// Returns why the copy is deleted.
fn why(start: GlobalStart) -> StaleCopy {
    let GlobalStart::Rebuild { from, why } = start else {
        panic!("{start:?}");
    };
    assert_eq!(
        from,
        [(partition(0), offset(3)), (partition(1), offset(20))]
    );
    why.unwrap()
}

#[test]
fn row_good_copy_reads_on() {
    assert_eq!(
        start(Some(&mark()), |_| {}),
        GlobalStart::ReadOn(mark().next)
    );
}

#[test]
fn row_no_mark_reads_from_the_beginning() {
    let GlobalStart::Rebuild { from, why } = start(None, |_| {}) else {
        panic!("there is nothing to read on");
    };
    assert_eq!(
        from,
        [(partition(0), offset(3)), (partition(1), offset(20))]
    );
    assert_eq!(why, None);
}

#[test]
fn row_other_topic_or_cluster_reads_again() {
    let of_topic = GlobalMark {
        topic: "prices".into(),
        ..mark()
    };
    let text = why(start(Some(&of_topic), |_| {})).to_string();
    assert!(text.contains("prices"), "{text}");
    let of_cluster = GlobalMark {
        cluster: "d".into(),
        ..mark()
    };
    let found = why(start(Some(&of_cluster), |_| {}));
    assert!(matches!(found, StaleCopy::OtherTopic { .. }), "{found:?}");
    let untold = GlobalMark {
        cluster: String::new(),
        ..mark()
    };
    assert_eq!(
        start(Some(&untold), |_| {}),
        GlobalStart::ReadOn(mark().next)
    );
}

#[test]
fn row_other_topic_id_reads_again() {
    let found = why(start(Some(&mark()), |it| it.id = Some(TopicUuid(8))));
    assert!(matches!(found, StaleCopy::Recreated { .. }), "{found:?}");
    // Brokers without ids give no evidence.
    let untold = start(Some(&mark()), |it| it.id = None);
    assert_eq!(untold, GlobalStart::ReadOn(mark().next));
}

#[test]
fn row_other_types_read_again() {
    let found = why(start(Some(&mark()), |it| it.types = "numbers"));
    assert!(matches!(found, StaleCopy::OtherTypes { .. }), "{found:?}");
}

#[test]
fn row_other_partitions_read_again() {
    let fewer = GlobalMark {
        next: vec![(partition(0), offset(10))],
        ..mark()
    };
    let found = why(start(Some(&fewer), |_| {}));
    assert_eq!(found, StaleCopy::Partitions { before: 1, now: 2 });
}

#[test]
fn row_offset_below_the_log_start_reads_again() {
    let mut old = mark();
    old.next[0].1 = offset(2);
    let found = why(start(Some(&old), |_| {}));
    assert!(matches!(found, StaleCopy::Deleted { .. }), "{found:?}");
    old.next[0].1 = offset(3);
    assert_eq!(
        start(Some(&old), |_| {}),
        GlobalStart::ReadOn(old.next.clone())
    );
}

#[test]
fn row_offset_beyond_the_end_reads_again() {
    let mut cut = mark();
    cut.next[0].1 = offset(16);
    let found = why(start(Some(&cut), |_| {}));
    assert!(matches!(found, StaleCopy::Cut { .. }), "{found:?}");
    cut.next[0].1 = offset(15);
    assert_eq!(
        start(Some(&cut), |_| {}),
        GlobalStart::ReadOn(cut.next.clone())
    );
}

#[test]
fn row_older_than_half_of_delete_retention_reads_again() {
    let half = i64::try_from(DAY.as_millis() / 2).unwrap();
    let at = |now: i64| start(Some(&mark()), move |it| it.now = Timestamp(now));
    let read_on = GlobalStart::ReadOn(mark().next);
    assert_eq!(at(1_000_000 + half), read_on);
    let found = why(at(1_000_001 + half));
    assert!(matches!(found, StaleCopy::TooOld { .. }), "{found:?}");
    // A copy from the future is as suspect.
    assert_eq!(at(1_000_000 - half), read_on);
    let found = why(at(999_999 - half));
    assert!(matches!(found, StaleCopy::TooOld { .. }), "{found:?}");
    // With nothing to read, no deletion is missing.
    let mut whole = mark();
    whole.next[0].1 = offset(15);
    let old = start(Some(&whole), |it| it.now = Timestamp(i64::MAX));
    assert_eq!(old, GlobalStart::ReadOn(whole.next.clone()));
}

#[test]
fn a_mark_survives_its_bytes_and_damage_is_no_mark() {
    for mark in [
        mark(),
        GlobalMark {
            id: None,
            next: Vec::new(),
            ..mark()
        },
    ] {
        let bytes = mark.encode();
        assert_eq!(GlobalMark::decode(&bytes), Some(mark));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(GlobalMark::decode(&damaged), None, "byte {at}");
            assert_eq!(GlobalMark::decode(&bytes[..at]), None, "{at} bytes");
        }
    }
}

#[test]
fn a_stall_names_topic_partition_offset_end_and_the_fix() {
    let stalled = GlobalStalled {
        table: "rates".into(),
        partition: TopicPartition::new("rates-by-day", partition(3)),
        next: offset(17),
        end: offset(90),
        waited: Duration::from_secs(60),
    };
    let text = stalled.to_string();
    for part in ["rates-by-day-3", "offset 17 of 90", "60 s", "kafka-acls.sh"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

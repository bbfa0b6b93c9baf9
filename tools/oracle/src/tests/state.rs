//! Copies of state that are ahead, behind, or wrong.

use super::*;

/// The index of the database of partition 0, in a counting run that stopped at offset 30 of each partition.
const DATABASE: usize = 1;

/// Returns the verdict on a run that stopped at offset 30, with a change to one of the copies.
fn with(copy: usize, change: impl FnOnce(&mut StateCopy)) -> Verdict {
    let mut evidence = stopped_counted();
    change(&mut evidence.state[copy]);
    judge(&evidence, Expectation::Behind)
}

fn set(contents: &mut Contents, key: &str, value: &[u8]) {
    contents.insert(key.into(), value.into());
}

#[test]
fn state_ahead() {
    let verdict = with(0, |copy| copy.contents = counts_below(0, 31));
    assert_eq!(kinds(&verdict), [("state_ahead", 1)]);
    let example = Example {
        seq: None,
        key: Some("key 0".into()),
        topic: Some("in".into()),
        partition: Some(0),
        offset: Some(30),
        note: "changelog of counts holds what lies below offset 31, committed is 30: found 7, \
               expected 6"
            .into(),
    };
    assert_eq!(verdict.state_ahead.examples, [example]);
}

#[test]
fn state_that_is_ahead_of_what_it_says() {
    // The position did not advance with the contents.
    let verdict = with(DATABASE, |copy| copy.contents = counts_below(0, 33));
    assert_eq!(kinds(&verdict), [("state_ahead", 1)]);
    assert_eq!(
        verdict.state_ahead.examples[0].note,
        "database of counts says offset 30, holds what lies below offset 33, committed is 30: \
         found 7, expected 6"
    );
}

#[test]
fn a_position_beyond_what_is_committed_is_ahead() {
    let verdict = with(DATABASE, |copy| copy.position = Some(31));
    assert_eq!(kinds(&verdict), [("state_ahead", 1)]);
    assert_eq!(
        verdict.state_ahead.examples[0].note,
        "database of counts says offset 31, holds what lies below offset 30, committed is 30"
    );
    // A copy that may lag must still not be ahead.
    let verdict = with(DATABASE, |copy| {
        copy.may_lag = true;
        copy.position = Some(31);
    });
    assert_eq!(kinds(&verdict), [("state_ahead", 1)]);
}

#[test]
fn a_position_beyond_the_end_is_ahead_and_one_behind_markers_is_not() {
    let mut evidence = counted();
    evidence.state[DATABASE].position = Some(PER_PARTITION + 1);
    finished(&evidence, [("state_ahead", 1)]);
    // The input's producer uses transactions, and its last marker is at this offset.
    evidence.input.ends[0] = PER_PARTITION + 1;
    finished(&evidence, []);
}

#[test]
fn state_behind() {
    let verdict = with(2, |copy| copy.contents = counts_below(1, 28));
    assert_eq!(kinds(&verdict), [("state_behind", 1)]);
    assert_eq!(
        verdict.state_behind.examples[0].to_string(),
        "key key 7, in-1, offset 30: changelog of counts holds what lies below offset 28, committed \
         is 30: found 5, expected 6"
    );
}

#[test]
fn a_database_that_says_that_it_is_behind_is_unless_it_may() {
    let lag = |may_lag| {
        with(DATABASE, |copy| {
            copy.contents = counts_below(0, 25);
            copy.position = Some(25);
            copy.may_lag = may_lag;
        })
    };
    assert_eq!(kinds(&lag(false)), [("state_behind", 1)]);
    assert!(lag(true).is_clean());
}

#[test]
fn state_that_says_more_than_it_holds_is_behind_and_wrong_where_it_may_lag() {
    let lag = |may_lag| {
        with(DATABASE, |copy| {
            copy.contents = counts_below(0, 20);
            copy.may_lag = may_lag;
        })
    };
    assert_eq!(kinds(&lag(false)), [("state_behind", 1)]);
    let verdict = lag(true);
    assert_eq!(kinds(&verdict), [("state_wrong", 1)]);
    assert_eq!(
        verdict.state_wrong.examples[0].note,
        "database of counts says offset 30, holds what lies below offset 20, committed is 30: \
         found 4, expected 6"
    );
}

#[test]
fn state_wrong() {
    // An update of key 4 was lost, and later updates were applied.
    let verdict = with(0, |copy| set(&mut copy.contents, "key 4", b"5"));
    assert_eq!(kinds(&verdict), [("state_wrong", 1)]);
    assert_eq!(
        verdict.state_wrong.examples[0].to_string(),
        "key key 4, in-0, offset 30: changelog of counts holds what no inputs lead to, committed \
         is 30: found 5, expected 6"
    );
}

#[test]
fn a_key_too_many_and_one_too_few_are_wrong() {
    let strange = with(0, |copy| set(&mut copy.contents, "key 1", &[0, 9]));
    let missing = with(0, |copy| drop(copy.contents.remove(&b"key 2"[..])));
    for (verdict, key, values) in [
        (strange, "key 1", "found 0x0009, expected nothing"),
        (missing, "key 2", "found nothing, expected 6"),
    ] {
        assert_eq!(kinds(&verdict), [("state_wrong", 1)]);
        let example = &verdict.state_wrong.examples[0];
        assert_eq!(example.key.as_deref(), Some(key));
        assert!(example.note.ends_with(values), "{}", example.note);
    }
}

#[test]
fn the_first_key_that_differs_is_named() {
    let verdict = with(0, |copy| {
        set(&mut copy.contents, "key 6", b"0");
        set(&mut copy.contents, "key 2", b"0");
        copy.contents.remove(&b"key 8"[..]);
    });
    let example = &verdict.state_wrong.examples[0];
    assert_eq!(example.key.as_deref(), Some("key 2"));
}

#[test]
fn an_old_position_beside_new_contents_is_wrong() {
    // The records in between would be applied twice.
    for may_lag in [false, true] {
        let verdict = with(DATABASE, |copy| {
            copy.position = Some(25);
            copy.may_lag = may_lag;
        });
        assert_eq!(kinds(&verdict), [("state_wrong", 1)]);
        assert_eq!(
            verdict.state_wrong.examples[0].note,
            "database of counts says offset 25, holds what lies below offset 30, committed is 30: \
             found 6, expected 5"
        );
    }
}

#[test]
fn an_old_position_beside_inputs_that_changed_nothing_is_none() {
    let first_of_key = Fold::new(|contents, record| {
        contents
            .entry(record.key.unwrap().to_vec())
            .or_insert(b"seen".into());
        0
    });
    let verdict = with(DATABASE, |copy| {
        for value in copy.contents.values_mut() {
            *value = b"seen".into();
        }
        copy.fold = first_of_key;
        copy.position = Some(25);
    });
    assert_eq!(verdict, Verdict::default());
}

#[test]
fn of_offsets_with_the_same_contents_the_nearest_is_named() {
    // The fold keeps only the latest value, which repeats every 10 records.
    let latest = Fold::new(|contents, record| {
        let value = (record.offset % 10).to_string();
        contents.insert(b"latest".into(), value.into_bytes());
        0
    });
    let found = |value: &str| {
        with(0, |copy| {
            copy.fold = latest.clone();
            copy.contents = Contents::from([(b"latest".into(), value.into())]);
        })
    };
    assert!(found("9").is_clean());
    let (ahead, behind) = (found("1"), found("7"));
    assert_eq!(kinds(&ahead), [("state_ahead", 1)]);
    assert!(
        ahead.state_ahead.examples[0]
            .note
            .contains("below offset 32")
    );
    assert_eq!(kinds(&behind), [("state_behind", 1)]);
    assert!(
        behind.state_behind.examples[0]
            .note
            .contains("below offset 28")
    );
}

#[test]
fn every_copy_is_compared_with_its_own_partition() {
    let mut evidence = stopped_counted();
    for row in clean().outputs[0].rows.iter() {
        // Partition 1 continued to its end.
        if row.partition == 1 && row.offset >= 30 {
            let value = (row.seq.unwrap() / KEYS + 1) as i64;
            evidence.outputs[0].rows.push(Row { value, ..*row });
            evidence.outputs[1].rows.push(*row);
        }
    }
    evidence.committed = Some(vec![Some(30), Some(PER_PARTITION)]);
    behind(&evidence, [("state_behind", 2)]);
    let last = counts_below(1, PER_PARTITION);
    evidence.state[2].contents = last.clone();
    evidence.state[3].contents = last;
    evidence.state[3].position = Some(PER_PARTITION);
    behind(&evidence, []);
}

#[test]
fn a_partition_without_inputs_makes_no_state() {
    for partition in [7, -1] {
        let empty = with(0, |copy| {
            copy.partition = partition;
            copy.contents.clear();
        });
        assert!(empty.is_clean());
        let verdict = with(0, |copy| copy.partition = partition);
        assert_eq!(kinds(&verdict), [("state_wrong", 1)]);
    }
}

#[test]
fn offsets_behind_their_outputs_are_behind_their_state() {
    let mut evidence = counted();
    evidence.committed = Some(vec![Some(PER_PARTITION), Some(PER_PARTITION - 3)]);
    behind(&evidence, [("offsets", 1), ("state_ahead", 2)]);
}

#[test]
fn state_is_not_compared_with_unreadable_offsets() {
    let mut evidence = counted();
    evidence.committed = None;
    finished(&evidence, [("open", 1)]);
}

#[test]
fn an_app_may_have_state_and_no_outputs() {
    let mut evidence = counted();
    evidence.outputs.clear();
    evidence.commits.clear();
    finished(&evidence, []);
    set(&mut evidence.state[0].contents, "key 0", b"11");
    let verdict = finished(&evidence, [("state_wrong", 1)]);
    let told = text(&evidence, &verdict);
    assert!(told.contains("state   changelog of counts, of in-0: 5 keys\n"));
    assert!(told.contains("VIOLATED state_wrong: 1 (copies of state that no inputs lead to"));
    assert!(told.contains("  key key 0, in-0, offset 50: changelog of counts holds what no"));
}

#[test]
fn of_offsets_that_mean_the_same_the_one_that_was_named_is() {
    let mut evidence = counted();
    // After the last record there is the marker of its transaction.
    let end = PER_PARTITION + 1;
    evidence.input.ends = vec![end; PARTITIONS as usize];
    evidence.committed = Some(vec![Some(end); PARTITIONS as usize]);
    finished(&evidence, []);
    evidence.state[DATABASE].position = Some(45);
    let verdict = finished(&evidence, [("state_wrong", 1)]);
    let note = &verdict.state_wrong.examples[0].note;
    assert!(
        note.contains("holds what lies below offset 51, committed is 51: found 10, expected 9"),
        "{note}"
    );
}

#[test]
fn inputs_add_up_in_the_order_of_their_offsets() {
    let mut keys = Keys::default();
    let key = keys.intern(None);
    // The numbers are in reverse order.
    let row = |seq, value| Row {
        seq: Some(seq),
        key,
        partition: 0,
        offset: 2 - seq as i64,
        value,
    };
    let digits = Fold::new(|contents, record| {
        let text = contents.entry(b"digits".into()).or_default();
        text.extend(record.value.to_string().bytes());
        std::str::from_utf8(text).unwrap().parse().unwrap()
    });
    let contents = Contents::from([(b"digits".into(), b"789".into())]);
    let mut evidence = Evidence {
        input: Input::new("in", vec![row(2, 7), row(1, 8), row(0, 9)], vec![3]).unwrap(),
        outputs: vec![Output {
            topic: "out".into(),
            rows: vec![row(2, 7), row(1, 78), row(0, 789)],
            running: Some(digits.clone()),
            ..Output::default()
        }],
        committed: Some(vec![Some(3)]),
        state: vec![StateCopy::new("changelog", &digits, 0, contents)],
        keys,
        ..Evidence::default()
    };
    finished(&evidence, []);
    evidence.state[0].contents = Contents::from([(b"digits".into(), b"987".into())]);
    evidence.outputs[0].rows[2].value = 987;
    finished(&evidence, [("state_wrong", 1), ("stale", 1)]);
}

use super::*;
use crate::state::identity::tests::sample as identity_sample;
use proptest::prelude::*;

fn at() -> Position {
    let input = |topic: &str, partition, offset| {
        let partition = Partition::new(partition).unwrap();
        let offset = Offset::new(offset).unwrap();
        (TopicPartition::new(topic, partition), offset)
    };
    Position {
        identity: identity_sample(),
        standing: Standing::At {
            seq: Seq(42),
            nonce: Nonce(0xc0ff_ee00),
            inputs: vec![input("in", 3, 1000), input("side", 3, 0)],
            commit_records: PerFamily {
                plain: Some(Seq(41)),
                windowed: None,
            },
            stream_time: Some(Timestamp(-1)),
            wall_time: Timestamp(1_700_000_000_000),
        },
        changelogs: PerFamily {
            plain: Some(Offset::new(77).unwrap()),
            windowed: None,
        },
    }
}

fn restoring() -> Position {
    Position {
        standing: Standing::Restoring {
            since: Timestamp(12),
            seen: PerFamily {
                plain: None,
                windowed: Some(Seq(3)),
            },
        },
        ..at()
    }
}

fn bytes(position: &Position) -> Vec<u8> {
    let mut out = Vec::new();
    position.encode(&mut out);
    out
}

/// Returns the body with a valid checksum, as another version would write it.
fn sealed(body: &[u8]) -> Vec<u8> {
    let mut sum = Fnv::new();
    sum.write(body);
    [body, &sum.finish().to_be_bytes()].concat()
}

/// Databases hold these bytes: every later version must read the format of version 1.
#[test]
fn the_bytes_of_version_1_are_pinned() {
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
    let both = "01\
        00000002 6331 00000001 61 0000 00000003 \
        00000002 \
        00000002 696e 00000000000000000000000000000007 00000006 \
        0000000d 612d302d6368616e67656c6f67 00000000000000000000000000000008 00000006 \
        0000000000000005";
    let expected = format!(
        "{both} 01 000000000000002a 00000000c0ffee00 \
         00000002 00000002 696e 00000003 00000000000003e8 \
         00000004 73696465 00000003 0000000000000000 \
         01 0000000000000029 00 01 ffffffffffffffff 0000018bcfe56800 \
         01 000000000000004d 00"
    );
    let body = |position: &Position| {
        let all = bytes(position);
        hex(&all[..all.len() - 8])
    };
    assert_eq!(body(&at()), expected.replace([' ', '\n'], ""));
    let expected = format!(
        "{both} 00 000000000000000c 00 01 0000000000000003 \
         01 000000000000004d 00"
    );
    assert_eq!(body(&restoring()), expected.replace(' ', ""));
}

#[test]
fn every_flipped_bit_and_every_truncation_is_refused() {
    for position in [at(), restoring()] {
        let good = bytes(&position);
        assert_eq!(Position::decode(&good).as_ref(), Ok(&position));
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                let error = Position::decode(&bad).unwrap_err();
                assert!(matches!(error, PositionError::Damaged { .. }), "byte {at}");
            }
            let error = Position::decode(&good[..at]).unwrap_err();
            assert!(
                matches!(error, PositionError::Damaged { .. }),
                "cut at {at}"
            );
        }
        let longer = [&good[..], &[0]].concat();
        assert!(Position::decode(&longer).is_err());
    }
}

#[test]
fn a_newer_format_is_distinguished_from_damage() {
    let error = Position::decode(&sealed(&[2, 9, 9, 9])).unwrap_err();
    assert_eq!(error, PositionError::Newer { version: 2 });
    assert!(error.to_string().contains("newest version"), "{error}");
    let zero = Position::decode(&sealed(&[0])).unwrap_err();
    assert!(matches!(zero, PositionError::Damaged { .. }));
}

/// A checksum that fits does not make bytes a position.
#[test]
fn fields_that_do_not_read_are_refused() {
    let good = bytes(&at());
    let body = &good[..good.len() - 8];
    for cut in 1..body.len() {
        assert!(
            Position::decode(&sealed(&body[..cut])).is_err(),
            "cut at {cut}"
        );
    }
    assert!(Position::decode(&sealed(&[body, &[0]].concat())).is_err());
    let huge_count = sealed(&[&[1][..], &[0xff; 4]].concat());
    assert!(Position::decode(&huge_count).is_err());
}

fn text() -> impl Strategy<Value = String> {
    "[a-zé]{0,12}"
}

fn offset() -> impl Strategy<Value = Offset> {
    (0..=i64::MAX).prop_map(|o| Offset::new(o).unwrap())
}

fn partition() -> impl Strategy<Value = Partition> {
    (0..=i32::MAX).prop_map(|p| Partition::new(p).unwrap())
}

fn pair<T: Strategy>(of: impl Fn() -> T) -> impl Strategy<Value = PerFamily<Option<T::Value>>> {
    let both = (proptest::option::of(of()), proptest::option::of(of()));
    both.prop_map(|(plain, windowed)| PerFamily { plain, windowed })
}

fn any_identity() -> impl Strategy<Value = Identity> {
    let topic =
        (text(), any::<u128>(), any::<u32>()).prop_map(|(name, id, partitions)| TopicIdentity {
            name: TopicName::new(name),
            id: TopicUuid(id),
            partitions,
        });
    let topics = proptest::collection::vec(topic, 0..4);
    let task = (any::<u16>(), partition());
    let all = (text(), text(), task, topics, any::<u64>());
    all.prop_map(
        |(cluster, app, (stage, partition), topics, stores)| Identity {
            cluster,
            app: AppId::new(app),
            task: TaskId {
                stage: StageId(stage),
                partition,
            },
            topics,
            stores: StoresHash(stores),
        },
    )
}

fn any_standing() -> impl Strategy<Value = Standing> {
    let restoring =
        (any::<i64>(), pair(|| any::<u64>().prop_map(Seq))).prop_map(|(since, seen)| {
            Standing::Restoring {
                since: Timestamp(since),
                seen,
            }
        });
    let input = (text(), partition(), offset());
    let input = input.prop_map(|(topic, p, o)| (TopicPartition::new(TopicName::new(topic), p), o));
    let at = (
        any::<(u64, u64, Option<i64>, i64)>(),
        proptest::collection::vec(input, 0..4),
        pair(|| any::<u64>().prop_map(Seq)),
    );
    let at = at.prop_map(
        |((seq, nonce, stream_time, wall_time), inputs, commit_records)| Standing::At {
            seq: Seq(seq),
            nonce: Nonce(nonce),
            inputs,
            commit_records,
            stream_time: stream_time.map(Timestamp),
            wall_time: Timestamp(wall_time),
        },
    );
    prop_oneof![restoring, at]
}

proptest! {
    #[test]
    fn every_position_reads_back(
        identity in any_identity(), standing in any_standing(), changelogs in pair(offset),
    ) {
        let position = Position { identity, standing, changelogs };
        let mut out = vec![7];
        position.encode(&mut out);
        prop_assert_eq!(out[0], 7, "it is appended");
        prop_assert_eq!(Position::decode(&out[1..]), Ok(position));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Position::decode(&bytes);
        let body = [&[VERSION][..], &bytes].concat();
        let _ = Position::decode(&sealed(&body));
    }
}

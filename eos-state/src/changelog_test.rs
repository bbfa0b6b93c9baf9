use super::*;
use eos_protocol::Partition;
use proptest::prelude::*;

fn changelog(family: Family) -> Changelog {
    let store = match family {
        Family::Plain => StoreId::plain("counts"),
        Family::Windowed => StoreId::windowed("counts"),
    };
    let partition = TopicPartition::new("a-0-changelog", Partition::new(3).unwrap());
    Changelog::new(partition, family, vec![store])
}

fn says(key: Option<&[u8]>, value: Option<&[u8]>) -> String {
    let offset = Offset::new(77).unwrap();
    let error = changelog(Family::Plain).read(offset, key, value);
    let text = error.unwrap_err().to_string();
    assert!(
        text.starts_with("changelog a-0-changelog-3, offset 77: "),
        "{text}"
    );
    text
}

#[test]
fn a_commit_record_is_pinned() {
    let record = CommitRecord {
        seq: Seq(42),
        nonce: Nonce(0x00c0_ffee_00c0_ffee),
    };
    let value = commit_record_value(record);
    let hex: String = value.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, "01000000000000002a00c0ffee00c0ffee");
    for (family, key) in [(Family::Plain, [0; 4]), (Family::Windowed, [0x80, 0, 0, 0])] {
        assert_eq!(commit_record_key(family), key);
        let entry = changelog(family).read(Offset::ZERO, Some(&key), Some(&value));
        assert_eq!(entry, Ok(Entry::Commit(record)));
    }
}

#[test]
fn a_null_value_deletes_and_an_empty_one_does_not() {
    let store = StoreId::plain("counts");
    let mut name = Vec::new();
    key(store, b"k", &mut name);
    let log = changelog(Family::Plain);
    let gone = Entry::Delete { store, key: b"k" };
    assert_eq!(log.read(Offset::ZERO, Some(&name), None), Ok(gone));
    let (key, value) = (&b"k"[..], &b""[..]);
    let empty = Entry::Put { store, key, value };
    assert_eq!(log.read(Offset::ZERO, Some(&name), Some(b"")), Ok(empty));
}

#[test]
fn foreign_records_are_refused_with_their_place() {
    assert!(says(None, Some(b"v")).contains("another program wrote"));
    assert!(says(Some(b"abc"), Some(b"v")).contains("has 3 bytes"));
    assert!(says(Some(b"hello"), Some(b"v")).contains("store 68656c6c"));
    let mut other_family = Vec::new();
    key(StoreId::windowed("counts"), b"k", &mut other_family);
    assert!(says(Some(&other_family), Some(b"v")).contains("plain stores: 1"));
    assert!(says(Some(&[0x80, 0, 0, 0]), Some(b"v")).contains("store 80000000"));
}

#[test]
fn a_commit_record_that_does_not_read_is_refused() {
    let key = commit_record_key(Family::Plain);
    let good = commit_record_value(CommitRecord {
        seq: Seq(1),
        nonce: Nonce(2),
    });
    assert!(says(Some(&key), None).contains("a tombstone"));
    assert!(says(Some(&[0; 5]), Some(&good)).contains("too long"));
    for cut in 0..good.len() {
        assert!(
            says(Some(&key), Some(&good[..cut])).contains("damaged"),
            "{cut}"
        );
    }
    assert!(says(Some(&key), Some(&[&good[..], &[0]].concat())).contains("another length"));
    assert!(says(Some(&key), Some(&[2, 0])).contains("format 2"));
    assert!(says(Some(&key), Some(&[0; 17])).contains("format 0"));
}

proptest! {
    #[test]
    fn every_key_reads_back(k: Vec<u8>, value: Option<Vec<u8>>) {
        let store = StoreId::windowed("counts");
        let mut name = Vec::new();
        key(store, &k, &mut name);
        let log = changelog(Family::Windowed);
        let entry = log.read(Offset::ZERO, Some(&name), value.as_deref()).unwrap();
        let expected = match &value {
            Some(value) => Entry::Put { store, key: &k, value },
            None => Entry::Delete { store, key: &k },
        };
        prop_assert_eq!(entry, expected);
    }

    #[test]
    fn no_record_panics(key: Option<Vec<u8>>, value: Option<Vec<u8>>) {
        let _ = changelog(Family::Plain).read(Offset::ZERO, key.as_deref(), value.as_deref());
    }
}

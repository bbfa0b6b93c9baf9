//! Codecs of keys with planted bugs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use eos_core::Timestamp;
use eos_core::codec::{CodecError, Decode, Encode, Encoded, Field, PlainType, TimeWindowed};
use eos_core::windows::{Tumbling, Windowed};
use eos_testkit::conformance::codecs::{
    Violation, Written, check_keys, check_partitions, check_values,
};

use super::planted::{Planted, found, good, owned, refuse};

fn keys(codec: &Planted, keys: &[&str]) -> Violation {
    check_keys(codec, owned(keys)).expect_err("planted, and not found")
}

#[test]
fn nothing_planted_and_nothing_found() {
    check_keys(&good(), owned(&["", "a", "a", "zürich"])).unwrap();
}

#[test]
fn a_sample_of_nothing() {
    found!(keys(&good(), &[]), Violation::NoSample);
    let nothing = check_partitions(&good(), owned(&[]), String::len);
    found!(nothing.unwrap_err(), Violation::NoSample);
}

#[test]
fn its_bytes_are_others_each_time() {
    let calls = AtomicUsize::new(0);
    let counts = good().encode(move |value, into| {
        into.push(calls.fetch_add(1, Ordering::Relaxed) as u8);
        into.extend_from_slice(value.as_bytes());
        Ok(Encoded::Bytes)
    });
    let counts = counts.decode(|bytes| match bytes {
        Some([_, text @ ..]) => String::read(Some(text)),
        _ => refuse(),
    });
    check_values(&counts, owned(&["a", "b"])).unwrap();
    let violation = keys(&counts, &["a", "b"]);
    let text = violation.to_string();
    assert!(
        text.contains("when it is written once more: it would"),
        "{text}"
    );
    found!(violation, Violation::OtherBytes { .. });
}

#[test]
fn its_bytes_are_others_when_it_was_read() {
    /// Knows whether it is new.
    #[derive(Debug)]
    struct Key(u8, bool);
    impl PartialEq for Key {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }
    struct Knows;
    impl Decode<Key> for Knows {
        fn decode(&self, bytes: Option<&[u8]>, _: &Field<'_>) -> Result<Key, CodecError> {
            match bytes {
                Some([n, _]) => Ok(Key(*n, false)),
                _ => refuse(),
            }
        }
    }

    impl Encode<Key> for Knows {
        fn encode(
            &self,
            key: &Key,
            into: &mut Vec<u8>,
            _: &Field<'_>,
        ) -> Result<Encoded, CodecError> {
            into.extend_from_slice(&[key.0, u8::from(key.1)]);
            Ok(Encoded::Bytes)
        }
    }
    let found = check_keys(&Knows, [Key(1, true)]).unwrap_err();
    found!(
        found,
        Violation::OtherBytes {
            when: "read and written",
            ..
        }
    );
    let found = check_keys(&Knows, [Key(1, false), Key(1, true)]).unwrap_err();
    found!(found, Violation::EqualButOtherBytes { .. });
}

#[test]
fn two_keys_have_the_same_bytes() {
    struct Joined;
    impl Decode<(String, String)> for Joined {
        fn decode(
            &self,
            bytes: Option<&[u8]>,
            _: &Field<'_>,
        ) -> Result<(String, String), CodecError> {
            let text = String::read(bytes)?;
            let (a, b) = text
                .split_once('-')
                .ok_or(CodecError::Null { expected: "-" })?;
            Ok((a.to_owned(), b.to_owned()))
        }
    }

    impl Encode<(String, String)> for Joined {
        fn encode(
            &self,
            (a, b): &(String, String),
            into: &mut Vec<u8>,
            _: &Field<'_>,
        ) -> Result<Encoded, CodecError> {
            into.extend_from_slice(format!("{a}-{b}").as_bytes());
            Ok(Encoded::Bytes)
        }
    }
    let key = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    check_keys(&Joined, [key("a", "b"), key("", "")]).unwrap();
    let violation = check_keys(&Joined, [key("a", "b-c"), key("a-b", "c")]).unwrap_err();
    let text = violation.to_string();
    assert!(text.contains(r#"are both written as b"a-b-c""#), "{text}");
    found!(violation, Violation::SameBytes { .. });
}

#[test]
fn two_keys_are_null() {
    let nulls = good().encode(|_, _| Ok(Encoded::Null));
    found!(
        keys(&nulls, &["a", "b"]),
        Violation::SameBytes {
            bytes: Written(None),
            ..
        }
    );
}

#[test]
fn more_bytes_decide_than_there_are() {
    let more = good().deciding(|key| key.len() + 1);
    found!(
        keys(&more, &["abc"]),
        Violation::DecidingBytesMissing { count: 4, .. }
    );
    let fixed = good().deciding(|_| 8);
    found!(
        keys(&fixed, &["long enough", "short"]),
        Violation::DecidingBytesMissing { .. }
    );
    let panics = good().deciding(|key| key.len() - 1);
    found!(keys(&panics, &["a", ""]), Violation::Panicked { .. });
}

#[test]
fn other_bytes_decide_each_time() {
    let calls = AtomicUsize::new(0);
    let turns = good().deciding(move |key| calls.fetch_add(1, Ordering::Relaxed).min(key.len()));
    found!(keys(&turns, &["abc"]), Violation::DecidesOtherwise { .. });
}

const HOUR: Duration = Duration::from_secs(3600);

/// As [`TimeWindowed`], but this decides.
struct Decided(TimeWindowed, fn(&[u8]) -> usize);

impl Decode<Windowed<String>> for Decided {
    fn decode(
        &self,
        bytes: Option<&[u8]>,
        field: &Field<'_>,
    ) -> Result<Windowed<String>, CodecError> {
        self.0.decode(bytes, field)
    }
}

impl Encode<Windowed<String>> for Decided {
    fn encode(
        &self,
        key: &Windowed<String>,
        into: &mut Vec<u8>,
        field: &Field<'_>,
    ) -> Result<Encoded, CodecError> {
        self.0.encode(key, into, field)
    }

    fn deciding_bytes(&self, key: &[u8]) -> usize {
        (self.1)(key)
    }
}

fn windowed(decides: fn(&[u8]) -> usize) -> Result<(), Violation> {
    let keys = [("ada", 0), ("ada", 1), ("adam", 0)].map(|(key, start)| Windowed {
        key: key.to_owned(),
        window: Tumbling::of(HOUR).at(Timestamp(start)),
    });
    let codec = Decided(TimeWindowed::of(HOUR), decides);
    check_partitions(&codec, keys, |windowed| windowed.key.clone())
}

#[test]
fn the_window_decides_the_partition() {
    windowed(|key| key.len() - 8).unwrap();
    found!(windowed(<[u8]>::len).unwrap_err(), Violation::Apart { .. });
}

#[test]
fn too_little_decides_the_partition() {
    found!(windowed(|_| 0).unwrap_err(), Violation::Together { .. });
    found!(windowed(|_| 3).unwrap_err(), Violation::Together { .. });
    let tenants = good().deciding(|key| key.len().min(1));
    let tenant = |key: &String| key.chars().next();
    check_partitions(&tenants, owned(&["a1", "a2", "b1", ""]), tenant).unwrap();
}

#[test]
fn what_a_value_may_not_do_a_key_may_not_either() {
    let clears = good().encode(|value, into| {
        into.clear();
        into.extend_from_slice(value.as_bytes());
        Ok(Encoded::Bytes)
    });
    found!(keys(&clears, &["a"]), Violation::NotAppended { .. });
    let panics = good().decode(|bytes| String::read(Some(bytes.expect("a key"))));
    found!(keys(&panics, &["a"]), Violation::Panicked { .. });
}

//! Codecs of values with planted bugs. The suite must find and name each bug.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use eos_core::codec::{CodecError, Decode, Encode, Encoded, Field, PlainType};
use eos_testkit::conformance::codecs::{Violation, Written, check_refusals, check_values};

type EncodeFn = dyn Fn(&str, &mut Vec<u8>) -> Result<Encoded, CodecError> + Send + Sync;
type Deciding = dyn Fn(&[u8]) -> usize + Send + Sync;
type DecodeFn = dyn Fn(Option<&[u8]>) -> Result<String, CodecError> + Send + Sync;

/// A codec of text, in which tests plant bugs.
pub(crate) struct Planted {
    encode: Box<EncodeFn>,
    decode: Box<DecodeFn>,
    deciding: Box<Deciding>,
    recycle: Box<dyn Fn(String) + Send + Sync>,
}

pub(crate) fn good() -> Planted {
    Planted {
        encode: Box::new(append),
        decode: Box::new(String::read),
        deciding: Box::new(<[u8]>::len),
        recycle: Box::new(drop),
    }
}

fn append(value: &str, into: &mut Vec<u8>) -> Result<Encoded, CodecError> {
    into.extend_from_slice(value.as_bytes());
    Ok(Encoded::Bytes)
}

pub(crate) fn refuse<T>() -> Result<T, CodecError> {
    Err(CodecError::invalid("this", "planted"))
}

impl Planted {
    pub(crate) fn encode(
        self,
        encode: impl Fn(&str, &mut Vec<u8>) -> Result<Encoded, CodecError> + Send + Sync + 'static,
    ) -> Self {
        let encode = Box::new(encode);
        Self { encode, ..self }
    }

    pub(crate) fn decode(
        self,
        decode: impl Fn(Option<&[u8]>) -> Result<String, CodecError> + Send + Sync + 'static,
    ) -> Self {
        let decode = Box::new(decode);
        Self { decode, ..self }
    }

    pub(crate) fn deciding(
        self,
        deciding: impl Fn(&[u8]) -> usize + Send + Sync + 'static,
    ) -> Self {
        let deciding = Box::new(deciding);
        Self { deciding, ..self }
    }

    fn recycle(self, recycle: impl Fn(String) + Send + Sync + 'static) -> Self {
        let recycle = Box::new(recycle);
        Self { recycle, ..self }
    }

    fn values(&self, values: &[&str]) -> Violation {
        check_values(self, owned(values)).expect_err("planted, and not found")
    }

    fn refusals(&self, values: &[&str]) -> Violation {
        check_refusals(self, owned(values)).expect_err("planted, and not found")
    }
}

pub(crate) fn owned(values: &[&str]) -> Vec<String> {
    values.iter().copied().map(str::to_owned).collect()
}

impl Decode<String> for Planted {
    fn decode(&self, bytes: Option<&[u8]>, _: &Field<'_>) -> Result<String, CodecError> {
        (self.decode)(bytes)
    }
}

impl Encode<String> for Planted {
    fn encode(
        &self,
        value: &String,
        into: &mut Vec<u8>,
        _: &Field<'_>,
    ) -> Result<Encoded, CodecError> {
        (self.encode)(value, into)
    }

    fn deciding_bytes(&self, key: &[u8]) -> usize {
        (self.deciding)(key)
    }

    fn recycle(&self, value: String) {
        (self.recycle)(value);
    }
}

macro_rules! found {
    ($violation:expr, $expected:pat) => {
        let violation = $violation;
        assert!(matches!(violation, $expected), "{violation:?}");
    };
}
pub(crate) use found;

#[track_caller]
fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in: {text}");
}

#[test]
fn nothing_planted_and_nothing_found() {
    check_values(&good(), owned(&["", "a", "zürich"])).unwrap();
}

#[test]
fn a_sample_of_nothing() {
    found!(good().values(&[]), Violation::NoSample);
    found!(good().refusals(&[]), Violation::NoSample);
}

#[test]
fn it_clears_the_buffer() {
    let clears = good().encode(|value, into| {
        into.clear();
        append(value, into)
    });
    let violation = clears.values(&["abc"]);
    let text = violation.to_string();
    found!(violation, Violation::NotAppended { .. });
    for part in [
        r#"writing "abc" changed"#,
        r#"b"\x00what was there before\xff" before, b"abc" after"#,
        "Append: `into.extend_from_slice(..)`, and no `clear`",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn it_clears_the_buffer_of_null_only() {
    let clears = good().encode(|value, into| {
        if value.is_empty() {
            into.clear();
            return Ok(Encoded::Null);
        }
        append(value, into)
    });
    found!(clears.values(&["abc", ""]), Violation::NotAppended { .. });
}

#[test]
fn it_clears_the_buffer_before_it_refuses() {
    let clears = good().encode(|_, into| {
        into.clear();
        refuse()
    });
    found!(clears.refusals(&["abc"]), Violation::NotAppended { .. });
    found!(clears.values(&["abc"]), Violation::NotAppended { .. });
}

#[test]
fn bytes_of_a_refused_value_belong_to_no_output() {
    let half = good().encode(|value, into| append(value, into).and_then(|_| refuse()));
    check_refusals(&half, owned(&["abc"])).unwrap();
}

#[test]
fn it_refuses_what_it_should_write() {
    let violation = good().encode(|_, _| refuse()).values(&["abc"]);
    let text = violation.to_string();
    found!(violation, Violation::Unwritable { .. });
    assert!(
        text.starts_with(r#""abc" can't be written: not this: planted."#),
        "{text}"
    );
}

#[test]
fn it_writes_what_it_should_refuse() {
    found!(good().refusals(&["a"]), Violation::NotRefused { .. });
    let asked = AtomicBool::new(false);
    let once = good().encode(
        move |value, into| match asked.swap(true, Ordering::Relaxed) {
            false => refuse(),
            true => append(value, into),
        },
    );
    found!(once.refusals(&["a"]), Violation::NotRefused { .. });
}

#[test]
fn null_has_bytes() {
    let null = good().encode(|value, into| append(value, into).map(|_| Encoded::Null));
    found!(null.values(&["abc"]), Violation::BytesBesideNull { .. });
}

#[test]
fn null_does_not_come_back() {
    let null = good().encode(|value, into| match value {
        "" => Ok(Encoded::Null),
        value => append(value, into),
    });
    let violation = null.values(&["a", ""]);
    let Violation::Unreadable { value, bytes, .. } = violation else {
        panic!("{violation:?}");
    };
    assert_eq!((value.as_str(), bytes), ("\"\"", Written(None)));
}

#[test]
fn it_loses_a_part() {
    let trims = good().encode(|value, into| append(value.trim(), into));
    let violation = trims.values(&["a", "b "]);
    assert_eq!(
        violation.to_string(),
        r#""b " is written as b"b", and read back as "b". Write every part of a value, and read every part"#
    );
    found!(violation, Violation::AnotherValue { .. });
}

#[test]
fn it_reads_what_was_written_last() {
    static LAST: Mutex<String> = Mutex::new(String::new());
    let remembers = good().encode(|value, into| {
        value.clone_into(&mut LAST.lock().unwrap());
        append(value, into)
    });
    let remembers = remembers.decode(|_| Ok(LAST.lock().unwrap().clone()));
    found!(
        remembers.values(&["a", "b"]),
        Violation::AnotherValue { .. }
    );
}

#[test]
fn it_writes_otherwise_the_second_time_and_can_not_read_it() {
    let calls = AtomicU8::new(0);
    let counts = good().encode(move |value, into| {
        into.extend_from_slice(&b"!"[..usize::from(calls.fetch_add(1, Ordering::Relaxed) == 1)]);
        append(value, into)
    });
    found!(counts.values(&["a"]), Violation::AnotherValue { .. });
}

#[test]
fn it_trusts_what_it_reads() {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let trusts = good().decode(move |bytes| Ok(text(bytes.unwrap_or_default())));
    found!(trusts.values(&["a"]), Violation::Panicked { .. });
    let digits = good().decode(|bytes| match bytes {
        Some(bytes) => Ok(str::from_utf8(bytes).expect("digits").to_owned()),
        None => refuse(),
    });
    // As the page on tests has it.
    let text = digits.values(&["0"]).to_string();
    let expected = r#"reading b"\xb0" panicked: digits: Utf8Error { valid_up_to: 0, error_len: Some(1) }. A panic"#;
    assert!(text.starts_with(expected), "{text}");
    let null = good().decode(|bytes| Ok(String::from_utf8_lossy(bytes.expect("some")).into()));
    let violation = null.values(&["a"]);
    let text = violation.to_string();
    assert!(text.starts_with("reading null panicked: some."), "{text}");
    found!(violation, Violation::Panicked { .. });
}

/// A length, then the text.
fn with_length() -> Planted {
    good().encode(|value, into| {
        into.push(value.len() as u8);
        append(value, into)
    })
}

#[test]
fn it_trusts_a_length() {
    let trusts = with_length().decode(|bytes| match bytes {
        Some([length, rest @ ..]) => String::read(Some(&rest[..usize::from(*length)])),
        _ => refuse(),
    });
    let violation = trusts.values(&["abc"]);
    let text = violation.to_string();
    assert_contains(&text, "reading b\"\\x03\" panicked: range end index");
    found!(violation, Violation::Panicked { .. });
    let careful = with_length().decode(|bytes| match bytes {
        Some([length, rest @ ..]) if usize::from(*length) == rest.len() => String::read(Some(rest)),
        _ => refuse(),
    });
    check_values(&careful, owned(&["", "abc"])).unwrap();
}

#[test]
fn it_panics_at_what_has_one_byte_more() {
    let panics = good().decode(|bytes| {
        assert!(bytes.is_none_or(|bytes| bytes.len() < 4), "too long");
        String::read(bytes)
    });
    found!(panics.values(&["abc"]), Violation::Panicked { .. });
}

#[test]
fn it_panics_while_it_writes_or_recycles() {
    found!(
        good().encode(|_, _| panic!("no")).values(&["a"]),
        Violation::Panicked { .. }
    );
    found!(
        good().recycle(|_| panic!("no")).values(&["a"]),
        Violation::Panicked { .. }
    );
}

#[test]
fn read_bytes_are_written_as_other_bytes() {
    let lowers = good().encode(|value, into| append(&value.to_lowercase(), into));
    let violation = lowers.values(&["abc"]);
    let text = violation.to_string();
    found!(
        violation,
        Violation::Drifts {
            written: Some(_),
            ..
        }
    );
    assert_contains(
        &text,
        r#"b"Abc" is read as "Abc", which is written as b"abc""#,
    );
}

#[test]
fn read_bytes_can_not_be_written() {
    let ascii = good().encode(
        |value, into| match value.is_ascii() && !value.contains('\0') {
            true => append(value, into),
            false => refuse(),
        },
    );
    let violation = ascii.values(&["abc"]);
    let text = violation.to_string();
    found!(violation, Violation::Drifts { written: None, .. });
    assert_contains(&text, ", which can't be written: not this: planted: such");
}

#[test]
fn what_it_could_not_read_is_still_there_the_next_time() {
    let left = Mutex::new(Vec::new());
    let keeps = good().decode(move |bytes| {
        let mut buffer = left.lock().unwrap();
        buffer.extend_from_slice(bytes.unwrap_or_default());
        let text = String::from_utf8(buffer.clone());
        let text = text.map_err(|e| CodecError::invalid("text", e))?;
        buffer.clear();
        Ok(text)
    });
    found!(keeps.values(&["abc"]), Violation::Remembers { .. });
}

#[test]
fn it_gives_up_after_an_error() {
    let failed = AtomicBool::new(false);
    let gives_up = good().decode(move |bytes| {
        if failed.load(Ordering::Relaxed) {
            return refuse();
        }
        let read = String::read(bytes);
        failed.store(read.is_err(), Ordering::Relaxed);
        read
    });
    let violation = gives_up.values(&["abc"]);
    let text = violation.to_string();
    assert_contains(&text, "and after reading null as: not this: planted");
    found!(violation, Violation::Remembers { .. });
}

#[test]
fn what_was_recycled_comes_again() {
    static POOL: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let dirty = good().recycle(|value| POOL.lock().unwrap().push(value));
    let dirty = dirty.decode(|bytes| {
        let mut text = POOL.lock().unwrap().pop().unwrap_or_default();
        text.push_str(&String::read(bytes)?);
        Ok(text)
    });
    let violation = dirty.values(&["abc"]);
    let text = violation.to_string();
    assert!(text.contains("after recycling it as: \"abcabc\""), "{text}");
    found!(violation, Violation::Remembers { .. });
}

#[test]
fn a_test_that_fails_shows_the_text() {
    let violation = good().values(&[]);
    assert_eq!(format!("{violation:?}"), violation.to_string());
}

#[test]
fn long_values_are_shortened_in_messages() {
    let long = "x".repeat(10_000);
    let violation = good()
        .encode(|value, into| append(&value[1..], into))
        .values(&[&long]);
    let text = violation.to_string();
    assert!(
        text.len() < 1_000 && text.contains("(9999 bytes)"),
        "{text}"
    );
}

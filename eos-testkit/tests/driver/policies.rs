//! Records that fail, each with a crash at every effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use eos_core::codec::{CodecError, Decode, Encode, Encoded, Field, Plain, PlainType};
use eos_core::state::WindowStore;
use eos_core::windows::Tumbling;
use eos_core::{
    App, Backoff, ErrorPolicy, Failure, Headers, KeyValueStore, PlainTopic, Stream, Timestamp,
    Topic,
};
use eos_testkit::{Input, TestDriver, crash_everywhere};

fn numbers() -> PlainTopic<String, String> {
    Topic::plain("numbers")
}

fn doubles() -> PlainTopic<String, u64> {
    Topic::plain("doubles")
}

fn letters() -> PlainTopic<Option<Vec<u8>>, Option<Vec<u8>>> {
    Topic::plain("letters")
}

fn doubling(policy: ErrorPolicy) -> App {
    let mut app = App::new("a");
    app.source(&numbers())
        .on_error(policy)
        .try_map(|text| Ok(text.parse::<u64>()? * 2))
        .to(&doubles());
    app
}

const RECORDS: [&str; 4] = ["1", "two", "3", "four"];

fn scenario(driver: &mut TestDriver) -> Vec<u64> {
    for text in RECORDS {
        driver.pipe_at(&numbers(), "k", text, Timestamp(7));
    }
    let pairs = driver.read_pairs(&doubles()).into_iter();
    pairs.map(|(_, number)| number).collect()
}

#[test]
fn skip() {
    let start = || TestDriver::new(doubling(ErrorPolicy::skip()));
    let mut driver = start();
    assert_eq!(scenario(&mut driver), [2, 6]);
    assert_eq!(driver.metrics().unwrap().totals.skipped, 2);
    driver.pipe_input(&numbers(), Input::raw(None, None));
    assert_eq!(driver.metrics().unwrap().totals.skipped, 3);
    crash_everywhere(start, |driver| (scenario(driver), driver.committed()));
}

#[test]
fn dead_letter() {
    let start = || TestDriver::new(doubling(ErrorPolicy::dead_letter("letters")));
    let mut driver = start();
    assert_eq!(scenario(&mut driver), [2, 6]);
    let letters_found = driver.read(&letters());
    let values: Vec<_> = letters_found.iter().map(|it| it.value.as_deref()).collect();
    assert_eq!(values, [Some(&b"two"[..]), Some(b"four")]);
    let first = &letters_found[0];
    assert_eq!(first.timestamp, Timestamp(7));
    assert_eq!(
        first.headers.get("__streams.errors.topic"),
        Some(&b"numbers"[..])
    );
    let reason = |headers: &Headers, name: &str| {
        let value = headers.get(&format!("__streams.errors.{name}"));
        String::from_utf8(value.unwrap().to_vec()).unwrap()
    };
    assert_eq!(
        reason(&first.headers, "exception"),
        "core::num::error::ParseIntError"
    );
    assert_eq!(driver.metrics().unwrap().totals.dead_letters, 2);
    // Bytes that are no text at all.
    driver.pipe_input(&numbers(), Input::raw(Some(b"k"), Some(&[0xff])));
    let letter = driver.read_one(&letters());
    assert_eq!(letter.value, Some(vec![0xff]));
    assert_eq!(reason(&letter.headers, "exception"), "ValueDecodeError");
    let causes = reason(&letter.headers, "stacktrace");
    assert!(causes.contains("caused by: invalid utf-8"), "{causes}");
    crash_everywhere(start, |driver| {
        scenario(driver);
        driver.committed()
    });
}

#[test]
fn fail_is_the_default_and_what_came_before_is_committed() {
    let start = || TestDriver::new(doubling(ErrorPolicy::fail()));
    crash_everywhere(start, |driver| {
        driver.pipe(&numbers(), "k", "1");
        let error = driver.try_pipe(&numbers(), ("k".to_owned(), "two".to_owned()));
        let text = error.unwrap_err().to_string();
        assert!(
            text.contains("record 1 of numbers-0 could not be processed: "),
            "{text}"
        );
        assert!(text.contains("invalid digit found in string"), "{text}");
        (driver.read_pairs(&doubles()), text)
    });
}

/// Fails until it was tried so often.
fn failing(times: u32, policy: impl Into<ErrorPolicy>) -> (TestDriver, Arc<AtomicU32>) {
    let tries = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&tries);
    let mut app = App::new("a");
    app.source(&numbers())
        .on_error(policy)
        .try_map(move |text| {
            let tried = count.fetch_add(1, Ordering::Relaxed);
            if tried < times {
                Err(format!("try {tried}").into())
            } else {
                Ok(text.len() as u64)
            }
        })
        .to(&doubles());
    (TestDriver::new(app), tries)
}

#[test]
fn retry() {
    let minute = Duration::from_secs(60);
    let (mut driver, tries) = failing(3, ErrorPolicy::retry(5, Backoff::fixed(minute)));
    driver.pipe(&numbers(), "k", "abc");
    assert_eq!(driver.read_one(&doubles()).value, 3);
    assert_eq!(tries.load(Ordering::Relaxed), 4);
    assert_eq!(driver.metrics().unwrap().totals.retried, 3);

    let policy =
        || ErrorPolicy::retry(2, Backoff::fixed(minute)).then(ErrorPolicy::dead_letter("letters"));
    let (mut driver, tries) = failing(u32::MAX, policy());
    driver.pipe(&numbers(), "k", "abc");
    assert_eq!(tries.load(Ordering::Relaxed), 3);
    let letter = driver.read_one(&letters());
    assert_eq!(letter.value.as_deref(), Some(&b"abc"[..]));
    assert_eq!(letter.headers.get("__eos.errors.attempts"), Some(&b"3"[..]));
    let start = || failing(u32::MAX, policy()).0;
    crash_everywhere(start, |driver| {
        driver.pipe(&numbers(), "k", "abc");
        driver.pipe(&numbers(), "k", "def");
        let letters = driver.read(&letters()).into_iter();
        letters.map(|it| it.value).collect::<Vec<_>>()
    });
}

/// A schema registry that responds only after some time.
struct Registry(AtomicU32);

impl Decode<u64> for Registry {
    fn decode(&self, bytes: Option<&[u8]>, _: &Field<'_>) -> Result<u64, CodecError> {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Err(CodecError::unavailable("no schema yet")),
            _ => u64::read(bytes),
        }
    }
}

/// A retry would fail as well.
#[test]
fn errors_that_no_retry_can_fix_are_not_retried() {
    let policy = || {
        ErrorPolicy::retry(5, Backoff::fixed(Duration::from_secs(60)))
            .then(ErrorPolicy::dead_letter("letters"))
    };
    let mut app = App::new("a");
    app.source(&doubles())
        .on_error(policy())
        .try_map(|n| match n {
            0 => Err(Failure::permanent("nothing")),
            n => Ok(n.to_string()),
        })
        .to(&numbers());
    let mut driver = TestDriver::new(app);
    driver.pipe_input(&doubles(), Input::raw(Some(b"k"), Some(b"not a number")));
    driver.pipe(&doubles(), "k", 0_u64);
    assert_eq!(driver.read(&letters()).len(), 2);
    assert_eq!(driver.metrics().unwrap().totals.retried, 0);
}

#[test]
fn a_codec_that_is_not_available_is_retried() {
    let input = Topic::<String, u64>::with("in", Plain, Registry(AtomicU32::new(0)));
    let mut app = App::new("a");
    app.source(&input)
        .on_error(ErrorPolicy::retry(
            5,
            Backoff::fixed(Duration::from_secs(60)),
        ))
        .to(&doubles());
    let mut driver = TestDriver::new(app);
    driver.pipe(&PlainTopic::<String, u64>::named("in"), "k", 7_u64);
    assert_eq!(driver.read_one(&doubles()).value, 7);
    assert_eq!(driver.metrics().unwrap().totals.retried, 2);
}

#[test]
fn a_record_that_is_retried_forever_ends_the_test_with_the_cause() {
    let (mut driver, _) = failing(
        u32::MAX,
        ErrorPolicy::retry(u32::MAX, Backoff::fixed(Duration::from_secs(1))),
    );
    let piped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        driver.pipe(&numbers(), "k", "abc");
    }));
    let panic = piped.unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("Is a record retried forever"), "{text}");
    assert!(
        text.contains("numbers-0: 1 records to read from offset 0 on"),
        "{text}"
    );
}

/// Empties the buffer before it writes, as a codec must not.
struct Clearing;

impl Decode<u64> for Clearing {
    fn decode(&self, bytes: Option<&[u8]>, field: &Field<'_>) -> Result<u64, CodecError> {
        Plain.decode(bytes, field)
    }
}

impl Encode<u64> for Clearing {
    fn encode(
        &self,
        value: &u64,
        into: &mut Vec<u8>,
        _: &Field<'_>,
    ) -> Result<Encoded, CodecError> {
        into.clear();
        into.extend(value.to_be_bytes());
        Ok(Encoded::Bytes)
    }
}

#[test]
fn a_codec_that_clears_the_buffer_takes_nothing_from_others() {
    let broken = Topic::<String, u64>::with("broken", Plain, Clearing);
    let mut app = App::new("a");
    let (whole, cleared) = (app.output(&doubles()), app.output(&broken));
    app.source(&numbers()).for_each(move |ctx, record| {
        let number = record.value.parse::<u64>()?;
        ctx.emit(&whole, record.key.clone(), number)?;
        ctx.emit(&cleared, record.key, number)
    });
    let mut driver = TestDriver::new(app);
    // A key shorter than the value, and a longer one.
    driver.pipe(&numbers(), "k", "1");
    driver.pipe(&numbers(), "a key that is longer", "2");
    let due = [("k".to_owned(), 1), ("a key that is longer".to_owned(), 2)];
    assert_eq!(driver.read_pairs(&doubles()), due);
    assert_eq!(driver.read_pairs(&broken), due);
}

/// Writes no odd number.
struct Even;

impl Decode<u64> for Even {
    fn decode(&self, bytes: Option<&[u8]>, field: &Field<'_>) -> Result<u64, CodecError> {
        Plain.decode(bytes, field)
    }
}

impl Encode<u64> for Even {
    fn encode(
        &self,
        value: &u64,
        into: &mut Vec<u8>,
        field: &Field<'_>,
    ) -> Result<Encoded, CodecError> {
        if value % 2 == 1 {
            return Err(CodecError::invalid(
                "an even number",
                format!("{value} is odd"),
            ));
        }
        Plain.encode(value, into, field)
    }
}

/// A record with the text `bad` becomes a dead letter of this kind without a retry.
#[track_caller]
fn is_not_retried(kind: &str, declare: impl FnOnce(Stream<String, String>)) {
    let forever = ErrorPolicy::retry_forever(Backoff::fixed(Duration::from_secs(1)));
    let mut app = App::new("a");
    declare(
        app.source(&numbers())
            .on_error(forever.then(ErrorPolicy::dead_letter("letters"))),
    );
    let mut driver = TestDriver::new(app);
    driver.pipe_at(&numbers(), "k", "bad", Timestamp(-1));
    let letter = driver.read_one(&letters());
    let exception = letter.headers.get("__streams.errors.exception");
    assert_eq!(exception, Some(kind.as_bytes()));
    assert_eq!(letter.value.as_deref(), Some(&b"bad"[..]));
    assert_eq!(driver.metrics().unwrap().totals.retried, 0);
}

#[test]
fn a_fault_that_the_same_record_has_again_is_not_retried() {
    is_not_retried("EncodeError", |bad| {
        bad.map(|_| 1)
            .to(&Topic::<String, u64, _, _>::with("even", Plain, Even));
    });
    is_not_retried("UnknownRoute", |bad| {
        bad.route(&[PlainTopic::<String, String>::named("one")], |record| {
            record.value.as_str().into()
        });
    });
    is_not_retried("UnknownPartition", |bad| {
        let far = PlainTopic::<String, String>::named("far").partition_by("far", |_, _| 1_000);
        bad.to(&far);
    });
    is_not_retried("NoTimestamp", |bad| {
        bad.group_by_key()
            .windowed_by(Tumbling::of(Duration::from_secs(60)))
            .count(&WindowStore::<String, u64>::plain("counts"))
            .to_stream()
            .ignore();
    });
    is_not_retried("StateError", |bad| {
        let odd = KeyValueStore::<String, u64>::with("odd", Plain, Even);
        bad.group_by_key().count(&odd).to_stream().ignore();
    });
}

/// Without a policy after the retry, the app stops instead of waiting forever.
#[test]
fn a_permanent_failure_without_another_policy_stops_the_app() {
    let forever = ErrorPolicy::retry_forever(Backoff::fixed(Duration::from_secs(1)));
    let mut driver = TestDriver::new(doubling(forever.into()));
    let bytes = PlainTopic::<String, Vec<u8>>::named("numbers");
    let error = driver
        .try_pipe(&bytes, Input::new("k", vec![0xff]))
        .unwrap_err();
    assert!(error.to_string().contains("can't be decoded"), "{error}");
}

//! Readings of meters as protobuf, with the schema registry's wire format.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use eos_core::codec::{CodecError, Decode, Encode, Encoded, Field, Part, Plain};
use eos_core::{App, Backoff, ErrorPolicy, KeyValueStore, Topic};

/// A client of the registry. Real clients cache: a codec runs on the worker's thread, once for each record.
trait Registry: Send + Sync + 'static {
    /// The name of the first message in the schema with this id, if there is such a schema.
    fn message(&self, id: u32) -> io::Result<Option<String>>;

    /// The id of the schema that this subject has, if any.
    fn id(&self, subject: &str) -> io::Result<Option<u32>>;
}

/// A magic byte, the id of the schema, and the index of the message in it. The index 0 is one byte.
#[derive(Clone)]
struct Protobuf(Arc<dyn Registry>);

impl<T: ReadMessage> Decode<T> for Protobuf {
    fn decode(&self, bytes: Option<&[u8]>, _: &Field<'_>) -> Result<T, CodecError> {
        let bytes = bytes.ok_or(CodecError::null(T::NAME))?;
        let Some(([0, a, b, c, d, 0], message)) = bytes.split_first_chunk() else {
            return Err(CodecError::invalid(T::NAME, "no schema before it"));
        };
        let id = u32::from_be_bytes([*a, *b, *c, *d]);
        let found = self.0.message(id).map_err(CodecError::unavailable)?;
        if found.as_deref() != Some(T::NAME) {
            let what = format!("schema {id} has {found:?}");
            return Err(CodecError::invalid(T::NAME, what));
        }
        T::read(message).ok_or_else(|| CodecError::invalid(T::NAME, "damaged"))
    }
}

impl<T: WriteMessage> Encode<T> for Protobuf {
    fn encode(
        &self,
        value: &T,
        into: &mut Vec<u8>,
        field: &Field<'_>,
    ) -> Result<Encoded, CodecError> {
        let part = match field.part() {
            Part::Key => "key",
            _ => "value",
        };
        let subject = format!("{}-{part}", field.topic());
        let id = self.0.id(&subject).map_err(CodecError::unavailable)?;
        let id = id.ok_or_else(|| CodecError::invalid("registered", subject))?;
        into.push(0);
        into.extend(id.to_be_bytes());
        into.push(0);
        value.write(into);
        Ok(Encoded::Bytes)
    }
}

trait ReadMessage: Sized + 'static {
    const NAME: &'static str;
    fn read(bytes: &[u8]) -> Option<Self>;
}

trait WriteMessage: 'static {
    fn write(&self, into: &mut Vec<u8>);
}

/// Only read.
struct Reading {
    watts: u64,
}

impl ReadMessage for Reading {
    const NAME: &'static str = "Reading";

    fn read(bytes: &[u8]) -> Option<Self> {
        let watts = read_watts(bytes)?;
        Some(Self { watts })
    }
}

/// Only written.
struct Alert {
    watts: u64,
}

impl WriteMessage for Alert {
    fn write(&self, into: &mut Vec<u8>) {
        write_watts(self.watts, into);
    }
}

/// Kept in a store, so it is written and read.
#[derive(Debug, PartialEq)]
struct Peak {
    watts: u64,
}

impl ReadMessage for Peak {
    const NAME: &'static str = "Peak";

    fn read(bytes: &[u8]) -> Option<Self> {
        let watts = read_watts(bytes)?;
        Some(Self { watts })
    }
}

impl WriteMessage for Peak {
    fn write(&self, into: &mut Vec<u8>) {
        write_watts(self.watts, into);
    }
}

/// `fixed64 watts = 1`: a tag, and eight bytes.
fn read_watts(bytes: &[u8]) -> Option<u64> {
    let (0x09, watts) = bytes.split_first()? else {
        return None;
    };
    Some(u64::from_le_bytes(watts.try_into().ok()?))
}

fn write_watts(watts: u64, into: &mut Vec<u8>) {
    into.push(0x09);
    into.extend(watts.to_le_bytes());
}

fn readings(protobuf: &Protobuf) -> Topic<String, Reading, Plain, Protobuf> {
    Topic::with("readings", Plain, protobuf.clone())
}

fn alerts(protobuf: &Protobuf) -> Topic<String, Alert, Plain, Protobuf> {
    Topic::with("alerts", Plain, protobuf.clone())
}

fn app(protobuf: &Protobuf) -> App {
    let mut app = App::new("meters-v1");
    let peaks = KeyValueStore::<String, Peak>::with("peaks", Plain, protobuf.clone());
    let peaks = app.store(&peaks);
    let backoff = Backoff::exponential(Duration::from_millis(100), Duration::from_secs(10));
    app.source(&readings(protobuf))
        // The registry becomes available again. Other bytes never become a reading.
        .on_error(
            ErrorPolicy::retry_forever(backoff).then(ErrorPolicy::dead_letter("readings-dlq")),
        )
        .with_store(&peaks)
        .process_values(move |ctx, reading| {
            let (peaks, watts) = (ctx.store(&peaks), reading.value.watts);
            if peaks
                .get(reading.key)?
                .is_some_and(|peak| peak.watts >= watts)
            {
                return Ok(());
            }
            peaks.put(reading.key, &Peak { watts })?;
            ctx.forward(Alert { watts })
        })
        .to(&alerts(protobuf));
    app
}

mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use eos_core::PlainTopic;
    use eos_testkit::conformance::codecs::check_values;
    use eos_testkit::{TestDriver, crash_everywhere};

    use super::super::dead_letters;
    use super::*;

    /// Has a schema for each subject, and is down for one call.
    #[derive(Default)]
    struct Fake {
        calls_until_down: AtomicU32,
    }

    impl Fake {
        /// Lets this call fail; 1 is the next one.
        fn fail_call(&self, number: u32) {
            self.calls_until_down.store(number, Ordering::Relaxed);
        }

        fn has_failed(&self) -> bool {
            self.calls_until_down.load(Ordering::Relaxed) == 0
        }

        fn call(&self) -> io::Result<()> {
            let count = |calls: u32| calls.checked_sub(1);
            let before =
                (self.calls_until_down).fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
            match before {
                Ok(1) => Err(io::ErrorKind::ConnectionRefused.into()),
                _ => Ok(()),
            }
        }
    }

    impl Registry for Fake {
        fn message(&self, id: u32) -> io::Result<Option<String>> {
            self.call()?;
            let names = [(7, "Reading"), (8, "Alert"), (9, "Peak")];
            let found = names.into_iter().find(|(known, _)| *known == id);
            Ok(found.map(|(_, name)| name.to_owned()))
        }

        fn id(&self, subject: &str) -> io::Result<Option<u32>> {
            self.call()?;
            let ids = [("alerts-value", 8), ("peaks-value", 9)];
            let found = ids.into_iter().find(|(known, _)| *known == subject);
            Ok(found.map(|(_, id)| id))
        }
    }

    fn start(registry: &Arc<Fake>) -> TestDriver {
        let protobuf = Protobuf(Arc::clone(registry) as Arc<dyn Registry>);
        TestDriver::of(move || app(&protobuf))
    }

    /// The bytes of the topics, which another program wrote or reads.
    fn raw(topic: &str) -> PlainTopic<String, Vec<u8>> {
        Topic::plain(topic)
    }

    fn message(schema: u8, watts: u64) -> Vec<u8> {
        let head = [0, 0, 0, 0, schema, 0, 0x09];
        [&head[..], &watts.to_le_bytes()].concat()
    }

    fn alerts_of(driver: &mut TestDriver) -> Vec<Vec<u8>> {
        let alerts = driver.read_pairs(&raw("alerts")).into_iter();
        alerts.map(|(_, bytes)| bytes).collect()
    }

    #[test]
    fn a_new_peak_is_an_alert_with_the_schema_of_alerts() {
        let mut driver = start(&Arc::default());
        for watts in [300, 200, 300, 301] {
            driver.pipe(&raw("readings"), "m-1", message(7, watts));
        }
        assert_eq!(alerts_of(&mut driver), [message(8, 300), message(8, 301)]);
        let protobuf = Protobuf(Arc::new(Fake::default()));
        let peaks = KeyValueStore::<String, Peak>::with("peaks", Plain, protobuf);
        assert_eq!(driver.store(&peaks).get("m-1"), Some(&Peak { watts: 301 }));
    }

    #[test]
    fn undecodable_bytes_are_dead_letters_without_a_retry() {
        let mut driver = start(&Arc::default());
        let poison = [
            b"text".to_vec(),
            // The schema of another message, an unknown schema, a second message, a cut message.
            message(8, 300),
            message(6, 300),
            [&[0, 0, 0, 0, 7, 2, 2][..], &message(7, 300)[6..]].concat(),
            message(7, 300)[..9].to_vec(),
        ];
        for bytes in &poison {
            driver.pipe(&raw("readings"), "m-1", bytes.clone());
        }
        driver.pipe(&raw("readings"), "m-1", message(7, 300));
        assert_eq!(dead_letters(&mut driver, "readings-dlq"), poison);
        assert_eq!(alerts_of(&mut driver), [message(8, 300)]);
        assert_eq!(driver.metrics().unwrap().totals.retried, 0);
    }

    /// The codec calls the registry four times: it reads the reading and the old peak, and writes the new peak and the
    /// alert.
    #[test]
    fn a_record_waits_for_a_registry_that_is_down() {
        let registry = Arc::new(Fake::default());
        let mut driver = start(&registry);
        driver.pipe(&raw("readings"), "m-1", message(7, 100));
        for call in 1..=4 {
            registry.fail_call(call);
            driver.pipe(&raw("readings"), "m-1", message(7, 100 + u64::from(call)));
            let retried = driver.metrics().unwrap().totals.retried;
            assert_eq!(retried, u64::from(call), "call {call} failed once");
        }
        let due: Vec<_> = (100..=104).map(|watts| message(8, watts)).collect();
        assert_eq!(alerts_of(&mut driver), due);
        assert!(dead_letters(&mut driver, "readings-dlq").is_empty());
    }

    #[test]
    fn a_crash_anywhere_changes_nothing() {
        let registry = Arc::new(Fake::default());
        let places = crash_everywhere(
            || start(&registry),
            |driver| {
                driver.pipe(&raw("readings"), "m-1", message(7, 300));
                driver.pipe(&raw("readings"), "m-1", b"text".to_vec());
                registry.fail_call(3);
                driver.pipe(&raw("readings"), "m-1", message(7, 400));
                assert!(registry.has_failed());
                driver.committed()
            },
        );
        assert!(places > 30, "{places}");
    }

    #[test]
    fn the_codec_passes_the_suite() {
        let protobuf = Protobuf(Arc::new(AnyTopic));
        check_values(&protobuf, [0, 1, u64::MAX].map(|watts| Peak { watts })).unwrap();
    }

    /// The suite has topics of its own.
    struct AnyTopic;

    impl Registry for AnyTopic {
        fn message(&self, id: u32) -> io::Result<Option<String>> {
            Ok((id == 9).then(|| "Peak".to_owned()))
        }

        fn id(&self, _: &str) -> io::Result<Option<u32>> {
            Ok(Some(9))
        }
    }
}

//! The origin of a replayed record.

use crate::dead_letter;
use crate::ids::{AppId, Offset, Partition, TopicName};

/// The place that a record had before it became a dead letter and was written to its topic again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallOrigin {
    /// The partition.
    pub partition: Partition,
    /// The offset.
    pub offset: Offset,
}

/// Returns the origin of a record of this topic, if its headers show that it was a dead letter of this app.
///
/// The replay of dead letters writes the header [`ORIGIN`](dead_letter::ORIGIN) once, and keeps it.
///
/// A record that was a dead letter several times has the headers several times: the first ones count, so the origin stays
/// the same. Headers of other apps and topics do not count. They travel with records to output topics, where several
/// records may have the origin of one.
pub fn origin<'h>(
    headers: impl IntoIterator<Item = (&'h str, Option<&'h [u8]>)>,
    app: &AppId,
    topic: &TopicName,
) -> Option<CallOrigin> {
    let (mut is_here, mut partition, mut offset) = (false, None, None);
    for (name, value) in headers {
        let text = value.and_then(|value| str::from_utf8(value).ok());
        match name {
            dead_letter::ORIGIN => {
                if let Some(origin) = text.and_then(|text| replayed(text, topic)) {
                    return Some(origin);
                }
            }
            // The app comes last among the headers of one dead letter.
            dead_letter::TOPIC => {
                (is_here, partition, offset) = (text == Some(topic.as_str()), None, None);
            }
            dead_letter::PARTITION => {
                let number = text.and_then(|text| text.parse().ok());
                partition = number.and_then(|number| Partition::new(number).ok());
            }
            dead_letter::OFFSET => {
                let number = text.and_then(|text| text.parse().ok());
                offset = number.and_then(|number| Offset::new(number).ok());
            }
            dead_letter::APP if is_here && text == Some(app.as_str()) => {
                if let Some((partition, offset)) = partition.zip(offset) {
                    return Some(CallOrigin { partition, offset });
                }
            }
            _ => {}
        }
    }
    None
}

/// Reads the origin that the replay of dead letters writes.
fn replayed(text: &str, topic: &TopicName) -> Option<CallOrigin> {
    let mut parts = text.split(' ');
    let (of, partition, offset) = (parts.next()?, parts.next()?, parts.next()?);
    if of != topic.as_str() || parts.next().is_some() {
        return None;
    }
    Some(CallOrigin {
        partition: Partition::new(partition.parse().ok()?).ok()?,
        offset: Offset::new(offset.parse().ok()?).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dead_letter::DeadLetter;
    use crate::ids::{Timestamp, TopicPartition};

    type Owned = Vec<(&'static str, Vec<u8>)>;

    fn letter(app: &str, topic: &str, partition: i32, offset: i64) -> Owned {
        let letter = DeadLetter {
            partition: &TopicPartition::new(topic, Partition::new(partition).unwrap()),
            offset: Offset::new(offset).unwrap(),
            exception: "E",
            message: "m",
            stacktrace: "",
            app: &AppId::new(app),
            attempts: 1,
            time: Timestamp(0),
        };
        letter.headers(100).into()
    }

    fn origin_of(headers: &Owned) -> Option<(i32, i64)> {
        let headers = headers
            .iter()
            .map(|(name, value)| (*name, Some(&value[..])));
        let origin = origin(headers, &AppId::new("app"), &"orders".into())?;
        Some((origin.partition.get(), origin.offset.get()))
    }

    #[test]
    fn the_origin_is_the_place_before_the_first_dead_letter() {
        assert_eq!(origin_of(&vec![]), None);
        assert_eq!(origin_of(&letter("app", "orders", 3, 42)), Some((3, 42)));
        let mut twice = letter("app", "orders", 3, 42);
        twice.extend(letter("app", "orders", 3, 99));
        assert_eq!(origin_of(&twice), Some((3, 42)));
    }

    #[test]
    fn headers_of_other_topics_and_apps_are_no_origin() {
        assert_eq!(origin_of(&letter("app", "payments", 3, 42)), None);
        assert_eq!(origin_of(&letter("other", "orders", 3, 42)), None);
        let mut both = letter("app", "payments", 1, 2);
        both.extend(letter("other", "orders", 3, 4));
        both.extend(letter("app", "orders", 5, 6));
        assert_eq!(origin_of(&both), Some((5, 6)));
    }

    #[test]
    fn unreadable_headers_are_no_origin() {
        for (name, value) in [
            (dead_letter::PARTITION, &b"-1"[..]),
            (dead_letter::OFFSET, b"x"),
            (dead_letter::OFFSET, b"\xff"),
            (dead_letter::APP, b""),
        ] {
            let mut headers = letter("app", "orders", 3, 42);
            let header = headers.iter_mut().find(|(known, _)| *known == name);
            header.unwrap().1 = value.to_vec();
            assert_eq!(origin_of(&headers), None, "{name}");
        }
    }

    #[test]
    fn the_origin_of_a_replay_counts_for_its_topic() {
        let of = |text: &str| origin_of(&vec![(dead_letter::ORIGIN, text.into())]);
        assert_eq!(of("orders 3 17"), Some((3, 17)));
        for other in [
            "payments 3 17",
            "orders 3",
            "orders 3 17 9",
            "orders -1 17",
            "orders 3 x",
            "",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}

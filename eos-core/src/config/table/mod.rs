//! The table of all properties.
//!
//! The checks and `docs/configuration.md` use the same rows.

mod consumer;
#[cfg(all(test, feature = "kafka"))]
mod librdkafka_test;
mod network;
mod ours;
mod producer;
mod refused;
mod security;

use super::Settings;

/// A property, under Kafka's dotted name.
#[derive(Debug)]
pub(crate) struct Property {
    pub(crate) name: &'static str,
    pub(crate) clients: Clients,
    pub(crate) kind: Kind,
    /// The default as in a file, empty for "none". Only the page and the tests read it.
    #[cfg_attr(
        not(test),
        allow(dead_code, reason = "read by the page that the tests write")
    )]
    pub(crate) default: &'static str,
    pub(crate) status: Status,
    /// The meaning, as a sentence for the page.
    #[cfg_attr(
        not(test),
        allow(dead_code, reason = "read by the page that the tests write")
    )]
    pub(crate) doc: &'static str,
}

/// The clients that a property applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clients {
    /// The runtime itself.
    Runtime,
    /// Every client.
    All,
    Consumer,
    Producer,
}

/// The kind of a property's values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Number {
        least: i64,
        most: i64,
    },
    Decimal {
        least: i64,
        most: i64,
    },
    Flag,
    /// One of these names, in upper or lower case, because Java's clients use `SASL_SSL`.
    OneOf(&'static [&'static str]),
    Text,
    /// `host:port`, separated by commas.
    Brokers,
    /// A text that is never shown.
    Secret,
}

/// The use of a property.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Status {
    /// The runtime uses it.
    Ours(fn(&mut Settings, &Value)),
    /// It is passed to librdkafka.
    Passed,
    /// It can't be set.
    Refused {
        /// The reason, and the alternative.
        reason: &'static str,
        /// The fixed values, which are accepted because a file may be shared with other clients.
        holds: &'static [&'static str],
    },
}

/// A value of the property's kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Number(i64),
    Flag(bool),
    Text(String),
}

/// All properties, by group.
pub(crate) const GROUPS: &[(&str, &[Property])] = &[
    ("The runtime", ours::ROWS),
    ("Consumers", consumer::ROWS),
    ("Producers", producer::ROWS),
    ("Connections", network::ROWS),
    ("Security", security::ROWS),
    ("Refused: required by the guarantee", refused::OWNED),
    ("Refused: without effect", refused::IDLE),
    ("Refused: Java's clients only", refused::JAVA),
    ("Refused: Kafka Streams only", refused::STREAMS),
];

/// Returns the property of this name.
pub(crate) fn property(name: &str) -> Option<&'static Property> {
    all().find(|property| property.name == name)
}

/// Returns the name of the most similar property, if one is similar enough.
pub(crate) fn nearest(name: &str) -> Option<&'static str> {
    match name {
        // `App::workers` sets this property.
        "workers" | "threads" => Some("num.stream.threads"),
        _ => crate::nearest::nearest(name, all().map(|property| property.name)),
    }
}

/// Returns all properties.
pub(crate) fn all() -> impl Iterator<Item = &'static Property> {
    GROUPS.iter().flat_map(|(_, rows)| rows.iter())
}

const fn number(least: i64, most: i64) -> Kind {
    Kind::Number { least, most }
}

const fn passed(
    name: &'static str,
    clients: Clients,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Property {
    Property {
        name,
        clients,
        kind,
        default,
        status: Status::Passed,
        doc,
    }
}

const fn refused(name: &'static str, clients: Clients, reason: &'static str) -> Property {
    Property {
        name,
        clients,
        kind: Kind::Text,
        default: "",
        status: Status::Refused { reason, holds: &[] },
        doc: "",
    }
}

/// Returns a property that is refused, except for these values, which have no effect.
const fn fixed(
    name: &'static str,
    clients: Clients,
    holds: &'static [&'static str],
    reason: &'static str,
) -> Property {
    Property {
        status: Status::Refused { reason, holds },
        ..refused(name, clients, reason)
    }
}

impl Property {
    /// Reads a value. A time may have a unit: `5s` for `5000`.
    pub(crate) fn read(&self, text: &str) -> Option<Value> {
        let with_unit = || self.kind.read(&in_milliseconds(text)?.to_string());
        let value = self.kind.read(text);
        if self.is_a_time() {
            value.or_else(with_unit)
        } else {
            value
        }
    }

    /// Returns the allowed values, for an error message.
    pub(crate) fn expected(&self) -> String {
        match self.is_a_time() {
            true => format!("{}, or a duration such as 500ms, 5s, 2m or 1h", self.kind),
            false => self.kind.to_string(),
        }
    }

    fn is_a_time(&self) -> bool {
        self.name.ends_with(".ms") && matches!(self.kind, Kind::Number { .. })
    }
}

/// Reads a duration with a unit. Returns milliseconds.
fn in_milliseconds(text: &str) -> Option<i64> {
    let text = text.trim();
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let factor = match text.get(number.len()..)?.trim() {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<i64>().ok()?.checked_mul(factor)
}

impl Kind {
    /// Reads a value. Returns `None` if it is not of this kind.
    pub(crate) fn read(self, text: &str) -> Option<Value> {
        let all = text;
        let text = text.trim();
        match self {
            Self::Number { least, most } => {
                let number = text.parse().ok()?;
                (least..=most)
                    .contains(&number)
                    .then_some(Value::Number(number))
            }
            Self::Decimal { least, most } => {
                let number: f64 = text.parse().ok()?;
                #[allow(
                    clippy::cast_precision_loss,
                    reason = "the limits are small enough to be exact"
                )]
                let fits = (least as f64..=most as f64).contains(&number);
                fits.then(|| Value::Text(text.to_owned()))
            }
            Self::Flag => match () {
                () if text.eq_ignore_ascii_case("true") => Some(Value::Flag(true)),
                () if text.eq_ignore_ascii_case("false") => Some(Value::Flag(false)),
                () => None,
            },
            Self::OneOf(names) => names
                .iter()
                .find(|name| name.eq_ignore_ascii_case(text))
                .map(|&name| Value::Text(name.to_owned())),
            Self::Brokers => text
                .split(',')
                .all(is_broker)
                .then(|| Value::Text(text.to_owned())),
            // A password may end in a blank.
            Self::Text | Self::Secret => Some(Value::Text(all.to_owned())),
        }
    }
}

/// Whether this is a host and a port. A protocol such as `SSL://` may precede them, as in librdkafka. Without a port,
/// librdkafka would connect to port 9092, which may belong to another service.
fn is_broker(text: &str) -> bool {
    let text = text.trim();
    let address = text.split_once("://").map_or(text, |(_, address)| address);
    let Some((host, port)) = address.rsplit_once(':') else {
        return false;
    };
    // An IPv6 address needs brackets. Otherwise its end would count as the port.
    let plain = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(ip) => ip.contains(':') && !ip.contains(['@', '/', ' ']),
        None => !host.is_empty() && !host.contains([':', '@', '/', ' ']),
    };
    plain && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Writes the allowed values for an error message.
impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number { least, most } => write!(f, "a whole number from {least} to {most}"),
            Self::Decimal { least, most } => write!(f, "a number from {least} to {most}"),
            Self::Flag => f.write_str("true or false"),
            Self::OneOf(names) => f.write_str(&names.join(", ")),
            Self::Brokers => f.write_str("host:port, separated by commas, without credentials"),
            Self::Text | Self::Secret => f.write_str("text"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_property_is_there_once_with_a_default_of_its_kind() {
        let mut names = BTreeSet::new();
        for property in all() {
            assert!(
                names.insert(property.name),
                "{} is there twice",
                property.name
            );
            assert!(
                property.default.is_empty() || property.kind.read(property.default).is_some(),
                "{}: its default is none of its values",
                property.name
            );
            let told = match property.status {
                Status::Refused { reason, .. } => reason,
                _ => property.doc.trim_end_matches('.'),
            };
            assert!(
                !told.is_empty() && !told.ends_with('.'),
                "{}",
                property.name
            );
        }
    }

    #[test]
    fn every_refusal_names_a_fix() {
        for property in all() {
            if let Status::Refused { reason, .. } = property.status {
                let fixes = ["delete it", "use ", "librdkafka calls"];
                assert!(
                    fixes.iter().any(|fix| reason.contains(fix)),
                    "{}: {reason}",
                    property.name
                );
            }
        }
    }

    #[test]
    fn a_time_may_have_a_unit_and_nothing_else_may() {
        let of = |name, text| property(name).and_then(|property| property.read(text));
        let time = |text| of("commit.interval.ms", text);
        for (text, ms) in [
            ("7", 7),
            ("7ms", 7),
            (" 5s ", 5_000),
            ("2 m", 120_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(time(text), Some(Value::Number(ms)), "{text}");
        }
        for none in [
            "s",
            "5 s s",
            "1.5s",
            "5sec",
            "-5s",
            "9223372036854775807d",
            "2d",
        ] {
            assert_eq!(time(none), None, "{none}");
        }
        assert_eq!(of("num.stream.threads", "5s"), None);
    }

    #[test]
    fn values_are_read_as_kafkas_users_write_them() {
        assert_eq!(number(1, 5).read(" 5 "), Some(Value::Number(5)));
        assert_eq!(number(1, 5).read("6"), None);
        assert_eq!(number(1, 5).read("5s"), None);
        assert_eq!(Kind::Flag.read("TRUE"), Some(Value::Flag(true)));
        assert_eq!(Kind::Flag.read("yes"), None);
        let either = Kind::OneOf(&["plaintext", "sasl_ssl"]);
        assert_eq!(
            either.read("SASL_SSL"),
            Some(Value::Text("sasl_ssl".into()))
        );
        let decimal = Kind::Decimal { least: 0, most: 9 };
        assert_eq!(decimal.read("0.5"), Some(Value::Text("0.5".into())));
        assert_eq!(decimal.read("NaN"), None);
        let brokers = "a:1, SSL://b:2,[::1]:9092,[fe80::1%eth0]:9092";
        assert!(Kind::Brokers.read(brokers).is_some());
        for none in [
            "",
            "a:1,",
            "me:hunter2@a:1",
            "a",
            "a:",
            ":1",
            "a:0",
            "a:70000",
            "a:1,b",
            "::1",
            "http://a:1/path",
        ] {
            assert_eq!(Kind::Brokers.read(none), None, "{none}");
        }
        let blank = Kind::Secret.read("hunter2 ");
        assert_eq!(blank, Some(Value::Text("hunter2 ".into())));
    }
}

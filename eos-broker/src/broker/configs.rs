//! Topic configurations: names, defaults and validation.

use std::collections::BTreeMap;

use crate::log::{Place, TimestampType};

/// The type of a value.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Bool,
    Int(i64),
    Long(i64),
    Ratio,
    OneOf(&'static [&'static str]),
    ListOf(&'static [&'static str]),
    Any,
}

/// Kafka 4.3's topic configurations with their defaults.
const KNOWN: [(&str, &str, Kind); 28] = [
    (
        "cleanup.policy",
        "delete",
        Kind::ListOf(&["compact", "delete"]),
    ),
    ("compression.gzip.level", "-1", Kind::Any),
    ("compression.lz4.level", "9", Kind::Any),
    (
        "compression.type",
        "producer",
        Kind::OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]),
    ),
    ("compression.zstd.level", "3", Kind::Any),
    ("delete.retention.ms", "86400000", Kind::Long(0)),
    ("file.delete.delay.ms", "60000", Kind::Long(0)),
    ("flush.messages", "9223372036854775807", Kind::Long(1)),
    ("flush.ms", "9223372036854775807", Kind::Long(0)),
    ("follower.replication.throttled.replicas", "", Kind::Any),
    ("index.interval.bytes", "4096", Kind::Int(0)),
    ("leader.replication.throttled.replicas", "", Kind::Any),
    ("local.retention.bytes", "-2", Kind::Long(-2)),
    ("local.retention.ms", "-2", Kind::Long(-2)),
    (
        "max.compaction.lag.ms",
        "9223372036854775807",
        Kind::Long(1),
    ),
    ("max.message.bytes", "1048588", Kind::Int(0)),
    ("message.timestamp.after.max.ms", "3600000", Kind::Long(0)),
    (
        "message.timestamp.before.max.ms",
        "9223372036854775807",
        Kind::Long(0),
    ),
    (
        "message.timestamp.type",
        "CreateTime",
        Kind::OneOf(&["CreateTime", "LogAppendTime"]),
    ),
    ("min.cleanable.dirty.ratio", "0.5", Kind::Ratio),
    ("min.compaction.lag.ms", "0", Kind::Long(0)),
    ("min.insync.replicas", "1", Kind::Int(1)),
    ("preallocate", "false", Kind::Bool),
    ("retention.bytes", "-1", Kind::Long(i64::MIN)),
    ("retention.ms", "604800000", Kind::Long(-1)),
    ("segment.bytes", "1073741824", Kind::Int(1_048_576)),
    ("segment.jitter.ms", "0", Kind::Long(0)),
    ("segment.ms", "604800000", Kind::Long(1)),
];

/// The configurations that a topic sets, which override Kafka's defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TopicConfigs(BTreeMap<String, String>);

impl TopicConfigs {
    /// Returns every configuration: name, value, whether it is a default.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, &str, bool)> {
        KNOWN
            .iter()
            .map(|(name, default, _)| match self.0.get(*name) {
                Some(value) => (*name, value.as_str(), false),
                None => (*name, *default, true),
            })
    }

    /// Returns the default of a configuration.
    pub(super) fn default_of(name: &str) -> Option<&'static str> {
        let known = KNOWN.iter().find(|(it, _, _)| *it == name);
        known.map(|(_, default, _)| *default)
    }

    fn get(&self, name: &str) -> &str {
        let own = self.0.get(name).map(String::as_str);
        own.or_else(|| Self::default_of(name)).unwrap_or_default()
    }

    fn number(&self, name: &str) -> i64 {
        self.get(name).parse().unwrap_or(-1)
    }

    /// Sets a configuration, or resets it if there is no value.
    pub(super) fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let Some((_, _, kind)) = KNOWN.iter().find(|(it, _, _)| *it == name) else {
            return Err(format!("Unknown topic config name: {name}"));
        };
        match value {
            None => {
                self.0.remove(name);
            }
            Some(value) => {
                kind.check(name, value)?;
                self.0.insert(name.to_owned(), value.trim().to_owned());
            }
        }
        Ok(())
    }

    /// Adds values to a list, or removes them.
    pub(super) fn change_list(&mut self, name: &str, value: &str, add: bool) -> Result<(), String> {
        let known = KNOWN.iter().find(|(it, _, _)| *it == name);
        if !matches!(known, Some((_, _, Kind::ListOf(_)))) {
            return Err(format!(
                "Config value append is not allowed for config key: {name}"
            ));
        }
        let mut items: Vec<&str> = self
            .get(name)
            .split(',')
            .filter(|it| !it.is_empty())
            .collect();
        for item in value.split(',').map(str::trim) {
            items.retain(|it| *it != item);
            if add {
                items.push(item);
            }
        }
        let joined = items.join(",");
        self.set(name, Some(&joined))
    }

    pub(super) fn is_compacted(&self) -> bool {
        self.get("cleanup.policy")
            .split(',')
            .any(|it| it.trim() == "compact")
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.get("cleanup.policy")
            .split(',')
            .any(|it| it.trim() == "delete")
    }

    pub(super) fn retention_ms(&self) -> Option<i64> {
        Some(self.number("retention.ms")).filter(|it| *it >= 0)
    }

    pub(super) fn retention_bytes(&self) -> Option<usize> {
        usize::try_from(self.number("retention.bytes")).ok()
    }

    pub(super) fn delete_retention_ms(&self) -> i64 {
        self.number("delete.retention.ms")
    }

    /// Returns the configurations that apply to appends.
    pub(super) fn place(&self) -> Place {
        Place {
            stamp: match self.get("message.timestamp.type") {
                "LogAppendTime" => TimestampType::LogAppend,
                _ => TimestampType::Create,
            },
            max_bytes: usize::try_from(self.number("max.message.bytes")).unwrap_or(0),
            needs_keys: self.is_compacted(),
            max_ahead: self.number("message.timestamp.after.max.ms"),
        }
    }

    /// Returns Kafka's number for the type of a configuration.
    pub(super) fn type_of(name: &str) -> i8 {
        let known = KNOWN.iter().find(|(it, _, _)| *it == name);
        match known.map(|(_, _, kind)| *kind) {
            Some(Kind::Bool) => 1,
            Some(Kind::OneOf(_)) => 2,
            Some(Kind::Int(_)) => 3,
            Some(Kind::Long(_)) => 5,
            Some(Kind::Ratio) => 6,
            Some(Kind::ListOf(_)) => 7,
            Some(Kind::Any) if name.ends_with("replicas") => 7,
            Some(Kind::Any) => 3,
            None => 0,
        }
    }
}

impl Kind {
    fn check(self, name: &str, value: &str) -> Result<(), String> {
        let invalid = |why: String| {
            Err(format!(
                "Invalid value {value} for configuration {name}: {why}"
            ))
        };
        let at_least = |lowest: i64, highest: i64, what: &str| match value.trim().parse::<i64>() {
            Ok(number) if number < lowest => invalid(format!("Value must be at least {lowest}")),
            Ok(number) if number <= highest => Ok(()),
            _ => invalid(format!("Not a number of type {what}")),
        };
        match self {
            Kind::Any => Ok(()),
            Kind::Bool => match value.trim() {
                "true" | "false" => Ok(()),
                _ => invalid("Expected value to be either true or false".into()),
            },
            Kind::Int(lowest) => at_least(lowest, i64::from(i32::MAX), "INT"),
            Kind::Long(lowest) => at_least(lowest, i64::MAX, "LONG"),
            Kind::Ratio => match value.trim().parse::<f64>() {
                Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(()),
                Ok(ratio) if ratio < 0.0 => invalid("Value must be at least 0".into()),
                Ok(_) => invalid("Value must be no more than 1".into()),
                Err(_) => invalid("Not a number of type DOUBLE".into()),
            },
            Kind::OneOf(all) if all.contains(&value.trim()) => Ok(()),
            Kind::OneOf(all) => invalid(format!("String must be one of: {}", all.join(", "))),
            Kind::ListOf(all) => {
                let mut items = value.split(',').map(str::trim);
                if items.all(|item| all.contains(&item) || item.is_empty()) {
                    Ok(())
                } else {
                    invalid(format!("String must be one of: {}", all.join(", ")))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_right_value() {
        for (name, default, kind) in KNOWN {
            assert_eq!(kind.check(name, default), Ok(()), "{name}");
        }
    }

    #[test]
    fn wrong_values_and_unknown_names_are_refused() {
        let mut configs = TopicConfigs::default();
        for (name, value) in [
            ("retention.ms", "soon"),
            ("retention.ms", "-2"),
            ("cleanup.policy", "shred"),
            ("segment.bytes", "3000000000"),
            ("min.cleanable.dirty.ratio", "1.1"),
            ("preallocate", "maybe"),
            ("message.timestamp.type", "Never"),
        ] {
            assert!(configs.set(name, Some(value)).is_err(), "{name}={value}");
        }
        let unknown = configs.set("retention.msec", Some("1"));
        assert_eq!(
            unknown,
            Err("Unknown topic config name: retention.msec".into())
        );
        assert_eq!(configs, TopicConfigs::default());
    }

    #[test]
    fn what_is_set_holds_until_it_is_reset() {
        let mut configs = TopicConfigs::default();
        assert_eq!(configs.retention_ms(), Some(604_800_000));
        configs.set("retention.ms", Some("-1")).expect("set");
        configs.set("cleanup.policy", Some("compact")).expect("set");
        configs
            .change_list("cleanup.policy", "delete", true)
            .expect("added");
        assert_eq!(configs.retention_ms(), None);
        assert!(configs.is_compacted() && configs.is_deleted());
        configs.set("cleanup.policy", None).expect("reset");
        assert!(!configs.is_compacted());
    }
}

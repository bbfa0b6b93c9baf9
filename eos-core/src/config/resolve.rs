//! Resolves the settings of an app: program, file and environment, in this order.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use super::environment::Environment;
use super::given::Given;
use super::secret::shown;
use super::settings::{Properties, Settings};
use super::table::{self, Clients, Property, Status, Value};
use super::{Origin, SettingsError, check, properties};

impl Settings {
    /// Takes the properties of the program, then of the file, then of the environment, and checks the result.
    pub(crate) fn resolve(
        mut self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, SettingsError> {
        let environment = Environment::read(&self.environment_prefix()?, variables)?;
        self.ignored = environment.ignored;
        let file = environment
            .file
            .or(self.file.take().map(|f| (f, Origin::Code)));
        let mut given = std::mem::take(&mut self.given);
        if let Some((path, origin)) = file {
            given.extend(read_file(path, origin)?);
        }
        given.extend(environment.given);
        // Settings of one kind of client override those of all clients, so they come last.
        let mut special = Properties::default();
        let mut mistakes = Vec::new();
        for given in given {
            mistakes.extend(self.take(given, &mut special).err());
        }
        self.properties.consumer.extend(special.consumer);
        self.properties.producer.extend(special.producer);
        let max_poll = self.max_poll_interval.as_millis().to_string();
        self.properties
            .consumer
            .push(("max.poll.interval.ms".into(), max_poll));
        mistakes.extend(check::alone(&self));
        if mistakes.is_empty() {
            // In place of an invalid value, a comparison would use the default.
            mistakes.extend(check::together(&self));
        }
        match mistakes.pop() {
            None => Ok(self),
            Some(mistake) if mistakes.is_empty() => Err(mistake),
            Some(last) => {
                mistakes.push(last);
                Err(SettingsError::Several { mistakes })
            }
        }
    }

    fn take(&mut self, given: Given, special: &mut Properties) -> Result<(), SettingsError> {
        let (only, name) = split(&given.key);
        let Some(property) = table::property(name) else {
            return Err(unknown(given));
        };
        if let Some(reason) = refused(property, only) {
            if holds_anyway(property, &given.value) {
                return Ok(());
            }
            let (key, origin) = (given.key, given.origin);
            return Err(SettingsError::Refused {
                key,
                origin,
                reason,
            });
        }
        let Some(value) = property.read(&given.value) else {
            return Err(SettingsError::Value {
                shown: shown(&given.key, &given.value),
                expected: property.expected(),
                key: given.key,
                origin: given.origin,
            });
        };
        if property.name == "application.id" && given.value != self.app.as_str() {
            return Err(SettingsError::OtherApp {
                claimed: given.value,
                name: self.app.as_str().to_owned(),
                origin: given.origin,
            });
        }
        let shown = shown(&given.key, &given.value);
        self.told.insert(given.key.clone(), (shown, given.origin));
        if let Status::Ours(set) = property.status {
            set(self, &value);
            return Ok(());
        }
        let setting = (name.to_owned(), plain(value));
        match (only, property.clients) {
            (Some(Clients::Consumer), _) => special.consumer.push(setting),
            (Some(Clients::Producer), _) => special.producer.push(setting),
            (_, Clients::Consumer) => self.properties.consumer.push(setting),
            (_, Clients::Producer) => self.properties.producer.push(setting),
            (_, Clients::All | Clients::Runtime) => self.properties.common.push(setting),
        }
        Ok(())
    }
}

fn read_file(path: PathBuf, origin: Origin) -> Result<Vec<Given>, SettingsError> {
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) => {
            return Err(SettingsError::File {
                path,
                origin,
                source,
            });
        }
    };
    let pairs = match properties::parse(&text) {
        Ok(pairs) => pairs,
        Err(bad) => {
            let (line, reason) = (bad.line, bad.reason);
            return Err(SettingsError::Line { path, line, reason });
        }
    };
    let given = pairs.into_iter().map(|(line, key, value)| {
        let path = path.clone();
        let origin = Origin::File { path, line };
        Given { key, value, origin }
    });
    Ok(given.collect())
}

/// Splits the prefix of a client from a key, as in Kafka Streams.
fn split(key: &str) -> (Option<Clients>, &str) {
    let consumer = ["consumer.", "main.consumer."]
        .iter()
        .find_map(|prefix| key.strip_prefix(prefix));
    match (consumer, key.strip_prefix("producer.")) {
        (Some(name), _) => (Some(Clients::Consumer), name),
        (None, Some(name)) => (Some(Clients::Producer), name),
        (None, None) => (None, key),
    }
}

fn unknown(given: Given) -> SettingsError {
    let (key, origin) = (given.key, given.origin);
    let foreign = ["restore.consumer.", "global.consumer.", "admin.", "topic."];
    if foreign.iter().any(|prefix| key.starts_with(prefix)) {
        let reason = "unknown prefix; only `consumer.` and `producer.` can precede a property";
        return SettingsError::Refused {
            key,
            origin,
            reason,
        };
    }
    let nearest = table::nearest(split(&key).1);
    SettingsError::Unknown {
        key: shown_key(&key, nearest.is_some()),
        origin,
        nearest,
    }
}

/// Returns a key as an error may show it. After an accidental line break, a part of a password or a line of a key file
/// may be a key.
fn shown_key(key: &str, is_like_one: bool) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if (is_like_one || key.contains('.')) && key.len() <= 100 && key.chars().all(plain) {
        key.to_owned()
    } else {
        "a key that does not look like a property's (not shown)".to_owned()
    }
}

/// Returns the reason why this property can't be set, or can't be set for this kind of client.
fn refused(property: &Property, only: Option<Clients>) -> Option<&'static str> {
    match (property.status, only, property.clients) {
        (Status::Refused { reason, .. }, _, _) => Some(reason),
        (_, Some(Clients::Producer), Clients::Consumer) => {
            Some("it applies to consumers only; set it without `producer.`")
        }
        (_, Some(Clients::Consumer), Clients::Producer) => {
            Some("it applies to producers only; set it without `consumer.`")
        }
        (Status::Ours(_), Some(_), Clients::All | Clients::Runtime) => {
            Some("it applies to the whole app; set it without a prefix")
        }
        _ => None,
    }
}

/// Whether a refused property is set to one of its fixed values.
fn holds_anyway(property: &Property, value: &str) -> bool {
    let Status::Refused { holds, .. } = property.status else {
        return false;
    };
    let value = value.trim();
    holds.iter().any(|held| held.eq_ignore_ascii_case(value))
}

fn plain(value: Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::Text(text) => text,
    }
}

#[cfg(test)]
#[path = "refused_test.rs"]
mod refused_test;
#[cfg(test)]
#[path = "resolve_test.rs"]
mod resolve_test;

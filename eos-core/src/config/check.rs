//! Checks of single settings, and of settings together.
//!
//! The limits of the brokers are checked at the start: `transaction.max.timeout.ms` and the bounds of sessions.

use std::time::Duration;

use super::settings::{Properties, Protocol, Settings};
use super::{Origin, SettingsError};

/// Returns the mistakes in single values.
pub(super) fn alone(settings: &Settings) -> Vec<SettingsError> {
    let accepted = settings.accepted().map(drop);
    mistakes([name(settings), accepted, state_dir(settings)])
}

/// Returns the mistakes in values that contradict each other.
pub(super) fn together(settings: &Settings) -> Vec<SettingsError> {
    mistakes([
        group(settings),
        transactions(settings),
        sizes(&settings.properties),
        features(settings),
    ])
}

fn mistakes<const N: usize>(checks: [Result<(), SettingsError>; N]) -> Vec<SettingsError> {
    checks.into_iter().filter_map(Result::err).collect()
}

fn name(settings: &Settings) -> Result<(), SettingsError> {
    let name = settings.app.as_str();
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let fine = !name.is_empty() && name.len() <= 200 && name.chars().all(legal);
    if !fine || name == "." || name == ".." {
        return Err(SettingsError::AppName {
            name: name.to_owned(),
        });
    }
    Ok(())
}

fn state_dir(settings: &Settings) -> Result<(), SettingsError> {
    match &settings.state_dir {
        Some(path) if !path.is_absolute() => {
            let path = path.clone();
            Err(SettingsError::RelativeStateDir { path })
        }
        _ => Ok(()),
    }
}

/// Checks the timeouts and the protocol of the group.
fn group(settings: &Settings) -> Result<(), SettingsError> {
    less(
        ("commit.interval.ms", settings.policy.interval),
        ("max.poll.interval.ms", settings.max_poll_interval),
        "a transaction must be shorter than the longest time without a poll",
    )?;
    // At most half of `max.poll.interval.ms`, because the work before the rebalance counts, too. The wait for stable
    // committed offsets does not count, because the worker responds to an assignment before it.
    at_most(
        (
            "twice the deadline of a rebalance (a commit and an abort, derived from \
             transaction.timeout.ms)",
            settings.revoke_deadline() * 2,
        ),
        ("max.poll.interval.ms", settings.max_poll_interval),
        "the group would remove a worker that still commits before it returns its partitions",
    )?;
    let set_remote = settings
        .properties
        .last(Client::Consumer, &["group.remote.assignor"]);
    if settings.protocol == Protocol::Classic {
        if set_remote.is_some() {
            return Err(SettingsError::Together {
                one: "group.remote.assignor",
                other: "group.protocol = classic",
                reason: "brokers assign partitions only under KIP-848; set group.protocol = \
                         consumer",
            });
        }
        let (heartbeat, session) = (settings.heartbeat(), settings.session_timeout());
        at_most(
            ("three times heartbeat.interval.ms", heartbeat * 3),
            ("session.timeout.ms", session),
            "two lost heartbeats must not remove a worker from the group",
        )?;
        return at_most(
            ("session.timeout.ms", session),
            ("max.poll.interval.ms", settings.max_poll_interval),
            "librdkafka requires it",
        );
    }
    let told = [
        (settings.session_timeout.is_some(), "session.timeout.ms"),
        (settings.heartbeat.is_some(), "heartbeat.interval.ms"),
    ];
    if let Some((_, one)) = told.iter().find(|(set, _)| *set) {
        return Err(SettingsError::Together {
            one,
            other: "group.protocol = consumer",
            reason: "under KIP-848 the brokers set it (group.consumer.session.timeout.ms, \
                     group.consumer.heartbeat.interval.ms); delete it here",
        });
    }
    if settings.static_member == Some(true) {
        return Err(SettingsError::Together {
            one: "static.membership = true",
            other: "group.protocol = consumer",
            reason: "under KIP-848 the successor of a killed static member is refused until its \
                     session ends (UNRELEASED_INSTANCE_ID); delete it, or use group.protocol = \
                     classic",
        });
    }
    Ok(())
}

/// Checks the times within a transaction.
fn transactions(settings: &Settings) -> Result<(), SettingsError> {
    let timeout = ("transaction.timeout.ms", settings.transaction_timeout);
    less(
        (
            "commit.interval.ms with the commit's deadline",
            settings.policy.interval + settings.limits().commit,
        ),
        timeout,
        "the coordinator would abort transactions before their commit deadline",
    )?;
    let properties = &settings.properties;
    at_most(
        (
            "linger.ms",
            properties.time(
                Client::Producer,
                &["linger.ms", "queue.buffering.max.ms"],
                20,
            ),
        ),
        timeout,
        "records would wait in their batch until the transaction timed out",
    )?;
    at_most(
        (
            "request.timeout.ms",
            properties.time(Client::Producer, &["request.timeout.ms"], 0),
        ),
        timeout,
        "a record could wait for replicas beyond the timeout of its transaction",
    )
}

/// Checks back-offs and sizes. librdkafka has some of these constraints, too, with other error texts.
fn sizes(properties: &Properties) -> Result<(), SettingsError> {
    for client in [Client::Consumer, Client::Producer] {
        let (first, most) = match client {
            Client::Consumer => (20, 200),
            Client::Producer => (10, 200),
        };
        at_most(
            (
                "retry.backoff.ms",
                properties.time(client, &["retry.backoff.ms"], first),
            ),
            (
                "retry.backoff.max.ms",
                properties.time(client, &["retry.backoff.max.ms"], most),
            ),
            "the first wait can't exceed the longest one",
        )?;
        at_most(
            (
                "reconnect.backoff.ms",
                properties.time(client, &["reconnect.backoff.ms"], 100),
            ),
            (
                "reconnect.backoff.max.ms",
                properties.time(client, &["reconnect.backoff.max.ms"], 1000),
            ),
            "the first wait can't exceed the longest one",
        )?;
    }
    let number = |client, key, default| (key, properties.number(client, &[key], default));
    let record = number(Client::Consumer, "message.max.bytes", 1_000_000);
    // librdkafka adjusts the defaults of these two sizes, so only a set value can be too small.
    if properties
        .last(Client::Consumer, &["fetch.max.bytes"])
        .is_some()
    {
        let why = "a fetch must be able to hold the largest record";
        ordered(
            record,
            number(Client::Consumer, "fetch.max.bytes", 0),
            true,
            why,
        )?;
    }
    if properties
        .last(Client::Consumer, &["receive.message.max.bytes"])
        .is_some()
    {
        let fetch = properties.number(Client::Consumer, &["fetch.max.bytes"], 52_428_800);
        ordered(
            ("fetch.max.bytes with 512 bytes of framing", fetch + 512),
            number(Client::Consumer, "receive.message.max.bytes", 0),
            true,
            "a larger response closes the connection",
        )?;
    }
    ordered(
        number(Client::Consumer, "fetch.min.bytes", 1),
        (
            "fetch.max.bytes",
            properties.number(Client::Consumer, &["fetch.max.bytes"], 52_428_800),
        ),
        true,
        "brokers would wait for more bytes than a response can hold",
    )?;
    let queue = properties.number(Client::Producer, &["queue.buffering.max.kbytes"], 262_144);
    ordered(
        number(Client::Producer, "message.max.bytes", 1_000_000),
        ("queue.buffering.max.kbytes, in bytes,", queue * 1024),
        true,
        "the queue must be able to hold the largest record",
    )
}

/// Checks that this program was built with the features that the settings need.
fn features(settings: &Settings) -> Result<(), SettingsError> {
    let properties = &settings.properties;
    for client in [Client::Consumer, Client::Producer] {
        let protocol = properties
            .last(client, &["security.protocol"])
            .unwrap_or("");
        let names = &["sasl.mechanism", "sasl.mechanisms"];
        let told = properties.last(client, names);
        let mechanism = told.unwrap_or("GSSAPI");
        let missing = |key: &'static str, value: &str, feature| {
            // If no mechanism is set, the default matters because of `security.protocol`.
            let origin = origin(
                settings,
                client,
                &[key, "sasl.mechanisms", "security.protocol"],
            );
            let value = match told {
                None if key == "sasl.mechanism" => format!("{value}, its default"),
                _ => value.to_owned(),
            };
            Err(SettingsError::Feature {
                key,
                value,
                origin,
                feature,
            })
        };
        if !cfg!(feature = "ssl") && protocol.ends_with("ssl") {
            return missing("security.protocol", protocol, "ssl");
        }
        let sasl = protocol.starts_with("sasl");
        let scram = mechanism.starts_with("SCRAM") || mechanism == "OAUTHBEARER";
        if sasl && scram && !cfg!(feature = "ssl") {
            return missing("sasl.mechanism", mechanism, "ssl");
        }
        if sasl && mechanism == "GSSAPI" && !cfg!(feature = "gssapi") {
            return missing("sasl.mechanism", mechanism, "gssapi");
        }
    }
    Ok(())
}

/// Returns the origin of the first of these properties that is set for this client.
fn origin(settings: &Settings, client: Client, names: &[&'static str]) -> Origin {
    let before = match client {
        Client::Consumer => ["consumer.", "main.consumer.", ""],
        Client::Producer => ["producer.", "", ""],
    };
    let keys = names
        .iter()
        .flat_map(|name| before.map(|b| format!("{b}{name}")));
    let mut found = keys.filter_map(|key| settings.origin(&key).cloned());
    found.next().unwrap_or(Origin::Code)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    Consumer,
    Producer,
}

impl Properties {
    /// Returns the value of a property with these names for this client.
    fn last(&self, client: Client, names: &[&str]) -> Option<&str> {
        let own = match client {
            Client::Consumer => &self.consumer,
            Client::Producer => &self.producer,
        };
        let all = self.common.iter().chain(own).rev();
        let mut named = all.filter(|(key, _)| names.contains(&key.as_str()));
        named.next().map(|(_, value)| value.as_str())
    }

    fn number(&self, client: Client, names: &[&str], default: u64) -> u64 {
        self.last(client, names)
            .and_then(|value| value.parse().ok())
            .unwrap_or(default)
    }

    fn time(&self, client: Client, names: &[&str], default_ms: u64) -> Duration {
        self.last(client, names)
            .and_then(|value| value.parse().ok())
            .and_then(|ms: f64| Duration::try_from_secs_f64(ms / 1000.0).ok())
            .unwrap_or(Duration::from_millis(default_ms))
    }
}

type Amount<T> = (&'static str, T);

fn less(
    small: Amount<Duration>,
    large: Amount<Duration>,
    reason: &'static str,
) -> Result<(), SettingsError> {
    ordered(ms(small), ms(large), false, reason)
}

fn at_most(
    small: Amount<Duration>,
    large: Amount<Duration>,
    reason: &'static str,
) -> Result<(), SettingsError> {
    ordered(ms(small), ms(large), true, reason)
}

fn ms((name, time): Amount<Duration>) -> Amount<u64> {
    (name, u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn ordered(
    (smaller, small): Amount<u64>,
    (larger, large): Amount<u64>,
    or_equal: bool,
    reason: &'static str,
) -> Result<(), SettingsError> {
    if small < large || or_equal && small == large {
        return Ok(());
    }
    Err(SettingsError::Order {
        smaller,
        small,
        or_equal,
        larger,
        large,
        reason,
    })
}

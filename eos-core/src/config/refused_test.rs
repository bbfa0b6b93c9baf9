//! Tests of refused settings, with their error texts.

use eos_protocol::LayoutHash;

use super::resolve_test::{error, resolved};
use super::*;

#[test]
fn brokers_need_a_port() {
    let error = error(&[("bootstrap.servers", "localhost")]);
    let expected = "bootstrap.servers = \"localhost\" (in the program) is invalid: expected \
                    host:port, ";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn what_the_guarantee_rests_on_is_refused_with_the_reason() {
    for (key, part) in [
        ("isolation.level", "may still be aborted"),
        ("consumer.enable.auto.commit", "nothing else may"),
        ("producer.transactional.id", "App::new"),
        ("key.serializer", "`Topic`"),
        ("max.poll.records", "queued.max.messages.kbytes"),
        ("sasl.jaas.config", "sasl.username"),
        ("num.standby.replicas", "no standby copies"),
        ("admin.retries", "only `consumer.` and `producer.`"),
        ("producer.fetch.min.bytes", "applies to consumers only"),
        ("consumer.commit.interval.ms", "the whole app"),
    ] {
        let error = error(&[(key, "hunter2")]);
        let start = format!("{key} (in the program) can't be set: ");
        assert!(error.starts_with(&start), "{error}");
        assert!(error.contains(part), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_name_becomes_a_path_and_an_id_so_it_must_be_plain() {
    for name in ["", "a b", "../up", "..", "ü", &"x".repeat(201)] {
        let error = Settings::new(name).resolve([]).unwrap_err();
        assert!(matches!(error, SettingsError::AppName { .. }), "{name:?}");
    }
}

#[test]
fn the_app_is_named_by_the_program() {
    assert!(resolved(&[("application.id", "pricing-v1")], None, &[]).is_ok());
    let error = error(&[("application.id", "pricing-v2")]);
    assert!(error.contains("App::new(\"pricing-v1\")"), "{error}");
}

#[test]
fn a_layout_that_is_none_is_not_ignored() {
    assert!(error(&[("accept.layout", "91f0")]).contains("16 hexadecimal digits"));
    let settings = resolved(&[], None, &[("EOS_ACCEPT_LAYOUT", "91f0a2b3c4d5e6f7")]).unwrap();
    let expected = Some(LayoutHash(0x91f0_a2b3_c4d5_e6f7));
    assert_eq!(settings.accepted().unwrap(), expected);
}

/// Reads `key=value`, separated by blanks.
fn pairs(set: &str) -> Vec<(&str, &str)> {
    let pairs = set.split(' ');
    pairs.map(|pair| pair.split_once('=').unwrap()).collect()
}

#[test]
fn what_does_not_fit_together_is_told_with_both_values() {
    for (set, expected) in [
        (
            "commit.interval.ms=25000",
            "commit.interval.ms with the commit's deadline = 35000 must be less than \
             transaction.timeout.ms = 30000: ",
        ),
        (
            "commit.interval.ms=30000 max.poll.interval.ms=30000 transaction.timeout.ms=60000",
            "commit.interval.ms = 30000 must be less than max.poll.interval.ms = 30000: ",
        ),
        (
            "heartbeat.interval.ms=2001 session.timeout.ms=6000",
            "three times heartbeat.interval.ms = 6003 must not be more than session.timeout.ms = 6000: ",
        ),
        (
            "session.timeout.ms=400000",
            "session.timeout.ms = 400000 must not be more than max.poll.interval.ms = 300000: ",
        ),
        (
            "max.poll.interval.ms=20000 session.timeout.ms=10000",
            "twice the deadline of a rebalance (a commit and an abort, derived from \
             transaction.timeout.ms) = 40000 must not be more than max.poll.interval.ms = 20000: ",
        ),
        (
            "linger.ms=30001",
            "linger.ms = 30001 must not be more than transaction.timeout.ms = 30000: ",
        ),
        (
            "request.timeout.ms=40000",
            "request.timeout.ms = 40000 must not be more than transaction.timeout.ms = 30000: ",
        ),
        (
            "consumer.retry.backoff.ms=300",
            "retry.backoff.ms = 300 must not be more than retry.backoff.max.ms = 200: ",
        ),
        (
            "reconnect.backoff.ms=2000",
            "reconnect.backoff.ms = 2000 must not be more than reconnect.backoff.max.ms = 1000: ",
        ),
        (
            "fetch.max.bytes=1000 message.max.bytes=2000",
            "message.max.bytes = 2000 must not be more than fetch.max.bytes = 1000: ",
        ),
        (
            "receive.message.max.bytes=1000",
            "fetch.max.bytes with 512 bytes of framing = 52429312 must not be more than \
             receive.message.max.bytes = 1000: ",
        ),
        (
            "fetch.min.bytes=60000000",
            "fetch.min.bytes = 60000000 must not be more than fetch.max.bytes = 52428800: ",
        ),
        (
            "queue.buffering.max.kbytes=1",
            "message.max.bytes = 1000000 must not be more than queue.buffering.max.kbytes, in bytes, \
             = 1024: ",
        ),
        (
            "group.protocol=consumer session.timeout.ms=30000",
            "session.timeout.ms and group.protocol = consumer can't be set together: ",
        ),
        (
            "group.protocol=consumer heartbeat.interval.ms=500",
            "heartbeat.interval.ms and group.protocol = consumer can't be set together: ",
        ),
        (
            "group.protocol=consumer static.membership=true",
            "static.membership = true and group.protocol = consumer can't be set together: ",
        ),
        (
            "group.remote.assignor=range",
            "group.remote.assignor and group.protocol = classic can't be set together: ",
        ),
    ] {
        let error = error(&pairs(set));
        let found = error.starts_with(expected);
        assert!(found, "{error}\ninstead of\n{expected}");
    }
    for fits in [
        "group.protocol=consumer group.remote.assignor=range",
        "commit.interval.ms=19999",
    ] {
        assert!(resolved(&pairs(fits), None, &[]).is_ok(), "{fits}");
    }
}

#[cfg(not(feature = "ssl"))]
#[test]
fn a_missing_feature_is_reported_before_any_client_connects() {
    let file = "# ours\nsecurity.protocol = SASL_SSL\n";
    assert_eq!(
        resolved(&[], Some(file), &[]).unwrap_err(),
        "security.protocol = sasl_ssl (/eos.properties:2): this program was built without the feature \
         `ssl` of eos-core. Add features = [\"ssl\"] to eos-core in Cargo.toml"
    );
    let variable = [("EOS_PRODUCER_SECURITY_PROTOCOL", "ssl")];
    let text = resolved(&[], None, &variable).unwrap_err();
    let place = "ssl (environment variable EOS_PRODUCER_SECURITY_PROTOCOL): ";
    assert!(text.contains(place), "{text}");
    let scram = [
        ("security.protocol", "sasl_plaintext"),
        ("sasl.mechanism", "SCRAM-SHA-256"),
    ];
    assert!(error(&scram).contains("feature `ssl`"));
    #[cfg(not(feature = "gssapi"))]
    assert!(
        error(&scram[..1])
            .starts_with("sasl.mechanism = GSSAPI, its default (in the program): this program was")
    );
    let plain = [
        ("security.protocol", "sasl_plaintext"),
        ("sasl.mechanism", "PLAIN"),
    ];
    assert!(resolved(&plain, None, &[]).is_ok());
}

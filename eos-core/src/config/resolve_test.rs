//! Tests of the sources of values, and of the resulting settings.

use std::collections::BTreeSet;

use std::time::Duration;

use super::*;

/// Returns the settings of a program, a file and an environment, or the error text.
pub(super) fn resolved(
    code: &[(&str, &str)],
    file: Option<&str>,
    environment: &[(&str, &str)],
) -> Result<Settings, String> {
    let mut settings = Settings::new("pricing-v1");
    for (key, value) in code {
        settings.set(key, value);
    }
    let dir = tempfile::tempdir().unwrap();
    if let Some(text) = file {
        let path = dir.path().join("eos.properties");
        fs::write(&path, text).unwrap();
        settings.set_file(path);
    }
    let variables = environment.iter().map(|(n, v)| (n.into(), v.into()));
    let home = dir.path().display().to_string();
    let resolved = settings.resolve(variables);
    resolved.map_err(|e| e.to_string().replace(&home, ""))
}

fn resolved_code(code: &[(&str, &str)]) -> Settings {
    resolved(code, None, &[]).unwrap()
}

pub(super) fn error(code: &[(&str, &str)]) -> String {
    resolved(code, None, &[]).unwrap_err()
}

#[test]
fn the_defaults_are_those_of_the_table_and_fit_together() {
    let plain = resolved_code(&[]);
    let set: Vec<(&str, &str)> = table::all()
        .filter(|p| matches!(p.status, Status::Ours(_)) && !p.default.is_empty())
        // `session.timeout.ms` may be set, because the default protocol is `classic`.
        .map(|p| (p.name, p.default))
        .collect();
    let same = resolved_code(&set);
    let told = |s: &Settings| {
        (
            (
                s.guarantee,
                s.workers,
                s.policy,
                (s.max_task_idle, s.most_ahead),
                s.first_start,
            ),
            (s.transaction_timeout, s.start_deadline, s.protocol),
            (s.session_timeout(), s.heartbeat(), s.max_poll_interval),
            s.static_member(),
        )
    };
    assert_eq!(told(&plain), told(&same));
    assert_eq!(plain.heartbeat(), Duration::from_millis(500));
}

#[test]
fn a_prefix_of_environment_variables_is_checked() {
    let prefix = |prefix: &str| {
        let mut settings = Settings::new("a");
        settings.set_environment_prefix(prefix);
        let of = settings.resolve([("BILLING_LINGER_MS".into(), "3".into())]);
        of.map(|s| s.properties.producer).map_err(|e| e.to_string())
    };
    let own = [pair("linger.ms", "3")];
    assert_eq!(prefix("BILLING").unwrap(), own);
    assert_eq!(prefix("BILLING_").unwrap(), own);
    for bad in [
        "",
        "_",
        "billing",
        "1A",
        "A-B",
        "EOS",
        "EOS_",
        "EOS_BILLING",
    ] {
        let error = prefix(bad).unwrap_err();
        let start = format!("environment_prefix({bad:?}) is not a valid prefix");
        assert!(error.starts_with(&start), "{error}");
    }
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.into(), value.into())
}

#[test]
fn a_deployment_overrides_the_program() {
    let code = [
        ("commit.interval.ms", "1"),
        ("linger.ms", "1"),
        ("num.stream.threads", "2"),
    ];
    let file = "commit.interval.ms = 2\nlinger.ms: 2\nstate.dir=/from/file\n";
    let environment = [("EOS_LINGER_MS", "3"), ("EOS_CONSUMER_CLIENT_RACK", "b")];
    let settings = resolved(&code, Some(file), &environment).unwrap();
    assert_eq!(settings.workers, 2);
    assert_eq!(settings.policy.interval, Duration::from_millis(2));
    assert_eq!(settings.state_dir, Some("/from/file".into()));
    let properties = settings.properties;
    let last = properties.producer.last().unwrap();
    assert_eq!(*last, pair("linger.ms", "3"));
    assert!(properties.consumer.contains(&pair("client.rack", "b")));
}

#[test]
fn a_property_of_one_client_overrides_that_of_all() {
    let code = [
        ("consumer.retry.backoff.ms", "30"),
        ("retry.backoff.ms", "50"),
    ];
    let properties = resolved_code(&code).properties;
    assert_eq!(properties.common, [pair("retry.backoff.ms", "50")]);
    let own = pair("retry.backoff.ms", "30");
    assert!(properties.consumer.contains(&own));
}

#[test]
fn the_argument_of_run_is_what_the_program_says() {
    let mut settings = Settings::new("a");
    settings.set_default_brokers("code:1");
    let brokers =
        |s: Settings, v: &[(OsString, OsString)]| s.resolve(v.to_vec()).unwrap().bootstrap;
    assert_eq!(brokers(settings.clone(), &[]).as_deref(), Some("code:1"));
    let deployed = [("EOS_BOOTSTRAP_SERVERS".into(), "deployed:1".into())];
    assert_eq!(brokers(settings, &deployed).as_deref(), Some("deployed:1"));
}

#[test]
fn an_error_says_where() {
    let file = "# ours\nlinger.ms = 5 s\n";
    assert_eq!(
        resolved(&[], Some(file), &[]).unwrap_err(),
        "linger.ms = \"5 s\" (/eos.properties:2) is invalid: expected a number from 0 to 900000"
    );
    assert_eq!(
        resolved(&[], None, &[("EOS_NUM_STREAM_THREADS", "0")]).unwrap_err(),
        "num.stream.threads = \"0\" (environment variable EOS_NUM_STREAM_THREADS) is invalid: \
         expected a whole number from 1 to 256"
    );
    assert_eq!(
        error(&[("comit.interval.ms", "5")]),
        "unknown property comit.interval.ms (in the program). Did you mean commit.interval.ms?"
    );
    assert!(error(&[("my.property", "5")]).contains("docs/configuration.md"));
    assert_eq!(
        resolved(&[], Some("a=\\u1"), &[]).unwrap_err(),
        "/eos.properties:1: \\u needs four hexadecimal digits"
    );
    let mut settings = Settings::new("a");
    settings.set_file("/nowhere.properties".into());
    let text = settings.resolve([]).unwrap_err().to_string();
    let start = "/nowhere.properties (in the program) can't be read: ";
    assert!(text.starts_with(start), "{text}");
    assert!(!text.contains("relative"), "{text}");
}

#[test]
fn a_relative_file_is_named_by_the_path_that_was_tried() {
    let mut settings = Settings::new("a");
    settings.set_file("nowhere.properties".into());
    let text = settings.resolve([]).unwrap_err().to_string();
    let tried = std::env::current_dir().unwrap().join("nowhere.properties");
    let start = format!("{} (in the program) can't be read: ", tried.display());
    assert!(text.starts_with(&start), "{text}");
    let end = ". A relative path starts at the working directory of the program";
    assert!(text.ends_with(end), "{text}");
}

/// A file that is shared with other clients may have such values.
#[test]
fn a_fixed_value_is_accepted_and_changes_nothing() {
    for (key, value) in [
        ("isolation.level", "read_committed"),
        ("consumer.isolation.level", " READ_COMMITTED"),
        ("enable.auto.commit", "false"),
        ("producer.enable.idempotence", "true"),
        ("acks", "all"),
        ("acks", "-1"),
        ("partition.assignment.strategy", "cooperative-sticky"),
    ] {
        let settings = resolved_code(&[(key, value)]);
        let properties = &settings.properties;
        let passed = properties.common.iter().chain(&properties.producer);
        assert_eq!(passed.count(), 0, "{key}");
        assert_eq!(settings.told(), "", "{key}");
    }
    for (key, value) in [
        ("isolation.level", "read_uncommitted"),
        ("enable.auto.commit", "true"),
        ("acks", "1"),
    ] {
        let error = error(&[(key, value)]);
        assert!(error.contains("delete it"), "{error}");
    }
}

#[test]
fn set_properties_are_listed_with_their_origin_and_without_secrets() {
    let code = [
        ("bootstrap.servers", "a:1"),
        ("linger.ms", "1"),
        ("sasl.password", "hunter2"),
    ];
    let environment = [("EOS_LINGER_MS", "3"), ("EOS_HOME", "/opt/eos")];
    let settings = resolved(&code, Some("\nclient.rack = b"), &environment).unwrap();
    let told = settings.told();
    let file = told.find("client.rack = \"b\" (").unwrap();
    assert!(told[file..].contains("/eos.properties:2)"), "{told}");
    for part in [
        "bootstrap.servers = \"a:1\" (in the program), ",
        "linger.ms = \"3\" (environment variable EOS_LINGER_MS), ",
        "sasl.password = (not shown) (in the program)",
    ] {
        assert!(told.contains(part), "{told}");
    }
    // `resolve` does not log it. The start of the app does.
    assert_eq!(settings.ignored, ["EOS_HOME"]);
}

#[test]
fn workers_are_found_by_the_builders_name() {
    assert_eq!(
        error(&[("workers", "4")]),
        "unknown property workers (in the program). Did you mean num.stream.threads?"
    );
    assert_eq!(
        resolved(&[], None, &[("EOS_WORKERS", "4")]).unwrap_err(),
        "unknown property workers (environment variable EOS_WORKERS). Did you mean num.stream.threads?"
    );
    let hidden = error(&[("hunter2", "")]);
    assert!(!hidden.contains("hunter2"), "{hidden}");
}

/// A local Kafka has no TLS, and a build has no feature for it by default.
#[test]
fn the_example_of_the_readme_starts_on_a_local_kafka() {
    let readme = include_str!("../../../README.md");
    let section = readme.split("## Configuration").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let blocks: Vec<&str> = section.split("```text\n").skip(1).collect();
    let block = |n: usize| blocks[n].split("```").next().unwrap();
    assert!(block(0).starts_with("# eos.properties\n"), "{}", block(0));
    let lines = block(1).lines();
    let environment: Vec<_> = lines.map(|l| l.split_once('=').unwrap()).collect();
    let settings = resolved(&[("compression.type", "lz4")], Some(block(0)), &environment);
    let told = settings.unwrap().told;
    assert!(told.len() >= 4, "{told:?}");
    let prefixes = ["security", "sasl", "ssl"];
    let remote = |key: &String| prefixes.iter().any(|p| key.starts_with(p));
    assert!(!told.keys().any(remote), "{told:?}");
}

#[test]
fn no_error_and_no_debug_output_shows_a_secret() {
    const SECRET: &str = "hunter2";
    let wrong = [
        ("sasl.pasword", SECRET),
        ("sasl.password.", SECRET),
        ("sasl.jaas.config", SECRET),
        ("ssl.key.pme", SECRET),
        ("bootstrap.servers", "me:hunter2@host:1"),
        ("linger.ms", "https://me:hunter2@host"),
        ("auto.offset.reset", "password=hunter2"),
    ];
    for (key, value) in wrong {
        let error = error(&[(key, value)]);
        assert!(error.contains(key) && !error.contains(SECRET), "{error}");
        let file = resolved(&[], Some(&format!("{key}={value}")), &[]).unwrap_err();
        assert!(!file.contains(SECRET), "{file}");
    }
    // A value with an accidental line break.
    let broken = "ssl.key.pem=-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg/hunter2==\n";
    let error = resolved(&[], Some(broken), &[]).unwrap_err();
    assert!(error.contains(":2)") && !error.contains(SECRET), "{error}");
    let mut settings = Settings::new("a");
    settings.set("sasl.password", SECRET);
    settings.set("sasl.pasword", SECRET);
    assert!(!format!("{settings:?}").contains(SECRET));
}

#[test]
fn the_state_directory_is_the_same_wherever_the_program_is_started() {
    let error = error(&[("state.dir", "state")]);
    let expected = "state.dir = state is not an absolute path";
    assert!(error.starts_with(expected), "{error}");
    let mut settings = Settings::new("a");
    settings.set("state.dir", "/before");
    settings.set_state_dir("/after".into());
    let resolved = settings.resolve([]).unwrap();
    assert_eq!(resolved.state_dir, Some("/after".into()));
}

#[test]
fn under_the_new_protocol_no_worker_is_a_static_member() {
    let settings = resolved_code(&[("group.protocol", "consumer")]);
    assert!(!settings.static_member());
    assert!(resolved_code(&[]).static_member());
}

#[test]
fn every_property_that_is_ours_does_something() {
    let before: BTreeSet<&str> = BTreeSet::from(["application.id"]);
    let probe = |p: &Property| match p.kind {
        table::Kind::Number { least, most } => (least + 2).min(most).to_string(),
        table::Kind::Flag => "false".into(),
        table::Kind::OneOf(names) => (*names.last().unwrap()).to_owned(),
        table::Kind::Brokers => "host:9092".into(),
        _ => "91f0a2b3c4d5e6f7".into(),
    };
    let told = |s: &Settings| {
        format!(
            "{:?} {:?} {:?}",
            (
                &s.bootstrap,
                s.guarantee,
                s.workers,
                s.policy,
                (s.max_task_idle, s.most_ahead),
                s.first_start
            ),
            (
                &s.accepted_layout,
                &s.accepted_changelogs,
                s.transaction_timeout,
                s.start_deadline,
                s.protocol
            ),
            (
                s.static_member,
                s.session_timeout,
                s.heartbeat,
                s.max_poll_interval,
                &s.state_dir,
                s.slot,
                s.state_memory,
                s.purge_interval,
                s.cleanup_delay
            ),
        )
    };
    let default = told(&Settings::new("a"));
    for property in table::all() {
        if let (Status::Ours(set), false) = (property.status, before.contains(property.name)) {
            let mut settings = Settings::new("a");
            let value = property.kind.read(&probe(property)).unwrap();
            set(&mut settings, &value);
            assert_ne!(told(&settings), default, "{}", property.name);
        }
    }
}

#[test]
fn all_mistakes_are_reported_at_once_one_per_line() {
    let error = resolved(
        &[("linger.ms", "soon")],
        Some("num.stream.threads = many"),
        &[
            ("EOS_COMIT_INTERVAL_MS", "50"),
            ("EOS_STATE_DIR", "relative"),
        ],
    );
    let error = error.unwrap_err();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 5, "{error}");
    assert_eq!(lines[0], "the configuration has 4 mistakes:");
    let parts = [
        "linger.ms",
        "num.stream.threads",
        "Did you mean commit.interval.ms",
        "state.dir",
    ];
    for (line, part) in lines[1..].iter().zip(parts) {
        assert!(line.starts_with("- ") && line.contains(part), "{error}");
    }
    let one = self::error(&[("comit.interval.ms", "50")]);
    assert_eq!(one.lines().count(), 1, "{one}");
}

#[test]
fn a_duration_may_have_its_unit_wherever_it_is_set() {
    let settings = resolved(
        &[("commit.interval.ms", "2s"), ("request.timeout.ms", "3s")],
        Some("transaction.timeout.ms = 1m"),
        &[("EOS_SESSION_TIMEOUT_MS", "20s")],
    )
    .unwrap();
    assert_eq!(settings.policy.interval, Duration::from_secs(2));
    assert_eq!(settings.transaction_timeout, Duration::from_secs(60));
    assert_eq!(settings.session_timeout(), Duration::from_secs(20));
    let passed = settings.properties.producer.iter();
    let passed: Vec<_> = passed
        .filter(|(key, _)| key == "request.timeout.ms")
        .collect();
    assert_eq!(passed[0].1, "3000");
    let wrong = error(&[("commit.interval.ms", "5 parsecs")]);
    assert!(wrong.contains("or a duration such as 500ms, 5s"), "{wrong}");
}

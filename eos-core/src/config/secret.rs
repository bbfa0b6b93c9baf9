//! Properties whose values never appear in logs or errors.

use super::table::{self, Kind};

/// Whether a property's value must never be shown. Parts of the name decide, so that a misspelt name is recognized.
pub(crate) fn is_secret(key: &str) -> bool {
    let name = key.to_ascii_lowercase();
    let name = ["consumer.", "producer."]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(&name);
    match table::property(name).map(|property| property.kind) {
        Some(Kind::Secret) => true,
        Some(Kind::Text) | None => looks_secret(name),
        Some(_) => false,
    }
}

fn looks_secret(name: &str) -> bool {
    const PARTS: &[&str] = &[
        "pass",
        "word",
        "pwd",
        "secret",
        "pem",
        "jaas",
        "token",
        "credential",
        "private",
        "oauthbearer.config",
        "user.info",
        "apikey",
        "api.key",
    ];
    PARTS.iter().any(|part| name.contains(part))
}

/// Whether a value contains a secret, regardless of its key: a URL with credentials, the text of a key file, or the
/// line of a login module.
pub(crate) fn carries_secret(value: &str) -> bool {
    let url = value.split_once("://").is_some_and(|(_, rest)| {
        rest.split('/')
            .next()
            .is_some_and(|host| host.contains('@'))
    });
    let lower = value.to_ascii_lowercase();
    url || value.contains("-----BEGIN") || lower.contains("password=") || lower.contains("secret=")
}

/// Returns a value as an error may show it.
pub(super) fn shown(key: &str, value: &str) -> String {
    if is_secret(key) || carries_secret(value) || value.contains('@') {
        "(not shown)".to_owned()
    } else {
        format!("{value:?}")
    }
}

/// Returns the secret values among these settings.
#[cfg(feature = "kafka")]
pub(crate) fn secrets_among<'a>(
    settings: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<String> {
    let secret = |(key, value): &(&str, &str)| is_secret(key) || carries_secret(value);
    let secrets = settings.into_iter().filter(secret);
    secrets.map(|(_, value)| value.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_name_and_by_looks() {
        for key in [
            "sasl.password",
            "producer.ssl.key.password",
            "sasl.pasword",
            "SASL.PASSWORD",
            "sasl.oauthbearer.client.secret",
            "sasl.oauthbearer.config",
            "ssl.key.pem",
            "sasl.jaas.config",
            "basic.auth.user.info",
        ] {
            assert!(is_secret(key), "{key}");
        }
        for key in ["linger.ms", "bootstrap.servers", "isolation.level", "slot"] {
            assert!(!is_secret(key), "{key}");
        }
        assert!(carries_secret("https://me:hunter2@host/path"));
        assert!(carries_secret(
            "x.PlainLoginModule required password=\"p\";"
        ));
        assert!(!carries_secret("https://host/a@b"));
        assert!(!carries_secret("SASL_SSL://host:9092"));
        assert_eq!(shown("linger.ms", "5x"), "\"5x\"");
        assert_eq!(shown("linger.ms", "http://u:p@h"), "(not shown)");
    }

    #[cfg(feature = "kafka")]
    #[test]
    fn secrets_are_found_among_settings_by_name_and_by_value() {
        let settings = [
            ("sasl.password", "hunter2"),
            ("linger.ms", "5"),
            ("debug", "https://me:hunter22@host"),
        ];
        let secrets = ["hunter2", "https://me:hunter22@host"];
        assert_eq!(secrets_among(settings), secrets);
    }
}

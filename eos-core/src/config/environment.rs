//! Properties from environment variables.
//!
//! A variable has a prefix, `EOS_` by default, and the property's name in capitals with `_` for `.`, as in
//! `EOS_COMMIT_INTERVAL_MS` and `EOS_CONSUMER_FETCH_MIN_BYTES`.
//!
//! `EOS_SASL_PASSWORD_FILE=/run/secrets/kafka` reads the value from a file, because containers receive secrets as
//! files. Variables `KAFKA_…` are not read, because they configure brokers.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use super::given::Given;
use super::{Origin, SettingsError, table};

/// The prefix of the variables, unless the app has its own.
pub(super) const PREFIX: &str = "EOS_";

/// The name of the variable for the properties file, without the prefix.
const CONFIG_FILE: &str = "CONFIG_FILE";

/// Variables of this project that are not properties.
const OTHERS: &[&str] = &[
    "EOS_CACHE_DIR",
    "EOS_FULL",
    "EOS_KEEP_LOGS",
    "EOS_SEED",
    "EOS_BLESS",
    "EOS_CASE",
    "EOS_FAULTS_REPORT",
    "EOS_SOAK_REPORT",
    "EOS_TIMES",
    "EOS_DELETIONS",
    "EOS_SKIP_FULL_DISK",
];

/// Variables of the failpoints.
#[cfg(feature = "failpoints")]
const FAULTS: &[&str] = &["EOS_FAILPOINTS", "EOS_FAILPOINTS_LOG", "EOS_UNDEFENDED"];

#[cfg(feature = "failpoints")]
fn is_fault(variable: &str) -> bool {
    FAULTS.contains(&variable)
}

#[cfg(not(feature = "failpoints"))]
const fn is_fault(_: &str) -> bool {
    false
}

/// The properties in the environment.
#[derive(Debug, Default)]
pub(super) struct Environment {
    pub(super) given: Vec<Given>,
    /// The properties file, and the variable that names it.
    pub(super) file: Option<(PathBuf, Origin)>,
    /// Variables with the prefix that resemble no property.
    pub(super) ignored: Vec<String>,
}

impl Environment {
    pub(super) fn read(
        prefix: &str,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, SettingsError> {
        let mut environment = Self::default();
        let mut variables: Vec<_> = variables
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.starts_with(prefix) || is_fault(name))
            .filter(|(name, _)| !OTHERS.contains(&name.as_str()))
            .collect();
        // An empty variable counts as unset, because deployments unset variables this way.
        variables.retain(|(_, value)| !value.is_empty());
        // The environment has no order. Errors and logs need one.
        variables.sort();
        for (variable, value) in variables {
            environment.add(prefix, variable, value)?;
        }
        Ok(environment)
    }

    fn add(
        &mut self,
        prefix: &str,
        variable: String,
        value: OsString,
    ) -> Result<(), SettingsError> {
        let origin = Origin::Environment {
            variable: variable.clone(),
        };
        #[cfg(feature = "failpoints")]
        if is_fault(&variable) {
            return armed(variable, &value, origin);
        }
        let Some(name) = variable.strip_prefix(prefix) else {
            return Ok(());
        };
        if name == CONFIG_FILE {
            self.file = Some((value.into(), origin));
            return Ok(());
        }
        let key = name.to_ascii_lowercase().replace('_', ".");
        let (key, value) = match key.strip_suffix(".file") {
            Some(inner) if !is_known(&key) && is_known(inner) => {
                let path = PathBuf::from(value);
                let value = match fs::read_to_string(&path) {
                    Ok(value) => value,
                    Err(source) => {
                        return Err(SettingsError::File {
                            path,
                            origin,
                            source,
                        });
                    }
                };
                // Editors and `echo` add a line break, which is not part of a password.
                let value = value.strip_suffix('\n').unwrap_or(&value);
                let value = value.strip_suffix('\r').unwrap_or(value);
                (inner.to_owned(), value.to_owned())
            }
            _ => {
                let value = value.into_string();
                let value = value.map_err(|_| SettingsError::NotText { variable })?;
                (key, value)
            }
        };
        // Orchestrators add variables to a service called `eos`, such as EOS_PORT. So a variable that resembles no
        // property is ignored. A misspelt property is still an error.
        if !is_known(&key) && table::nearest(plain(&key)).is_none() {
            if let Origin::Environment { variable } = origin {
                self.ignored.push(variable);
            }
            return Ok(());
        }
        self.given.push(Given { key, value, origin });
        Ok(())
    }
}

/// Checks a variable of the failpoints. They read it themselves, but ignore an unreadable value.
#[cfg(feature = "failpoints")]
fn armed(variable: String, value: &OsString, origin: Origin) -> Result<(), SettingsError> {
    let value = value.to_string_lossy();
    let read = crate::failpoints::Failpoints::check_environment(&variable, &value);
    read.map_err(|unreadable| SettingsError::Value {
        key: variable,
        shown: value.into_owned(),
        origin,
        expected: format!("the syntax of eos_core::spi::failpoints ({unreadable})"),
    })
}

fn is_known(key: &str) -> bool {
    table::property(plain(key)).is_some()
}

/// Returns a key without the prefix of a client.
fn plain(key: &str) -> &str {
    key.strip_prefix("consumer.")
        .or_else(|| key.strip_prefix("producer."))
        .unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Environment, SettingsError> {
        let variables = variables.iter().map(|(n, v)| (n.into(), v.into()));
        Environment::read(PREFIX, variables)
    }

    #[test]
    fn an_app_may_have_a_prefix_of_its_own() {
        let variables = [
            ("BILLING_STATE_DIR", "/var/lib/billing"),
            ("BILLING_CONFIG_FILE", "/etc/billing.properties"),
            ("EOS_STATE_DIR", "/var/lib/eos"),
        ];
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        let environment = Environment::read("BILLING_", variables.clone()).unwrap();
        let given = environment.given.iter();
        let given: Vec<_> = given.map(|g| (g.key.as_str(), g.value.as_str())).collect();
        assert_eq!(given, [("state.dir", "/var/lib/billing")]);
        let (file, _) = environment.file.unwrap();
        assert_eq!(file.to_str(), Some("/etc/billing.properties"));
        let other = Environment::read(PREFIX, variables).unwrap();
        assert_eq!(other.given[0].value, "/var/lib/eos");
        assert_eq!(other.given.len(), 1);
        assert!(other.ignored.is_empty(), "{:?}", other.ignored);
    }

    #[test]
    fn names_are_kafkas_in_capitals() {
        let environment = read(&[
            ("EOS_STATE_DIR", "/var/lib/eos"),
            ("EOS_CONSUMER_FETCH_MIN_BYTES", "7"),
            ("EOS_COMIT_INTERVAL_MS", "5"),
            ("EOS_CONFIG_FILE", "/etc/eos.properties"),
            ("EOS_FULL", "1"),
            ("EOS_LINGER_MS", ""),
            ("EOS_SERVICE_HOST", "10.0.0.1"),
            ("KAFKA_LINGER_MS", "5"),
        ])
        .unwrap();
        let keys: Vec<_> = environment.given.iter().map(|g| g.key.as_str()).collect();
        // The misspelt key is kept, so that its error can suggest the right one.
        let expected = ["comit.interval.ms", "consumer.fetch.min.bytes", "state.dir"];
        assert_eq!(keys, expected);
        assert_eq!(environment.ignored, ["EOS_SERVICE_HOST"]);
        assert_eq!(
            environment.file.unwrap().0,
            PathBuf::from("/etc/eos.properties")
        );
    }

    #[test]
    fn a_secret_may_come_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(&path, "hunter2\r\n").unwrap();
        let path = path.to_str().unwrap();
        let environment = read(&[
            ("EOS_SASL_PASSWORD_FILE", path),
            // This one is a property itself.
            ("EOS_SASL_OAUTHBEARER_ASSERTION_FILE", path),
        ])
        .unwrap();
        let values: Vec<_> = environment.given.iter().map(|g| g.value.as_str()).collect();
        assert_eq!(values, [path, "hunter2"]);
        assert!(!format!("{environment:?}").contains("hunter2"));

        let error = read(&[("EOS_SASL_PASSWORD_FILE", "/nowhere")]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("/nowhere (environment variable EOS_SASL_PASSWORD_FILE)"),
            "{text}"
        );
    }

    #[cfg(unix)]
    #[test]
    fn what_is_not_text_is_named() {
        use std::os::unix::ffi::OsStringExt;
        let broken = OsString::from_vec(vec![0xff]);
        let error = Environment::read(PREFIX, [("EOS_LINGER_MS".into(), broken)]).unwrap_err();
        assert!(matches!(error, SettingsError::NotText { .. }));
    }
}

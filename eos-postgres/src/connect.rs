//! The server of a URL, and connections to it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, NoTls};

use crate::tls::{self, Tls};
use crate::url_error::UrlError;

/// The time for a connection, if the URL names none.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Sent bytes without an answer for this long: the server, or the network to it, is gone.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);

/// A server, with its credentials.
#[derive(Clone)]
pub(crate) struct Target {
    config: Config,
    tls: Tls,
    /// The host, for messages.
    host: String,
}

/// Only the host and the database: the settings contain a password.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres {} at {}", self.database(), self.host)
    }
}

/// The parameters that this crate reads itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ours {
    mode: Option<String>,
    root_certificate: Option<String>,
}

impl Target {
    /// Reads a URL. Does not connect.
    pub(crate) fn parse(url: &str) -> Result<Self, UrlError> {
        let (rest, ours) = split(url);
        let mut config: Config = rest.parse().map_err(|error| UrlError::Invalid {
            // The source of the error names the parameter, and not its value.
            cause: std::error::Error::source(&error)
                .map_or_else(|| error_text(&error), ToString::to_string),
        })?;
        if config.get_dbname().is_none_or(str::is_empty) {
            return Err(UrlError::NoDatabase);
        }
        let host = host_of(&config);
        let tls = tls::choose(
            &host,
            is_local(&config),
            ours.mode.as_deref(),
            ours.root_certificate.as_deref(),
        )?;
        config.ssl_mode(if matches!(tls, Tls::Off) {
            SslMode::Disable
        } else {
            SslMode::Require
        });
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_LIMIT);
        }
        config.tcp_user_timeout(SILENCE_LIMIT);
        config.keepalives_idle(SILENCE_LIMIT);
        Ok(Self { config, tls, host })
    }

    pub(crate) fn database(&self) -> &str {
        self.config.get_dbname().unwrap_or("?")
    }
}

/// Connects under this name. The connection ends with the client or the runtime, whichever ends first.
pub(crate) async fn open(target: &Target, name: &str) -> Result<Client, tokio_postgres::Error> {
    open_watched(target, name, &Arc::default()).await
}

/// As [`open`], and `is_gone` becomes true when the connection ends.
pub(crate) async fn open_watched(
    target: &Target,
    name: &str,
    is_gone: &Arc<AtomicBool>,
) -> Result<Client, tokio_postgres::Error> {
    let mut config = target.config.clone();
    config.application_name(name);
    match &target.tls {
        Tls::Off => {
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(watch(connection, Arc::clone(is_gone)));
            Ok(client)
        }
        #[cfg(feature = "tls")]
        Tls::Verified(connector) => {
            let (client, connection) = config.connect(connector.clone()).await?;
            tokio::spawn(watch(connection, Arc::clone(is_gone)));
            Ok(client)
        }
    }
}

async fn watch(
    connection: impl Future<Output = Result<(), tokio_postgres::Error>>,
    is_gone: Arc<AtomicBool>,
) {
    // Its error is returned by the next call of the client.
    let _ = connection.await;
    is_gone.store(true, Ordering::Release);
}

/// A runtime for one thread.
pub(crate) fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

fn error_text(error: &tokio_postgres::Error) -> String {
    error.to_string()
}

fn host_of(config: &Config) -> String {
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        })
        .collect();
    hosts.join(",")
}

fn is_local(config: &Config) -> bool {
    let addresses_are_local = config
        .get_hostaddrs()
        .iter()
        .all(std::net::IpAddr::is_loopback);
    let hosts_are_local = config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            let address: Result<std::net::IpAddr, _> = name.parse();
            name == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    });
    addresses_are_local && hosts_are_local
}

/// Takes our parameters out of a URL, or out of `key=value` pairs.
fn split(url: &str) -> (String, Ours) {
    let mut ours = Ours::default();
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let rest: Vec<&str> = query
            .split('&')
            .filter(|pair| !pair.is_empty() && !ours.take(pair))
            .collect();
        let mark = if rest.is_empty() { "" } else { "?" };
        return (format!("{base}{mark}{}", rest.join("&")), ours);
    }
    let rest: Vec<&str> = pairs(url).filter(|pair| !ours.take(pair)).collect();
    (rest.join(" "), ours)
}

/// The `key=value` pairs of a connection string. A value in quotes may contain spaces.
fn pairs(text: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    let parts = text.split(move |letter: char| {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\'' => quoted = !quoted,
            _ => {}
        }
        letter.is_whitespace() && !quoted
    });
    parts.filter(|part| !part.is_empty())
}

impl Ours {
    fn take(&mut self, pair: &str) -> bool {
        match pair.split_once('=') {
            Some(("sslmode", value)) => self.mode = Some(value.to_owned()),
            Some(("sslrootcert", value)) => {
                self.root_certificate = Some(value.replace("%2F", "/").replace("%2f", "/"));
            }
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_parameters_are_taken_out() {
        let (rest, ours) = split("postgres://u@h/d?sslmode=insecure&connect_timeout=3");
        assert_eq!(rest, "postgres://u@h/d?connect_timeout=3");
        assert_eq!(ours.mode.as_deref(), Some("insecure"));
        let (rest, ours) = split("host=h password='a  sslmode=x' sslmode=disable dbname=d");
        assert_eq!(rest, "host=h password='a  sslmode=x' dbname=d");
        assert_eq!(ours.mode.as_deref(), Some("disable"));
    }

    #[test]
    fn another_machine_without_encryption_is_refused() {
        let refused = Target::parse("postgres://u@db.example/shop?sslmode=disable").unwrap_err();
        assert!(
            matches!(&refused, UrlError::NotEncrypted { host, .. } if host == "db.example"),
            "{refused}"
        );
        for url in [
            "postgres://u@db.example/shop?sslmode=insecure",
            "postgres://u@localhost/shop",
            "postgres://u@127.0.0.1/shop",
            "postgres://u@%2Ftmp/shop",
            "host=/tmp dbname=shop user=u",
        ] {
            assert!(Target::parse(url).is_ok(), "{url}");
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn encryption_needs_the_feature() {
        for url in [
            "postgres://u@db.example/shop",
            "postgres://u@db.example/shop?sslmode=verify-full",
        ] {
            let text = Target::parse(url).unwrap_err().to_string();
            assert!(text.contains("feature `tls`"), "{text}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn another_machine_is_verified() {
        let target = Target::parse("postgres://u@db.example/shop").unwrap();
        assert!(matches!(target.tls, Tls::Verified(_)));
    }

    #[test]
    fn no_text_contains_the_password() {
        let target = Target::parse("postgres://u:secret@localhost/shop").unwrap();
        assert!(!format!("{target:?}").contains("secret"));
        for url in [
            "postgres://u:secret@localhost",
            "postgres://u:secret@localhost:port/shop",
            "postgres://u:secret@localhost/shop?unknown=1",
            "postgres://u:secret@db.example/shop?sslmode=odd",
            "host=localhost password=secret nonsense dbname=d",
        ] {
            let error = Target::parse(url).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }
}

//! The server of a URL, and connections to it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

use crate::error::{Failed, describe};
use crate::sqlstate::{Call, Reaction};
use crate::tls::{self, Tls};
use crate::url_error::UrlError;

/// Time limit for a connection to an address of the only host, with TLS and login, if the URL sets none.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The same for each of several hosts. The next host is tried afterwards.
const CONNECT_LIMIT_OF_SEVERAL: Duration = Duration::from_secs(3);
/// Time limit for the acknowledgement of sent bytes. After it, the server or the network to it counts as gone.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);

/// A server, with its credentials.
#[derive(Clone)]
pub(crate) struct Target {
    config: Config,
    tls: Tls,
    /// The host, for messages.
    host: String,
}

/// Prints only the host and the database, because the settings contain a password.
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
            config.connect_timeout(match places(&config) {
                ..=1 => CONNECT_LIMIT,
                _ => CONNECT_LIMIT_OF_SEVERAL,
            });
        }
        if places(&config) > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any {
            // A standby may return old positions.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        config.tcp_user_timeout(SILENCE_LIMIT);
        config.keepalives_idle(SILENCE_LIMIT);
        Ok(Self { config, tls, host })
    }

    /// Returns the time limit for a connection to one address, with TLS and login.
    fn limit(&self) -> Duration {
        let limit = self.config.get_connect_timeout();
        limit.copied().unwrap_or(CONNECT_LIMIT)
    }

    pub(crate) fn database(&self) -> &str {
        self.config.get_dbname().unwrap_or("?")
    }
}

/// A failed connection.
#[derive(Debug)]
pub(crate) enum ConnectError {
    Server {
        host: String,
        error: tokio_postgres::Error,
    },
    /// The host accepts connections, but does not respond.
    Silent { host: String, limit: Duration },
}

impl ConnectError {
    /// Returns whether another attempt at this address fails as well.
    fn is_permanent(&self) -> bool {
        matches!(self, Self::Server { error, .. } if tls::advice(error).is_some())
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server { host, error } => write!(f, "{host}: {}", describe(error)),
            Self::Silent { host, limit } => write!(
                f,
                "the server {host} has not answered for {limit:?} (`connect_timeout`). Check that it is reachable"
            ),
        }
    }
}

impl From<ConnectError> for Failed {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Server { host, error } => {
                let what = format!("the connection to {host}");
                let mut failed = Self::of(Call::Outside, &what, &error);
                if let Some(advice) = tls::advice(&error) {
                    failed.reaction = Reaction::Stop;
                    failed.text.push_str(advice);
                }
                failed
            }
            ConnectError::Silent { .. } => Self::new(Reaction::Retry, error.to_string()),
        }
    }
}

/// Connects under this name. The connection ends with the client or the runtime, whichever ends first.
pub(crate) async fn open(target: &Target, name: &str) -> Result<Client, ConnectError> {
    open_watched(target, name, &Arc::default()).await
}

/// As [`open`]. Also sets `is_gone` to `true` when the connection ends. Tries the hosts in their order, and the
/// addresses of each host.
///
/// The driver's own time limit ends when the host accepts the connection. A host whose processes hang would keep a
/// client from all later hosts.
pub(crate) async fn open_watched(
    target: &Target,
    name: &str,
    is_gone: &Arc<AtomicBool>,
) -> Result<Client, ConnectError> {
    let limit = target.limit();
    let mut failed: Option<ConnectError> = None;
    for place in 0..places(&target.config).max(1) {
        let mut config = of_place(&target.config, place);
        config.application_name(name);
        for address in addresses(&config, limit).await {
            let host = address_of(&config);
            let mut config = config.clone();
            if let Some(address) = address {
                config.hostaddr(address);
            }
            let attempt = open_one(&config, &target.tls, is_gone);
            let error = match tokio::time::timeout(limit, attempt).await {
                Ok(Ok(client)) => return Ok(client),
                Ok(Err(error)) => ConnectError::Server { host, error },
                Err(_) => ConnectError::Silent { host, limit },
            };
            // A temporary error takes precedence, because a host that is down for a moment may be the primary.
            if failed.is_none() || !error.is_permanent() {
                failed = Some(error);
            }
        }
    }
    Err(failed.unwrap_or_else(|| ConnectError::Silent {
        host: target.host.clone(),
        limit,
    }))
}

/// Returns the addresses of a host name. `None` stands for the address in the settings, or for the one that the driver
/// finds.
async fn addresses(config: &Config, limit: Duration) -> Vec<Option<IpAddr>> {
    let ([Host::Tcp(name)], []) = (config.get_hosts(), config.get_hostaddrs()) else {
        return vec![None];
    };
    // The port is not used.
    let found = tokio::time::timeout(limit, tokio::net::lookup_host((name.as_str(), 0))).await;
    let mut addresses: Vec<Option<IpAddr>> = Vec::new();
    for found in found.into_iter().flatten().flatten() {
        let address = Some(found.ip());
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        // The driver looks the name up again, and returns the error.
        addresses.push(None);
    }
    addresses
}

async fn open_one(
    config: &Config,
    tls: &Tls,
    is_gone: &Arc<AtomicBool>,
) -> Result<Client, tokio_postgres::Error> {
    match tls {
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

/// Returns the number of hosts, or of addresses if the URL has more of them.
fn places(config: &Config) -> usize {
    config.get_hosts().len().max(config.get_hostaddrs().len())
}

/// Returns the same settings, with only the host at this place. The driver has no method that removes a host.
fn of_place(all: &Config, place: usize) -> Config {
    if places(all) <= 1 {
        return all.clone();
    }
    let mut one = Config::new();
    match all.get_hosts().get(place) {
        Some(Host::Tcp(name)) => _ = one.host(name),
        #[cfg(unix)]
        Some(Host::Unix(path)) => _ = one.host_path(path),
        None => {}
    }
    if let Some(address) = all.get_hostaddrs().get(place) {
        one.hostaddr(*address);
    }
    // A single port applies to all hosts.
    let ports = all.get_ports();
    if let Some(port) = ports.get(place).or(ports.first()) {
        one.port(*port);
    }
    if let Some(user) = all.get_user() {
        one.user(user);
    }
    if let Some(password) = all.get_password() {
        one.password(password);
    }
    if let Some(database) = all.get_dbname() {
        one.dbname(database);
    }
    if let Some(options) = all.get_options() {
        one.options(options);
    }
    if let Some(name) = all.get_application_name() {
        one.application_name(name);
    }
    if let Some(limit) = all.get_connect_timeout() {
        one.connect_timeout(*limit);
    }
    if let Some(limit) = all.get_tcp_user_timeout() {
        one.tcp_user_timeout(*limit);
    }
    if let Some(interval) = all.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = all.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.keepalives(all.get_keepalives())
        .keepalives_idle(all.get_keepalives_idle())
        .ssl_mode(all.get_ssl_mode())
        .ssl_negotiation(all.get_ssl_negotiation())
        .target_session_attrs(all.get_target_session_attrs())
        .channel_binding(all.get_channel_binding())
        .load_balance_hosts(all.get_load_balance_hosts());
    one
}

/// Makes the server end the session soon after the host of this process is lost.
pub(crate) async fn notice_lost_client(client: &Client) -> Result<(), tokio_postgres::Error> {
    for settings in [
        "SET client_connection_check_interval = '5s'",
        "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3",
    ] {
        match client.batch_execute(settings).await {
            // The operating system of the server does not support the setting.
            Err(error) if error.code() == Some(&SqlState::INVALID_PARAMETER_VALUE) => {}
            result => result?,
        }
    }
    Ok(())
}

async fn watch(
    connection: impl Future<Output = Result<(), tokio_postgres::Error>>,
    is_gone: Arc<AtomicBool>,
) {
    // Its error is returned by the next call of the client.
    let _ = connection.await;
    is_gone.store(true, Ordering::Release);
}

/// Returns a runtime for one thread.
pub(crate) fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

fn error_text(error: &tokio_postgres::Error) -> String {
    error.to_string()
}

/// Returns the only host, with its port.
fn address_of(config: &Config) -> String {
    let host = host_of(config);
    match config.get_ports() {
        [port] => format!("{host}:{port}"),
        _ => host,
    }
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
    let addresses_are_local = config.get_hostaddrs().iter().all(IpAddr::is_loopback);
    let hosts_are_local = config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            let address: Result<IpAddr, _> = name.parse();
            name == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    });
    addresses_are_local && hosts_are_local
}

/// Takes the parameters of this crate out of a URL, or out of `key=value` pairs.
fn split(url: &str) -> (String, Ours) {
    let mut ours = Ours::default();
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let rest: Vec<&str> = query
            .split('&')
            .filter(|pair| !pair.is_empty() && !ours.take(pair))
            .collect();
        ours.root_certificate = ours
            .root_certificate
            .map(|path| percent_decode_str(&path).decode_utf8_lossy().into_owned());
        let mark = if rest.is_empty() { "" } else { "?" };
        return (format!("{base}{mark}{}", rest.join("&")), ours);
    }
    let rest: Vec<&str> = pairs(url).filter(|pair| !ours.take(pair)).collect();
    (rest.join(" "), ours)
}

/// Returns the `key=value` pairs of a connection string. A value in quotes may contain spaces.
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
                self.root_certificate = Some(value.to_owned());
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
    fn the_settings_of_one_of_two_hosts_are_those_of_all() {
        let query = "options=-c%20a%3Db&connect_timeout=4&tcp_user_timeout=5&keepalives=0&keepalives_idle=6\
                     &keepalives_interval=7&keepalives_retries=8&target_session_attrs=read-write\
                     &channel_binding=disable&load_balance_hosts=random&sslmode=insecure";
        let of = |hosts: &str| {
            let url = format!("postgres://u:secret@{hosts}/shop?{query}");
            Target::parse(&url).unwrap().config
        };
        for (hosts, own) in [
            ("a:1,b:2", ["a:1", "b:2"]),
            ("a,b", ["a:5432", "b:5432"]),
            ("a,%2Ftmp", ["a:5432", "%2Ftmp:5432"]),
        ] {
            let all = of(hosts);
            for (place, own) in own.iter().enumerate() {
                let mut expected = of(own);
                let mut found = of_place(&all, place);
                if all.get_ports().is_empty() {
                    found.port(5432);
                }
                expected.application_name("");
                found.application_name("");
                assert_eq!(found, expected, "{own} of {hosts}");
            }
        }
    }

    #[test]
    fn the_primary_is_looked_for_among_several_hosts() {
        let wanted = |url: &str| {
            Target::parse(url)
                .unwrap()
                .config
                .get_target_session_attrs()
        };
        assert_eq!(wanted("postgres://localhost/shop"), TargetSessionAttrs::Any);
        assert_eq!(
            wanted("postgres://localhost,127.0.0.1/shop"),
            TargetSessionAttrs::ReadWrite
        );
    }

    #[test]
    fn the_path_of_a_certificate_is_decoded() {
        let (_, ours) = split("postgres://a/b?sslrootcert=%2Fetc%2Fmy%20ca.pem&sslmode=require");
        assert_eq!(ours.root_certificate.as_deref(), Some("/etc/my ca.pem"));
    }

    #[test]
    fn several_hosts_have_less_time_each() {
        let limit = |url: &str| {
            *Target::parse(url)
                .unwrap()
                .config
                .get_connect_timeout()
                .unwrap()
        };
        assert_eq!(limit("postgres://localhost/shop"), CONNECT_LIMIT);
        assert_eq!(
            limit("postgres://localhost,127.0.0.1/shop"),
            CONNECT_LIMIT_OF_SEVERAL
        );
    }

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

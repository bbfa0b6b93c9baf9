//! Connections over TCP: the certificate of the server, and the password.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use eos_core::boundary::{LedgerError, LedgerFailure};
use eos_postgres::Postgres;
use eos_postgres::testing::{Cluster, run, value};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::checks::check;
use crate::support::{Register, Worker};

/// A server with TLS on 127.0.0.1, and two certificate authorities, of which the first one has signed its certificates.
struct Encrypted {
    cluster: Cluster,
    port: u16,
    data: PathBuf,
    authorities: [PathBuf; 2],
    issuer: Issuer<'static, KeyPair>,
    /// The certificates of the authorities exist as long as this.
    _directory: tempfile::TempDir,
}

impl Encrypted {
    fn start() -> Self {
        // Another program may take the port before the server does.
        let started = (0..5).find_map(|_| {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = free.local_addr().unwrap().port();
            drop(free);
            let number = port.to_string();
            let settings = [("listen_addresses", "127.0.0.1"), ("port", &*number)];
            Some((Cluster::temporary(&settings).ok()?, port))
        });
        let (cluster, port) = started.expect("no server starts");
        let base = cluster.url("postgres");
        let data = value(&base, "SHOW data_directory").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (issuer, trusted) = authority(directory.path(), "trusted");
        let (_, other) = authority(directory.path(), "other");
        let server = Self {
            cluster,
            port,
            data: data.into(),
            authorities: [trusted, other],
            issuer,
            _directory: directory,
        };
        server.certify("127.0.0.1");
        server.set("ssl", "on");
        server
    }

    /// Gives the server a certificate for this name.
    fn certify(&self, name: &str) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        self.write("server.crt", &certificate.pem());
        self.write("server.key", &key.serialize_pem());
        self.reload();
    }

    /// Writes a file that belongs to the server.
    fn write(&self, name: &str, text: &str) {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
        let path = self.data.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let owner = std::fs::metadata(&self.data).unwrap();
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }

    fn set(&self, name: &str, setting: &str) {
        let base = self.cluster.url("postgres");
        run(&base, &format!("ALTER SYSTEM SET {name} = '{setting}'")).unwrap();
        self.reload();
    }

    fn reload(&self) {
        let base = self.cluster.url("postgres");
        run(&base, "SELECT pg_reload_conf()").unwrap();
    }

    /// The URL of a database over TCP.
    fn url(&self, database: &str, user: &str, authority: usize) -> String {
        let (_, name) = database.rsplit_once('/').unwrap();
        let certificate = self.authorities[authority].display();
        format!(
            "postgres://{user}@127.0.0.1:{}/{name}?sslmode=verify-full&sslrootcert={certificate}",
            self.port
        )
    }
}

fn authority(directory: &Path, name: &str) -> (Issuer<'static, KeyPair>, PathBuf) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let path = directory.join(format!("{name}.pem"));
    std::fs::write(&path, certificate.pem()).unwrap();
    (Issuer::new(params, key), path)
}

/// The error of the start, once it has this text: the server reads its files a little later.
fn refused(url: &str, part: &str) -> LedgerError {
    let shop = Postgres::connect(url).unwrap();
    let begin = Instant::now();
    loop {
        let found = check(&shop, &[]);
        if let Err(error) = &found
            && error.text.contains(part)
        {
            return found.unwrap_err();
        }
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "{part}: {found:?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The server of these tests. They change its certificate and its passwords, so it is one test.
#[test]
fn a_server_is_reached_with_its_certificate_name_and_password_only() {
    let server = Encrypted::start();
    let database = server.cluster.database("tls").unwrap();
    run(&database, "CREATE TABLE t (n bigint)").unwrap();

    let shop = Postgres::connect(&server.url(&database, "postgres", 0)).unwrap();
    let table = shop.table::<String, i64>("t").column("n", |_, n| *n);
    check(&shop, &[table.register()]).unwrap();
    let (mut worker, taken) = Worker::writing(&shop, &table);
    worker.finish(&taken, 1).unwrap();
    let unencrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                       WHERE application_name LIKE 'eos/%' AND pid <> pg_backend_pid() AND NOT ssl";
    assert_eq!(value(&database, unencrypted).unwrap(), "0");
    let encrypted = unencrypted.replace("NOT ssl", "ssl");
    assert_ne!(value(&database, &encrypted).unwrap(), "0");
    assert_eq!(value(&database, "SELECT count(*) FROM t").unwrap(), "1");

    let error = refused(&server.url(&database, "postgres", 1), "sslrootcert=/path");
    assert_eq!(error.failure, LedgerFailure::Fatal, "{error}");
    assert!(error.text.contains("127.0.0.1"), "{error}");
    server.certify("db.example");
    let error = refused(&server.url(&database, "postgres", 0), "by a name");
    assert_eq!(error.failure, LedgerFailure::Fatal, "{error}");
    server.certify("127.0.0.1");

    run(&database, "CREATE ROLE clerk LOGIN PASSWORD 'right'").unwrap();
    server.write(
        "pg_hba.conf",
        "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n",
    );
    server.reload();
    for (user, expected) in [("clerk:wrong", "28P01"), ("clerk:right", "GRANT")] {
        let error = refused(&server.url(&database, user, 0), expected);
        assert_eq!(error.failure, LedgerFailure::Fatal, "{error}");
        let text = error.text;
        assert!(!text.contains("wrong") && !text.contains("right"), "{text}");
    }
}

//! The needed tools, and a check for each.

use std::fmt;
use std::io::Write;
use std::process::{Command, Stdio};

use kafka_launcher::run;

use super::libclang;

/// A tool that comes from the system, not from cargo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub(crate) enum Need {
    /// A C compiler, for librdkafka and RocksDB.
    C,
    /// A C++ compiler, for librdkafka and RocksDB.
    Cpp,
    /// `make`, for librdkafka.
    Make,
    /// `bash`, for librdkafka's configure script.
    Bash,
    /// zlib's headers, for librdkafka.
    Zlib,
    /// libclang, for the generation of RocksDB's bindings.
    Libclang,
    /// Java, for a local Kafka.
    Java,
    /// Maven, to download Kafka's jars. Not needed after the download.
    Maven,
    /// A PostgreSQL server, for the tests of `eos-postgres`.
    Postgres,
    /// pgbouncer, for the test of `eos-postgres` behind a pooler. The test is skipped without it.
    Pooler,
}

impl Need {
    /// The tools that build the workspace.
    pub(crate) const BUILD: &[Need] = &[
        Need::C,
        Need::Cpp,
        Need::Make,
        Need::Bash,
        Need::Zlib,
        Need::Libclang,
    ];

    /// The tools of a local Kafka.
    pub(crate) const KAFKA: &[Need] = &[Need::Java, Need::Maven];

    /// The tools of the database tests.
    pub(crate) const DATABASES: &[Need] = &[Need::Postgres];

    /// The tools whose tests are skipped without them.
    pub(crate) const OPTIONAL: &[Need] = &[Need::Pooler];

    /// All tools that are not optional.
    pub(crate) const ALL: &[Need] = &[
        Need::C,
        Need::Cpp,
        Need::Make,
        Need::Bash,
        Need::Zlib,
        Need::Libclang,
        Need::Java,
        Need::Maven,
        Need::Postgres,
    ];

    /// Returns whether the tool is installed.
    pub(crate) fn is_met(self) -> bool {
        match self {
            Need::C => run::find("cc").is_some(),
            Need::Cpp => run::find("c++").is_some(),
            Need::Make => run::find("make").is_some(),
            Need::Bash => run::find("bash").is_some(),
            Need::Zlib => compiles("#include <zlib.h>\n"),
            Need::Libclang => libclang::is_found(),
            Need::Java => kafka_launcher::is_java_installed(),
            Need::Postgres => is_postgres_installed(),
            Need::Pooler => is_pooler_installed(),
            Need::Maven => run::find("mvn").is_some() || kafka_launcher::is_downloaded(),
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::C => f.write_str("a C compiler (cc)"),
            Need::Cpp => f.write_str("a C++ compiler (c++)"),
            Need::Make => f.write_str("make"),
            Need::Bash => f.write_str("bash"),
            Need::Zlib => f.write_str("zlib's headers"),
            Need::Libclang => f.write_str("libclang"),
            Need::Java => write!(f, "a JDK {} or newer", kafka_launcher::OLDEST_JAVA),
            Need::Maven => f.write_str("Maven"),
            Need::Postgres => f.write_str("PostgreSQL"),
            Need::Pooler => f.write_str("pgbouncer"),
        }
    }
}

/// Searches where `eos_postgres::testing` searches, and accepts a configured server. Debian's servers are not in
/// `PATH`.
fn is_postgres_installed() -> bool {
    let is_given = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let versions = std::fs::read_dir("/usr/lib/postgresql");
    let mut versions = versions.into_iter().flatten().flatten();
    is_given("EOS_PG_BIN")
        || is_given("EOS_POSTGRES_URL")
        || run::find("initdb").is_some()
        || versions.any(|version| version.path().join("bin/initdb").is_file())
}

/// Searches where the test searches. Debian's pgbouncer is in `/usr/sbin`, which may not be in `PATH`.
fn is_pooler_installed() -> bool {
    run::find("pgbouncer").is_some() || std::path::Path::new("/usr/sbin/pgbouncer").is_file()
}

/// Returns whether the C compiler accepts this source. The compiler knows the directories of headers.
fn compiles(source: &str) -> bool {
    let mut compiler = Command::new("cc");
    compiler.args(["-fsyntax-only", "-x", "c", "-"]);
    compiler
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let Ok(mut child) = compiler.spawn() else {
        return false;
    };
    // The write fails if the compiler ends early. Its exit status is enough.
    let _ = child
        .stdin
        .take()
        .map(|mut input| input.write_all(source.as_bytes()));
    child.wait().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_the_other_lists_together() {
        let parts = Need::BUILD.iter().chain(Need::KAFKA);
        let parts: Vec<_> = parts.chain(Need::DATABASES).collect();
        assert_eq!(parts, Need::ALL.iter().collect::<Vec<_>>());
    }

    #[test]
    fn the_compiler_is_asked_for_headers() {
        assert!(compiles("#include <stddef.h>\n"));
        assert!(!compiles("#include <no-such-header-anywhere.h>\n"));
    }
}

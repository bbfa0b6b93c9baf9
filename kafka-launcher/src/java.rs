//! The Java runtime of the brokers, and its flags.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::run;

/// The oldest supported feature release. Kafka's brokers need 17 since 4.0.
pub const OLDEST: u32 = 17;

/// A Java runtime that is new enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Java {
    /// The `java` program.
    pub(crate) program: PathBuf,
    /// Its feature release: 17, 21, ...
    pub(crate) major: u32,
    /// A tag that distinguishes this build from others. Class data archives fit one build only.
    pub(crate) tag: String,
}

impl Java {
    /// Returns the first runtime that is new enough, from `JAVA_HOME`, then `PATH`, then the usual directories.
    ///
    /// `PATH` alone is not enough, because distributions install several side by side, and Homebrew links none.
    pub(crate) fn find() -> Option<Java> {
        let mut candidates: Vec<PathBuf> = Vec::new();
        if let Some(home) = std::env::var_os("JAVA_HOME") {
            candidates.push(Path::new(&home).join("bin/java"));
        }
        candidates.extend(run::find("java"));
        candidates.extend(usual_places());
        candidates.iter().find_map(|program| Java::at(program))
    }

    fn at(program: &Path) -> Option<Java> {
        if !run::is_program(program) {
            return None;
        }
        let mut ask = Command::new(program);
        let answer = run::answer(ask.arg("-version"), Duration::from_secs(20)).ok()?;
        let major = major(&answer.text).filter(|major| *major >= OLDEST)?;
        let build = crc32c::crc32c(answer.text.as_bytes());
        Some(Java {
            program: program.to_owned(),
            major,
            tag: format!("jdk{major}-{build:08x}"),
        })
    }
}

/// Returns whether a Java runtime is installed that is new enough for a broker.
pub fn is_installed() -> bool {
    Java::find().is_some()
}

/// Returns the directories in which package managers install a Java that is not on `PATH`.
fn usual_places() -> Vec<PathBuf> {
    let roots = [
        ("/usr/lib/jvm", "bin/java"),
        ("/opt/homebrew/opt", "bin/java"),
        ("/usr/local/opt", "bin/java"),
        (
            "/Library/Java/JavaVirtualMachines",
            "Contents/Home/bin/java",
        ),
    ];
    let mut found = Vec::new();
    for (root, below) in roots {
        let Ok(entries) = std::fs::read_dir(root) else {
            continue;
        };
        let java = |name: &str| name.contains("java") || name.contains("jdk");
        let entries = entries.flatten();
        let entries = entries.filter(|e| java(&e.file_name().to_string_lossy()));
        found.extend(entries.map(|entry| entry.path().join(below)));
    }
    found.sort();
    found
}

/// Returns the feature release in the output of `java -version`.
fn major(output: &str) -> Option<u32> {
    let quoted = output.split('"').nth(1)?;
    let mut numbers = quoted.split(|c: char| !c.is_ascii_digit());
    let first: u32 = numbers.next()?.parse().ok()?;
    // Before Java 9, the feature release was the second number: 1.8.0.
    match first {
        1 => numbers.next()?.parse().ok(),
        _ => Some(first),
    }
}

/// The compilers of the JVM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Compiler {
    /// Only the quick compiler, with which brokers start sooner. For tests.
    #[default]
    Quick,
    /// Both compilers, and the garbage collector of a production broker. For all measurements.
    Full,
}

/// Returns the flags of a broker. A broker for tests is small and starts quickly. A broker for measurements has the
/// flags of Kafka's own scripts (`kafka-run-class.sh`, `kafka-server-start.sh`). A small heap that grows would collect
/// six times a second, and stop the broker for a tenth of a second whenever it grows.
pub(crate) fn flags(heap_mb: u32, compiler: Compiler) -> Vec<String> {
    let own: &[&str] = match compiler {
        Compiler::Quick => &[
            "-XX:+UseSerialGC",
            "-XX:ReservedCodeCacheSize=64m",
            "-XX:TieredStopAtLevel=1",
        ],
        Compiler::Full => &[
            "-XX:+UseG1GC",
            "-XX:MaxGCPauseMillis=20",
            "-XX:InitiatingHeapOccupancyPercent=35",
            "-XX:+ExplicitGCInvokesConcurrent",
        ],
    };
    let from_mb = match compiler {
        Compiler::Quick => heap_mb.min(64),
        Compiler::Full => heap_mb,
    };
    let size = [format!("-Xms{from_mb}m"), format!("-Xmx{heap_mb}m")];
    let all = [
        // This flag prevents a file per JVM in the system's temporary directory, which a killed JVM would leave there.
        "-XX:-UsePerfData",
        "-Djava.awt.headless=true",
    ];
    let named = own.iter().chain(&all).map(|&flag| flag.to_owned());
    size.into_iter().chain(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_feature_release_is_read_in_every_numbering() {
        let debian = "openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime Environment";
        assert_eq!(major(debian), Some(17));
        assert_eq!(major("openjdk version \"25\" 2025-09-16"), Some(25));
        assert_eq!(major("openjdk version \"26-ea\" 2026-03-17"), Some(26));
        assert_eq!(major("java version \"1.8.0_292\""), Some(8));
        assert_eq!(
            major("The operation couldn't be completed. Unable to locate a Java"),
            None
        );
    }

    #[test]
    fn a_broker_for_tests_is_small_and_one_for_measurements_has_all_its_heap_at_once() {
        let has = |compiler, flag: &str| flags(1024, compiler).iter().any(|it| it == flag);
        for flag in ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms64m"] {
            assert!(has(Compiler::Quick, flag), "{flag}");
            assert!(!has(Compiler::Full, flag), "{flag}");
        }
        for flag in ["-XX:+UseG1GC", "-Xms1024m"] {
            assert!(has(Compiler::Full, flag), "{flag}");
        }
        assert!(flags(32, Compiler::Quick).contains(&"-Xms32m".to_owned()));
    }
}

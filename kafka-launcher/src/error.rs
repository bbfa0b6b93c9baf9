//! The errors of a start: missing programs, or a failed broker with its log.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use crate::java::OLDEST;

/// The programs that a broker needs and this machine lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingPrograms {
    /// No Java that is new enough. Kafka's jars are downloaded, or Maven can download them.
    Java,
    /// No Maven, and Kafka's jars are not downloaded.
    Maven,
    /// Neither of them.
    JavaAndMaven,
}

impl MissingPrograms {
    /// Returns the missing programs, or `None` if a broker can start.
    pub(crate) fn of(java: bool, jars: bool) -> Option<MissingPrograms> {
        match (java, jars) {
            (true, true) => None,
            (false, true) => Some(MissingPrograms::Java),
            (true, false) => Some(MissingPrograms::Maven),
            (false, false) => Some(MissingPrograms::JavaAndMaven),
        }
    }
}

impl fmt::Display for MissingPrograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let java = format!("no Java {OLDEST} or newer (in JAVA_HOME or PATH)");
        let maven = "no Maven (in PATH) to download Kafka's jars";
        let (missing, by_hand) = match self {
            MissingPrograms::Java => (java, "install a JDK, or set JAVA_HOME"),
            MissingPrograms::Maven => (maven.to_owned(), "install Maven"),
            MissingPrograms::JavaAndMaven => {
                (format!("{java}, and {maven}"), "install a JDK and Maven")
            }
        };
        write!(
            f,
            "{missing}. In a clone of eos, run `cargo xtask setup`. Elsewhere, {by_hand}"
        )
    }
}

impl std::error::Error for MissingPrograms {}

/// The number of lines of a broker's log in an error.
pub(crate) const TAIL_LINES: usize = 30;

/// The reason why a cluster did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// A JVM ended before its node was ready.
    NodeEnded {
        /// The node's id.
        node: u8,
        /// How the JVM ended.
        status: ExitStatus,
        /// The broker's log file. It is removed if the cluster's data was temporary.
        log: PathBuf,
        /// The last lines of that log.
        tail: String,
    },
    /// A JVM runs, but its node was not ready in time.
    NotReady {
        /// The duration of the wait.
        waited: Duration,
        /// The last error of the node.
        why: String,
        /// The last lines of the nodes' logs.
        tail: String,
    },
}

impl StartError {
    /// Returns whether another program took the port first. Different ports may work.
    pub(crate) fn is_port_clash(&self) -> bool {
        match self {
            StartError::NodeEnded { tail, .. } => {
                tail.contains("Address already in use") || tail.contains("Address in use")
            }
            StartError::NotReady { .. } => false,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::NodeEnded {
                node,
                status,
                log,
                tail,
            } => {
                writeln!(f, "Kafka node {node} ended while starting ({status}).")?;
                if self.is_port_clash() {
                    writeln!(
                        f,
                        "Its port is taken: choose another with --port, or stop the program that listens there."
                    )?;
                } else if tail.contains("OutOfMemoryError") {
                    writeln!(f, "Its heap is too small for its settings: give it more.")?;
                }
                write!(f, "The end of {}:\n{tail}", log.display())
            }
            StartError::NotReady { waited, why, tail } => write!(
                f,
                "Kafka runs but was not ready within {} s: {why}.\n\
                 On a machine this busy, wait and try again. The end of its log:\n{tail}",
                waited.as_secs()
            ),
        }
    }
}

impl std::error::Error for StartError {}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn ended(tail: &str) -> StartError {
        StartError::NodeEnded {
            node: 1,
            status: ExitStatus::from_raw(256),
            log: "/x/broker.log".into(),
            tail: tail.into(),
        }
    }

    #[test]
    fn missing_programs_are_named_together_with_the_command_that_installs_them() {
        assert_eq!(MissingPrograms::of(true, true), None);
        for (java, jars, parts) in [
            (false, true, ["no Java 17 or newer", "install a JDK, or"]),
            (true, false, ["no Maven", "install Maven"]),
            (false, false, ["no Java 17 or newer", "and no Maven"]),
        ] {
            let text = MissingPrograms::of(java, jars).unwrap().to_string();
            let parts = parts.into_iter().chain(["run `cargo xtask setup`"]);
            for part in parts {
                assert!(text.contains(part), "{part:?} is not in: {text}");
            }
        }
    }

    #[test]
    fn the_message_names_the_fix_and_ends_with_the_log() {
        let clash = ended("java.net.BindException: Address already in use");
        assert!(clash.is_port_clash());
        let text = clash.to_string();
        assert!(
            text.contains("--port") && text.ends_with("already in use"),
            "{text}"
        );
        assert!(!ended("java.lang.OutOfMemoryError").is_port_clash());
    }
}

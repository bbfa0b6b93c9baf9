//! The error of a failed start, with the broker's log.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

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

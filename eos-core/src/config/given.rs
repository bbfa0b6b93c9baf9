//! Property assignments and their origins.

use std::fmt;
use std::path::PathBuf;

/// Where a property was set.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// By the program.
    Code,
    /// In a properties file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// By an environment variable.
    Environment {
        /// Its name.
        variable: String,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code => f.write_str("in the program"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment { variable } => write!(f, "environment variable {variable}"),
        }
    }
}

/// A property as it was set, unchecked.
#[derive(Clone)]
pub(super) struct Given {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) origin: Origin,
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the value: the key of a password may be misspelt.
        write!(f, "{} ({})", self.key, self.origin)
    }
}

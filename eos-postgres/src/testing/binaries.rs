//! The binaries of an installed PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ClusterError, holds_server, list};

/// The place of Debian's packages, with a directory for each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The directory with `initdb` and `postgres`.
#[derive(Debug)]
pub(super) struct Binaries(PathBuf);

impl Binaries {
    pub(super) fn find() -> Result<Self, ClusterError> {
        let given = std::env::var_os("EOS_PG_BIN").map(PathBuf::from);
        let searched = match given {
            // A given directory is the only one, so that no other version is used without notice.
            Some(directory) => vec![directory],
            None => places(),
        };
        let found = searched.iter().find(|directory| holds_server(directory));
        match found {
            Some(directory) => Ok(Self(directory.clone())),
            None => Err(ClusterError::NotInstalled {
                searched: list(&searched),
            }),
        }
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

fn places() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = pg_config().into_iter().collect();
    places.extend(std::env::split_paths(&path));
    places.extend(versions(Path::new(DEBIAN)));
    places
}

fn pg_config() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(text.trim())).filter(|path| path.is_absolute())
}

/// Returns the directories of all versions, the newest first.
fn versions(base: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_comes_first() {
        let base = tempfile::tempdir().unwrap();
        for name in ["9", "15", "16", "other"] {
            std::fs::create_dir_all(base.path().join(name)).unwrap();
        }
        let bin = |version: &str| base.path().join(version).join("bin");
        assert_eq!(versions(base.path()), [bin("16"), bin("15"), bin("9")]);
    }

    #[test]
    fn the_message_names_package_compose_and_variables() {
        let error = ClusterError::NotInstalled {
            searched: "/a".into(),
        };
        let text = error.to_string();
        for part in [
            "/a",
            "apt-get install postgresql",
            "docker compose",
            "EOS_PG_BIN",
            "EOS_POSTGRES_URL",
        ] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }
}

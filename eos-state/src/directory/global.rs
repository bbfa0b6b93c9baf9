//! The directory of a global table's copy.
//!
//! ```text
//! <slot>/globals/rates/db/         the engine's files
//! <slot>/globals/rates/condemned   there if the engine found damage: the next start clears the directory
//! ```
//!
//! The lock of the slot protects it, and the mark in the database names its topic. So it needs neither a lock nor an
//! owner file. It can always be cleared, because the topic has all rows.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::error::{DirectoryError, unusable};
use super::{DB, clear, kind, make_private};

const CONDEMNED: &str = "condemned";

/// The directory of a global table's copy.
#[derive(Debug, Clone)]
pub struct GlobalDirectory(PathBuf);

impl GlobalDirectory {
    /// Opens the directory of a global table in a slot, or creates it. Clears it if the engine found damage in it.
    ///
    /// # Errors
    /// [`DirectoryError`] if it is a symbolic link, or can't be written.
    pub fn open(slot: &Path, table: &str) -> Result<Self, DirectoryError> {
        let all = slot.join("globals");
        make_private(&all)?;
        let path = all.join(table);
        make_private(&path)?;
        let directory = Self(path);
        if kind(&directory.0.join(CONDEMNED))?.is_some() {
            directory.clear()?;
        }
        Ok(directory)
    }

    /// Deletes the copies of all other global tables in a slot. Returns their names.
    ///
    /// # Errors
    /// If the slot can't be read, or a file can't be removed.
    pub fn remove_others(slot: &Path, tables: &[&str]) -> Result<Vec<String>, DirectoryError> {
        let all = slot.join("globals");
        if kind(&all)?.is_none() {
            return Ok(Vec::new());
        }
        let mut removed = Vec::new();
        for entry in fs::read_dir(&all).map_err(unusable(&all))? {
            let entry = entry.map_err(unusable(&all))?;
            let is_directory = entry.file_type().map_err(unusable(&all))?.is_dir();
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                continue;
            };
            if !is_directory || tables.contains(&&*name) {
                continue;
            }
            let directory = Self::open(slot, &name)?;
            directory.clear()?;
            fs::remove_dir(&directory.0).map_err(unusable(&directory.0))?;
            removed.push(name);
        }
        Ok(removed)
    }

    /// Returns the directory of the engine's files. The engine creates it.
    #[must_use]
    pub fn engine(&self) -> PathBuf {
        self.0.join(DB)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Lets the next start clear the directory. The engine may still be open.
    ///
    /// # Errors
    /// If the directory can't be written.
    pub fn condemn(&self) -> Result<(), DirectoryError> {
        let path = self.0.join(CONDEMNED);
        File::create(&path).map(drop).map_err(unusable(&path))
    }

    /// Deletes the copy. The engine must be closed. If the process dies in between, the next start deletes the rest.
    ///
    /// # Errors
    /// If a file can't be removed.
    pub fn clear(&self) -> Result<(), DirectoryError> {
        self.condemn()?;
        clear(&self.0, &[CONDEMNED])?;
        let path = self.0.join(CONDEMNED);
        fs::remove_file(&path).map_err(unusable(&path))
    }
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use super::*;

    #[test]
    fn a_condemned_directory_is_cleared_by_the_next_start() {
        let slot = tempdir().unwrap();
        let directory = GlobalDirectory::open(slot.path(), "rates").unwrap();
        fs::create_dir(directory.engine()).unwrap();
        fs::write(directory.engine().join("1.sst"), "rows").unwrap();
        let again = GlobalDirectory::open(slot.path(), "rates").unwrap();
        assert!(again.engine().join("1.sst").exists());
        again.condemn().unwrap();
        let again = GlobalDirectory::open(slot.path(), "rates").unwrap();
        assert!(!again.engine().exists());
        assert!(!again.path().join(CONDEMNED).exists());
    }

    #[test]
    fn copies_of_other_tables_are_removed() {
        let slot = tempdir().unwrap();
        let none: Vec<String> = Vec::new();
        let remove = |tables: &[&str]| GlobalDirectory::remove_others(slot.path(), tables).unwrap();
        assert_eq!(remove(&[]), none);
        for table in ["rates", "names"] {
            let directory = GlobalDirectory::open(slot.path(), table).unwrap();
            fs::create_dir(directory.engine()).unwrap();
            fs::write(directory.engine().join("1.sst"), "rows").unwrap();
        }
        assert_eq!(remove(&["rates", "new"]), ["names"]);
        assert!(slot.path().join("globals/rates/db/1.sst").exists());
        assert!(!slot.path().join("globals/names").exists());
        assert_eq!(remove(&["rates"]), none);
        assert_eq!(remove(&[]), ["rates"]);
    }

    #[cfg(unix)]
    #[test]
    fn it_belongs_to_this_user_and_follows_no_link() {
        use std::os::unix::fs::PermissionsExt;
        let slot = tempdir().unwrap();
        let directory = GlobalDirectory::open(slot.path(), "rates").unwrap();
        let mode = fs::metadata(directory.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        std::os::unix::fs::symlink(directory.path(), slot.path().join("globals/link")).unwrap();
        let linked = GlobalDirectory::open(slot.path(), "link");
        assert!(
            matches!(linked, Err(DirectoryError::Symlink { .. })),
            "{linked:?}"
        );
    }
}

//! Prints the content of all databases below a directory, one line per key: `store key value`, in hexadecimal.
//!
//! The program shares no code with the framework. It relies on two facts: a key begins with the four-byte id of its
//! store, and store 0 is the framework's own.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rocksdb::{DB, IteratorMode, Options};

fn main() -> Result<()> {
    let root = std::env::args_os()
        .nth(1)
        .context("usage: stored <directory>")?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut databases = Vec::new();
    find(Path::new(&root), &mut databases)?;
    for path in databases {
        // Windowed stores have a column family of their own.
        let families = DB::list_cf(&Options::default(), &path)?;
        let db = DB::open_cf_for_read_only(&Options::default(), &path, &families, false)
            .with_context(|| path.display().to_string())?;
        for family in families.iter().filter_map(|name| db.cf_handle(name)) {
            for entry in db.iterator_cf(family, IteratorMode::Start) {
                let (key, value) = entry?;
                let Some((store, key)) = key.split_first_chunk::<4>() else {
                    continue;
                };
                if *store != [0; 4] {
                    writeln!(out, "{} {} {}", hex(store), hex(key), hex(&value))?;
                }
            }
        }
    }
    Ok(())
}

/// Collects the directories that are databases. These have a file called `CURRENT`.
fn find(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    if directory.join("CURRENT").is_file() {
        found.push(directory.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find(&entry.path(), found)?;
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

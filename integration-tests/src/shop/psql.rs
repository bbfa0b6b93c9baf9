//! Queries through the program `psql`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The separator between the columns of a row. No value contains it.
const SEPARATOR: char = '\u{1f}';

/// Runs one query, and returns its rows as text. A NULL is empty.
///
/// # Errors
/// When `psql` is missing, or the server refuses the query.
pub fn psql(url: &str, query: &str) -> Result<Vec<Vec<String>>> {
    let mut command = Command::new(program());
    command.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only"]);
    command.arg(format!("--field-separator={SEPARATOR}"));
    command.args(["--set=ON_ERROR_STOP=1", "--dbname", url, "--command", query]);
    let output = command.output().context("run psql: is it installed?")?;
    ensure!(
        output.status.success(),
        "psql: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout)?;
    let row = |line: &str| line.split(SEPARATOR).map(str::to_owned).collect();
    Ok(text.lines().map(row).collect())
}

/// Returns `psql` from `EOS_PG_BIN`, from Debian's packages, or from `PATH`.
fn program() -> PathBuf {
    let given = std::env::var_os("EOS_PG_BIN").map(PathBuf::from);
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter();
    let debian = debian.flatten().flatten().map(|it| it.path().join("bin"));
    let directories = given.into_iter().chain(debian);
    let mut programs = directories.map(|directory| directory.join("psql"));
    programs
        .find(|program| program.is_file())
        .unwrap_or_else(|| Path::new("psql").to_owned())
}

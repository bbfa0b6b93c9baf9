//! Builds the Java programs of the benchmarks with Maven.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A built program.
#[derive(Debug)]
pub(crate) struct Built {
    class_path: String,
    java: PathBuf,
}

impl Built {
    /// Builds the program of this directory in the user's cache, unless the cache has a build of the same sources.
    pub(crate) fn of(name: &str) -> Result<Self> {
        let sources = kafka_launcher::workspace_root()
            .join("tools/benchmarks")
            .join(name);
        let place = kafka_launcher::cache_dir()?.join(format!("{name}-side"));
        if !is_same(&sources, &place)? {
            eprintln!("Building {name} in {}", place.display());
            let _nothing_was_there = std::fs::remove_dir_all(place.join("src"));
            copy(&sources, &place)?;
            // Offline first, because Maven queries its repositories even for artifacts that it has.
            let offline = maven(&place, &["-o"])?;
            if !offline.0 {
                let (built, output) = maven(&place, &[])?;
                if !built {
                    let _next_time_again = std::fs::remove_file(place.join("pom.xml"));
                    bail!(
                        "failed to build {name} with Maven. Maven needs Maven Central, or a mirror of it in \
                         ~/.m2/settings.xml. `--sides bare,eos` needs no Maven. Output of Maven:\n{output}"
                    );
                }
            }
            std::fs::write(place.join("built"), "")?;
        }
        let jars = place.join("target/libs/*");
        let classes = place.join("target/classes");
        let home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
        Ok(Self {
            class_path: format!("{}:{}", classes.display(), jars.display()),
            java: home
                .filter(|java| java.is_file())
                .unwrap_or_else(|| "java".into()),
        })
    }

    /// Returns a command that runs Java with the classes of the program and a heap of this size. Other options of the JVM keep
    /// their defaults.
    pub(crate) fn java(&self, heap_mb: u32) -> Command {
        let mut command = Command::new(&self.java);
        for variable in ["JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS"] {
            command.env_remove(variable);
        }
        command.args([format!("-Xms{heap_mb}m"), format!("-Xmx{heap_mb}m")]);
        command.args(["-cp", &self.class_path]);
        command
    }
}

/// Returns the files of the program, relative to its root.
fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(dir) = open.pop() {
        let path = root.join(&dir);
        let entries = std::fs::read_dir(&path);
        for entry in entries.with_context(|| format!("list {}", path.display()))? {
            let entry = entry?;
            let relative = dir.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                open.push(relative);
            } else {
                files.push(relative);
            }
        }
    }
    Ok(files)
}

fn is_same(sources: &Path, place: &Path) -> Result<bool> {
    if !place.join("built").is_file() {
        return Ok(false);
    }
    let same = |file: &PathBuf| {
        let (ours, theirs) = (sources.join(file), place.join(file));
        std::fs::read(ours).ok() == std::fs::read(theirs).ok()
    };
    Ok(files(sources)?.iter().all(same))
}

fn copy(sources: &Path, place: &Path) -> Result<()> {
    let _not_built_yet = std::fs::remove_file(place.join("built"));
    for file in files(sources)? {
        let to = place.join(&file);
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::copy(sources.join(&file), &to)
            .with_context(|| format!("copy to {}", to.display()))?;
    }
    Ok(())
}

fn maven(place: &Path, flags: &[&str]) -> Result<(bool, String)> {
    let output = Command::new("mvn")
        .current_dir(place)
        .args(["-q", "-B", "-C"])
        .args(flags)
        .arg("package")
        .output()
        .context("run mvn: `cargo xtask setup` installs it")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((output.status.success(), text))
}

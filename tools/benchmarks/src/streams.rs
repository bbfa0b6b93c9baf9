//! Kafka Streams, the peer: built by Maven from the sources beside this crate.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::side::Task;

/// The built program.
#[derive(Debug)]
pub(crate) struct Streams {
    class_path: String,
    java: PathBuf,
    /// How many records an application in the same JVM passes before the one that counts begins.
    pub(crate) warm_up: u64,
    /// The heap; the rest is the JVM's choice.
    heap_mb: u32,
}

impl Streams {
    /// Builds it in the user's cache, unless it is there already in this very version.
    pub(crate) fn build(warm_up: u64, heap_mb: u32) -> Result<Self> {
        let sources = kafka_launcher::workspace_root().join("tools/benchmarks/kafka-streams");
        let place = kafka_launcher::cache_dir()?.join("kafka-streams-side");
        if !is_same(&sources, &place)? {
            eprintln!("Building the Kafka Streams side in {}", place.display());
            let _nothing_was_there = std::fs::remove_dir_all(place.join("src"));
            copy(&sources, &place)?;
            // Offline first: Maven asks its repositories for much that it has.
            let offline = maven(&place, &["-o"])?;
            if !offline.0 {
                let (built, said) = maven(&place, &[])?;
                if !built {
                    let _next_time_again = std::fs::remove_file(place.join("pom.xml"));
                    bail!(
                        "Maven could not build Kafka Streams' side. It needs Maven Central or, in \
                         ~/.m2/settings.xml, a mirror of it; `--sides bare,eos` does without:\n{said}"
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
            warm_up,
            heap_mb,
        })
    }

    /// The topic that a warm-up writes to.
    pub(crate) fn warm_up_output(task: &Task) -> String {
        format!("{}-warm", task.output)
    }

    pub(crate) fn command(&self, task: &Task) -> Command {
        let mut command = Command::new(&self.java);
        for variable in ["JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS"] {
            command.env_remove(variable);
        }
        let heap = self.heap_mb;
        command.args([format!("-Xms{heap}m"), format!("-Xmx{heap}m")]);
        command.args(["-cp", &self.class_path]);
        command.arg("eos.bench.StreamsSide");
        for (name, value) in [
            ("bootstrap", task.bootstrap.clone()),
            ("app", task.group.clone()),
            ("in", task.input.clone()),
            ("out", task.output.clone()),
            ("dir", task.state.display().to_string()),
            ("work", task.work.name().to_owned()),
            ("commit", task.commit_interval.as_millis().to_string()),
            ("threads", "1".to_owned()),
            ("warm", self.warm_up.to_string()),
            ("warmout", Self::warm_up_output(task)),
        ] {
            command.arg(format!("{name}={value}"));
        }
        if let Some(right) = &task.sibling {
            command.arg(format!("right={right}"));
        }
        if task.stays {
            command.arg("p.main.consumer.group.instance.id=bench");
        }
        if task.work.writes_every_update() {
            // With a cache it writes what the cache lets through.
            command.arg("p.statestore.cache.max.bytes=0");
        }
        command
    }
}

/// The files of the program, relative to its root.
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
        .context("run mvn: `cargo xtask setup` brings it")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((output.status.success(), said))
}

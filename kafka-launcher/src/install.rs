//! Kafka's jars, which Maven downloads once into the user's cache.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::error::MissingPrograms;
use crate::java::Java;
use crate::{VERSION, archive, format};
use crate::{paths, run};

/// The timeout of a download: long enough for 45 MB over a slow line.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(900);

/// The version is pinned, because Maven's own default is a release of 2013.
const DEPENDENCY_PLUGIN: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1";

/// Kafka has no logging backend of its own. This is the version that Kafka's build pins.
const LOG4J: &str = "2.25.3";

/// Jars and Java, ready to start brokers.
#[derive(Debug, Clone)]
pub(crate) struct Installation {
    /// The directory of `libs`, `formatted` and the class data archives.
    pub(crate) dir: PathBuf,
    pub(crate) java: Java,
}

impl Installation {
    /// Returns every jar, in a fixed order, because a class data archive fits one class path only.
    pub(crate) fn class_path(&self) -> Result<String> {
        let libs = self.dir.join("libs");
        let entries = std::fs::read_dir(&libs)
            .with_context(|| format!("list Kafka's jars in {}", libs.display()))?;
        let paths = entries.flatten().map(|entry| entry.path());
        let mut jars: Vec<_> = paths
            .filter(|p| p.extension() == Some("jar".as_ref()))
            .collect();
        jars.sort();
        let joined = std::env::join_paths(jars).context("the cache directory's path has a `:`")?;
        Ok(joined.to_string_lossy().into_owned())
    }

    /// Returns a `java` command with the jars on its class path and without the caller's JVM settings.
    pub(crate) fn java(&self, flags: &[String]) -> Result<Command> {
        let mut command = Command::new(&self.java.program);
        // Not as an argument, because 45 paths would hide the other arguments in a process list.
        command.args(flags).env("CLASSPATH", self.class_path()?);
        // The user's agent or heap setting for another program must not affect the brokers.
        command
            .env_remove("JAVA_TOOL_OPTIONS")
            .env_remove("_JAVA_OPTIONS");
        command.env_remove("JDK_JAVA_OPTIONS");
        Ok(command)
    }
}

/// Returns a command that runs a Java program of one source file, with Kafka's clients on its class path.
///
/// # Errors
/// If Java or Kafka's jars are missing and cannot be installed.
pub fn java_program(source: &Path) -> Result<Command> {
    let mut command = prepare()?.java(&["-Xmx256m".to_owned()])?;
    command.arg(source);
    Ok(command)
}

/// Returns the programs that a broker needs and this machine lacks.
pub(crate) fn missing() -> Option<MissingPrograms> {
    let jars = is_downloaded() || run::find("mvn").is_some();
    MissingPrograms::of(Java::find().is_some(), jars)
}

/// Returns whether the jars are downloaded.
pub fn is_downloaded() -> bool {
    home().is_ok_and(|dir| dir.is_dir())
}

/// Downloads Kafka's jars, unless they are present.
///
/// # Errors
/// If Java or Maven is missing, or the download fails.
pub fn download() -> Result<()> {
    prepare().map(drop)
}

/// Downloads missing files, in one process at a time, and returns the installation.
pub(crate) fn prepare() -> Result<Installation> {
    if let Some(missing) = missing() {
        return Err(missing.into());
    }
    let java = Java::find().context("a Java runtime")?;
    let dir = home()?;
    let installation = Installation { dir, java };
    if !is_complete(&installation) {
        let _one_at_a_time = paths::lock(&paths::cache_dir()?.join("lock"))?;
        // Another process may have finished the download while this one waited for the lock.
        if !installation.dir.is_dir() {
            download_into(&installation)?;
        }
        archive::make(&installation)?;
    }
    Ok(installation)
}

fn is_complete(installation: &Installation) -> bool {
    installation.dir.is_dir() && archive::is_decided(installation)
}

fn home() -> Result<PathBuf> {
    Ok(paths::cache_dir()?.join(format!("kafka-{VERSION}")))
}

/// Downloads into a directory beside the final one, and renames it when it is complete. So an incomplete download is
/// never used.
fn download_into(installation: &Installation) -> Result<()> {
    let cache = paths::cache_dir()?;
    eprintln!(
        "Downloading Kafka {VERSION} (45 MB, once) with Maven into {}",
        installation.dir.display()
    );
    let fresh = tempfile::Builder::new()
        .prefix("download-")
        .tempdir_in(&cache)
        .with_context(|| format!("create a directory in {}", cache.display()))?;
    fetch_jars(fresh.path())?;
    let partial = Installation {
        dir: fresh.path().to_owned(),
        java: installation.java.clone(),
    };
    format::make_template(&partial)?;
    std::fs::rename(fresh.keep(), &installation.dir)
        .with_context(|| format!("move the download to {}", installation.dir.display()))
}

fn fetch_jars(dir: &Path) -> Result<()> {
    paths::write(&dir.join("pom.xml"), &pom())?;
    let libs = dir.join("libs");
    let mut maven = Command::new("mvn");
    maven
        .current_dir(dir)
        // `-C`: a download whose checksum is wrong is an error, not a warning.
        .args(["-q", "-B", "-C"])
        .arg(format!("{DEPENDENCY_PLUGIN}:copy-dependencies"))
        .arg("-DincludeScope=runtime")
        .arg(format!("-DoutputDirectory={}", libs.display()));
    run::succeed(&mut maven, DOWNLOAD_LIMIT).context(
        "Maven could not download Kafka's jars. It needs Maven Central or, in ~/.m2/settings.xml, a mirror of it",
    )?;
    let server = libs.join(format!("kafka_2.13-{VERSION}.jar"));
    if !server.is_file() {
        bail!("Maven succeeded, but {} is missing", server.display());
    }
    Ok(())
}

fn pom() -> String {
    let dependency = |group: &str, artifact: &str, version: &str| {
        format!(
            "    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>\n"
        )
    };
    let dependencies = [
        dependency("org.apache.kafka", "kafka_2.13", VERSION),
        dependency("org.apache.logging.log4j", "log4j-core", LOG4J),
        dependency("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J),
    ];
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n  \
           <modelVersion>4.0.0</modelVersion>\n  \
           <groupId>local.eos</groupId>\n  <artifactId>kafka-jars</artifactId>\n  <version>1</version>\n  \
           <dependencies>\n{}  </dependencies>\n</project>\n",
        dependencies.concat()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pom_pins_every_version_and_names_no_repository() {
        let pom = pom();
        assert_eq!(pom.matches("<dependency>").count(), 3);
        assert!(pom.contains(&format!("<version>{VERSION}</version>")));
        assert!(!pom.contains("<repositor"), "{pom}");
    }
}

//! Builds the test programs and the programs that tests start.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cargo::cargo;

/// A compiled test target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) package: String,
    pub(crate) name: String,
    pub(crate) executable: PathBuf,
    /// The working directory under cargo, which is that of its `Cargo.toml`.
    pub(crate) dir: PathBuf,
}

/// The artifacts of one build.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Built {
    pub(crate) targets: Vec<Target>,
    /// Binaries and examples.
    pub(crate) programs: Vec<PathBuf>,
}

/// Compiles the tests of `selection` (packages and features) without running them. Returns `None` if the build
/// fails; cargo has then printed the cause.
pub(crate) fn build(selection: &str) -> Result<Option<Built>> {
    compiled(&format!("test --no-run {selection}"))
}

/// Compiles the same as [`build`], and also the programs that tests start.
pub(crate) fn build_with_programs(selection: &str) -> Result<Option<Built>> {
    // `--examples` makes cargo include dev-dependencies, so that the features equal those of the tests.
    let programs = compiled(&format!("build --bins --examples {selection}"))?;
    let (Some(programs), Some(tests)) = (programs, build(selection)?) else {
        return Ok(None);
    };
    Ok(Some(Built {
        programs: programs.programs,
        ..tests
    }))
}

fn compiled(arguments: &str) -> Result<Option<Built>> {
    let mut command = cargo();
    command
        .args(arguments.split_whitespace())
        .arg("--message-format=json-render-diagnostics");
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.context("start cargo: is it on the PATH?")?;
    Ok(output.status.success().then(|| read(&output.stdout)))
}

impl Built {
    /// Links the programs into a separate directory, and returns it. A later build with other features would
    /// replace the originals.
    pub(crate) fn keep_programs(&self) -> Result<tempfile::TempDir> {
        let first = self.programs.first().context("cargo built no program")?;
        let beside = first.parent().context("a program has a directory")?;
        let kept = tempfile::tempdir_in(beside).context("create a directory for programs")?;
        for program in &self.programs {
            let name = program.file_name().context("a program has a name")?;
            let link = kept.path().join(name);
            std::fs::hard_link(program, &link)
                .or_else(|_| std::fs::copy(program, &link).map(drop))
                .with_context(|| format!("keep {}", program.display()))?;
        }
        Ok(kept)
    }
}

/// Reads cargo's messages.
fn read(messages: &[u8]) -> Built {
    let mut built = Built::default();
    let lines = messages.split(|byte| *byte == b'\n');
    let messages = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    for message in messages.filter(|message| message["reason"] == "compiler-artifact") {
        let Some(executable) = message["executable"].as_str().map(PathBuf::from) else {
            continue;
        };
        if message["profile"]["test"] == true {
            built.targets.extend(target(&message, executable));
        } else {
            built.programs.push(executable);
        }
    }
    built
        .targets
        .sort_by(|a, b| (&a.package, &a.name).cmp(&(&b.package, &b.name)));
    built
}

fn target(message: &Value, executable: PathBuf) -> Option<Target> {
    let dir = Path::new(message["manifest_path"].as_str()?).parent()?;
    Some(Target {
        // The directory's name. Two packages have a prefix that their directories lack.
        package: dir.file_name()?.to_string_lossy().into_owned(),
        name: message["target"]["name"].as_str()?.to_owned(),
        executable,
        dir: dir.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_distinguished_from_others_in_cargos_messages() {
        let messages = br#"{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","target":{"name":"a","kind":["lib"]},"profile":{"test":false},"executable":null}
not json
{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","target":{"name":"kafka","kind":["test"]},"profile":{"test":true},"executable":"/t/deps/kafka-1"}
{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","target":{"name":"app","kind":["example"]},"profile":{"test":false},"executable":"/t/debug/examples/app"}
{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","target":{"name":"tool","kind":["bin"]},"profile":{"test":false},"executable":"/t/debug/tool"}"#;
        let kafka = Target {
            package: "a".into(),
            name: "kafka".into(),
            executable: "/t/deps/kafka-1".into(),
            dir: "/w/a".into(),
        };
        let expected = Built {
            targets: vec![kafka],
            programs: vec!["/t/debug/examples/app".into(), "/t/debug/tool".into()],
        };
        assert_eq!(read(messages), expected);
    }
}

//! Other programs: lookup, timeout, and captured output.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The result of a program: its exit status and its output.
#[derive(Debug)]
pub struct Answer {
    /// The exit status.
    pub status: ExitStatus,
    /// Standard output and standard error, in the order written.
    pub text: String,
}

/// Runs a program to its end, or kills it after `limit`.
///
/// # Errors
/// If the program cannot be started, or does not end in time.
pub fn answer(command: &mut Command, limit: Duration) -> Result<Answer> {
    let name = command.get_program().to_owned();
    // A file, not a pipe: a full pipe would block the program.
    let mut said = tempfile::tempfile().context("create a temporary file")?;
    let (out, err) = (said.try_clone()?, said.try_clone()?);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn()
        .with_context(|| format!("start `{}`", name.display()))?;
    let Some(status) = wait_within(&mut child, limit)? else {
        let _ = child.kill();
        let _ = child.wait();
        let text = read_back(&mut said)?;
        bail!(
            "`{}` did not end within {} s. Its output:\n{text}",
            name.display(),
            limit.as_secs()
        );
    };
    let text = read_back(&mut said)?;
    Ok(Answer { status, text })
}

/// Runs a program to its end and returns its output.
///
/// # Errors
/// See [`answer`]. Also fails if the program fails. The error contains its output.
pub fn succeed(command: &mut Command, limit: Duration) -> Result<String> {
    let answered = answer(command, limit)?;
    if !answered.status.success() {
        let text = answered.text.trim_end();
        bail!("`{}` failed ({}):\n{text}", line(command), answered.status);
    }
    Ok(answered.text)
}

/// Waits at most `limit` for the end of a child.
///
/// # Errors
/// If the system cannot report whether the child has ended.
pub fn wait_within(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().context("wait for a child process")? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the program's path, if it is on `PATH`.
pub fn find(program: &str) -> Option<PathBuf> {
    find_in(&std::env::var_os("PATH")?, program)
}

fn find_in(path: &OsStr, program: &str) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|dir| dir.join(program))
        .find(|candidate| is_program(candidate))
}

/// Returns whether the path is an executable file.
pub fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Returns the command as a shell line.
pub fn line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

fn read_back(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn both_streams_and_the_end_are_reported() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let answered = answer(&mut command, SOON).unwrap();
        assert_eq!(
            (answered.status.code(), answered.text.as_str()),
            (Some(3), "out\nerr\n")
        );
        let error = succeed(&mut command, SOON).unwrap_err().to_string();
        assert!(error.contains("exit 3") && error.contains("err"), "{error}");
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_named() {
        let mut limit = Duration::from_millis(200);
        // A busy machine may not start the program in so short a time. Then the test retries with more time.
        let error = loop {
            let mut command = Command::new("sh");
            command.args(["-c", "echo so far; exec sleep 600"]);
            let error = answer(&mut command, limit).unwrap_err().to_string();
            if error.contains("so far") || limit > SOON {
                break error;
            }
            limit *= 4;
        };
        assert!(
            error.contains("`sh`") && error.contains("so far"),
            "{error}"
        );
    }

    #[test]
    fn only_executable_files_on_the_path_are_programs() {
        assert!(find("sh").is_some());
        assert_eq!(find("no-such-program-anywhere"), None);
        assert_eq!(find_in(OsStr::new("/"), "etc"), None);
    }
}

//! Signals, and the end of child processes with their owner.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, geteuid, kill_process};

/// A signal that the launcher or a test sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// End immediately.
    Kill,
    /// Stop cleanly.
    Term,
    /// Stop cleanly, like Ctrl-C at a terminal.
    Interrupt,
    /// Freeze, like a long garbage collection or a suspended machine.
    Stop,
    /// Continue after [`Signal::Stop`].
    Continue,
}

/// Sends a signal to one process.
///
/// # Errors
/// If there is no such process, or it belongs to another user.
pub fn signal(pid: u32, signal: Signal) -> io::Result<()> {
    use rustix::process::Signal as Number;
    let number = match signal {
        Signal::Kill => Number::KILL,
        Signal::Term => Number::TERM,
        Signal::Interrupt => Number::INT,
        Signal::Stop => Number::STOP,
        Signal::Continue => Number::CONT,
    };
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    // 0 and negative numbers would address whole groups of processes.
    let pid = (pid > 0).then(|| Pid::from_raw(pid)).flatten();
    let pid =
        pid.ok_or_else(|| io::Error::other("no process has this id: use a positive number"))?;
    Ok(kill_process(pid, number)?)
}

/// Returns whether this process may install system packages.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Makes the kernel kill the command's process when the *thread* that spawned it ends.
///
/// Only Linux has such a signal. On other systems this does nothing, and the brokers of a killed owner keep running.
#[cfg_attr(
    not(target_os = "linux"),
    allow(unused_variables, reason = "only Linux has this signal")
)]
#[allow(
    unsafe_code,
    reason = "std has no safe way to run code between fork and exec"
)]
pub fn die_with_spawning_thread(command: &mut Command) {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal as Number, getppid, set_parent_process_death_signal};
        let owner = i32::try_from(std::process::id()).ok();
        let before_exec = move || {
            set_parent_process_death_signal(Some(Number::KILL))?;
            // The owner ended between fork and prctl, so the kernel sends no signal.
            if getppid().map(Pid::as_raw_pid) != owner {
                return Err(io::Error::from_raw_os_error(
                    rustix::io::Errno::SRCH.raw_os_error(),
                ));
            }
            Ok(())
        };
        // SAFETY: between fork and exec, the closure makes two async-signal-safe system calls. It allocates nothing:
        // `from_raw_os_error` stores the number inline.
        unsafe { command.pre_exec(before_exec) };
    }
}

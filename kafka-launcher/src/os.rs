//! The three system calls that std does not offer. The only `unsafe` of this crate, and of the
//! tests that signal processes.
#![allow(
    unsafe_code,
    reason = "signals and the parent-death signal have no safe counterpart in std, and a wrapper \
              crate would hide the one thing worth reading, the safety argument"
)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A signal that the launcher or a test sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Die now, without a say in it.
    Kill,
    /// Stop cleanly.
    Term,
    /// Stop cleanly, as a person at a terminal asks.
    Interrupt,
    /// Freeze, as a long garbage collection or a suspended machine would.
    Stop,
    /// Go on after [`Signal::Stop`].
    Continue,
}

/// Sends a signal to one process.
///
/// # Errors
/// When there is no such process, or it belongs to another user.
pub fn signal(pid: u32, signal: Signal) -> io::Result<()> {
    let number = match signal {
        Signal::Kill => libc::SIGKILL,
        Signal::Term => libc::SIGTERM,
        Signal::Interrupt => libc::SIGINT,
        Signal::Stop => libc::SIGSTOP,
        Signal::Continue => libc::SIGCONT,
    };
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    // 0 and negative numbers would address whole groups of processes.
    if pid <= 0 {
        return Err(io::Error::other("not a process id"));
    }
    // SAFETY: `kill` takes two integers and touches no memory of ours.
    match unsafe { libc::kill(pid, number) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether this process may install system packages.
pub fn is_root() -> bool {
    // SAFETY: `geteuid` takes nothing, cannot fail and touches no memory of ours.
    unsafe { libc::geteuid() == 0 }
}

/// Has the kernel kill the command's process when the *thread* that spawned it ends.
///
/// Elsewhere than on Linux there is no such signal and this does nothing: an owner that is killed
/// outright leaves its brokers behind there.
pub fn die_with_spawning_thread(command: &mut Command) {
    let owner = std::process::id();
    let before_exec = move || {
        #[cfg(target_os = "linux")]
        {
            // SAFETY: `prctl` and `getppid` are async-signal-safe and take integers only.
            let parent = unsafe {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) != 0 {
                    return Err(io::Error::last_os_error());
                }
                libc::getppid()
            };
            // The owner died between fork and prctl: no signal will come any more.
            if u32::try_from(parent) != Ok(owner) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
        }
        let _ = owner;
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes two async-signal-safe system calls, and
    // allocates nothing (`from_raw_os_error` and `last_os_error` keep the number in place).
    unsafe { command.pre_exec(before_exec) };
}

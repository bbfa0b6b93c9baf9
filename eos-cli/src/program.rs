//! The name of this program in messages.

/// The variable with the command that started this program. `cargo xtask` sets it.
const VARIABLE: &str = "CLI_PROGRAM_NAME";

/// Returns the command that runs this program: `eos`, or `cargo xtask` in a clone.
pub(crate) fn program() -> String {
    std::env::var(VARIABLE).unwrap_or_else(|_| "eos".to_owned())
}

//! Tier 4: misuses that must not compile, with their messages.
//!
//! They are misuses of `eos-core`. This target checks them without the Kafka adapter, so that only Rust is compiled.

/// The correct uses that correspond to the misuses. They compile with this target, because a `pass` case would make
/// `trybuild` generate code for all dependencies of the crate.
#[allow(dead_code, reason = "it has to compile")]
#[path = "../compile_fail/right_use.rs"]
mod right_use;

#[test]
fn misuses_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/no_*.rs");
}

//! Tier 4: misuses that must not compile, with the message that the user sees.
//!
//! They are misuses of `eos-core`. Here they are checked without its Kafka adapter, so that nothing but Rust is
//! compiled.

/// What each misuse is a small step away from. Compiled with this target: a `pass` case would have `trybuild`
/// generate code for all that the crate stands on.
#[allow(dead_code, reason = "it has to compile")]
#[path = "../compile_fail/right_use.rs"]
mod right_use;

#[test]
fn misuses_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/no_*.rs");
}

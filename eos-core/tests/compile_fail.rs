//! Tier 4: misuses that must not compile, with the message that the user sees.
//!
//! Run without the Kafka adapter, so that nothing but Rust is compiled:
//! `cargo test -p eos-core --no-default-features --test compile_fail`
#![cfg(not(feature = "kafka"))]

#[test]
fn misuses_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/compile_fail/right_use.rs");
    cases.compile_fail("tests/compile_fail/no_*.rs");
}

//! Tier 4: misuses that must not compile, with the message that the user sees.
//!
//! They are misuses of `eos-core`. Here they are checked without its Kafka adapter, so that nothing but Rust is
//! compiled.

#[test]
fn misuses_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/compile_fail/right_use.rs");
    cases.compile_fail("tests/compile_fail/no_*.rs");
}

//! What must compile, and the mistakes that must not: each with a short error that names the user's line.
//!
//! After a change of the compiler or of a signature: `TRYBUILD=overwrite cargo test -p outlast --test compile`, then read
//! every difference. If a user would need a page on an error, the signature is wrong.

#[test]
fn programs_compile_and_mistakes_do_not() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/compile/pass/*.rs");
    cases.compile_fail("tests/compile/fail/*.rs");
}

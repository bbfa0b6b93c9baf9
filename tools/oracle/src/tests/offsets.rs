//! Committed offsets, compared with the outputs.

use super::*;

#[test]
fn offsets_behind() {
    let mut evidence = clean();
    evidence.committed = Some(vec![Some(PER_PARTITION), Some(PER_PARTITION - 3)]);
    for expectation in [Expectation::Finished, Expectation::Behind] {
        let verdict = judge(&evidence, expectation);
        assert_eq!(kinds(&verdict), [("offsets", 1)]);
        let note = &verdict.offsets.examples[0].note;
        assert!(
            note.starts_with("committed 47 is behind: 3 records"),
            "{note}"
        );
    }
}

#[test]
fn offsets_never_committed() {
    let mut evidence = clean();
    evidence.committed = Some(vec![Some(PER_PARTITION), None]);
    behind(&evidence, [("offsets", 1)]);
}

#[test]
fn offsets_ahead() {
    let mut evidence = stopped();
    evidence.committed = Some(vec![Some(30), Some(31)]);
    let verdict = behind(&evidence, [("lost", 2), ("offsets", 1)]);
    let note = &verdict.offsets.examples[0].note;
    assert!(
        note.starts_with("committed 31 is ahead: 1 records"),
        "{note}"
    );
}

#[test]
fn offsets_beyond_the_end() {
    let mut evidence = clean();
    evidence.committed = Some(vec![Some(PER_PARTITION + 1), Some(PER_PARTITION)]);
    finished(&evidence, [("offsets", 1)]);
}

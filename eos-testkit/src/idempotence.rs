//! A check for idempotent effects.

use std::fmt::Debug;

/// Runs an effect twice, and compares the state after the second run with the state after the first.
///
/// An idempotent effect may be repeated, for example by a replay of a topic. Effects that are not idempotent, such as
/// adding to a sum, need stored positions or an inbox.
///
/// ```
/// use std::cell::RefCell;
/// use std::collections::BTreeMap;
/// use eos_testkit::assert_idempotent;
///
/// let stock = RefCell::new(BTreeMap::new());
/// assert_idempotent(
///     || {
///         stock.borrow_mut().insert("pen", 3);
///     },
///     || stock.borrow().clone(),
/// );
/// ```
///
/// # Panics
///
/// Panics with both states if they differ.
#[track_caller]
pub fn assert_idempotent<S: PartialEq + Debug>(
    mut effect: impl FnMut(),
    mut state: impl FnMut() -> S,
) {
    effect();
    let once = state();
    effect();
    let twice = state();
    assert!(
        once == twice,
        "the effect is not idempotent\n after one run: {once:?}\nafter two runs: {twice:?}"
    );
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_value_that_is_set_is_idempotent() {
        let value = Cell::new(0);
        assert_idempotent(|| value.set(7), || value.get());
    }

    #[test]
    #[should_panic(expected = "after one run: 7\nafter two runs: 14")]
    fn a_sum_is_not_idempotent() {
        let sum = Cell::new(0);
        assert_idempotent(|| sum.set(sum.get() + 7), || sum.get());
    }
}

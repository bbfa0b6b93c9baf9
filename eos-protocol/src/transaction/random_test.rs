//! Tier 1: long random lives of the machine, under the same model as the exhaustive walk.

use proptest::prelude::*;

use super::walk_test::{Shell, step};
use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_life_breaks_a_rule_or_gets_stuck(
        guarantee in 0..3_usize,
        choices in proptest::collection::vec((any::<u16>(), any::<bool>()), 1..400),
    ) {
        let guarantee =
            [Guarantee::ExactlyOnce, Guarantee::AtLeastOnce, Guarantee::AtMostOnce][guarantee];
        let mut machine = Transaction::new(guarantee, Limits::default());
        let mut shell = Shell::default();
        for (choice, late) in choices {
            let events = shell.enabled(&machine);
            step(&mut machine, &mut shell, events[usize::from(choice) % events.len()], late);
        }
    }

    /// Without errors, every life comes to rest.
    #[test]
    fn without_further_errors_it_comes_to_rest(
        choices in proptest::collection::vec((any::<u16>(), any::<bool>()), 0..100),
    ) {
        let mut machine = Transaction::new(Guarantee::ExactlyOnce, Limits::default());
        let mut shell = Shell::default();
        for (choice, late) in choices {
            let events = shell.enabled(&machine);
            step(&mut machine, &mut shell, events[usize::from(choice) % events.len()], late);
        }
        for _ in 0..40 {
            let good = shell.enabled(&machine).into_iter().find(|event| !matches!(
                event,
                Event::Failed(..) | Event::Tick | Event::Lost | Event::Unanswered | Event::Touched
            ) && (*event != Event::CommitDue || machine.state() == State::Open));
            match good {
                Some(event) => step(&mut machine, &mut shell, event, false),
                None => break,
            }
        }
        prop_assert!(
            matches!(machine.state(), State::Idle | State::Failed),
            "{:?} {:?}", machine.state(), shell
        );
    }
}

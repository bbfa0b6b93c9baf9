//! Small scale runs.
//!
//! `cargo xtask sim --scale` runs the large ones.

use eos_sim::{Scale, Scenario};

/// Returns a run of seconds.
fn small() -> Scale {
    Scale {
        processes: 6,
        partitions: 30,
        ..Scale::default()
    }
}

#[test]
fn large_events_lose_and_double_nothing() {
    for static_members in [true, false] {
        let report = Scale {
            static_members,
            ..small()
        };
        let report = report.run();
        assert!(report.violations.is_empty(), "{report}");
        let scenarios: Vec<Scenario> = report.scenarios.iter().map(|it| it.scenario).collect();
        let all = [
            Scenario::Start,
            Scenario::Double,
            Scenario::Steady,
            Scenario::RollingRestart,
            Scenario::Crash,
            Scenario::Loss,
            Scenario::Replacement,
        ];
        assert_eq!(scenarios, all);
        let processes: Vec<usize> = report.scenarios.iter().map(|it| it.processes).collect();
        assert_eq!(processes, [3, 6, 6, 6, 6, 5, 6]);
        for it in &report.scenarios {
            assert!(it.settled.is_some(), "{report}");
            assert_eq!(it.shares.iter().sum::<usize>(), 30, "{report}");
            let spread = it.shares.iter().max().zip(it.shares.iter().min());
            assert!(
                spread.is_some_and(|(most, least)| most - least <= 1),
                "{report}"
            );
        }
        let [start, double, steady, rolling, crash, loss, replacement] = &report.scenarios[..]
        else {
            unreachable!("{report}");
        };
        // Each event has happened.
        assert_eq!((start.work.moved, double.work.moved), (0, 15), "{report}");
        assert_eq!(steady.traffic.generations, 0, "{report}");
        assert_eq!(steady.work.moved, 0, "{report}");
        assert_eq!(rolling.work.restarted, 6, "{report}");
        assert_eq!(
            (crash.work.killed, crash.work.restarted),
            (1, 1),
            "{report}"
        );
        assert_eq!((loss.work.killed, loss.work.moved), (1, 5), "{report}");
        assert!(replacement.work.moved >= 5, "{report}");
        assert!(loss.work.restored_records > 0, "{report}");
        // A static member returns to its tasks before its session ends.
        assert_eq!(rolling.work.moved == 0, static_members, "{report}");
        assert_eq!(rolling.traffic.generations == 0, static_members, "{report}");
    }
}

/// The control: a scale run must find planted bugs.
#[cfg(feature = "failpoints")]
#[test]
fn a_planted_bug_is_found() {
    let tenth = Scale {
        processes: 10,
        partitions: 100,
        static_members: false,
        ..Scale::default()
    };
    for (without, scale, says) in [
        // A killed process comes back with a database that is behind.
        ("replay", small(), "VIOLATED stale"),
        ("close", small(), "is not assigned"),
        // A process returns its partitions with an open transaction.
        ("settle", tenth, "VIOLATED doubled"),
    ] {
        let report = Scale {
            without: Some(without),
            ..scale
        };
        let report = report.run();
        let found = report.violations.iter().any(|it| it.contains(says));
        assert!(found, "without {without}: {report}");
    }
}

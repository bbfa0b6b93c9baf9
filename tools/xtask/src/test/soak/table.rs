//! The rows of the table, and the tests that `cargo xtask test` leaves to them.

use super::super::case::Case;

/// One long run.
pub(super) struct Soak {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) environment: &'static [(&'static str, &'static str)],
    pub(super) runs: Runs,
    /// The number of runs.
    pub(super) times: u32,
}

/// The command of a row.
pub(super) enum Runs {
    /// Tests of a target, from the build of `cargo xtask test`: other features would compile the workspace again.
    Tests {
        target: &'static str,
        filter: &'static str,
    },
    /// Other arguments of cargo.
    Cargo(&'static str),
}

impl Runs {
    pub(super) fn arguments(&self) -> Vec<&str> {
        match *self {
            Self::Tests { target, filter } => {
                let mut all = vec!["test", "--workspace", "--features", super::super::FEATURES];
                all.extend(["--test", target]);
                all.extend(Some(filter).filter(|it| !it.is_empty()));
                all.extend(["--", "--nocapture"]);
                all
            }
            Self::Cargo(arguments) => arguments.split_whitespace().collect(),
        }
    }

    /// Returns whether the output counts tests.
    pub(super) fn is_test(&self) -> bool {
        self.arguments()[0] == "test"
    }
}

/// The row with a plot.
pub(super) const HOUR: &str = "hour";

const FULL: &[(&str, &str)] = &[("EOS_FULL", "1")];

/// Tests that `cargo xtask test` leaves to a row of the table. Each entry has the package, the target, a prefix of
/// the test's name, and the row. `cargo xtask test` runs a faster sibling of each.
pub(super) const LEFT: [(&str, &str, &str, &str); 9] = [
    (
        "integration-tests",
        "exclusive",
        "kill::on_three_nodes",
        "kill",
    ),
    (
        "integration-tests",
        "exclusive",
        "kill::the_control_without_transactions",
        "kill",
    ),
    (
        "integration-tests",
        "exclusive",
        "churn::dynamic_members",
        "churn",
    ),
    (
        "integration-tests",
        "exclusive",
        "wire_producer_delivers_once::while_followers",
        "wire",
    ),
    (
        "integration-tests",
        "kafka",
        "kill_time::duplicates::each_event_passes_once_on_three_brokers",
        "time",
    ),
    ("integration-tests", "kafka", "kill_time::hopping::", "time"),
    (
        "integration-tests",
        "kafka",
        "kill_time::idle::windows_close_once",
        "time",
    ),
    (
        "integration-tests",
        "kafka",
        "kill_time::idle::a_partition_behind",
        "time",
    ),
    (
        "integration-tests",
        "kafka",
        "kill_time::idle::a_frozen_broker",
        "time",
    ),
];

pub(super) const TABLE: [Soak; 34] = [
    Soak {
        name: "simulation",
        what: "100,000 seeds of the whole runtime",
        environment: &[],
        runs: Runs::Cargo("xtask sim --seeds 100000 --coverage"),
        times: 1,
    },
    Soak {
        name: "shape-dedup",
        what: "100,000 seeds of duplicates of every kind of id",
        environment: &[],
        runs: Runs::Cargo("xtask sim --seeds 100000 --shape dedup"),
        times: 1,
    },
    Soak {
        name: "shape-async",
        what: "100,000 seeds of asynchronous calls",
        environment: &[],
        runs: Runs::Cargo("xtask sim --seeds 100000 --shape async"),
        times: 1,
    },
    Soak {
        name: "shape-parked",
        what: "100,000 seeds of dead letters in sequence",
        environment: &[],
        runs: Runs::Cargo("xtask sim --seeds 100000 --shape parked"),
        times: 1,
    },
    Soak {
        name: "shape-joins",
        what: "100,000 seeds of joins of two streams",
        environment: &[],
        runs: Runs::Cargo("xtask sim --seeds 100000 --shape joins"),
        times: 1,
    },
    Soak {
        name: "shape-tables",
        what: "100,000 seeds of joins and groups of tables",
        environment: &[],
        runs: Runs::Cargo("xtask sim --seeds 100000 --shape tables"),
        times: 1,
    },
    Soak {
        name: "shape-foreign",
        what: "100,000 seeds of foreign-key joins",
        environment: &[],
        runs: Runs::Cargo("xtask sim --seeds 100000 --shape foreign"),
        times: 1,
    },
    Soak {
        name: "shape-cogroup",
        what: "100,000 seeds of cogrouped streams, chained joins and a global table",
        environment: &[],
        runs: Runs::Cargo("xtask sim --seeds 100000 --shape cogroup"),
        times: 1,
    },
    Soak {
        name: "shape-ledger",
        what: "100,000 seeds of apps that commit in a ledger",
        environment: &[],
        runs: Runs::Cargo("xtask sim --seeds 100000 --shape ledger"),
        times: 1,
    },
    Soak {
        name: "scale",
        what: "200 processes on 2,000 partitions: rolling restart, loss of a tenth, doubling (docs/scale.md)",
        environment: &[],
        runs: Runs::Cargo("xtask sim --scale"),
        times: 1,
    },
    Soak {
        name: "scale-dynamic",
        what: "200 processes on 2,000 partitions, with dynamic members of the group",
        environment: &[],
        runs: Runs::Cargo("xtask sim --scale --dynamic"),
        times: 1,
    },
    Soak {
        name: "rocksdb",
        what: "5,000 seeds with the state in RocksDB, and every planted bug",
        environment: &[("EOS_ROCKSDB_SEEDS", "5000"), ("EOS_FULL", "1")],
        runs: Runs::Tests {
            target: "simulation",
            filter: "",
        },
        times: 1,
    },
    Soak {
        name: "fuzz",
        what: "ten minutes of malformed requests to the embedded broker",
        environment: &[("EOS_FUZZ_SECONDS", "600")],
        runs: Runs::Cargo("test -p eos-broker --lib fuzz -- --nocapture"),
        times: 1,
    },
    Soak {
        name: "kill",
        what: "a million records and more than 25 SIGKILLs, on one node, on three, and embedded",
        environment: FULL,
        runs: Runs::Tests {
            target: "exclusive",
            filter: "kill::",
        },
        times: 1,
    },
    Soak {
        name: "brokers",
        what: "brokers of each role killed, frozen and restarted, then too few replicas, ten times",
        environment: FULL,
        runs: Runs::Tests {
            target: "exclusive",
            filter: "brokers::",
        },
        times: 1,
    },
    Soak {
        name: "wire",
        what: "the wire producer while followers are frozen",
        environment: &[],
        runs: Runs::Tests {
            target: "exclusive",
            filter: "wire_producer_delivers_once::",
        },
        times: 1,
    },
    Soak {
        name: "churn",
        what: "five minutes of members that join and leave, for each group protocol",
        environment: FULL,
        runs: Runs::Tests {
            target: "exclusive",
            filter: "churn::",
        },
        times: 1,
    },
    Soak {
        name: "windows",
        what: "a million views in windows, 25 kills",
        environment: FULL,
        runs: Runs::Tests {
            target: "exclusive",
            filter: "windowed_counts::",
        },
        times: 1,
    },
    Soak {
        name: "time",
        what: "sessions, windows that close at once or while idle, timers, a deduplication, joins, and rows in PostgreSQL: 26 kills and a zombie each",
        environment: FULL,
        runs: Runs::Tests {
            target: "kafka",
            filter: "kill_time::",
        },
        times: 1,
    },
    Soak {
        name: "calls",
        what: "asynchronous calls at 0.9 of the throughput of their service, then 25 kills and a zombie",
        environment: FULL,
        runs: Runs::Tests {
            target: "kafka",
            filter: "calls::",
        },
        times: 1,
    },
    Soak {
        name: "guarantees",
        what: "at least once and at most once, 30 kills each",
        environment: FULL,
        runs: Runs::Tests {
            target: "kafka",
            filter: "guarantees::",
        },
        times: 1,
    },
    Soak {
        name: "ledger-sweep",
        what: "every fault at every step of a commit into PostgreSQL",
        environment: FULL,
        runs: Runs::Tests {
            target: "kafka",
            filter: "ledger_sweep::",
        },
        times: 1,
    },
    Soak {
        name: "ledger-outages",
        what: "a table of an app that is locked for more than a minute",
        environment: FULL,
        runs: Runs::Tests {
            target: "kafka",
            filter: "ledger_outages::",
        },
        times: 1,
    },
    Soak {
        name: "ids",
        what: "deduplication of a million ids and of ten million sequence numbers",
        environment: FULL,
        runs: Runs::Tests {
            target: "driver",
            filter: "store_has_",
        },
        times: 1,
    },
    Soak {
        name: "orders",
        what: "a customer with a million orders, in a join by foreign key",
        environment: FULL,
        runs: Runs::Tests {
            target: "driver",
            filter: "an_update_of_a_customer",
        },
        times: 1,
    },
    Soak {
        name: "ids-rocksdb",
        what: "the size of stores of ids, and look-ups after a year of a million ids per day",
        environment: FULL,
        runs: Runs::Cargo("test -p eos-state --lib seen_ids -- --nocapture"),
        times: 1,
    },
    Soak {
        name: "faults",
        what: "every fault-injection test at full size",
        environment: &[],
        runs: Runs::Cargo("xtask faults --full"),
        times: 1,
    },
    Soak {
        name: "readme",
        what: "every command of the README, including its crate of your own",
        environment: FULL,
        runs: Runs::Tests {
            target: "exclusive",
            filter: "readme::",
        },
        times: 1,
    },
    Soak {
        name: "demo",
        what: "the demo as a user builds it, without RocksDB",
        environment: &[],
        runs: Runs::Cargo("xtask demo"),
        times: 1,
    },
    Soak {
        name: "surface",
        what: "the documentation in each feature set, and breaking changes of the public API",
        environment: &[],
        runs: Runs::Cargo("xtask surface"),
        times: 1,
    },
    Soak {
        name: "shipped",
        what: "the tests of the libraries with the features that users compile, without failpoints",
        environment: &[],
        runs: Runs::Cargo(
            "test -p eos-core -p eos-kafka -p eos-state -p eos-examples -p conformance",
        ),
        times: 1,
    },
    // No short version runs with `cargo xtask test`: it takes two minutes, and its planted leak two more.
    Soak {
        name: HOUR,
        what: "an hour of kills beside a process whose memory, files and threads stay flat, and a planted leak",
        environment: FULL,
        runs: Runs::Tests {
            target: "soak",
            filter: "hour::",
        },
        times: 1,
    },
    Soak {
        name: "unarmed",
        what: "a program built without failpoints contains none",
        environment: &[],
        runs: Runs::Tests {
            target: "soak",
            filter: "unarmed::",
        },
        times: 1,
    },
    Soak {
        name: "repeat",
        what: "the tests on a real Kafka, five times each",
        environment: &[],
        runs: Runs::Tests {
            target: "kafka",
            filter: "",
        },
        times: 5,
    },
];

/// Returns the row of the table that runs a test instead of `cargo xtask test`.
pub(crate) fn row_of(case: &Case<'_>) -> Option<&'static str> {
    let left = LEFT.iter().find(|(package, target, begins, _)| {
        case.target.package == *package
            && case.target.name == *target
            && case.name.starts_with(begins)
    });
    left.map(|(.., row)| *row)
}

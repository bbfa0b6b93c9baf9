//! Which `cargo test` runs in which order.

/// One `cargo test`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// Of cargo, `test` first.
    pub(crate) arguments: Vec<String>,
}

/// The packages whose tests start brokers.
const REAL_KAFKA: [&str; 4] = [
    "conformance",
    "eos-benchmarks",
    "integration-tests",
    "xtask",
];

/// What the packages that need no broker can do beside what they do by default.
const FEATURES: &str = "eos-core/prometheus,eos-testkit/store-conformance";

/// All steps, or one if the caller says which packages or targets to test.
pub(crate) fn plan(arguments: &[String]) -> Vec<Step> {
    if chooses_targets(arguments) {
        return vec![step("chosen", "", arguments)];
    }
    let targets = "--lib --bins --tests --examples";
    let kafka = |flag: &str| {
        REAL_KAFKA
            .map(|package| format!("{flag} {package}"))
            .join(" ")
    };
    vec![
        step(
            "protocol",
            &format!("--package eos-protocol {targets}"),
            arguments,
        ),
        // With the features that none of these packages has by default: what they compile has tests of its own.
        step(
            "crates",
            &format!(
                "--workspace --exclude eos-protocol {} --features {FEATURES} {targets}",
                kafka("--exclude")
            ),
            arguments,
        ),
        // Without the Kafka adapter, so that what must not compile is compiled without any C code.
        step(
            "misuses",
            "--package eos-core --no-default-features --test compile_fail",
            arguments,
        ),
        // With faults compiled in, which no other step has.
        step(
            "failpoints",
            "--package eos-core --no-default-features --features failpoints --lib",
            arguments,
        ),
        step("docs", "--workspace --doc", arguments),
        step(
            "real Kafka",
            &format!("{} {targets}", kafka("--package")),
            arguments,
        ),
    ]
}

fn step(name: &'static str, selection: &str, arguments: &[String]) -> Step {
    let mut all: Vec<_> = ["test", "--no-fail-fast"].map(str::to_owned).into();
    all.extend(selection.split_whitespace().map(str::to_owned));
    all.extend_from_slice(arguments);
    Step {
        name,
        arguments: all,
    }
}

/// Whether the arguments before `--` pick packages or targets.
fn chooses_targets(arguments: &[String]) -> bool {
    let choices = [
        "-p",
        "--package",
        "--workspace",
        "--all",
        "--exclude",
        "--lib",
        "--bin",
        "--bins",
        "--test",
        "--tests",
        "--example",
        "--examples",
        "--bench",
        "--benches",
        "--all-targets",
        "--doc",
    ];
    let of_cargo = arguments.iter().take_while(|argument| *argument != "--");
    let mut names = of_cargo.map(|argument| argument.split('=').next().unwrap_or(argument));
    names.any(|name| choices.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_decisions_come_first_and_a_real_kafka_last() {
        let names: Vec<_> = plan(&[]).iter().map(|step| step.name).collect();
        assert_eq!(
            names,
            [
                "protocol",
                "crates",
                "misuses",
                "failpoints",
                "docs",
                "real Kafka"
            ]
        );
    }

    #[test]
    fn filters_and_options_reach_every_step() {
        for step in plan(&words("fence --release -- --nocapture")) {
            assert!(
                step.arguments
                    .ends_with(&words("fence --release -- --nocapture"))
            );
        }
    }

    #[test]
    fn a_choice_of_targets_replaces_the_plan() {
        let one = plan(&words("-p eos-core fence"));
        assert_eq!(one.len(), 1);
        assert_eq!(
            one[0].arguments,
            words("test --no-fail-fast -p eos-core fence")
        );
        assert_eq!(plan(&words("--test=launcher")).len(), 1);
        assert_eq!(plan(&words("-- --test")).len(), 6);
    }
}

//! The plan for missing tools. A pure function: it receives the state of the system as values.

use kafka_launcher::run;

use super::needs::Need;

/// The package manager of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manager {
    Apt,
    Dnf,
    Brew,
}

impl Manager {
    /// Returns the package manager that is installed.
    pub(crate) fn of_this_system() -> Option<Manager> {
        let known = [
            ("apt-get", Manager::Apt),
            ("dnf", Manager::Dnf),
            ("brew", Manager::Brew),
        ];
        let found = known
            .into_iter()
            .find(|(program, _)| run::find(program).is_some());
        found.map(|(_, manager)| manager)
    }
}

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    Nothing,
    /// Install with apt-get, as root.
    Install,
    /// Print these instructions for the user.
    Tell(String),
}

/// The JDK package of a distribution that has none of the known releases.
pub(crate) const DEFAULT_JDK: &str = "default-jdk-headless";

/// Returns the plan: nothing, an installation, or instructions for the user.
///
/// `jdk` returns the name of apt's JDK package. It is only called if a JDK is missing.
pub(crate) fn plan(
    missing: &[Need],
    manager: Option<Manager>,
    root: bool,
    jdk: impl Fn() -> String,
) -> Plan {
    if missing.is_empty() {
        return Plan::Nothing;
    }
    if manager == Some(Manager::Apt) && root {
        return Plan::Install;
    }
    let names: Vec<_> = missing.iter().map(|need| need.to_string()).collect();
    let mut text = format!("Missing: {}.\n", names.join(", "));
    match manager {
        Some(manager) => {
            text += "Run this, then `cargo xtask setup` again:\n";
            text += &format!("  {}", command(missing, manager, &jdk));
        }
        None => {
            text += "Install them with what your system has, for example one of\n";
            let known = [Manager::Apt, Manager::Dnf, Manager::Brew];
            let commands = known.map(|manager| format!("  {}", command(missing, manager, &jdk)));
            text += &commands.join("\n");
        }
    }
    Plan::Tell(text)
}

/// Returns the one command that installs the missing tools.
fn command(missing: &[Need], manager: Manager, jdk: impl Fn() -> String) -> String {
    let packages = packages(missing, manager, jdk).join(" ");
    match manager {
        Manager::Apt => format!(
            "sudo apt-get update && sudo apt-get install --yes --no-install-recommends {packages}"
        ),
        Manager::Dnf => format!("sudo dnf install --assumeyes {packages}"),
        // Apple's compilers come with the command line tools, not from Homebrew.
        Manager::Brew
            if missing
                .iter()
                .any(|need| matches!(need, Need::C | Need::Cpp)) =>
        {
            format!("xcode-select --install; brew install {packages}")
        }
        Manager::Brew => format!("brew install {packages}"),
    }
}

/// Returns the names of the packages, each once.
pub(crate) fn packages(
    missing: &[Need],
    manager: Manager,
    jdk: impl Fn() -> String,
) -> Vec<String> {
    let mut packages: Vec<String> = Vec::new();
    for need in missing {
        let package = match (manager, need) {
            (Manager::Apt, Need::Java) => jdk(),
            _ => package(*need, manager).to_owned(),
        };
        if !packages.contains(&package) {
            packages.push(package);
        }
    }
    packages
}

fn package(need: Need, manager: Manager) -> &'static str {
    match (manager, need) {
        // gcc's package lacks the headers of the C library: it only recommends them.
        (Manager::Apt, Need::C | Need::Cpp) => "build-essential",
        (Manager::Apt, Need::Zlib) => "zlib1g-dev",
        (Manager::Apt, Need::Libclang) => "libclang-dev",
        (Manager::Apt, Need::Java) => DEFAULT_JDK,
        (Manager::Dnf, Need::C) => "gcc",
        (Manager::Dnf, Need::Cpp) => "gcc-c++",
        (Manager::Dnf, Need::Zlib) => "zlib-devel",
        (Manager::Dnf, Need::Libclang) => "clang-devel",
        (Manager::Dnf, Need::Java) => "java-21-openjdk-headless",
        (Manager::Brew, Need::C | Need::Cpp | Need::Libclang) => "llvm",
        (Manager::Brew, Need::Zlib) => "zlib",
        (Manager::Brew, Need::Java) => "openjdk@21",
        (Manager::Apt, Need::Postgres) => "postgresql",
        (Manager::Dnf, Need::Postgres) => "postgresql-server",
        (Manager::Brew, Need::Postgres) => "postgresql@17",
        (_, Need::Pooler) => "pgbouncer",
        (_, Need::Make) => "make",
        (_, Need::Bash) => "bash",
        (_, Need::Maven) => "maven",
    }
}

/// Returns the first JDK that the distribution has. The project is measured with 17, and the distribution's default may
/// be too old for Kafka.
pub(crate) fn choose_jdk(known: impl Fn(&str) -> bool) -> Option<String> {
    let releases = ["17", "21", "25"];
    let names = releases.map(|release| format!("openjdk-{release}-jdk-headless"));
    names.into_iter().find(|name| known(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jdk() -> String {
        "openjdk-21-jdk-headless".into()
    }

    #[test]
    fn nothing_missing_means_nothing_to_do() {
        assert_eq!(plan(&[], Some(Manager::Apt), true, jdk), Plan::Nothing);
        assert_eq!(plan(&[], None, false, jdk), Plan::Nothing);
    }

    #[test]
    fn root_on_debian_gets_it_installed_each_package_once() {
        let missing = [Need::C, Need::Cpp, Need::Zlib, Need::Java];
        assert_eq!(plan(&missing, Some(Manager::Apt), true, jdk), Plan::Install);
        assert_eq!(
            packages(&missing, Manager::Apt, jdk),
            ["build-essential", "zlib1g-dev", "openjdk-21-jdk-headless"]
        );
    }

    #[test]
    fn everybody_else_is_told_the_one_command() {
        let missing = [Need::Java, Need::Maven];
        let told = |manager| match plan(&missing, Some(manager), false, jdk) {
            Plan::Tell(text) => text,
            other => panic!("{other:?}"),
        };
        assert!(told(Manager::Apt).ends_with(
            "sudo apt-get update && sudo apt-get install --yes --no-install-recommends openjdk-21-jdk-headless maven"
        ));
        assert!(
            told(Manager::Dnf)
                .ends_with("sudo dnf install --assumeyes java-21-openjdk-headless maven")
        );
        assert!(told(Manager::Brew).ends_with("  brew install openjdk@21 maven"));
        assert!(told(Manager::Dnf).starts_with("Missing: a JDK 17 or newer, Maven.\n"));
    }

    #[test]
    fn root_elsewhere_is_told_too() {
        let answer = plan(&[Need::Make], Some(Manager::Dnf), true, jdk);
        assert!(matches!(answer, Plan::Tell(_)), "{answer:?}");
    }

    #[test]
    fn an_unknown_system_is_told_all_three() {
        let Plan::Tell(text) = plan(&[Need::Make], None, true, jdk) else {
            panic!("told");
        };
        for command in ["apt-get", "dnf", "brew"] {
            assert!(text.contains(command), "{text}");
        }
    }

    #[test]
    fn the_jdk_is_one_that_the_distribution_has() {
        let only = |name: &'static str| choose_jdk(move |asked| asked == name);
        assert_eq!(
            only("openjdk-21-jdk-headless"),
            Some("openjdk-21-jdk-headless".into())
        );
        assert_eq!(only("openjdk-11-jdk-headless"), None);
        assert_eq!(choose_jdk(|_| true), Some("openjdk-17-jdk-headless".into()));
    }
}

//! Errors of a configuration.

use std::io;
use std::path::PathBuf;

use super::Origin;

fn lines(mistakes: &[SettingsError]) -> String {
    mistakes
        .iter()
        .map(|mistake| format!("\n- {mistake}"))
        .collect()
}

/// An invalid configuration. The message names the value, its origin and the fix, but never a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The configuration has more than one mistake.
    #[error("the configuration has {} mistakes:{}", mistakes.len(), lines(mistakes))]
    Several {
        /// The mistakes.
        mistakes: Vec<SettingsError>,
    },
    /// The app's name is not valid.
    #[error(
        "{name:?} is not a valid app name. Use 1 to 200 letters, digits, dots, underscores and hyphens. \
         The name is the consumer group, and part of transactional ids and paths"
    )]
    AppName {
        /// The name.
        name: String,
    },
    /// The prefix of the environment variables is not valid.
    #[error(
        "environment_prefix({prefix:?}) is not a valid prefix of environment variables. Use capital letters, digits \
         and underscores, with a letter first, such as \"BILLING\". `EOS_` is the prefix of apps without their own, so \
         no other prefix may begin with it"
    )]
    EnvironmentPrefix {
        /// The prefix.
        prefix: String,
    },
    /// `application.id` names another app than the program.
    #[error(
        "application.id = {claimed:?} ({origin}), but the program has App::new({name:?}). The name \
         selects the committed offsets. Delete the property, or change one of the names"
    )]
    OtherApp {
        /// The value of the property.
        claimed: String,
        /// The name in the program.
        name: String,
        /// Where the property was set.
        origin: Origin,
    },
    /// The layout to accept is not valid.
    #[error(
        "accept.layout = {text:?} is not a valid layout. Copy the 16 hexadecimal digits from the error \
         message that names the layout"
    )]
    Layout {
        /// The value.
        text: String,
    },
    /// The state directory is a relative path.
    #[error(
        "state.dir = {} is not an absolute path. The directory holds the identity of this process, which \
         must not depend on the working directory",
        path.display()
    )]
    RelativeStateDir {
        /// The path.
        path: PathBuf,
    },
    /// The property is unknown.
    #[error(
        "unknown property {key} ({origin}){}",
        nearest.map_or_else(
            || ". docs/configuration.md lists all properties".to_owned(),
            |name| format!(". Did you mean {name}?"),
        )
    )]
    Unknown {
        /// The key.
        key: String,
        /// Its origin.
        origin: Origin,
        /// The property with the most similar name.
        nearest: Option<&'static str>,
    },
    /// The property can't be set.
    #[error("{key} ({origin}) can't be set: {reason}")]
    Refused {
        /// The property.
        key: String,
        /// Where it was set.
        origin: Origin,
        /// The reason, and the alternative.
        reason: &'static str,
    },
    /// The value of a property is not valid.
    #[error("{key} = {shown} ({origin}) is invalid: expected {expected}")]
    Value {
        /// The property.
        key: String,
        /// The value, if it may be shown.
        shown: String,
        /// Where it was set.
        origin: Origin,
        /// The allowed values.
        expected: String,
    },
    /// Two values contradict each other.
    #[error(
        "{smaller} = {small} must {relation} {larger} = {large}: {reason}",
        relation = if *or_equal { "not be more than" } else { "be less than" }
    )]
    Order {
        /// The property whose value is too large.
        smaller: &'static str,
        /// Its value.
        small: u64,
        /// Whether the two values may be equal.
        or_equal: bool,
        /// The property whose value is too small.
        larger: &'static str,
        /// Its value.
        large: u64,
        /// The reason.
        reason: &'static str,
    },
    /// Properties that exclude each other.
    #[error("{one} and {other} can't be set together: {reason}")]
    Together {
        /// One property, with its value.
        one: &'static str,
        /// The other property, with its value.
        other: &'static str,
        /// The reason, and the alternative.
        reason: &'static str,
    },
    /// The program was built without a feature.
    #[error(
        "{key} = {value} ({origin}): this program was built without the feature `{feature}` of \
         eos-core. Add features = [\"{feature}\"] to eos-core in Cargo.toml"
    )]
    Feature {
        /// The property.
        key: &'static str,
        /// Its value.
        value: String,
        /// Its origin, or that of the property that makes its default relevant.
        origin: Origin,
        /// The feature.
        feature: &'static str,
    },
    /// A file can't be read.
    #[error(
        "{} ({origin}) can't be read: {source}{}",
        std::path::absolute(path).as_ref().unwrap_or(path).display(),
        if path.is_relative() {
            ". A relative path starts at the working directory of the program"
        } else {
            ""
        }
    )]
    File {
        /// The configured path.
        path: PathBuf,
        /// The origin of the path.
        origin: Origin,
        /// The cause.
        source: io::Error,
    },
    /// A line of the properties file can't be read.
    #[error("{}:{line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The reason.
        reason: &'static str,
    },
    /// An environment variable is not Unicode.
    #[error("the environment variable {variable} is not valid Unicode")]
    NotText {
        /// Its name.
        variable: String,
    },
}

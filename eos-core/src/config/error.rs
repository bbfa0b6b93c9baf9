//! What can be wrong with a configuration.

use std::io;
use std::path::PathBuf;

use super::Origin;

fn lines(mistakes: &[SettingsError]) -> String {
    mistakes
        .iter()
        .map(|mistake| format!("\n- {mistake}"))
        .collect()
}

/// The configuration can't be used. The text names the value, where it was set, and the fix; never
/// a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// More than one mistake.
    #[error("the configuration has {} mistakes:{}", mistakes.len(), lines(mistakes))]
    Several {
        /// Each of them.
        mistakes: Vec<SettingsError>,
    },
    /// The app's name is no name.
    #[error(
        "{name:?} is no name for an app: 1 to 200 letters, digits, dots, underscores and hyphens. \
         It becomes the consumer group, and part of transactional ids and paths"
    )]
    AppName {
        /// The name.
        name: String,
    },
    /// `application.id` names another app than the program.
    #[error(
        "application.id = {claimed:?} ({origin}), but the program says App::new({name:?}): the name \
         decides which offsets are this app's. Delete the property, or change one of them"
    )]
    OtherApp {
        /// What the property says.
        claimed: String,
        /// What the program says.
        name: String,
        /// Where the property was set.
        origin: Origin,
    },
    /// The layout to accept is none.
    #[error(
        "accept.layout = {text:?} is no layout: 16 hexadecimal digits, as the error message names \
         it that asks for it"
    )]
    Layout {
        /// What was given.
        text: String,
    },
    /// A state directory that depends on where the program is started.
    #[error(
        "state.dir = {}: it must begin at the root. It keeps the identity of this process, and \
         started elsewhere it would be another",
        path.display()
    )]
    RelativeStateDir {
        /// The path.
        path: PathBuf,
    },
    /// There is no such property.
    #[error(
        "{key} ({origin}) is no property{}",
        nearest.map_or_else(
            || " of this library, of librdkafka or of Kafka's clients; docs/configuration.md lists \
                those that there are".to_owned(),
            |name| format!("; did you mean {name}?"),
        )
    )]
    Unknown {
        /// The key.
        key: String,
        /// Where it was set.
        origin: Origin,
        /// The property whose name is nearest.
        nearest: Option<&'static str>,
    },
    /// A property that can't be set.
    #[error("{key} ({origin}) can't be set: {reason}")]
    Refused {
        /// The property.
        key: String,
        /// Where it was set.
        origin: Origin,
        /// Why, and what to use instead.
        reason: &'static str,
    },
    /// A value that is none of the property's.
    #[error("{key} = {shown} ({origin}): it takes {expected}")]
    Value {
        /// The property.
        key: String,
        /// The value, if it may be shown.
        shown: String,
        /// Where it was set.
        origin: Origin,
        /// What is allowed.
        expected: String,
    },
    /// Values that don't fit together.
    #[error(
        "{smaller} = {small} must {relation} {larger} = {large}: {reason}",
        relation = if *or_equal { "not be more than" } else { "be less than" }
    )]
    Order {
        /// What is too large.
        smaller: &'static str,
        /// Its value.
        small: u64,
        /// Whether the two may be equal.
        or_equal: bool,
        /// What is too small.
        larger: &'static str,
        /// Its value.
        large: u64,
        /// Why.
        reason: &'static str,
    },
    /// Properties that exclude each other.
    #[error("{one} and {other} can't be set together: {reason}")]
    Together {
        /// The one, with its value.
        one: &'static str,
        /// The other, with its value.
        other: &'static str,
        /// Why, and what to use instead.
        reason: &'static str,
    },
    /// A feature that this program was built without.
    #[error(
        "{key} = {value} ({origin}): this program was built without the feature `{feature}` of \
         eos-core; add features = [\"{feature}\"] to eos-core in Cargo.toml"
    )]
    Feature {
        /// The property.
        key: &'static str,
        /// Its value.
        value: String,
        /// Where it was set; if it has its default, where that began to matter.
        origin: Origin,
        /// The feature.
        feature: &'static str,
    },
    /// A file can't be read.
    #[error(
        "{} ({origin}) can't be read: {source}{}",
        std::path::absolute(path).as_ref().unwrap_or(path).display(),
        if path.is_relative() {
            ". A relative path begins at the directory that the program is started in"
        } else {
            ""
        }
    )]
    File {
        /// The file, as it was named.
        path: PathBuf,
        /// Who named it.
        origin: Origin,
        /// Why.
        source: io::Error,
    },
    /// A line of the properties file can't be read.
    #[error("{}:{line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Why.
        reason: &'static str,
    },
    /// A variable that is not Unicode.
    #[error("the environment variable {variable} holds something that is not Unicode text")]
    NotText {
        /// Its name.
        variable: String,
    },
}

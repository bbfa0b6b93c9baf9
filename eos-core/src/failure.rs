//! The error type of closures that process records.

use std::any::type_name;
use std::error::Error as StdError;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// The reason why a closure could not process a record.
///
/// Any error converts into a `Failure` by `?`, including `anyhow::Error`. So does a text:
///
/// ```
/// use eos_core::Failure;
///
/// fn amount(text: &str) -> Result<u64, Failure> {
///     let amount: u64 = text.parse()?;
///     if amount == 0 {
///         return Err("an order of nothing".into());
///     }
///     Ok(amount)
/// }
/// assert_eq!(amount("0").unwrap_err().to_string(), "an order of nothing");
/// ```
///
/// `Failure` does not implement [`Error`](StdError), so that `?` can convert every type that does.
pub struct Failure {
    error: BoxError,
    is_permanent: bool,
    /// Whether the app stops, whatever its policy.
    is_fatal: bool,
    /// The name of the type that the failure was made from.
    origin: &'static str,
}

impl Failure {
    /// Creates a failure that no retry can fix. The record is not retried; the policy set by
    /// [`Retry::then`](crate::errors::Retry::then) applies.
    ///
    /// ```
    /// use eos_core::Failure;
    ///
    /// fn check(amount: i64) -> Result<i64, Failure> {
    ///     if amount < 0 {
    ///         return Err(Failure::permanent(format!("an amount of {amount}")));
    ///     }
    ///     Ok(amount)
    /// }
    /// assert!(check(-1).unwrap_err().is_permanent());
    /// ```
    #[must_use]
    pub fn permanent<E: Into<BoxError>>(error: E) -> Self {
        Self {
            is_permanent: true,
            ..Self::from(error)
        }
    }

    /// A failure that stops the app, whatever its policy: after an upgrade the record can be processed.
    pub(crate) fn fatal<E: Into<BoxError>>(error: E) -> Self {
        Self {
            is_fatal: true,
            ..Self::permanent(error)
        }
    }

    pub(crate) fn is_fatal(&self) -> bool {
        self.is_fatal
    }

    /// Whether a retry would fail as well.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.is_permanent
    }

    /// Returns the inner error, for a function that returns another error type.
    ///
    /// ```
    /// fn port(text: &str) -> Result<u16, Box<dyn std::error::Error + Send + Sync>> {
    ///     let parse = || -> Result<u16, eos_core::Failure> { Ok(text.parse()?) };
    ///     parse().map_err(eos_core::Failure::into_inner)
    /// }
    /// assert!(port("x").unwrap_err().is::<std::num::ParseIntError>());
    /// ```
    #[must_use]
    pub fn into_inner(self) -> BoxError {
        self.error
    }

    /// The error inside, if it has this type.
    pub(crate) fn downcast<E: StdError + 'static>(self) -> Result<E, Self> {
        match self.error.downcast::<E>() {
            Ok(error) => Ok(*error),
            Err(error) => Err(Self { error, ..self }),
        }
    }

    /// The type of the error inside, for a dead letter; `Failure` for a text.
    pub(crate) fn kind(&self) -> &'static str {
        if self.origin.contains("::") && !self.origin.starts_with("alloc::") {
            self.origin
        } else {
            "Failure"
        }
    }

    /// The causes of the inner error, one per line.
    pub(crate) fn causes(&self) -> String {
        causes_of(&*self.error)
    }
}

/// The causes of an error, one per line.
pub(crate) fn causes_of(error: &(dyn StdError + 'static)) -> String {
    let mut text = String::new();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str("caused by: ");
        text.push_str(&shown(error));
        text.push('\n');
        source = error.source();
    }
    text
}

/// Whether a text contains these words. The `5` of `15` is no word.
fn has_words(text: &str, words: &str) -> bool {
    let mut pieces = text.split(words).peekable();
    while let (Some(before), Some(after)) = (pieces.next(), pieces.peek()) {
        if !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric) {
            return true;
        }
    }
    words.is_empty()
}

/// The text of an error. `Display` runs outside the closure that returned the error, so a panic in it would end the
/// worker.
fn shown(error: &dyn StdError) -> String {
    catch_unwind(AssertUnwindSafe(|| error.to_string()))
        .unwrap_or_else(|_| "an error whose Display panics".into())
}

impl<E: Into<BoxError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self {
            error: error.into(),
            is_permanent: false,
            is_fatal: false,
            origin: type_name::<E>(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = shown(&*self.error);
        let mut source = self.error.source();
        while let Some(error) = source {
            let cause = shown(error);
            // Many errors contain the text of their source.
            if !has_words(&text, &cause) {
                text.push_str(": ");
                text.push_str(&cause);
            }
            source = error.source();
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

/// The return value of a closure with a context: nothing, or a result.
#[diagnostic::on_unimplemented(
    message = "this closure returns `()` or `Result<(), Failure>`, not `{Self}`",
    note = "end it with `;` to return nothing, or with `Ok(())` after using `?`",
    note = "if it returns an `async` block: closures run to their end; calls that wait belong in `map_async`"
)]
pub trait IntoOutcome: sealed::Sealed {
    /// Converts into a result.
    #[doc(hidden)]
    fn into_outcome(self) -> Result<(), Failure>;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Result<(), Failure> {
        Ok(())
    }
}

impl IntoOutcome for Result<(), Failure> {
    fn into_outcome(self) -> Result<(), Failure> {
        self
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for () {}
    impl Sealed for Result<(), super::Failure> {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_cause_are_found_as_a_whole() {
        assert!(has_words("no row: sku is empty", "sku is empty"));
        assert!(has_words("(closed). Tried for 5 s", "closed"));
        assert!(has_words("15, then 5", "5"));
        assert!(!has_words("partition 15", "5"));
        assert!(!has_words("unknown", "no"));
        assert!(has_words("any", ""));
    }

    #[derive(Debug)]
    struct Rude;

    impl fmt::Display for Rude {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("not telling")
        }
    }

    impl StdError for Rude {}

    #[test]
    fn an_error_that_panics_when_it_is_shown_is_shown_all_the_same() {
        let failure = Failure::from(Rude);
        assert_eq!(failure.to_string(), "an error whose Display panics");
    }
}

//! Removes secrets from librdkafka's texts.

/// The secrets of one client.
#[derive(Clone)]
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    pub(crate) fn new(values: &[String]) -> Self {
        // Values of one or two letters are no secrets, and would make every text unreadable.
        let long = values.iter().filter(|value| value.len() > 2);
        let mut values: Vec<String> = long.cloned().collect();
        // The longest first: one secret may be a part of another.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self(values)
    }

    /// Returns the text without secrets.
    pub(crate) fn hide(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| {
            if text.contains(secret) {
                text.replace(secret, "(not shown)")
            } else {
                text
            }
        })
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_c_library_echoes_is_cleaned() {
        let secrets = Secrets::new(&["hunter2", "hunter22", "x"].map(str::to_owned));
        let clean = secrets.hide("5 bad: hunter22, hunter2, x".into());
        assert_eq!(clean, "5 bad: (not shown), (not shown), x");
        assert!(!format!("{secrets:?}").contains("hunter"));
    }
}

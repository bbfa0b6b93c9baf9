//! The features of eos-core in this build, and which of them an app needs.

use crate::config::Settings;
use crate::error::Error;

/// The features that an app may need.
#[derive(Debug, Clone, Copy)]
pub(super) struct Features {
    prometheus: bool,
    rocksdb: bool,
}

/// The features of this build.
pub(super) const BUILT: Features = Features {
    prometheus: cfg!(feature = "prometheus"),
    rocksdb: cfg!(feature = "rocksdb"),
};

impl Features {
    /// Checks that the build has what the app needs.
    pub(super) fn check(self, settings: &Settings, has_stores: bool) -> Result<(), Error> {
        if !self.prometheus && settings.metrics_at.is_some() {
            return Err(Error::FeatureMissing {
                feature: "prometheus",
                needed_by: "`App::prometheus`".into(),
            });
        }
        if self.rocksdb || !has_stores {
            return Ok(());
        }
        match &settings.state_dir {
            Some(dir) => Err(Error::FeatureMissing {
                feature: "rocksdb",
                needed_by: format!("an app with stores and state.dir = {}", dir.display()),
            }),
            None => {
                tracing::warn!(
                    app = %settings.app,
                    "the build lacks the feature `rocksdb`: state is kept in memory, and restored from \
                     its changelog at each start"
                );
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_that_needs_a_missing_feature_is_refused_with_the_line_to_add() {
        let none = Features {
            prometheus: false,
            rocksdb: false,
        };
        let all = Features {
            prometheus: true,
            rocksdb: true,
        };
        let settings = |change: fn(&mut Settings)| {
            let mut settings = Settings::new("a");
            change(&mut settings);
            settings
        };
        let plain = settings(|_| {});
        assert!(none.check(&plain, true).is_ok(), "in memory");
        let kept = settings(|it| it.state_dir = Some("/var/eos".into()));
        assert!(none.check(&kept, false).is_ok(), "no stores");
        assert!(all.check(&kept, true).is_ok());
        let error = none.check(&kept, true).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "this build of eos-core lacks the feature `rocksdb`, which an app with stores and \
                 state.dir = /var/eos needs. Add features = [\"rocksdb\"] to the dependency"
            ),
            "{error}"
        );
        let served = settings(|it| it.metrics_at = Some("9464".into()));
        let error = none.check(&served, false).unwrap_err().to_string();
        assert!(
            error.contains("the feature `prometheus`, which `App::prometheus` needs"),
            "{error}"
        );
        assert!(all.check(&served, false).is_ok());
    }
}

//! The options of a driver.

use std::collections::BTreeMap;

use eos_core::{App, Error, Timestamp};

use super::TestDriver;

/// The default start of a driver's clock: 2024-01-01T00:00:00Z.
const BEGIN: Timestamp = Timestamp(1_704_067_200_000);

/// The options of a [`TestDriver`]. Created by [`TestDriver::builder`].
#[derive(Debug, Clone)]
#[must_use = "`start` or `build` makes the driver"]
pub struct Builder {
    pub(super) partitions: BTreeMap<String, i32>,
    pub(super) begin: Timestamp,
    pub(super) instances: u16,
    pub(super) holds: bool,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            partitions: BTreeMap::new(),
            begin: BEGIN,
            instances: 1,
            holds: false,
        }
    }
}

impl Builder {
    /// The partition count of the topics that the app reads or writes; 1 by default. The app's own topics follow.
    pub fn partitions(mut self, topic: &str, partitions: i32) -> Builder {
        self.partitions.insert(topic.to_owned(), partitions);
        self
    }

    /// The first time of the clock; 2024-01-01T00:00:00Z by default.
    pub fn start_at(mut self, time: Timestamp) -> Builder {
        self.begin = time;
        self
    }

    /// The number of processes of the app; 1 by default. The app sets the number of workers in each
    /// ([`App::workers`]).
    pub fn instances(mut self, instances: u16) -> Builder {
        self.instances = instances;
        self
    }

    /// Commits no piped record before [`TestDriver::commit`], as [`TestDriver::hold`] from the first record on.
    pub fn hold(mut self) -> Builder {
        self.holds = true;
        self
    }

    /// Starts the app.
    ///
    /// # Panics
    /// With the runtime's text, where [`build`](Self::build) returns an error.
    #[track_caller]
    #[must_use]
    pub fn start(self, app: App) -> TestDriver {
        match self.build(app) {
            Ok(driver) => driver,
            Err(error) => panic!("the app does not start: {error}"),
        }
    }

    /// Starts the app.
    ///
    /// # Errors
    /// The error of [`App::run`](eos_core::App): the graph, a setting, or the cluster is invalid.
    ///
    /// # Panics
    /// If an option is invalid: a topic that the app does not have, no partitions, no instances, a time before 1970.
    #[track_caller]
    pub fn build(self, app: App) -> Result<TestDriver, Error> {
        TestDriver::started(self, app, None)
    }

    /// Starts the app that this function builds, and builds it again for each start of a process: see
    /// [`TestDriver::of`].
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[track_caller]
    #[must_use]
    pub fn start_of(self, app: impl Fn() -> App + Send + 'static) -> TestDriver {
        match TestDriver::started(self, app(), Some(Box::new(app))) {
            Ok(driver) => driver,
            Err(error) => panic!("the app does not start: {error}"),
        }
    }
}

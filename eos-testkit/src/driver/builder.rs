//! What may be said about a driver before it starts.

use std::collections::BTreeMap;

use eos_core::{App, Error, Timestamp};

use super::TestDriver;

/// When a driver begins unless something else is said: 2024-01-01T00:00:00Z.
const BEGIN: Timestamp = Timestamp(1_704_067_200_000);

/// How a [`TestDriver`] begins. Made by [`TestDriver::builder`].
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
    /// How many partitions a topic has that the app reads or writes to; 1 by default. Those of the app's own
    /// follow.
    pub fn partitions(mut self, topic: &str, partitions: i32) -> Builder {
        self.partitions.insert(topic.to_owned(), partitions);
        self
    }

    /// What the clock shows at first; 2024-01-01T00:00:00Z by default.
    pub fn start_at(mut self, time: Timestamp) -> Builder {
        self.begin = time;
        self
    }

    /// How many processes of the app share the work; 1 by default. How many workers each of them has is the
    /// app's to say ([`App::workers`]).
    pub fn instances(mut self, instances: u16) -> Builder {
        self.instances = instances;
        self
    }

    /// Nothing that is piped is committed before [`TestDriver::commit`]: as
    /// [`TestDriver::hold`], from the first record on.
    pub fn hold(mut self) -> Builder {
        self.holds = true;
        self
    }

    /// Starts the app.
    ///
    /// # Panics
    /// With the runtime's text, where [`build`](Self::build) answers an error.
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
    /// What [`App::run`](eos_core::App) would end with: the graph, a setting, or the cluster makes no sense.
    ///
    /// # Panics
    /// If what the builder was told makes no sense: a topic that the app does not have, no partitions, no
    /// instances, a time before 1970.
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

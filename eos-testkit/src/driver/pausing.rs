//! Paused tasks of the app under test.

use std::sync::Arc;

use eos_core::Error;
use eos_core::run::{PauseId, Paused, Resume, ResumeError};
use eos_core::spi::stepped::Process;

use super::TestDriver;

impl TestDriver {
    /// The paused tasks of all processes, as [`Handle::paused`](eos_core::Handle::paused) returns them. A call that pipes
    /// returns although a task is paused.
    ///
    /// ```
    /// use eos_core::run::Resume;
    /// use eos_core::{App, ErrorPolicy, PlainTopic, Topic};
    /// use eos_testkit::TestDriver;
    ///
    /// let texts = Topic::<String, String>::plain("texts");
    /// let numbers = PlainTopic::<String, u64>::named("numbers");
    /// let mut app = App::new("numbers-v1");
    /// app.source(&texts)
    ///     .on_error(ErrorPolicy::pause())
    ///     .try_map(|text| Ok(text.parse::<u64>()?))
    ///     .to(&numbers);
    ///
    /// let mut driver = TestDriver::new(app);
    /// for text in ["1", "two", "3"] {
    ///     driver.pipe(&texts, "k", text);
    /// }
    /// assert_eq!(driver.read_pairs(&numbers), [("k".to_owned(), 1)]);
    ///
    /// let paused = driver.paused().remove(0);
    /// assert_eq!(paused.at.to_string(), "record 1 of texts-0");
    /// driver.resume(paused.id, Resume::Skip).unwrap();
    /// assert_eq!(driver.read_pairs(&numbers), [("k".to_owned(), 3)]);
    /// ```
    #[must_use]
    pub fn paused(&self) -> Vec<Paused> {
        let processes = self.seats.iter().filter_map(|seat| seat.process.as_ref());
        processes.flat_map(Process::paused).collect()
    }

    /// Decides about a paused task, as [`Handle::resume`](eos_core::Handle::resume) does, and runs the app on.
    ///
    /// # Errors
    /// [`ResumeError`] if no process has this pause, or if there is no dead-letter topic.
    ///
    /// # Panics
    /// If the app ends with an error.
    #[track_caller]
    pub fn resume(&mut self, id: PauseId, how: Resume) -> Result<(), ResumeError> {
        let mut outcome = Err(ResumeError::NotPaused { id });
        for process in self.seats.iter().filter_map(|seat| seat.process.as_ref()) {
            if process.paused().iter().any(|paused| paused.id == id) {
                outcome = process.resume(id, how);
            }
        }
        outcome?;
        let ended: Result<(), Arc<Error>> = self.go();
        if let Err(error) = ended {
            panic!("{error}");
        }
        Ok(())
    }
}

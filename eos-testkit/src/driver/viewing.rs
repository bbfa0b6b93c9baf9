//! Views of the stores of the app under test.

use eos_core::views::{View, ViewError, Viewable};

use super::TestDriver;

impl TestDriver {
    /// A view of a store in the first process, as [`Handle::view`](eos_core::Handle::view) returns it. To see the rows of
    /// all processes, use [`store`](Self::store).
    ///
    /// ```
    /// use eos_core::{App, KeyValueStore, Topic};
    /// use eos_testkit::TestDriver;
    ///
    /// let clicks = Topic::<String, String>::plain("clicks");
    /// let counts = KeyValueStore::<String, u64>::plain("counts");
    /// let mut app = App::new("clicks-v1");
    /// app.source(&clicks).group_by_key().count(&counts).to(&Topic::plain("totals"));
    ///
    /// let mut driver = TestDriver::new(app);
    /// driver.hold();
    /// driver.pipe(&clicks, "ada", "/home");
    /// // The transaction is open.
    /// assert_eq!(driver.view(&counts)?.get(&"ada".to_owned())?, None);
    /// driver.commit();
    /// assert_eq!(driver.view(&counts)?.get(&"ada".to_owned())?, Some(1));
    /// # Ok::<(), eos_core::views::ViewError>(())
    /// ```
    ///
    /// # Errors
    /// [`ViewError`] if the app has no such store.
    ///
    /// # Panics
    /// If the first process is down.
    #[track_caller]
    pub fn view<H: Viewable>(&self, store: &H) -> Result<View<H::Store>, ViewError> {
        self.view_in(0, store)
    }

    /// A view of a store in a process, by the order in which the processes were added. The first one is 0.
    ///
    /// # Errors
    /// As [`view`](Self::view).
    ///
    /// # Panics
    /// If there is no such process, or if it is down.
    #[track_caller]
    pub fn view_in<H: Viewable>(
        &self,
        instance: usize,
        store: &H,
    ) -> Result<View<H::Store>, ViewError> {
        let seat = self.seats.get(instance);
        let process = seat.and_then(|seat| seat.process.as_ref());
        match process {
            Some(process) => process.view(store),
            None => panic!("view_in({instance}, ..): this process is down, or was never added"),
        }
    }
}

//! The end of a stream in a database.

use eos_core::boundary::Place;
use eos_core::{Failure, Record, Stream};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::postgres::Postgres;
use crate::tx::Tx;

/// Ends a stream in a table, a statement or a closure of a database.
///
/// # Examples
/// ```no_run
/// use eos_core::{App, Topic};
/// use eos_postgres::{Postgres, PostgresStream};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let shop = Postgres::connect("postgres://shop@localhost/shop")?;
/// let stock = shop
///     .table::<String, i64>("stock")
///     .record_key("sku", |sku| sku.clone())
///     .add("units", |_, units| -*units);
///
/// let mut app = App::new("inventory-v1");
/// app.ledger(&shop);
/// app.source(&Topic::<String, i64>::json("orders")).to_rows(&stock);
/// # Ok(())
/// # }
/// ```
pub trait PostgresStream<K, V> {
    /// Writes each record to a [`SqlTable`](crate::SqlTable), or runs a [`Statement`](crate::Statement) or the closure of
    /// an [`Apply`](crate::Apply) for it. The app needs the table's database as its ledger: [`App::ledger`](eos_core::App::ledger).
    ///
    /// In a stream of `Option<V>`, the value `None` deletes the row of the key from a table. A closure receives `None`.
    ///
    /// # Exactly-once
    /// The row and the position behind its record commit in one SQL transaction.
    fn to_rows<T: Place<K, V> + Clone>(self, place: &T);

    /// Runs a closure for each record, in the order of records. The closure receives the open transaction. Each of its
    /// statements is a round trip, so tables and statements are faster. Logs and errors contain the name. To set a
    /// policy or an inbox, pass the result of [`Postgres::apply`] to [`to_rows`](Self::to_rows).
    ///
    /// The closure must wait only for its statements, because the open transaction holds locks.
    ///
    /// # Exactly-once
    /// The statements and the position behind the record commit in one SQL transaction. The closure may run again for a
    /// record whose transaction did not commit.
    ///
    /// # Examples
    /// ```no_run
    /// use eos_core::{App, Topic};
    /// use eos_postgres::{Postgres, PostgresStream};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let shop = Postgres::connect("postgres://shop@localhost/shop")?;
    /// let mut app = App::new("inventory-v1");
    /// app.ledger(&shop);
    /// app.source(&Topic::<String, i64>::json("orders"))
    ///     .apply(&shop, "book", async |tx, order| {
    ///         tx.execute("INSERT INTO bookings VALUES ($1, $2)", &[&order.key, &order.value])
    ///             .await?;
    ///         Ok(())
    ///     });
    /// # Ok(())
    /// # }
    /// ```
    fn apply(
        self,
        shop: &Postgres,
        name: &str,
        closure: impl AsyncFn(&mut Tx, Record<K, V>) -> Result<(), Failure> + Send + Sync + 'static,
    ) where
        K: Serialize + DeserializeOwned + 'static,
        V: Serialize + DeserializeOwned + 'static;
}

impl<K: 'static, V: 'static, P> PostgresStream<K, V> for Stream<K, V, P> {
    fn to_rows<T: Place<K, V> + Clone>(self, place: &T) {
        self.to_place(place.clone());
    }

    fn apply(
        self,
        shop: &Postgres,
        name: &str,
        closure: impl AsyncFn(&mut Tx, Record<K, V>) -> Result<(), Failure> + Send + Sync + 'static,
    ) where
        K: Serialize + DeserializeOwned + 'static,
        V: Serialize + DeserializeOwned + 'static,
    {
        self.to_place(shop.apply(name, closure));
    }
}

//! The end of a stream in a database.

use eos_core::Stream;
use eos_core::boundary::Place;

/// Ends a stream in a table or a statement of a database.
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
    /// Writes each record to a [`SqlTable`](crate::SqlTable), or runs a [`Statement`](crate::Statement) for it. The
    /// app needs the table's database as its ledger: [`App::ledger`](eos_core::App::ledger).
    ///
    /// In a stream of `Option<V>`, the value `None` deletes the row of the key.
    ///
    /// # Exactly-once
    /// The row and the position behind its record commit in one SQL transaction.
    fn to_rows<T: Place<K, V> + Clone>(self, place: &T);
}

impl<K: 'static, V: 'static, P> PostgresStream<K, V> for Stream<K, V, P> {
    fn to_rows<T: Place<K, V> + Clone>(self, place: &T) {
        self.to_place(place.clone());
    }
}

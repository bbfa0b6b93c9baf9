//! The topic of a table may hold tombstones.
use eos_core::{App, KeyValueStore, Topic};

fn main() {
    let rows = Topic::<String, String>::plain("rows");
    let mut app = App::new("wrong");
    let _rows = app.table(&rows, &KeyValueStore::plain("rows"));
}

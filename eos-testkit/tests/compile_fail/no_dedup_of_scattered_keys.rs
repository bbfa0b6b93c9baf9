//! After `key_by` equal ids may be in several tasks: `repartition` comes before a deduplication.
use std::time::Duration;

use eos_core::identity::{SeenIds, Versions};
use eos_core::{App, Topic};

fn main() {
    let payments = Topic::<String, String>::plain("payments");
    let mut app = App::new("wrong");
    app.source(&payments)
        .key_by(|payment| payment.clone())
        .dedup(&SeenIds::fixed("seen", Duration::from_secs(300)))
        .by_key()
        .ignore();
    app.source(&payments)
        .key_by(|payment| payment.clone())
        .newest(&Versions::new("versions"), |_| 0)
        .accepted()
        .ignore();
}

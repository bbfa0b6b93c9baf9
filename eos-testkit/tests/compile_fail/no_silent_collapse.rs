//! Equal values of different requests are duplicates only with consent.
use std::time::Duration;

use eos_core::identity::SeenIds;
use eos_core::{App, Topic};

fn main() {
    let mut app = App::new("wrong");
    app.source(&Topic::<String, String>::plain("in"))
        .dedup(&SeenIds::fixed("seen", Duration::from_secs(300)))
        .by_value()
        .to(&Topic::plain("out"));
}

//! The thread that lets time pass in the model.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::shared::Shared;

pub(super) fn start(shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new()
        .name("eos-broker-clock".into())
        .spawn(move || shared.run_clock())
}

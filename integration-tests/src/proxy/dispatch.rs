//! The delivery of kept requests.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::book::{Book, Deed};
use super::late::Kept;

/// The book of the rules, and the addresses of the brokers.
#[derive(Debug)]
pub(super) struct Dispatch {
    pub(super) book: Mutex<Book>,
    /// Empty until the brokers run.
    brokers: Mutex<Vec<SocketAddr>>,
}

impl Dispatch {
    pub(super) fn new(seed: u64) -> Dispatch {
        Dispatch {
            book: Mutex::new(Book::new(seed)),
            brokers: Mutex::default(),
        }
    }

    pub(super) fn forward_to(&self, brokers: Vec<SocketAddr>) {
        *lock(&self.brokers) = brokers;
    }

    pub(super) fn broker(&self, broker: usize) -> Option<SocketAddr> {
        lock(&self.brokers).get(broker).copied()
    }

    /// Delivers kept requests one after the other.
    pub(super) fn deliver(&self, due: Vec<Kept>) {
        for kept in due {
            let (place, header) = (kept.origin.place(), kept.header.clone());
            let Some(to) = self.broker(place.1) else {
                continue;
            };
            if let Some((rule, late)) = kept.deliver(to) {
                let mut book = lock(&self.book);
                book.write(rule, place, &header, Deed::Delivered(late.code));
                book.delivered(rule, late);
            }
        }
    }
}

/// Locks a mutex. Ignores poisoning, because a panic of another thread leaves no inconsistent data.
pub(super) fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

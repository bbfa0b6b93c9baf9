//! Stateless operators on values and records.

use std::sync::Arc;

use super::Stream;
use crate::failure::Failure;
use crate::keys::Scattered;
use crate::record::Record;
use crate::topology::{Apply, Branch, Fault, Forward, Kind, Look};

/// Operators on values. The key, the timestamp and the headers stay.
impl<K: 'static, V: 'static, P> Stream<K, V, P> {
    /// Changes the value and keeps the key.
    pub fn map<U: 'static>(self, f: impl Fn(V) -> U + Send + Sync + 'static) -> Stream<K, U, P> {
        self.map_values(Kind::Map, move |value| Ok(Some(f(value))))
    }

    /// Changes the value, or fails the record. Any error converts by `?`:
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// # let (texts, numbers) = (Topic::<String, String>::plain("t"), Topic::<String, u64>::plain("n"));
    /// app.source(&texts).try_map(|text| Ok(text.parse::<u64>()?)).to(&numbers);
    /// ```
    pub fn try_map<U: 'static>(
        self,
        f: impl Fn(V) -> Result<U, Failure> + Send + Sync + 'static,
    ) -> Stream<K, U, P> {
        self.map_values(Kind::TryMap, move |value| f(value).map(Some))
    }

    /// Changes the value, or drops the record.
    pub fn filter_map<U: 'static>(
        self,
        f: impl Fn(V) -> Option<U> + Send + Sync + 'static,
    ) -> Stream<K, U, P> {
        self.map_values(Kind::FilterMap, move |value| Ok(f(value)))
    }

    /// Keeps the records whose value matches. Other records count as processed.
    pub fn filter(self, f: impl Fn(&V) -> bool + Send + Sync + 'static) -> Self {
        self.filter_record(move |record| f(&record.value))
    }

    /// Maps a value to any number of values, each with the record's key.
    pub fn flat_map<I>(self, f: impl Fn(V) -> I + Send + Sync + 'static) -> Stream<K, I::Item, P>
    where
        K: Clone,
        I: IntoIterator<Item: 'static> + 'static,
    {
        self.flat_map_values(Kind::FlatMap, move |value| Ok(f(value)))
    }

    /// Maps a value to any number of values, or fails the record.
    pub fn try_flat_map<I>(
        self,
        f: impl Fn(V) -> Result<I, Failure> + Send + Sync + 'static,
    ) -> Stream<K, I::Item, P>
    where
        K: Clone,
        I: IntoIterator<Item: 'static> + 'static,
    {
        self.flat_map_values(Kind::TryFlatMap, f)
    }

    /// Calls a closure with each value, for logs and metrics. The closure sees a record again if its transaction is
    /// aborted.
    pub fn peek(self, f: impl Fn(&V) + Send + Sync + 'static) -> Self {
        self.peek_record(move |record| f(&record.value))
    }

    /// Splits the stream in two: records whose value matches, and all others. Branch the second stream for more.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// # let amounts = Topic::<String, u64>::plain("amounts");
    /// let (large, others) = app.source(&amounts).branch(|amount| *amount > 1000);
    /// let (medium, small) = others.branch(|amount| *amount > 100);
    /// large.to(&Topic::plain("large"));
    /// medium.to(&Topic::plain("medium"));
    /// small.to(&Topic::plain("small"));
    /// ```
    pub fn branch(self, f: impl Fn(&V) -> bool + Send + Sync + 'static) -> (Self, Self) {
        self.branch_record(move |record| f(&record.value))
    }

    /// Sets a new key, made from the value.
    ///
    /// The records of one new key are [`Scattered`] until they are written to a topic, where the new key decides the
    /// partition.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// # let lines = Topic::<String, String>::plain("lines");
    /// let by_length = Topic::<u64, String>::plain("lines-by-length");
    /// app.source(&lines).key_by(|line| line.len() as u64).to(&by_length);
    /// ```
    pub fn key_by<L: 'static>(
        self,
        f: impl Fn(&V) -> L + Send + Sync + 'static,
    ) -> Stream<L, V, Scattered> {
        self.key_by_record(move |record| f(&record.value))
    }

    fn map_values<U: 'static>(
        self,
        kind: Kind,
        f: impl Fn(V) -> Result<Option<U>, Failure> + Send + Sync + 'static,
    ) -> Stream<K, U, P> {
        self.apply(kind, move |record, next| {
            let (value, rest) = record.split();
            match f(value).map_err(Fault::user)? {
                Some(value) => next.record(rest.with_value(value)),
                None => Ok(()),
            }
        })
    }

    fn flat_map_values<I>(
        self,
        kind: Kind,
        f: impl Fn(V) -> Result<I, Failure> + Send + Sync + 'static,
    ) -> Stream<K, I::Item, P>
    where
        K: Clone,
        I: IntoIterator<Item: 'static> + 'static,
    {
        self.apply(kind, move |record, next| {
            let (value, rest) = record.split();
            let values = f(value).map_err(Fault::user)?;
            values
                .into_iter()
                .try_for_each(|value| next.record(rest.clone().with_value(value)))
        })
    }
}

/// Operators on records: with the key, the timestamp and the headers.
impl<K: 'static, V: 'static, P> Stream<K, V, P> {
    /// Changes the value; the closure receives the whole record. Key, timestamp and headers stay.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// # let clicks = Topic::<String, String>::plain("clicks");
    /// app.source(&clicks)
    ///     .map_record(|click| format!("{} by {}", click.value, click.key))
    ///     .to(&Topic::plain("clicks-with-users"));
    /// ```
    pub fn map_record<U: 'static>(
        self,
        f: impl Fn(Record<&K, V>) -> U + Send + Sync + 'static,
    ) -> Stream<K, U, P> {
        self.map_records(Kind::Map, move |record| Ok(Some(f(record))))
    }

    /// Like [`map_record`](Self::map_record), or fails the record.
    pub fn try_map_record<U: 'static>(
        self,
        f: impl Fn(Record<&K, V>) -> Result<U, Failure> + Send + Sync + 'static,
    ) -> Stream<K, U, P> {
        self.map_records(Kind::TryMap, move |record| f(record).map(Some))
    }

    /// Like [`map_record`](Self::map_record), or drops the record.
    pub fn filter_map_record<U: 'static>(
        self,
        f: impl Fn(Record<&K, V>) -> Option<U> + Send + Sync + 'static,
    ) -> Stream<K, U, P> {
        self.map_records(Kind::FilterMap, move |record| Ok(f(record)))
    }

    /// Keeps the records that match. Other records count as processed.
    pub fn filter_record(self, f: impl Fn(&Record<K, V>) -> bool + Send + Sync + 'static) -> Self {
        let f = Arc::new(f);
        self.then(Kind::Filter, move || {
            Box::new(Branch::<K, V, _>::new(Arc::clone(&f)))
        })
    }

    /// Maps a record to any number of values, each with the record's key, timestamp and headers.
    pub fn flat_map_record<I>(
        self,
        f: impl Fn(Record<&K, V>) -> I + Send + Sync + 'static,
    ) -> Stream<K, I::Item, P>
    where
        K: Clone,
        I: IntoIterator<Item: 'static> + 'static,
    {
        self.flat_map_records(Kind::FlatMap, move |record| Ok(f(record)))
    }

    /// Like [`flat_map_record`](Self::flat_map_record), or fails the record.
    pub fn try_flat_map_record<I>(
        self,
        f: impl Fn(Record<&K, V>) -> Result<I, Failure> + Send + Sync + 'static,
    ) -> Stream<K, I::Item, P>
    where
        K: Clone,
        I: IntoIterator<Item: 'static> + 'static,
    {
        self.flat_map_records(Kind::TryFlatMap, f)
    }

    /// Like [`peek`](Self::peek), with key, timestamp and headers.
    pub fn peek_record(self, f: impl Fn(&Record<K, V>) + Send + Sync + 'static) -> Self {
        let f = Arc::new(f);
        self.then(Kind::Peek, move || {
            Box::new(Look::<K, V, _>::new(Arc::clone(&f)))
        })
    }

    /// Like [`branch`](Self::branch), with key, timestamp and headers.
    pub fn branch_record(
        self,
        f: impl Fn(&Record<K, V>) -> bool + Send + Sync + 'static,
    ) -> (Self, Self) {
        let f = Arc::new(f);
        self.part(Kind::Branch, move || {
            Box::new(Branch::<K, V, _>::new(Arc::clone(&f)))
        })
    }

    /// Sets a new key, made from the record. See [`key_by`](Self::key_by).
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// # let visits = Topic::<String, String>::plain("visits");
    /// app.source(&visits)
    ///     .key_by_record(|visit| format!("{}/{}", visit.key, visit.value))
    ///     .to(&Topic::plain("visits-by-user-and-page"));
    /// ```
    pub fn key_by_record<L: 'static>(
        self,
        f: impl Fn(&Record<K, V>) -> L + Send + Sync + 'static,
    ) -> Stream<L, V, Scattered> {
        self.apply(Kind::KeyBy, move |record, next| {
            let key = f(&record);
            next.record(record.with_key(key))
        })
    }

    /// Changes key and value; timestamp and headers stay. The records of one new key are [`Scattered`].
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// # let names = Topic::<u64, String>::plain("names");
    /// app.source(&names).rekey(|name| (name.value, name.key)).to(&Topic::plain("ids-by-name"));
    /// ```
    pub fn rekey<L: 'static, U: 'static>(
        self,
        f: impl Fn(Record<K, V>) -> (L, U) + Send + Sync + 'static,
    ) -> Stream<L, U, Scattered> {
        self.apply(Kind::Rekey, move |record, next| {
            let (timestamp, headers) = (record.timestamp, record.headers.clone());
            let (key, value) = f(record);
            next.record(Record {
                key,
                value,
                timestamp,
                headers,
            })
        })
    }

    fn map_records<U: 'static>(
        self,
        kind: Kind,
        f: impl Fn(Record<&K, V>) -> Result<Option<U>, Failure> + Send + Sync + 'static,
    ) -> Stream<K, U, P> {
        self.apply(kind, move |record, next| {
            let (value, rest) = record.split();
            match f(rest.lent(value)).map_err(Fault::user)? {
                Some(value) => next.record(rest.with_value(value)),
                None => Ok(()),
            }
        })
    }

    fn flat_map_records<I>(
        self,
        kind: Kind,
        f: impl Fn(Record<&K, V>) -> Result<I, Failure> + Send + Sync + 'static,
    ) -> Stream<K, I::Item, P>
    where
        K: Clone,
        I: IntoIterator<Item: 'static> + 'static,
    {
        self.apply(kind, move |record, next| {
            let (value, rest) = record.split();
            let values = f(rest.lent(value)).map_err(Fault::user)?;
            values
                .into_iter()
                .try_for_each(|value| next.record(rest.clone().with_value(value)))
        })
    }

    /// Adds a step of a closure.
    pub(crate) fn apply<L, U, Q>(
        self,
        kind: Kind,
        f: impl Fn(Record<K, V>, &mut Forward<'_, '_, '_>) -> Result<(), Fault> + Send + Sync + 'static,
    ) -> Stream<L, U, Q> {
        let f = Arc::new(f);
        self.then(kind, move || {
            Box::new(Apply::<K, V, _>::new(Arc::clone(&f)))
        })
    }
}

impl<K: 'static, A: 'static, B: 'static, P> Stream<K, Result<A, B>, P> {
    /// Splits the stream in two: the `Ok` values and the `Err` values.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// # let texts = Topic::<String, String>::plain("texts");
    /// let (numbers, others) =
    ///     app.source(&texts).map(|text| text.parse::<u64>().map_err(|_| text)).split_result();
    /// numbers.to(&Topic::plain("numbers"));
    /// others.to(&Topic::plain("other-texts"));
    /// ```
    pub fn split_result(self) -> (Stream<K, A, P>, Stream<K, B, P>) {
        let (well, rest) = self.branch(Result::is_ok);
        (well.filter_map(Result::ok), rest.filter_map(Result::err))
    }
}

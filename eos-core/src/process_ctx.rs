//! The contexts of steps that forward.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use eos_protocol::Timestamp;

use crate::client::Headers;
use crate::ctx::Ctx;
use crate::failure::Failure;
use crate::record::Record;
use crate::store::StateError;
use crate::topology::{Fault, Next};

/// The context of a record in [`Stream::process`](crate::Stream::process): forwards records to the next step.
///
/// It derefs to [`Ctx`], so functions that take `&Ctx<'_>` accept it.
pub struct ProcessCtx<'r, K, V> {
    ctx: Ctx<'r>,
    next: RefCell<Next<'r>>,
    /// The only key that may be forwarded, if the step has such a key.
    own_key: Option<OwnKey<K>>,
    types: PhantomData<fn(K, V)>,
}

/// The key of a timer's moment.
pub(crate) struct OwnKey<K> {
    /// The timer, by the index of its store.
    pub(crate) timer: usize,
    /// Encodes a key as the timer does.
    pub(crate) encode: fn(&Ctx<'_>, usize, &K) -> Result<Vec<u8>, StateError>,
    pub(crate) key: Vec<u8>,
}

impl<'r, K: 'static, V: 'static> ProcessCtx<'r, K, V> {
    pub(crate) fn new(ctx: Ctx<'r>, next: Next<'r>) -> Self {
        Self {
            ctx,
            next: RefCell::new(next),
            own_key: None,
            types: PhantomData,
        }
    }

    /// Rejects forwarded records with another key than this one, if given.
    pub(crate) fn forwarding(self, own_key: Option<OwnKey<K>>) -> Self {
        Self { own_key, ..self }
    }

    /// Forwards a key and a value, with the timestamp and the headers of the current record. The next steps run before
    /// `forward` returns (depth first, as in Kafka Streams).
    ///
    /// # Errors
    /// Returns a [`Failure`] if a later step failed, or if due moments of a later step must run before the record, which
    /// then runs again. Return the failure with `?`, and do not unwrap it: the record fails even if it is
    /// ignored.
    #[must_use = "return it with `?`: the record has failed if this is an error"]
    pub fn forward(&self, key: K, value: V) -> Result<(), Failure> {
        self.forward_record(self.ctx.record(key, value))
    }

    /// Forwards a record with its own timestamp and headers. A record without a timestamp gets that of the current
    /// record.
    ///
    /// # Errors
    /// See [`forward`](Self::forward).
    #[must_use = "return it with `?`: the record has failed if this is an error"]
    pub fn forward_record(&self, record: Record<K, V>) -> Result<(), Failure> {
        if let Some(OwnKey { timer, encode, key }) = &self.own_key {
            let forwarded = encode(&self.ctx, *timer, &record.key);
            match forwarded {
                Ok(forwarded) if forwarded == *key => {}
                Ok(_) => return Err(self.ctx.fail(Fault::User(Failure::permanent(OTHER_KEY)))),
                Err(error) => return Err(self.ctx.fail(Fault::State(error))),
            }
        }
        forward(&self.ctx, &self.next, record)
    }
}

/// The error of a handler that forwards under another key.
const OTHER_KEY: &str = "the handler of a timer before `process_values` forwarded a key that is not its own. Forward \
                         `due.key`, or use `process`";

impl<'r, K, V> Deref for ProcessCtx<'r, K, V> {
    type Target = Ctx<'r>;

    fn deref(&self) -> &Ctx<'r> {
        &self.ctx
    }
}

impl<K, V> fmt::Debug for ProcessCtx<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProcessCtx").field(&self.ctx).finish()
    }
}

/// The context of a record in [`Stream::process_values`](crate::Stream::process_values): forwards values with the
/// record's key to the next step.
///
/// It derefs to [`Ctx`], so functions that take `&Ctx<'_>` accept it.
pub struct ValuesCtx<'r, V> {
    ctx: Ctx<'r>,
    next: RefCell<Next<'r>>,
    key: &'r dyn Any,
    forward: ForwardValue<V>,
}

/// Forwards a value, a timestamp and headers with a clone of the key. The function knows the type of the key.
type ForwardValue<V> = fn(
    &Ctx<'_>,
    &RefCell<Next<'_>>,
    &dyn Any,
    V,
    Option<Timestamp>,
    Headers,
) -> Result<(), Failure>;

impl<'r, V: 'static> ValuesCtx<'r, V> {
    pub(crate) fn new<K: Clone + 'static>(ctx: Ctx<'r>, next: Next<'r>, key: &'r K) -> Self {
        Self {
            ctx,
            next: RefCell::new(next),
            key,
            forward: |ctx, next, key, value, timestamp, headers| {
                let Some(key) = key.downcast_ref::<K>() else {
                    return Err(ctx.fail(Fault::User("the key has another type".into())));
                };
                let key = key.clone();
                let record = Record {
                    key,
                    value,
                    timestamp,
                    headers,
                };
                forward(ctx, next, record)
            },
        }
    }

    /// Forwards a value, with the key, the timestamp and the headers of the current record. The next steps run before
    /// `forward` returns (depth first, as in Kafka Streams). Each call clones the key.
    ///
    /// # Errors
    /// Returns a [`Failure`] if a later step failed, or if due moments of a later step must run before the record, which
    /// then runs again. Return the failure with `?`, and do not unwrap it: the record fails even if it is
    /// ignored.
    #[must_use = "return it with `?`: the record has failed if this is an error"]
    pub fn forward(&self, value: V) -> Result<(), Failure> {
        let (timestamp, headers) = (self.ctx.timestamp(), self.ctx.headers().clone());
        (self.forward)(&self.ctx, &self.next, self.key, value, timestamp, headers)
    }

    /// Forwards a record with its own timestamp and headers and the current record's key. A record without a timestamp
    /// gets that of the current record.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// app.source(&Topic::<String, String>::plain("lines"))
    ///     .process_values(|ctx, line| ctx.forward_record(line.header("checked", "yes")))
    ///     .to(&Topic::plain("checked-lines"));
    /// ```
    ///
    /// # Errors
    /// Returns a [`Failure`] if the key is not the key reference of the current record. See also
    /// [`forward`](Self::forward).
    #[must_use = "return it with `?`: the record has failed if this is an error"]
    pub fn forward_record<K: 'static>(&self, record: Record<&K, V>) -> Result<(), Failure> {
        let lent = self.key.downcast_ref::<K>();
        if !lent.is_some_and(|lent| std::ptr::eq(lent, record.key)) {
            return Err(self.ctx.fail(Fault::User(Failure::from(
                "`forward_record` of `process_values` received a key that is not the record's. To change the key, \
                 use `process`",
            ))));
        }
        let timestamp = record.timestamp.or(self.ctx.timestamp());
        (self.forward)(
            &self.ctx,
            &self.next,
            self.key,
            record.value,
            timestamp,
            record.headers,
        )
    }
}

impl<'r, V> Deref for ValuesCtx<'r, V> {
    type Target = Ctx<'r>;

    fn deref(&self) -> &Ctx<'r> {
        &self.ctx
    }
}

impl<V> fmt::Debug for ValuesCtx<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ValuesCtx").field(&self.ctx).finish()
    }
}

/// Runs the steps after the step of a context.
fn forward<K: 'static, V: 'static>(
    ctx: &Ctx<'_>,
    next: &RefCell<Next<'_>>,
    mut record: Record<K, V>,
) -> Result<(), Failure> {
    record.timestamp = record.timestamp.or(ctx.timestamp());
    // No later step has this context, so it is never borrowed twice.
    let Ok(mut next) = next.try_borrow_mut() else {
        return Err(Failure::from(
            "`forward` was called while the same step was forwarding a record",
        ));
    };
    let forwarded = next.forward(ctx, &mut Some(record));
    drop(next);
    forwarded.map_err(|fault| ctx.fail(fault))
}

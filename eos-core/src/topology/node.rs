//! A node of a task's graph.

use std::any::Any;

use eos_protocol::Timestamp;

use super::fault::Fault;
use crate::client::Headers;
use crate::ctx::Ctx;
use crate::record::Record;

/// A fetched record.
#[derive(Debug)]
pub(crate) struct Raw<'a> {
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) timestamp: Option<Timestamp>,
    pub(crate) headers: &'a Headers,
}

/// The first node of a chain: makes a typed record from bytes.
pub(crate) trait Entry: Send {
    fn enter(&mut self, ctx: &Ctx<'_>, raw: &Raw<'_>, next: &mut Next<'_>) -> Result<(), Fault>;

    /// Whether the time of a record comes from its key and value.
    fn has_own_time(&self) -> bool {
        false
    }

    /// Returns the time of a record from its key and value. `None` if it has none, or can't be decoded.
    fn own_time(&self, _raw: &Raw<'_>) -> Option<Timestamp> {
        None
    }
}

/// A due item: a moment of a timer or a tick that has come, or the final result of a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment<'a> {
    /// The index of the item's store.
    pub(crate) store: usize,
    /// The key of its row; empty for a tick.
    pub(crate) key: &'a [u8],
    /// The value of its row; empty for a timer.
    pub(crate) value: &'a [u8],
    pub(crate) at: Timestamp,
    /// The time of the item's clock.
    pub(crate) fired: Timestamp,
    /// The number of later ticks that have come meanwhile.
    pub(crate) missed: u64,
}

/// Any other node. `record` is a `&mut Option<Record<K, V>>` of its own types.
pub(crate) trait Node: Send {
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault>;

    /// Returns the store whose changes this node forwards once per commit, if it does.
    fn emits(&self) -> Option<usize> {
        None
    }

    /// Forwards the transaction's result for one key of that store: the last value, or `None` if the key was deleted.
    /// The intake has ended, so there is no current record.
    fn emit(
        &mut self,
        _ctx: &Ctx<'_>,
        _key: &[u8],
        _value: Option<&[u8]>,
        _next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        Ok(())
    }

    /// Returns the stores whose due items this node handles.
    fn due_stores(&self) -> &[usize] {
        &[]
    }

    /// Returns the store of a foreign-key join whose rows keep the values of this node's records, if it has one. Such a row
    /// forgets its value if an error policy gives a record up.
    fn right_value_store(&self) -> Option<usize> {
        None
    }

    /// Handles a due item.
    fn due(
        &mut self,
        _ctx: &Ctx<'_>,
        _moment: Moment<'_>,
        _next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        Ok(())
    }

    /// Forwards a record with the result of its call, if the node makes calls.
    fn resume(
        &mut self,
        _ctx: &Ctx<'_>,
        _rest: Box<dyn Any + Send>,
        _result: Box<dyn Any + Send>,
        _next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        Ok(())
    }

    /// Called when the node's records since the last commit are committed.
    fn committed(&mut self) {}

    /// Called when the node's records since the last commit are discarded.
    fn discard(&mut self) {}

    /// Called when the task closes.
    fn close(&mut self) {}
}

/// A node in its place, with the next nodes.
pub(crate) struct Place {
    pub(crate) node: Box<dyn Node>,
    pub(crate) child: Option<usize>,
    /// The next node behind the second exit of a node that has two.
    pub(crate) rest: Option<usize>,
}

/// The nodes after the current one. Children always stand behind their parents.
pub(crate) struct Next<'n> {
    child: Option<usize>,
    other: Option<usize>,
    base: usize,
    rest: &'n mut [Place],
}

impl<'n> Next<'n> {
    /// Returns the nodes of a whole graph, with the first one.
    pub(crate) fn all(places: &'n mut [Place], first: Option<usize>) -> Self {
        Self {
            child: first,
            other: None,
            base: 0,
            rest: places,
        }
    }

    /// Returns the node at a place, and the nodes behind it.
    pub(crate) fn behind(
        places: &'n mut [Place],
        at: usize,
    ) -> Option<(&'n mut dyn Node, Next<'n>)> {
        let (place, rest) = places.get_mut(at..)?.split_first_mut()?;
        let next = Next {
            child: place.child,
            other: place.rest,
            base: at + 1,
            rest,
        };
        Some((&mut *place.node, next))
    }

    /// Returns the place of the current node.
    pub(crate) fn place(&self) -> usize {
        self.base.saturating_sub(1)
    }

    /// Returns the same nodes, for a shorter lifetime.
    pub(crate) fn borrowed(&mut self) -> Next<'_> {
        Next {
            child: self.child,
            other: self.other,
            base: self.base,
            rest: self.rest,
        }
    }

    /// Forwards the record to the next node. A chain without an end drops it.
    #[inline]
    pub(crate) fn forward(&mut self, ctx: &Ctx<'_>, record: &mut dyn Any) -> Result<(), Fault> {
        self.hand(self.child, ctx, record)
    }

    /// Forwards the record to the node behind the second exit.
    pub(crate) fn forward_rest(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
    ) -> Result<(), Fault> {
        self.hand(self.other, ctx, record)
    }

    #[inline]
    fn hand(
        &mut self,
        to: Option<usize>,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
    ) -> Result<(), Fault> {
        let Some(child) = to else {
            return Ok(());
        };
        let Some(at) = child.checked_sub(self.base) else {
            return Ok(());
        };
        let Some((place, rest)) = self.rest.get_mut(at..).and_then(<[Place]>::split_first_mut)
        else {
            return Ok(());
        };
        place.node.process(
            ctx,
            record,
            &mut Next {
                child: place.child,
                other: place.rest,
                base: child + 1,
                rest,
            },
        )
    }
}

/// The nodes after a node, for the current record.
pub(crate) struct Forward<'a, 'c, 'n> {
    pub(super) ctx: &'a Ctx<'c>,
    pub(super) next: &'a mut Next<'n>,
}

impl Forward<'_, '_, '_> {
    /// Passes a record to the next node.
    #[inline]
    pub(crate) fn record<K: 'static, V: 'static>(
        &mut self,
        record: Record<K, V>,
    ) -> Result<(), Fault> {
        self.next.forward(self.ctx, &mut Some(record))
    }
}

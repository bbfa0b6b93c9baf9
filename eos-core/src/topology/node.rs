//! One node of a task's graph, and how a record gets to the next.

use std::any::Any;

use eos_protocol::Timestamp;

use super::fault::Fault;
use crate::client::Headers;
use crate::ctx::Ctx;
use crate::record::Record;

/// A record as it was fetched.
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
}

/// Any other node. `record` is a `&mut Option<Record<K, V>>` of its own types.
pub(crate) trait Node: Send {
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault>;

    /// The store whose changes it hands on once per commit, if it does.
    fn emits(&self) -> Option<usize> {
        None
    }

    /// Hands on what the transaction made of one key of that store: `value` is the last one, and none if
    /// the key was deleted. Intake has ended; there is no record at hand.
    fn emit(
        &mut self,
        _ctx: &Ctx<'_>,
        _key: &[u8],
        _value: Option<&[u8]>,
        _next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        Ok(())
    }

    /// What it took since the last commit is committed.
    fn committed(&mut self) {}

    /// What it took since the last commit does not count.
    fn discard(&mut self) {}

    /// Its task goes away.
    fn close(&mut self) {}
}

/// A node in its place: with the nodes that come after it, if any do.
pub(crate) struct Place {
    pub(crate) node: Box<dyn Node>,
    pub(crate) child: Option<usize>,
    /// Behind the second way out of a node that has two.
    pub(crate) rest: Option<usize>,
}

/// The nodes after the present one. Children always stand behind their parents.
pub(crate) struct Next<'n> {
    child: Option<usize>,
    other: Option<usize>,
    base: usize,
    rest: &'n mut [Place],
}

impl<'n> Next<'n> {
    /// The nodes of a whole graph, with the one to start at.
    pub(crate) fn all(places: &'n mut [Place], first: Option<usize>) -> Self {
        Self {
            child: first,
            other: None,
            base: 0,
            rest: places,
        }
    }

    /// The node at a place, and those behind it.
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

    /// The same nodes, for a shorter time.
    pub(crate) fn borrowed(&mut self) -> Next<'_> {
        Next {
            child: self.child,
            other: self.other,
            base: self.base,
            rest: self.rest,
        }
    }

    /// Hands the record to the next node. A chain without an end drops it.
    #[inline]
    pub(crate) fn forward(&mut self, ctx: &Ctx<'_>, record: &mut dyn Any) -> Result<(), Fault> {
        self.hand(self.child, ctx, record)
    }

    /// Hands the record to the node behind the second way out.
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

/// The nodes after a node, for the record at hand.
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

//! One node of a task's graph, and how a record gets to the next.

use std::any::Any;

use eos_protocol::Timestamp;

use crate::client::Headers;
use crate::codec::CodecError;
use crate::ctx::Ctx;
use crate::failure::Failure;

/// A record as it was fetched.
#[derive(Debug)]
pub(crate) struct Raw<'a> {
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) timestamp: Option<Timestamp>,
    pub(crate) headers: &'a Headers,
}

/// Why a record did not get through.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("the key can't be decoded: {0}")]
    Key(CodecError),
    #[error("the value can't be decoded: {0}")]
    Value(CodecError),
    #[error("{0}")]
    User(Failure),
    #[error("the output for topic {topic} can't be encoded: {source}")]
    Encode { topic: String, source: CodecError },
    #[error("the closure panicked: {0}")]
    Panic(String),
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
}

/// A node in its place: with the node that comes after it, if one does.
pub(crate) struct Place {
    pub(crate) node: Box<dyn Node>,
    pub(crate) child: Option<usize>,
}

/// The nodes after the present one. Children always stand behind their parents.
pub(crate) struct Next<'n> {
    child: Option<usize>,
    base: usize,
    rest: &'n mut [Place],
}

impl<'n> Next<'n> {
    /// The nodes of a whole graph, with the one to start at.
    pub(crate) fn all(places: &'n mut [Place], first: Option<usize>) -> Self {
        Self {
            child: first,
            base: 0,
            rest: places,
        }
    }

    /// Hands the record to the next node. A chain without an end drops it.
    pub(crate) fn forward(&mut self, ctx: &Ctx<'_>, record: &mut dyn Any) -> Result<(), Fault> {
        let Some(child) = self.child else {
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
                base: child + 1,
                rest,
            },
        )
    }
}

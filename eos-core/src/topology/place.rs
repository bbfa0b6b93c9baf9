//! The node that writes rows to a place of the app's ledger.

use std::any::Any;
use std::sync::Arc;

use super::fault::Fault;
use super::node::{Next, Node};
use crate::boundary::{Place, Row};
use crate::ctx::Ctx;
use crate::record::Record;

/// Writes each record as a row.
pub(crate) struct WritePlace<K, V> {
    pub(crate) output: usize,
    pub(crate) place: Arc<dyn Place<K, V>>,
    /// The buffer of rows.
    pub(crate) row: Row,
}

impl<K: 'static, V: 'static> Node for WritePlace<K, V> {
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        _: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let record = record.downcast_mut::<Option<Record<K, V>>>();
        let Some(record) = record.and_then(Option::take) else {
            return Ok(());
        };
        self.row.clear();
        let encoded = self.place.encode(&record.key, &record.value, &mut self.row);
        encoded.map_err(Fault::User)?;
        let row = (!self.row.is_deleted).then_some(&*self.row.row);
        ctx.write_row(
            self.output,
            &self.row.key,
            row,
            record.timestamp,
            record.headers,
        );
        Ok(())
    }
}

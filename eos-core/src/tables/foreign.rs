//! Joins of two tables by a foreign key.

mod store;

use std::sync::Arc;

use eos_protocol::foreign::ForeignKind;

pub use self::store::ForeignJoin;
use super::Table;
use crate::streams::Stream;
use crate::topology::{
    ForeignAnswer, ForeignEnds, ForeignKeyOf, ForeignResult, ForeignSubscribe, ForeignUpdate, Kind,
    Readers, RowsOf, result_of,
};

/// The stream of encoded answers.
type AnswerStream = Stream<Vec<u8>, Vec<u8>>;

impl<K: Clone + 'static, V: Clone + 'static, U: 'static> Table<K, V, U> {
    /// Joins each row with the row of another table that it refers to by a *foreign key* (KIP-213).
    ///
    /// `key` returns the foreign key of a row: the key of its partner in `other`. `None` means that the row has no
    /// partner. The result has a row for each row of this table with a partner, with the key of this table. Many rows
    /// may refer to one partner. An update of either side updates the results. A result has the later timestamp of its
    /// two rows.
    ///
    /// The partner may be in another partition. The join therefore has two internal topics, which the app creates:
    /// `<app>-<name>-subscriptions`, to the tasks of the other table, and `<app>-<name>-answers`, back to the tasks of
    /// this table. `<name>` is the name of `join`, which also sets the codecs. The tables may have different numbers of
    /// partitions and different partitioners.
    ///
    /// The first result of a row comes a little later than its update, when the partner's answer arrives. The row then keeps
    /// the partner's value if it is short ([`ForeignJoin::keep_right`]), and an update with the same foreign key has its
    /// result at once. If a filter, a map or a join computes the other table, rows keep values only if that table is
    /// [`stored`](Table::stored). An update of the partner sends an answer to each row that refers to it. If the foreign key of a
    /// row changes, the previous result remains until the answer for the new key arrives. If the row is deleted or its
    /// foreign key becomes `None`, the result is deleted at once. No result is older than the previous result of its row.
    /// The final results do not depend on the order in which the updates of both tables arrive.
    ///
    /// If the join gets another right table, give it another name, because left rows keep values of the former table.
    ///
    /// Add the join to a new app, or together with its tables. Otherwise an existing row is only joined after its next
    /// update.
    ///
    /// ```
    /// # use eos_core::state::ForeignJoin;
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # #[derive(Clone, serde::Serialize, serde::Deserialize)]
    /// # struct Order { customer: String, cents: u64 }
    /// # #[derive(Clone, serde::Serialize, serde::Deserialize)]
    /// # struct Customer { name: String }
    /// # let mut app = App::new("shop");
    /// let orders = app.table(
    ///     &Topic::<u64, Option<Order>>::json("orders"),
    ///     &KeyValueStore::json("orders"),
    /// );
    /// let customers = app.table(
    ///     &Topic::<String, Option<Customer>>::json("customers"),
    ///     &KeyValueStore::json("customers"),
    /// );
    /// orders
    ///     .join_by(
    ///         &customers,
    ///         &ForeignJoin::json("orders-customers"),
    ///         |order| Some(order.customer.clone()),
    ///         |order, customer| format!("{} owes {}", customer.name, order.cents),
    ///     )
    ///     .to(&Topic::plain("debts"));
    /// ```
    ///
    /// # Cost
    /// An update of this table with the same foreign key and a kept right value writes the left row only. Any other update
    /// writes one subscription, or two if the foreign key changes, and causes one answer. An inner join gets no answer if
    /// there is no right row and no result to delete. Such an update also writes the left row, the counter of subscriptions
    /// and the subscriber, and the left row again with the result. An update of the other table writes one answer for each
    /// row that refers to it. Answers beyond [`ForeignJoin::at_once`] are background work
    /// between other records, so a popular partner delays neither its task nor its transaction.
    ///
    /// # Exactly-once
    /// Each update reaches the results once. Writing to an internal topic and reading from it are separate
    /// transactions. A reader may therefore see a result that is about to change, but never one that reverts to an
    /// older state. This join is refused under at-least-once.
    ///
    /// # Errors
    /// A record fails if the codec of `join` encodes the foreign key to other bytes than the keys of the other table's
    /// topic have, because its partition would be unknown. It also fails if a key or value can't be encoded. If `f` panics or its
    /// result can't be encoded, the record that caused the result fails. This record is an answer or, with a kept value, an
    /// update of this table. If a policy skips the update, this table keeps the previous row.
    ///
    /// [`App::on_error`](crate::App::on_error) sets the error policy of the subscriptions. [`Table::on_error`] on the
    /// joined table sets the policy of the answers. If a policy skips a record of an internal topic, the result stays as
    /// it was until the next update of the row in this table. An update of the other table may not reach it. A dead
    /// letter with a subscription may be replayed: a later subscription of its row stays. A dead letter with an answer
    /// restores the result of its own time, also until the next update of the row in this table. Replay dead letters with
    /// their headers, as [`App::replay`](crate::App::replay) does. The join treats a copy without them as a new record. A
    /// copied subscription then replaces a later one, and the row misses the updates of the other table.
    ///
    /// If the join reads an unreadable row of its own or of its tables, the worker stops, whatever the error policy.
    pub fn join_by<L, W, X, R>(
        self,
        other: &Table<L, W, X>,
        join: &ForeignJoin<K, L, W, R>,
        key: impl Fn(&V) -> Option<L> + Send + Sync + 'static,
        f: impl Fn(&V, &W) -> R + Send + Sync + 'static,
    ) -> Table<K, R>
    where
        L: Clone + 'static,
        W: Clone + 'static,
        X: 'static,
        R: 'static,
    {
        let f = move |left: &V, right: Option<&W>| right.map(|right| f(left, right));
        self.joined_by(ForeignKind::Inner, other, join, key, f)
    }

    /// Like [`join_by`](Self::join_by), with a result for each row of this table. `f` receives `None` if the row has no
    /// foreign key, or if its partner does not exist.
    ///
    /// ```
    /// # use eos_core::state::ForeignJoin;
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// # let employees = app.table(&Topic::<String, Option<String>>::plain("e"), &KeyValueStore::plain("e"));
    /// # let teams = app.table(&Topic::<String, Option<String>>::plain("t"), &KeyValueStore::plain("t"));
    /// employees
    ///     .left_join_by(
    ///         &teams,
    ///         &ForeignJoin::plain("employees-teams"),
    ///         |team| Some(team.clone()).filter(|team| !team.is_empty()),
    ///         |team, lead| match lead {
    ///             Some(lead) => format!("{team}, led by {lead}"),
    ///             None => format!("{team}, without a lead"),
    ///         },
    ///     )
    ///     .to(&Topic::plain("employees-with-leads"));
    /// ```
    ///
    /// The first result of a row with a foreign key is emitted when the answer arrives, even if the partner does not
    /// exist. The result of a row without a foreign key is emitted at once.
    ///
    /// # Exactly-once
    /// See [`join_by`](Self::join_by).
    ///
    /// # Errors
    /// See [`join_by`](Self::join_by).
    pub fn left_join_by<L, W, X, R>(
        self,
        other: &Table<L, W, X>,
        join: &ForeignJoin<K, L, W, R>,
        key: impl Fn(&V) -> Option<L> + Send + Sync + 'static,
        f: impl Fn(&V, Option<&W>) -> R + Send + Sync + 'static,
    ) -> Table<K, R>
    where
        L: Clone + 'static,
        W: Clone + 'static,
        X: 'static,
        R: 'static,
    {
        let f = move |left: &V, right: Option<&W>| Some(f(left, right));
        self.joined_by(ForeignKind::Left, other, join, key, f)
    }

    fn joined_by<L, W, X, R>(
        self,
        kind: ForeignKind,
        other: &Table<L, W, X>,
        join: &ForeignJoin<K, L, W, R>,
        key: impl Fn(&V) -> Option<L> + Send + Sync + 'static,
        f: impl Fn(&V, Option<&W>) -> Option<R> + Send + Sync + 'static,
    ) -> Table<K, R>
    where
        L: Clone + 'static,
        W: Clone + 'static,
        X: 'static,
        R: 'static,
    {
        // A new version of the closures may compute other rows, and no answer would replace the kept values.
        let join = &match other.rows.store() {
            Some(_) => join.clone(),
            None => join.clone().keep_right(0),
        };
        self.refuse_related_tables();
        other.refuse_related_tables();
        let (method, readers) = (kind.method(), Readers::none());
        self.stream.shares(&other.stream, &[], (method, "table"));
        let (subscriptions, asked) = other.stream.between(join.name(), "subscriptions");
        let (answers, answered) = self.stream.between(join.name(), "answers");
        asked.meets(&other.stream, other.rows.reads(), method);
        answered.meets(&self.stream, self.rows.reads(), method);

        let left = self.stream.own(join.left_spec());
        answered.uses(left);
        let right = other.stream.own(join.right_spec());
        asked.uses(right);
        let fan_out = other.stream.own(join.fan_out_spec());

        let answer: Stream<(), ()> = {
            let (join, rows) = (join.clone(), other.rows.clone());
            let kind = Kind::ForeignAnswer(kind, right, answers);
            asked.then(kind, move || {
                Box::new(ForeignAnswer::new(join.clone(), rows.clone(), answers))
            })
        };
        answer.reads(other.rows.reads());
        let update: Stream<(), ()> = {
            let (join, rows) = (join.clone(), other.rows.clone());
            let kind = Kind::ForeignUpdate {
                kind,
                rows: right,
                fan_out,
                output: answers,
            };
            other.changes_without_old().then(kind, move || {
                Box::new(ForeignUpdate::new(
                    join.clone(),
                    rows.clone(),
                    (fan_out, answers),
                ))
            })
        };
        update.reads(other.rows.reads());
        let ends = ForeignEnds {
            kind,
            join: join.clone(),
            f: Arc::new(f),
        };
        self.with_results(
            ends,
            Arc::new(key),
            (left, subscriptions),
            (other, answered),
            readers,
        )
    }

    /// Adds the nodes that emit results: one behind this table, and one behind the answers.
    fn with_results<L, W, X, R>(
        self,
        ends: ForeignEnds<K, V, L, W, R>,
        key: ForeignKeyOf<V, L>,
        (left, subscriptions): (usize, usize),
        (other, answered): (&Table<L, W, X>, AnswerStream),
        readers: Readers<K, R>,
    ) -> Table<K, R>
    where
        L: Clone + 'static,
        W: Clone + 'static,
        X: 'static,
        R: 'static,
    {
        let join = ends.join.clone();
        let rows = RowsOf::read_from(left, &self.rows, move |ctx, key| result_of(ctx, &join, key));
        let here = {
            let (ends, read, keys) = (ends.clone(), readers.clone(), other.stream.source_keys());
            let kind = Kind::ForeignSubscribe(ends.kind, left, subscriptions);
            self.changes_without_old().then_table(kind, move || {
                let (ends, key, keys) = (ends.clone(), Arc::clone(&key), Arc::clone(&keys));
                Box::new(ForeignSubscribe::new(
                    ends,
                    key,
                    (subscriptions, keys),
                    read.exit(),
                ))
            })
        };
        let there = {
            let (left_rows, read) = (self.rows.clone(), readers.clone());
            answered.then_table(Kind::ForeignResult(ends.kind, left), move || {
                Box::new(ForeignResult::new(
                    ends.clone(),
                    (left_rows.clone(), left),
                    read.exit(),
                ))
            })
        };
        there.0.reads(self.rows.reads());
        let exits = (here.0.merge(there.0), here.1.merge(there.1));
        Table::new(exits, rows, readers)
    }
}

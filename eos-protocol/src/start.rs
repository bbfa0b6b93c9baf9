//! The start offsets of a task (design rules 2 and 10).

use crate::ids::{Offset, TaskId, TopicPartition};
use crate::name::{LayoutHash, NameError, TransactionName};
use crate::state::{Family, PerFamily};

/// The user's policy for a first start: the harmless values of `auto.offset.reset`. The client itself never resets an
/// offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum FirstStart {
    /// From the first record in the log.
    #[default]
    Earliest,
    /// From the next new record.
    Latest,
    /// At the offsets that another program committed for the consumer group of the app; without one, from the first
    /// record in the log. This is for apps with a ledger, which refuse such offsets otherwise. Other apps always continue
    /// at them.
    Group,
}

impl FirstStart {
    /// The value of `auto.offset.reset`.
    #[must_use]
    pub const fn property_value(self) -> &'static str {
        match self {
            Self::Earliest => "earliest",
            Self::Latest => "latest",
            Self::Group => "group",
        }
    }
}

/// A committed offset as the group reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The partition.
    pub partition: TopicPartition,
    /// The offset, if there is one.
    pub offset: Option<Offset>,
    /// The metadata beside it.
    pub metadata: String,
}

/// The facts at the start of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation<'a> {
    /// The task.
    pub task: TaskId,
    /// The consumer group.
    pub group: &'a str,
    /// The layout of its stage.
    pub layout: LayoutHash,
    /// A layout that the user accepts once instead of `layout`.
    pub accepted: Option<LayoutHash>,
    /// The families of its stage's stores.
    pub keeps: PerFamily<bool>,
    /// The policy for a first start.
    pub first_start: FirstStart,
    /// Whether the task has local state or a committed changelog record.
    pub state_exists: bool,
    /// The name beside partition 0 of the driving topic. Partition 0 has existed from the beginning, so its name
    /// contains the original number of partitions.
    pub eldest: Option<&'a TransactionName>,
}

/// The decision about a task's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// At its committed offsets.
    Resume {
        /// The offsets of all its inputs.
        at: Vec<(TopicPartition, Offset)>,
        /// The name of the transaction that committed them; `None` if another program did.
        name: Option<TransactionName>,
    },
    /// At its committed offsets, and with inputs that the accepted layout did not have. The policy resolves the
    /// offsets of these. All are committed, under the new layout, before the first record.
    Grow {
        /// All its inputs. Those without an offset are new.
        inputs: Vec<(TopicPartition, Option<Offset>)>,
        /// The end of the new inputs to start from.
        from: FirstStart,
        /// The name of the transaction that committed the other inputs.
        name: TransactionName,
    },
    /// At no offsets yet: the policy resolves them, and they are committed before the first record.
    First {
        /// The inputs.
        partitions: Vec<TopicPartition>,
        /// The end to start from.
        from: FirstStart,
    },
}

impl Start {
    /// Returns whether the group has a committed offset for every input.
    pub fn is_complete(&self) -> bool {
        match self {
            Self::Resume { .. } => true,
            Self::Grow { inputs, .. } => inputs.iter().all(|(_, at)| at.is_some()),
            Self::First { .. } => false,
        }
    }

    /// The offsets that the group has for it.
    pub fn committed(&self) -> impl Iterator<Item = (&TopicPartition, Offset)> {
        let (resumed, grown) = match self {
            Self::Resume { at, .. } => (&at[..], &[][..]),
            Self::Grow { inputs, .. } => (&[][..], &inputs[..]),
            Self::First { .. } => (&[][..], &[][..]),
        };
        let resumed = resumed.iter().map(|(partition, at)| (partition, Some(*at)));
        let grown = grown.iter().map(|(partition, at)| (partition, *at));
        let all = resumed.chain(grown);
        all.filter_map(|(partition, at)| Some((partition, at?)))
    }
}

/// The reason why a task must not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The stage read other topics, or had another driving topic, when this offset was committed.
    #[error(
        "task {task}: {partition} was committed by layout {found}, but this program has layout \
         {expected}: its sources changed. Stop every instance of the old program, then start this \
         one once with accept.layout = {found} (EOS_ACCEPT_LAYOUT={found} in its environment); or give the app another name to start afresh"
    )]
    LayoutChanged {
        /// The task.
        task: TaskId,
        /// The partition.
        partition: TopicPartition,
        /// The layout in the metadata.
        found: LayoutHash,
        /// The layout of this program.
        expected: LayoutHash,
    },
    /// The task kept state for which this program has no store.
    #[error(
        "task {task}: the stage of {partition} had {family} stores at the last commit, and this \
         program declares none. Their state would miss the next records. Declare the stores again under \
         their names, or give the app another name to start afresh"
    )]
    StoresGone {
        /// The task.
        task: TaskId,
        /// The partition.
        partition: TopicPartition,
        /// The families of these stores.
        family: Family,
    },
    /// The task's inputs were not committed by one transaction.
    #[error(
        "task {task}: {one} and {other} were not committed by the same transaction. Was one of \
         them reset? Reset all inputs of group {group} together: \
         kafka-consumer-groups.sh --group {group} --reset-offsets --execute --all-topics \
         --to-earliest (or another point)"
    )]
    Disagree {
        /// The task.
        task: TaskId,
        /// The consumer group.
        group: String,
        /// A partition.
        one: TopicPartition,
        /// A partition with another name.
        other: TopicPartition,
    },
    /// The group has no offset, but the task has state: starting over would count records twice.
    #[error(
        "task {task}: group {group} has no committed offset for {partition}, but the task has \
         state. Did the offsets expire (offsets.retention.minutes) or were they deleted? Restore \
         them, or reset offsets and state together by giving the app another name"
    )]
    OffsetMissing {
        /// The task.
        task: TaskId,
        /// The consumer group.
        group: String,
        /// The partition.
        partition: TopicPartition,
    },
    /// Another program committed this offset, but the task has state that belongs to our own.
    #[error(
        "task {task}: the offset of {partition} was set by another program (metadata \
         {metadata:?}), but the task has state. If you reset group {group} on purpose, reset the \
         state too by giving the app another name"
    )]
    NotOurs {
        /// The task.
        task: TaskId,
        /// The consumer group.
        group: String,
        /// The partition.
        partition: TopicPartition,
        /// The metadata beside the offset.
        metadata: String,
    },
    /// A repartition topic has records that this group did not write.
    #[error(
        "task {task}: the repartition topic of {partition} has records, but group {group} has no \
         committed offset of the tasks that write it or read it. Check the group's offsets \
         (kafka-consumer-groups.sh --describe). If another app has the same topic (its name joins \
         the names of the app and of the repartition with hyphens), give this app or its \
         repartition another name. If you deleted the group's offsets on purpose, delete the \
         topic, too, to start afresh"
    )]
    ForeignRecords {
        /// The task.
        task: TaskId,
        /// The consumer group.
        group: String,
        /// The partition with records.
        partition: TopicPartition,
    },
    /// The metadata can't be read.
    #[error(
        "task {task}: the metadata of {partition} can't be read: {source}. Run the newest version \
         that ever ran in this group"
    )]
    Name {
        /// The task.
        task: TaskId,
        /// The partition.
        partition: TopicPartition,
        /// The damage.
        source: NameError,
    },
}

/// Decides where a task starts, from the stable committed offsets of all its inputs.
///
/// # Errors
/// [`StartError`] where starting anywhere would lose or double records.
pub fn plan_start(about: &Situation<'_>, committed: &[Committed]) -> Result<Start, StartError> {
    let task = about.task;
    let mut at = Vec::with_capacity(committed.len());
    let mut missing = Vec::new();
    let mut names = Vec::with_capacity(committed.len());
    for c in committed {
        let name = TransactionName::parse(&c.metadata).map_err(|source| StartError::Name {
            task,
            partition: c.partition.clone(),
            source,
        })?;
        match c.offset {
            Some(offset) => {
                at.push((c.partition.clone(), offset));
                names.push((c, name));
            }
            None => missing.push(c.partition.clone()),
        }
    }

    for (c, name) in &names {
        if let Some(name) = name
            && name.layout != about.layout
            && Some(name.layout) != about.accepted
        {
            return Err(StartError::LayoutChanged {
                task,
                partition: c.partition.clone(),
                found: name.layout,
                expected: about.layout,
            });
        }
    }
    for (c, name) in &names {
        let named = name.as_ref().map(TransactionName::commit_records);
        let gone = |family: &Family| {
            let kept = named.is_some_and(|named| named.get(*family).is_some());
            kept && !about.keeps.get(*family)
        };
        if let Some(family) = Family::ALL.into_iter().find(gone) {
            return Err(StartError::StoresGone {
                task,
                partition: c.partition.clone(),
                family,
            });
        }
    }
    if about.state_exists {
        let group = || about.group.to_owned();
        if let Some(partition) = missing.first().cloned() {
            return Err(StartError::OffsetMissing {
                task,
                group: group(),
                partition,
            });
        }
        if let Some((c, _)) = names.iter().find(|(_, name)| name.is_none()) {
            let (partition, metadata) = (c.partition.clone(), c.metadata.clone());
            return Err(StartError::NotOurs {
                task,
                group: group(),
                partition,
                metadata,
            });
        }
    }
    let odd = names.split_first().and_then(|((first, name), rest)| {
        let other = rest
            .iter()
            .find(|(_, n)| n != name)
            .map(|(c, _)| c.partition.clone());
        let other = other.or_else(|| {
            let new = missing.first().cloned();
            new.filter(|_| !is_accepted(about, name.as_ref()))
        })?;
        Some((first.partition.clone(), other))
    });
    if let Some((one, other)) = odd {
        return Err(StartError::Disagree {
            task,
            group: about.group.to_owned(),
            one,
            other,
        });
    }

    if missing.is_empty() {
        let name = names.into_iter().next().and_then(|(_, name)| name);
        return Ok(Start::Resume { at, name });
    }
    let appeared_later = about
        .eldest
        .is_some_and(|name| task.partition.get().unsigned_abs() >= name.width);
    let from = if appeared_later {
        FirstStart::Earliest
    } else {
        about.first_start
    };
    if let Some(name) = names.into_iter().find_map(|(_, name)| name) {
        let inputs = committed.iter().map(|c| (c.partition.clone(), c.offset));
        let inputs = inputs.collect();
        return Ok(Start::Grow { inputs, from, name });
    }
    Ok(Start::First {
        partitions: missing,
        from,
    })
}

/// Returns whether the accepted old layout committed this offset. That layout need not have had all of the inputs.
fn is_accepted(about: &Situation<'_>, name: Option<&TransactionName>) -> bool {
    let layout = name.map(|name| name.layout);
    layout.is_some() && layout != Some(about.layout) && layout == about.accepted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Nonce, Partition, Seq, StageId};

    fn name(seq: u64, width: u32) -> TransactionName {
        TransactionName {
            layout: LayoutHash(1),
            width,
            seq: Seq(seq),
            nonce: Nonce(9),
            plain: None,
            windowed: None,
            stream_time: None,
            topics: crate::state::PerFamily::default(),
            stores: crate::state::StoreNames::default(),
        }
    }

    fn situation<'a>() -> Situation<'a> {
        Situation {
            task: TaskId {
                stage: StageId(0),
                partition: Partition::new(4).unwrap(),
            },
            group: "g",
            layout: LayoutHash(1),
            accepted: None,
            keeps: PerFamily::default(),
            first_start: FirstStart::Latest,
            state_exists: false,
            eldest: None,
        }
    }

    fn committed(topic: &str, offset: i64, metadata: &str) -> Committed {
        Committed {
            partition: TopicPartition::new(topic, Partition::new(4).unwrap()),
            offset: Offset::new(offset).ok(),
            metadata: metadata.into(),
        }
    }

    #[test]
    fn resumes_where_the_last_transaction_ended() {
        let text = name(3, 6).to_string();
        let start = plan_start(
            &situation(),
            &[committed("a", 7, &text), committed("b", 0, &text)],
        );
        let Ok(Start::Resume { at, name: found }) = start else {
            panic!("{start:?}")
        };
        assert_eq!(at.iter().map(|(_, o)| o.get()).collect::<Vec<_>>(), [7, 0]);
        assert_eq!(found, Some(name(3, 6)));
    }

    #[test]
    fn an_accepted_layout_may_lack_an_input() {
        let old = TransactionName {
            layout: LayoutHash(2),
            ..name(3, 6)
        };
        let text = old.to_string();
        let inputs = [committed("a", 7, &text), committed("b", -1, "")];
        let mut about = situation();
        about.accepted = Some(LayoutHash(2));
        let Ok(Start::Grow {
            inputs: found,
            from,
            name: last,
        }) = plan_start(&about, &inputs)
        else {
            panic!("{:?}", plan_start(&about, &inputs))
        };
        let offsets: Vec<_> = found.iter().map(|(_, at)| at.map(Offset::get)).collect();
        assert_eq!(offsets, [Some(7), None]);
        assert_eq!((from, last), (FirstStart::Latest, old));

        // Under the task's own layout, a missing offset was lost.
        let text = name(3, 6).to_string();
        let inputs = [committed("a", 7, &text), committed("b", -1, "")];
        let error = plan_start(&about, &inputs).unwrap_err();
        assert!(matches!(error, StartError::Disagree { .. }), "{error}");
    }

    #[test]
    fn a_stateless_task_continues_where_another_program_stopped() {
        let start = plan_start(&situation(), &[committed("a", 7, "")]);
        assert!(
            matches!(start, Ok(Start::Resume { name: None, .. })),
            "{start:?}"
        );
    }

    #[test]
    fn rule_10_the_policy_counts_at_a_first_start_only() {
        let from = |about: &Situation<'_>| match plan_start(about, &[committed("a", -1, "")]) {
            Ok(Start::First { from, .. }) => from,
            other => panic!("{other:?}"),
        };
        let mut about = situation();
        assert_eq!(from(&about), FirstStart::Latest);
        // There were six partitions when the group began, including number 4.
        let eldest = name(1, 6);
        about.eldest = Some(&eldest);
        assert_eq!(from(&about), FirstStart::Latest);
        // There were four: number 4 appeared later, with records that are still unread.
        let eldest = name(1, 4);
        about.eldest = Some(&eldest);
        assert_eq!(from(&about), FirstStart::Earliest);
    }

    #[test]
    fn rule_10_a_missing_offset_beside_state_stops() {
        let about = Situation {
            state_exists: true,
            ..situation()
        };
        let error = plan_start(&about, &[committed("a", -1, "")]).unwrap_err();
        assert!(matches!(error, StartError::OffsetMissing { .. }), "{error}");
        let error = plan_start(&about, &[committed("a", 5, "reset by hand")]).unwrap_err();
        assert!(matches!(error, StartError::NotOurs { .. }), "{error}");
        assert!(error.to_string().contains("another name"));
    }

    #[test]
    fn rule_2_partitions_that_disagree_stop() {
        let (one, two) = (name(3, 6).to_string(), name(4, 6).to_string());
        for other in [
            committed("b", 5, &two),
            committed("b", -1, ""),
            committed("b", 5, ""),
        ] {
            let error = plan_start(&situation(), &[committed("a", 7, &one), other]).unwrap_err();
            assert!(matches!(error, StartError::Disagree { .. }), "{error}");
            assert!(
                error
                    .to_string()
                    .contains("kafka-consumer-groups.sh --group g")
            );
        }
    }

    #[test]
    fn another_layout_stops_and_names_the_switch() {
        let mut about = situation();
        about.layout = LayoutHash(2);
        let offsets = [committed("a", 7, &name(3, 6).to_string())];
        let error = plan_start(&about, &offsets).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("EOS_ACCEPT_LAYOUT=0000000000000001 "),
            "{error}"
        );
        about.accepted = Some(LayoutHash(1));
        assert!(plan_start(&about, &offsets).is_ok());
    }

    /// A stage without stores of a family reads no changelog that could detect lost state.
    #[test]
    fn state_without_a_store_stops() {
        let offsets = |plain, windowed| {
            let name = TransactionName {
                plain,
                windowed,
                ..name(3, 6)
            };
            [committed("a", 7, &name.to_string())]
        };
        let keeps = |plain, windowed| Situation {
            keeps: PerFamily { plain, windowed },
            ..situation()
        };
        let (some, none) = (Some(Seq(2)), None);
        for (about, offsets, gone) in [
            (
                keeps(false, false),
                offsets(some, none),
                Some(Family::Plain),
            ),
            (keeps(false, true), offsets(some, some), Some(Family::Plain)),
            (
                keeps(true, false),
                offsets(some, some),
                Some(Family::Windowed),
            ),
            (keeps(true, false), offsets(some, none), None),
            (keeps(true, true), offsets(none, none), None),
        ] {
            let found = match plan_start(&about, &offsets) {
                Err(StartError::StoresGone { family, .. }) => Some(family),
                Err(other) => panic!("{other}"),
                Ok(_) => None,
            };
            assert_eq!(found, gone);
        }
        let error = plan_start(&situation(), &offsets(some, none)).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("Declare the stores again"), "{error}");
    }

    #[test]
    fn unreadable_metadata_stops() {
        let error = plan_start(&situation(), &[committed("a", 7, "eos9;?")]).unwrap_err();
        assert!(error.to_string().contains("eos9"), "{error}");
    }
}

//! Deletes the records that the workers no longer need.

use std::sync::Arc;
use std::time::Duration;

use eos_protocol::state::is_of_another_log;
use eos_protocol::{AppId, Offset, TopicPartition};

use super::chores::Chore;
use crate::client::{Client, Result};
use crate::worker::PurgeQueue;

/// The time limit of the brokers for one purge. Late deletions are due again at the next purge.
const TURN: Duration = Duration::from_secs(10);

/// Returns the chore that purges periodically.
pub(super) fn chore<C>(
    app: AppId,
    client: Arc<C>,
    purge_queue: Arc<PurgeQueue>,
    every: Duration,
) -> Chore
where
    C: Client + Send + Sync + 'static,
{
    Chore {
        every,
        act: Box::new(move || turn(&app, &purge_queue, |due| client.delete_records(due, TURN))),
    }
}

/// Purges once, now.
pub(super) fn once<C: Client>(app: &AppId, client: &C, purge_queue: &PurgeQueue) {
    turn(app, purge_queue, |due| client.delete_records(due, TURN));
}

/// Purges once. A failure does not stop a worker: undeleted records take disk space, and are due again.
fn turn(
    app: &AppId,
    purge_queue: &PurgeQueue,
    delete: impl FnOnce(&[(TopicPartition, Offset)]) -> Result<Vec<(TopicPartition, Result<Offset>)>>,
) {
    let due = purge_queue.due();
    if due.is_empty() {
        return;
    }
    let answers = match delete(&due) {
        Ok(answers) => answers,
        Err(error) => {
            tracing::warn!(
                %app, partitions = due.len(), %error,
                "deleting processed records failed; trying again later"
            );
            return;
        }
    };
    let (mut deleted, mut failed) = (0, 0);
    for (partition, outcome) in answers {
        match outcome {
            Ok(begins) => {
                deleted += 1;
                purge_queue.begins(&partition, begins);
            }
            Err(error) => {
                failed += 1;
                if is_of_another_log(error.fault.code) {
                    purge_queue.forget(&partition);
                }
                if failed == 1 {
                    tracing::warn!(
                        %app, %partition, %error,
                        "deleting processed records failed; trying again later"
                    );
                }
            }
        }
    }
    tracing::debug!(%app, deleted, failed, "deleted processed records");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientError;
    use eos_protocol::{CallSite, Partition, code};

    fn tp(n: i32) -> TopicPartition {
        TopicPartition::new("words", Partition::new(n).unwrap())
    }

    fn offset(n: i64) -> Offset {
        Offset::new(n).unwrap()
    }

    fn failure() -> ClientError {
        ClientError::new(CallSite::DeleteRecords, code::LOCAL_TIMED_OUT, "because")
    }

    #[test]
    fn what_fails_is_due_again_and_what_is_done_is_not() {
        let (app, purge_queue) = ("a".into(), PurgeQueue::default());
        purge_queue.push(&tp(0), offset(3));
        purge_queue.push(&tp(1), offset(4));
        let all = [(tp(0), offset(3)), (tp(1), offset(4))];
        turn(&app, &purge_queue, |due| {
            assert_eq!(due, all);
            Err(failure())
        });
        turn(&app, &purge_queue, |due| {
            assert_eq!(due, all);
            Ok(vec![(tp(0), Err(failure())), (tp(1), Ok(offset(4)))])
        });
        turn(&app, &purge_queue, |due| {
            assert_eq!(due, &all[..1]);
            Ok(vec![(tp(0), Ok(offset(3)))])
        });
        turn(&app, &purge_queue, |_| unreachable!("nothing is due"));
    }

    /// A later topic of the same name has unread records below the offset.
    #[test]
    fn an_offset_of_a_log_that_is_gone_is_never_deleted_up_to_in_the_next_one() {
        let codes = [
            code::OFFSET_OUT_OF_RANGE,
            code::UNKNOWN_TOPIC_OR_PARTITION,
            code::LOCAL_UNKNOWN_TOPIC,
            code::LOCAL_UNKNOWN_PARTITION,
        ];
        for gone in codes {
            let (app, purge_queue) = ("a".into(), PurgeQueue::default());
            purge_queue.push(&tp(0), offset(3));
            let failure = ClientError::new(CallSite::DeleteRecords, gone, "gone");
            let mut turns = 0;
            turn(&app, &purge_queue, |_| {
                turns += 1;
                Ok(vec![(tp(0), Err(failure))])
            });
            assert_eq!(turns, 1);
            turn(&app, &purge_queue, |due| panic!("{due:?} after {gone}"));
        }
    }
}

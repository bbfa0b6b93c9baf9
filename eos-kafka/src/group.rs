//! Queries a group's assignments on a separate thread.
//!
//! The call blocks.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::task::Poll;
use std::time::Duration;

use eos_client::Result;
use eos_protocol::{CallSite, Partition, TopicPartition, code};

use super::ffi::{Client, Failure};
use super::wake::Wake;

/// The time limit of the brokers. The thread may outlive its source for this long.
const ANSWER: Duration = Duration::from_secs(2);

/// A query in flight.
#[derive(Debug)]
pub(super) struct GroupQuery(Receiver<Answer>);

type Answer = Result<Option<Vec<Vec<u8>>>, Failure>;

impl GroupQuery {
    /// Starts the query. It signals `wake` with the response.
    pub(super) fn start(client: &Arc<Client>, group: &str, wake: &Arc<Wake>) -> Result<Self> {
        let (client, group, wake) = (Arc::clone(client), group.to_owned(), Arc::clone(wake));
        let (sender, answer) = channel();
        let asking = move || {
            // Fails if the receiver was dropped.
            let _ = sender.send(client.group(&group, ANSWER));
            wake.signal();
        };
        let thread = std::thread::Builder::new().name("eos-group".into());
        let started = thread.spawn(asking);
        started.map_err(|e| Failure::no_thread(&e).at(CallSite::Subscribe))?;
        Ok(Self(answer))
    }

    pub(super) fn poll(&self) -> Poll<Result<Option<Vec<TopicPartition>>>> {
        let answer = match self.0.try_recv() {
            Ok(answer) => answer,
            Err(TryRecvError::Empty) => return Poll::Pending,
            Err(TryRecvError::Disconnected) => Err(Failure::new(
                code::LOCAL_STATE,
                "the thread that queries the group has ended",
            )),
        };
        let all = answer.and_then(|members| match members {
            None => Ok(None),
            Some(members) => partitions(&members).map(Some),
        });
        Poll::Ready(all.map_err(|failure| failure.at(CallSite::Subscribe)))
    }
}

fn partitions(members: &[Vec<u8>]) -> Result<Vec<TopicPartition>, Failure> {
    let mut all = Vec::new();
    for assignment in members.iter().filter(|bytes| !bytes.is_empty()) {
        let unread = || Failure::new(code::LOCAL_BAD_MSG, "an assignment can't be read");
        all.extend(read(assignment).ok_or_else(unread)?);
    }
    Ok(all)
}

/// Reads the assignment of one member (`ConsumerProtocolAssignment` of any version: newer fields come after the
/// partitions).
fn read(mut bytes: &[u8]) -> Option<Vec<TopicPartition>> {
    let _version = take::<2>(&mut bytes)?;
    let mut all = Vec::new();
    for _ in 0..i32::from_be_bytes(take(&mut bytes)?) {
        let length = usize::try_from(i16::from_be_bytes(take(&mut bytes)?)).ok()?;
        let (name, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        let topic = std::str::from_utf8(name).ok()?;
        for _ in 0..i32::from_be_bytes(take(&mut bytes)?) {
            let partition = Partition::new(i32::from_be_bytes(take(&mut bytes)?)).ok()?;
            all.push(TopicPartition::new(topic, partition));
        }
    }
    Some(all)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 1; `cities` with 0 and 2, `b` with none; no user data.
    const ASSIGNMENT: &[u8] =
        b"\0\x01\0\0\0\x02\0\x06cities\0\0\0\x02\0\0\0\0\0\0\0\x02\0\x01b\0\0\0\0\xff\xff\xff\xff";

    #[test]
    fn an_assignment_is_read_and_a_member_without_one_has_nothing() {
        let read = partitions(&[ASSIGNMENT.to_vec(), Vec::new()]).unwrap();
        let cities = |n| TopicPartition::new("cities", Partition::new(n).unwrap());
        assert_eq!(read, [cities(0), cities(2)]);
    }

    #[test]
    fn what_is_cut_off_is_not_taken_for_less() {
        let (user_data, whole) = (4, ASSIGNMENT.len());
        for length in 1..whole - user_data {
            let cut = ASSIGNMENT[..length].to_vec();
            assert!(partitions(&[cut]).is_err(), "{length} bytes");
        }
    }
}

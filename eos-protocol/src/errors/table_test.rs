//! A test per row.

use super::ErrorClass::{
    Abortable, Corrupted, Fatal, GroupFenced, ProducerFenced, ProducerLost, Retriable,
};
use super::*;

fn plain(call: CallSite, code: i32) -> ErrorClass {
    classify(call, Fault::plain(code))
}

#[track_caller]
fn check(calls: &[CallSite], codes: &[i32], class: ErrorClass) {
    for &call in calls {
        for &code in codes {
            assert_eq!(plain(call, code), class, "{call:?} {code}");
        }
    }
}

const TRANSACTION: [CallSite; 7] = [
    CallSite::Init,
    CallSite::Begin,
    CallSite::Send,
    CallSite::SendOffsets,
    CallSite::Flush,
    CallSite::Commit,
    CallSite::Abort,
];

#[test]
fn a_missing_permission_is_fatal_at_every_call_even_if_librdkafka_calls_it_abortable() {
    check(&CallSite::ALL, &[29, 30, 31, 53, -169], Fatal);
    let fault = Fault {
        abortable: true,
        ..Fault::plain(29)
    };
    assert_eq!(classify(CallSite::Flush, fault), Fatal);
}

#[test]
fn a_wrong_configuration_is_fatal() {
    check(&[CallSite::Init], &[50], Fatal);
    check(&CallSite::ALL, &[35, 17, -186], Fatal);
}

#[test]
fn a_bumped_epoch_fences_the_producer_regardless_of_the_flags() {
    check(&TRANSACTION, &[-144, 47, 90], ProducerFenced);
    // TxnOffsetCommit: librdkafka calls PRODUCER_FENCED only abortable.
    let fault = Fault {
        abortable: true,
        ..Fault::plain(-144)
    };
    assert_eq!(classify(CallSite::SendOffsets, fault), ProducerFenced);
    let fault = Fault {
        fatal: true,
        ..Fault::plain(-144)
    };
    assert_eq!(classify(CallSite::Commit, fault), ProducerFenced);
}

#[test]
fn a_producer_that_cannot_begin_where_it_should_is_replaced() {
    check(&[CallSite::Begin], &[-172], ProducerLost);
}

#[test]
fn an_unknown_transaction_or_sequence_needs_a_new_producer() {
    check(&TRANSACTION, &[48, 45, 46], ProducerLost);
}

#[test]
fn the_group_fences_inside_send_offsets() {
    check(
        &[CallSite::SendOffsets],
        &[22, 25, 82, 27, 113, 110],
        GroupFenced,
    );
}

#[test]
fn the_group_fences_an_at_least_once_commit_too() {
    check(
        &[CallSite::ConsumerCommit],
        &[22, 25, 27, 113, -142],
        GroupFenced,
    );
}

#[test]
fn a_second_owner_of_the_instance_id_fences_the_consumer() {
    check(
        &[CallSite::Poll, CallSite::Subscribe, CallSite::Close],
        &[82, 111],
        GroupFenced,
    );
}

#[test]
fn one_report_of_a_missing_input_does_not_stop_the_app() {
    check(&[CallSite::Poll], &[3], Retriable);
}

#[test]
fn metadata_that_never_fits_is_fatal() {
    check(
        &[CallSite::SendOffsets, CallSite::ConsumerCommit],
        &[12],
        Fatal,
    );
}

#[test]
fn rule_9_only_what_a_record_can_cause_blames_one() {
    assert!([10, 18, 32, 43, 87].into_iter().all(blames_a_record));
    // Away, too late, fenced, moved, out of sequence.
    let innocent = [-195, -192, -185, -144, 7, 13, 22, 27, 45, 47, 48, 51, 90];
    assert!(!innocent.into_iter().any(blames_a_record));
}

#[test]
fn a_commit_between_two_states_is_made_again() {
    check(&[CallSite::Commit], &[-172], Retriable);
}

#[test]
fn an_expired_producer_id_is_abortable() {
    check(&TRANSACTION, &[59, 49], Abortable);
}

#[test]
fn a_missing_place_to_send_to_is_fatal_a_record_that_is_too_large_and_a_full_queue_are_not() {
    check(&[CallSite::Send, CallSite::Flush], &[-190, -188, 3], Fatal);
    check(&[CallSite::Send], &[10], Abortable);
    check(&[CallSite::Send], &[-184], Retriable);
    // The broker's refusal comes later, with a flag, and concerns the whole transaction.
    let fault = Fault {
        abortable: true,
        ..Fault::plain(10)
    };
    assert_eq!(classify(CallSite::Flush, fault), Abortable);
}

#[test]
fn an_offset_that_is_not_there_is_corruption() {
    check(
        &[CallSite::Poll, CallSite::Take, CallSite::Bounds],
        &[1, -140],
        Corrupted,
    );
}

#[test]
fn what_passes_by_itself_is_retriable_for_the_consumer() {
    let codes = [
        -195, -193, -187, -185, -166, -180, -178, -161, -147, 7, 13, 8, 9, 5, 6, 74, 75, 14, 15,
        16, 88, 27,
    ];
    check(
        &[CallSite::Poll, CallSite::Committed, CallSite::Bounds],
        &codes,
        Retriable,
    );
}

#[test]
fn a_member_that_the_group_forgot_joins_again() {
    check(&[CallSite::Poll], &[22, 25, 110, 113], Retriable);
}

#[test]
fn a_seek_before_the_fetcher_started_is_retriable() {
    check(&[CallSite::Seek], &[-172, -167, -177], Retriable);
    check(&[CallSite::Assign], &[-172], Fatal);
}

#[test]
fn init_and_flush_resume_after_a_time_out() {
    check(&[CallSite::Init], &[-185, 51], Retriable);
    check(&[CallSite::Flush], &[-185], Retriable);
}

#[test]
fn where_the_table_is_silent_the_flags_decide() {
    let flags = |fatal, abortable, retriable| {
        let fault = Fault {
            code: 9999,
            fatal,
            abortable,
            retriable,
        };
        classify(CallSite::Commit, fault)
    };
    assert_eq!(flags(true, true, true), Fatal);
    assert_eq!(flags(false, true, true), Abortable);
    assert_eq!(flags(false, false, true), Retriable);
    assert_eq!(flags(false, false, false), Fatal);
}

#[test]
fn a_commit_timeout_is_retriable_only_because_librdkafka_classifies_it_so() {
    let fault = Fault {
        retriable: true,
        ..Fault::plain(-185)
    };
    assert_eq!(classify(CallSite::Commit, fault), Retriable);
    assert_eq!(plain(CallSite::Commit, -185), Fatal);
}

#[test]
fn every_row_is_reachable() {
    for (at, row) in TABLE.iter().enumerate() {
        for &code in row.codes {
            let hit = CallSite::ALL.into_iter().any(|call| {
                let first = TABLE
                    .iter()
                    .position(|r| r.calls.contains(call) && r.codes.contains(&code));
                first == Some(at)
            });
            assert!(hit, "row {at}, code {code}: shadowed by an earlier row");
        }
    }
}

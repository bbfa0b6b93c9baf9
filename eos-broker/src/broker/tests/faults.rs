//! Injected faults.

use super::*;

/// Returns a model with an open transaction and a fault on EndTxn.
fn ending(act: Act) -> (Model, crate::faults::RuleId, Ticket) {
    let mut model = Model::new();
    let (id, epoch) = model.open();
    let rule = Rule::on(ApiKey::EndTxn, act)
        .name("x")
        .client("te")
        .times(1);
    let rule = model.broker.add_fault(rule);
    let ticket = model.send_end(id, epoch, true);
    assert_eq!(model.broker.fired(rule), 1);
    (model, rule, ticket)
}

/// Returns the loss of a request. The connection must discard all later bytes, or later requests would overtake the
/// lost ones.
fn lost(ticket: Ticket) -> Output {
    Output::Nothing(Unanswered::Lost(ticket))
}

#[test]
fn a_dropped_request_does_nothing() {
    let (mut model, _, ticket) = ending(Act::DropRequest);
    assert_eq!(model.output(ticket), Some(lost(ticket)));
    assert_eq!(model.last_stable(), 0);
}

#[test]
fn a_dropped_answer_is_applied() {
    let (mut model, _, ticket) = ending(Act::DropAnswer);
    assert_eq!(model.output(ticket), Some(lost(ticket)));
    assert_eq!(model.last_stable(), 2);
}

#[test]
fn a_delayed_request_is_applied_later() {
    let (mut model, _, ticket) = ending(Act::DelayRequest(100));
    model.pass(99);
    assert_eq!((model.output(ticket), model.last_stable()), (None, 0));
    model.pass(1);
    assert_eq!(model.last_stable(), 2);
    assert!(model.answer(ticket).is_some());
}

#[test]
fn a_delayed_answer_is_applied_at_once() {
    let (mut model, _, ticket) = ending(Act::DelayAnswer(100));
    assert_eq!((model.output(ticket), model.last_stable()), (None, 2));
    model.pass(100);
    assert!(model.answer(ticket).is_some());
}

#[test]
fn a_refused_request_is_not_applied() {
    let (mut model, rule, ticket) = ending(Act::Refuse(Error::NotCoordinator));
    match model.answer(ticket) {
        Some(ResponseKind::EndTxn(it)) => {
            assert_eq!(it.error_code, Error::NotCoordinator.code());
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(model.last_stable(), 0);
    assert_eq!(model.end(0, 0, true), 0, "once only");
    assert_eq!(model.broker.fired(rule), 1);
}

#[test]
fn a_connection_is_cut_before_or_after() {
    let (mut model, _, ticket) = ending(Act::DisconnectBefore);
    assert_eq!(model.output(ticket), Some(Output::Disconnect(ticket)));
    assert_eq!(model.last_stable(), 0);
    let (mut model, _, ticket) = ending(Act::DisconnectAfter);
    assert_eq!(model.output(ticket), Some(Output::Disconnect(ticket)));
    assert_eq!(model.last_stable(), 2);
}

#[test]
fn a_duplicated_batch_is_written_once_and_a_plain_one_twice() {
    let mut model = Model::new();
    model
        .broker
        .add_fault(Rule::on(ApiKey::Produce, Act::Duplicate).partition("t", 0));
    let producer = Some((77, 0, 0));
    let first = model.produce(produced(producer, false, &[("k", None, 0)]));
    assert_eq!((first.0, first.1, model.last_stable()), (0, 0, 1));
    let second = model.produce(plain());
    assert_eq!((second.0, second.1, model.last_stable()), (0, 1, 3));
    assert_eq!(model.out, [], "answered once");
}

#[test]
fn a_duplicate_that_is_held_is_answered_once() {
    let mut model = Model::new();
    let both = [ApiKey::Fetch, ApiKey::JoinGroup];
    let ticket = model.join("");
    let (_, _, first) = model.joined(ticket).expect("a response");
    model
        .broker
        .add_fault(Rule::on_any(&both, Act::Duplicate).times(2));
    let fetch = model.send_fetch(0, 500);
    let join = model.join("");
    model.join(&first);
    model.pass(60_000);
    let mut tickets = model.out.iter().map(Output::ticket);
    assert_eq!(tickets.clone().filter(|it| *it == fetch).count(), 1);
    assert_eq!(tickets.by_ref().filter(|it| *it == join).count(), 1);
}

#[test]
fn rules_are_narrow_skip_and_can_be_taken_away() {
    let mut model = Model::new();
    let other = Rule::on(ApiKey::Produce, Act::DropRequest);
    let elsewhere = model.broker.add_fault(other.clone().topic("u"));
    let other_client = model.broker.add_fault(other.clone().client("else"));
    let third = model.broker.add_fault(other.skip(2).times(1));
    let seen: Vec<bool> = (0..4)
        .map(|_| {
            let ticket = model.send_records(plain(), -1);
            matches!(model.output(ticket), Some(Output::Answer(..)))
        })
        .collect();
    assert_eq!(seen, [true, true, false, true]);
    let fired = [elsewhere, other_client, third].map(|id| model.broker.fired(id));
    assert_eq!(fired, [0, 0, 1]);
    let all = model
        .broker
        .add_fault(Rule::on(ApiKey::Produce, Act::DropRequest));
    model.broker.remove_fault(all);
    assert_eq!(model.produce(plain()).0, 0);
    assert_eq!(model.broker.fired(all), 0);
}

#[test]
fn a_coordinator_is_away_for_a_while() {
    let mut model = Model::new();
    let until = model.now + 100;
    let rule = model.broker.add_fault(Rule::not_coordinator(until));
    let away = Error::NotCoordinator.code();
    assert_eq!((model.init().0, model.beat("m", 1)), (away, away));
    model.pass(100);
    assert_eq!(model.init().0, 0);
    assert_eq!(model.broker.fired(rule), 2);
}

/// An admin client queries the coordinator like other clients, and looks it up again after NOT_COORDINATOR.
#[test]
fn a_coordinator_that_is_away_answers_no_admin_either() {
    let mut model = Model::new();
    let until = model.now + 100;
    model.broker.add_fault(Rule::not_coordinator(until));
    let id = || vec![TransactionalId(text("x"))];
    let asked: [(i16, RequestKind); 4] = [
        (
            5,
            DescribeGroupsRequest::default()
                .with_groups(vec![text("g").into()])
                .into(),
        ),
        (
            2,
            DeleteGroupsRequest::default()
                .with_groups_names(vec![text("g").into()])
                .into(),
        ),
        (
            0,
            OffsetDeleteRequest::default()
                .with_group_id(text("g").into())
                .into(),
        ),
        (
            0,
            DescribeTransactionsRequest::default()
                .with_transactional_ids(id())
                .into(),
        ),
    ];
    for (version, request) in asked {
        let ticket = model.send(version, request);
        let told = match model.answer(ticket) {
            Some(ResponseKind::DescribeGroups(it)) => it.groups[0].error_code,
            Some(ResponseKind::DeleteGroups(it)) => it.results[0].error_code,
            Some(ResponseKind::OffsetDelete(it)) => it.error_code,
            Some(ResponseKind::DescribeTransactions(it)) => it.transaction_states[0].error_code,
            other => panic!("{other:?}"),
        };
        assert_eq!(told, Error::NotCoordinator.code(), "{ticket:?}");
    }
}

#[test]
fn an_answer_that_is_held_anyway_is_hurt_when_it_comes() {
    let mut model = Model::new();
    model
        .broker
        .add_fault(Rule::on(ApiKey::Fetch, Act::DisconnectAfter));
    let ticket = model.send_fetch(0, 500);
    assert_eq!(model.output(ticket), None);
    model.produce(plain());
    assert_eq!(model.output(ticket), Some(Output::Disconnect(ticket)));
}

#[test]
fn an_answer_that_is_held_anyway_is_lost_when_it_comes() {
    let mut model = Model::new();
    model
        .broker
        .add_fault(Rule::on(ApiKey::Fetch, Act::DropAnswer));
    let ticket = model.send_fetch(0, 500);
    assert_eq!(model.output(ticket), None);
    model.produce(plain());
    assert_eq!(model.output(ticket), Some(lost(ticket)));
    model
        .broker
        .add_fault(Rule::on(ApiKey::Produce, Act::DropAnswer));
    let ticket = model.send_records(plain(), 0);
    let done = Output::Nothing(Unanswered::Done(ticket));
    assert_eq!(model.output(ticket), Some(done), "none was expected");
}

#[test]
fn a_session_is_ended_at_once() {
    let mut model = Model::new();
    let ticket = model.join("");
    let (_, generation, id) = model.joined(ticket).expect("a response");
    model.broker.expire_session("g", &id, model.now);
    let out = model.broker.advance(model.now);
    assert_eq!(out, []);
    assert_eq!(model.beat(&id, generation), Error::UnknownMemberId.code());
}

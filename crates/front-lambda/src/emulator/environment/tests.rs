use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn limits(concurrency: usize) -> Limits {
    Limits {
        concurrency,
        backlog: 4,
        timeout: Duration::from_secs(3),
        snap_start: false,
        external_extensions: vec!["outside".into()],
    }
}

fn id(number: usize) -> InvocationId {
    format!("invocation-{number}").into()
}

fn transition(from: &'static str, to: &'static str) -> Refusal {
    Refusal::Transition { from, to }
}

fn deliver(ticket: Ticket, number: usize) -> Effect {
    Effect::Deliver { ticket, id: id(number), again: false }
}

fn ended(number: usize, milliseconds: u64, status: Status) -> Effect {
    let ending = Ending { duration: Duration::from_millis(milliseconds), status };
    Effect::Ended { id: id(number), ending }
}

#[test]
fn an_invocation_ends_when_the_runtime_asks_for_the_next() {
    let (mut environment, now) = (Environment::new(limits(1)), Instant::now());
    assert!(environment.invoke(now, &id(1)));
    assert!(environment.invoke(now, &id(2)));
    environment.next(now, 10).unwrap();
    assert_eq!(environment.effects(), [deliver(10, 1)]);
    environment.begin_answer(&id(1), "InvocationResponse").unwrap();
    assert!(environment.finish_answer(now, &id(1), Status::Success));
    assert_eq!(environment.effects(), [], "answered, not ended");
    environment.next(now + Duration::from_millis(7), 11).unwrap();
    assert_eq!(environment.effects(), [ended(1, 7, Status::Success), deliver(11, 2)]);
}

#[test]
fn a_second_answer_is_an_invalid_transition_and_one_after_the_end_names_no_invocation() {
    let (mut environment, now) = (Environment::new(limits(1)), Instant::now());
    environment.invoke(now, &id(1));
    environment.next(now, 10).unwrap();
    environment.begin_answer(&id(1), "InvocationResponse").unwrap();
    let during = environment.begin_answer(&id(1), "InvocationErrorResponse");
    assert_eq!(during, Err(transition("InvocationResponse", "InvocationErrorResponse")));
    assert_eq!(environment.next(now, 11), Err(transition("InvocationResponse", "Ready")));
    environment.finish_answer(now, &id(1), Status::Success);
    let after = environment.begin_answer(&id(1), "InvocationResponse");
    assert_eq!(after, Err(transition("RuntimeResponseSentState", "InvocationResponse")));
    environment.next(now, 12).unwrap();
    let unknown = environment.begin_answer(&id(1), "InvocationResponse");
    assert_eq!(unknown, Err(Refusal::UnknownInvocation));
}

#[test]
fn a_reconnected_runtime_gets_the_same_invocation_again() {
    let (mut environment, now) = (Environment::new(limits(1)), Instant::now());
    environment.invoke(now, &id(1));
    environment.next(now, 10).unwrap();
    environment.effects();
    environment.next(now, 11).unwrap();
    assert_eq!(environment.effects(), [Effect::Deliver { ticket: 11, id: id(1), again: true }]);
}

#[test]
fn a_timed_out_invocation_fails_and_the_next_one_works() {
    let (mut environment, now) = (Environment::new(limits(1)), Instant::now());
    environment.invoke(now, &id(1));
    environment.next(now, 10).unwrap();
    environment.effects();
    let deadline = environment.deadline().unwrap();
    assert_eq!(deadline, now + Duration::from_secs(3));
    environment.tick(deadline);
    let effects = environment.effects();
    let [Effect::Fail { error, .. }, end] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(error.kind, "Sandbox.Timedout");
    let message = r#"{"errorMessage":"RequestId: invocation-1 Error: Task timed out after 3.00 seconds","errorType":"Sandbox.Timedout"}"#;
    assert_eq!(error.body, message);
    assert_eq!(*end, ended(1, 3000, Status::Timeout));
    let late = environment.begin_answer(&id(1), "InvocationResponse");
    assert_eq!(late, Err(Refusal::UnknownInvocation));
    environment.invoke(deadline, &id(2));
    environment.next(deadline, 11).unwrap();
    assert_eq!(environment.effects(), [deliver(11, 2)]);
}

#[test]
fn an_answered_but_unfinished_invocation_times_out_silently() {
    let (mut environment, now) = (Environment::new(limits(1)), Instant::now());
    environment.invoke(now, &id(1));
    environment.next(now, 10).unwrap();
    environment.begin_answer(&id(1), "InvocationResponse").unwrap();
    environment.finish_answer(now, &id(1), Status::Success);
    environment.effects();
    environment.tick(now + Duration::from_secs(3));
    assert_eq!(environment.effects(), [ended(1, 3000, Status::Timeout)]);
}

#[test]
fn a_managed_environment_runs_several_at_once() {
    let (mut environment, now) = (Environment::new(limits(2)), Instant::now());
    environment.next(now, 10).unwrap();
    environment.next(now, 11).unwrap();
    assert_eq!(environment.next(now, 12), Err(Refusal::TooManyWaiting));
    for number in 1..=3 {
        assert!(environment.invoke(now, &id(number)));
    }
    assert_eq!(environment.effects(), [deliver(10, 1), deliver(11, 2)]);
    environment.begin_answer(&id(2), "InvocationResponse").unwrap();
    assert_eq!(
        environment.begin_answer(&id(2), "InvocationResponse"),
        Err(Refusal::UnknownInvocation)
    );
    environment.finish_answer(now, &id(2), Status::Success);
    assert_eq!(environment.effects(), [ended(2, 0, Status::Success)], "its answer ends it");
    environment.next(now, 13).unwrap();
    assert_eq!(environment.effects(), [deliver(13, 3)]);
    environment.tick(now + Duration::from_secs(3));
    let late = environment.begin_answer(&id(1), "InvocationResponse");
    assert_eq!(late, Err(Refusal::TimedOut));
}

#[test]
fn an_init_error_fails_what_waits_and_what_comes_until_the_runtime_asks_again() {
    let (mut environment, now) = (Environment::new(limits(1)), Instant::now());
    environment.invoke(now, &id(1));
    let error = FunctionError::new("Runtime.BootFailed", "no such file");
    environment.init_error(error.clone()).unwrap();
    environment.invoke(now, &id(2));
    let status = || Status::Error("Runtime.BootFailed".into());
    let fail = |number| Effect::Fail { id: id(number), error: error.clone() };
    let expected = [fail(1), ended(1, 0, status()), fail(2), ended(2, 0, status())];
    assert_eq!(environment.effects(), expected);
    assert_eq!(environment.init_error(error.clone()), Err(transition("InitError", "InitError")));
    environment.next(now, 10).unwrap();
    environment.invoke(now, &id(3));
    assert_eq!(environment.effects(), [deliver(10, 3)]);
    assert_eq!(environment.init_error(error), Err(transition("Running", "InitError")));
}

#[test]
fn too_many_waiting_are_throttled_and_a_disconnect_makes_room() {
    let (mut environment, now) = (Environment::new(limits(1)), Instant::now());
    for number in 1..=4 {
        assert!(environment.invoke(now, &id(number)));
    }
    assert!(!environment.invoke(now, &id(5)));
    assert!(environment.forget(&id(2)));
    assert!(!environment.forget(&id(2)));
    assert!(environment.invoke(now, &id(5)));
}

#[test]
fn a_lost_call_passes_its_event_to_another() {
    let (mut environment, now) = (Environment::new(limits(1)), Instant::now());
    environment.next(now, 10).unwrap();
    environment.abandon(10);
    environment.invoke(now, &id(1));
    assert_eq!(environment.effects(), []);
    environment.next(now, 11).unwrap();
    assert_eq!(environment.effects(), [deliver(11, 1)]);
    environment.undeliver(now, &id(1));
    environment.next(now, 12).unwrap();
    assert_eq!(environment.effects(), [deliver(12, 1)]);
}

#[test]
fn a_restore_waits_for_the_first_invocation_and_its_hooks_are_timed() {
    let mut environment = Environment::new(Limits { snap_start: true, ..limits(1) });
    let now = Instant::now();
    assert_eq!(environment.restore_next(now, 9), Some(Ok(())));
    assert_eq!(environment.next(now, 10), Err(transition("RestoreReady", "Ready")));
    assert_eq!(environment.effects(), []);
    environment.invoke(now, &id(1));
    assert_eq!(environment.effects(), [Effect::Restored { ticket: 9 }]);
    environment.next(now + Duration::from_millis(5), 10).unwrap();
    assert_eq!(environment.take_restore(), Some(Duration::from_millis(5)));
    assert_eq!(environment.effects(), [deliver(10, 1)]);
    assert_eq!(Environment::new(limits(1)).restore_next(now, 9), None);
}

#[test]
fn extensions_are_notified_and_awaited() {
    let (mut environment, now) = (Environment::new(limits(1)), Instant::now());
    let refused = environment.register("i".into(), "inside", &["SHUTDOWN".into()]);
    let message = "SHUTDOWN: ShutdownEventNotSupportedForInternalExtension".into();
    let kind = "Extension.InvalidEventType";
    assert_eq!(refused, Err(Refusal::Extension { kind, message }));
    environment.register("i".into(), "inside", &["INVOKE".into()]).unwrap();
    environment.register("o".into(), "outside", &["SHUTDOWN".into()]).unwrap();
    environment.invoke(now, &id(1));
    environment.next(now, 10).unwrap();
    assert_eq!(environment.effects(), [], "the extension has not asked yet");
    environment.extension_next(now, "i", 20).unwrap();
    let told = Effect::Tell { ticket: 20, event: ExtensionEvent::Invoke { id: id(1) } };
    assert_eq!(environment.effects(), [told, deliver(10, 1)]);
    environment.begin_answer(&id(1), "InvocationResponse").unwrap();
    environment.finish_answer(now, &id(1), Status::Success);
    environment.next(now, 11).unwrap();
    assert_eq!(environment.effects(), [], "the extension is still at it");
    environment.extension_next(now, "i", 21).unwrap();
    assert_eq!(environment.effects(), [ended(1, 0, Status::Success)]);
    environment.extension_next(now, "o", 30).unwrap();
    environment.shut_down();
    let told = Effect::Tell { ticket: 30, event: ExtensionEvent::Shutdown };
    assert_eq!(environment.effects(), [told]);
    assert!(environment.extension_next(now, "unknown", 40).is_err());
}

#[test]
fn a_runtime_exit_fails_its_invocation() {
    let (mut environment, now) = (Environment::new(limits(1)), Instant::now());
    environment.invoke(now, &id(1));
    environment.next(now, 10).unwrap();
    environment.effects();
    let error = FunctionError::new("Runtime.ExitError", "exit status 1");
    environment.exited(now, &error);
    let status = Status::Error("Runtime.ExitError".into());
    assert_eq!(environment.effects(), [Effect::Fail { id: id(1), error }, ended(1, 0, status)]);
}

#[test]
fn well_formed_error_types_are_kept() {
    let kind = |kind| FunctionError::posted(kind, Bytes::new()).kind;
    assert_eq!(kind("Runtime.ExitError"), "Runtime.ExitError");
    assert_eq!(kind("Function.RuntimeException"), "Function.RuntimeException");
    assert_eq!(kind("Function.not a name"), "Function.Unknown");
    assert_eq!(kind("RuntimeException"), "Runtime.Unknown");
    assert_eq!(kind(""), "Runtime.Unknown");
}

#[derive(Clone, Debug)]
enum Step {
    Invoke,
    Next,
    Begin(usize),
    Finish(usize, bool),
    Forget(usize),
    Abandon(usize),
    Undeliver(usize),
    InitError,
    Exited,
    Register(bool),
    ExtensionNext,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Invoke),
        4 => Just(Step::Next),
        4 => (0..12_usize).prop_map(Step::Begin),
        4 => (0..12_usize, any::<bool>()).prop_map(|(which, good)| Step::Finish(which, good)),
        1 => (0..12_usize).prop_map(Step::Forget),
        1 => (0..12_usize).prop_map(Step::Abandon),
        1 => (0..12_usize).prop_map(Step::Undeliver),
        1 => Just(Step::InitError),
        1 => Just(Step::Exited),
        1 => any::<bool>().prop_map(Step::Register),
        2 => Just(Step::ExtensionNext),
        2 => (0..2500_u64).prop_map(Step::Pass),
    ]
}

/// Checks the invariants from outside: by accepted calls and returned effects.
#[derive(Default)]
struct Ledger {
    taken: BTreeSet<InvocationId>,
    waiting: BTreeSet<Ticket>,
    running: BTreeSet<InvocationId>,
    responding: BTreeSet<InvocationId>,
    answered: BTreeSet<InvocationId>,
    failed: BTreeSet<InvocationId>,
    ended: BTreeSet<InvocationId>,
}

impl Ledger {
    fn see(&mut self, effects: Vec<Effect>, concurrency: usize) {
        for effect in effects {
            match effect {
                Effect::Deliver { ticket, id, again } => {
                    assert!(self.waiting.remove(&ticket), "a call that waited gets it");
                    assert!(self.taken.contains(&id) && !self.ended.contains(&id));
                    assert_eq!(self.running.insert(id), !again);
                    assert!(self.running.len() <= concurrency);
                }
                Effect::Fail { id, .. } => {
                    assert!(!self.answered.contains(&id), "an answer and an error");
                    assert!(self.failed.insert(id), "two errors");
                }
                Effect::Ended { id, .. } => {
                    assert!(self.taken.contains(&id));
                    assert!(
                        self.answered.contains(&id) || self.failed.contains(&id),
                        "ended without a word"
                    );
                    self.running.remove(&id);
                    self.responding.remove(&id);
                    assert!(self.ended.insert(id), "ended twice");
                }
                Effect::Tell { .. } => {}
                Effect::Restored { .. } => panic!("there is nothing to restore"),
            }
        }
    }
}

proptest! {
    #[test]
    fn each_invocation_ends_once_with_one_result(
        steps in proptest::collection::vec(step(), 1..120),
        concurrency in 1..4_usize,
    ) {
        let mut environment = Environment::new(limits(concurrency));
        let mut ledger = Ledger::default();
        let mut now = Instant::now();
        let (mut invocations, mut tickets) = (0, 100);
        for step in steps {
            match step {
                Step::Invoke => {
                    invocations += 1;
                    if environment.invoke(now, &id(invocations)) {
                        ledger.taken.insert(id(invocations));
                    }
                }
                Step::Next => {
                    tickets += 1;
                    if environment.next(now, tickets).is_ok() {
                        ledger.waiting.insert(tickets);
                    }
                }
                Step::Begin(which) => {
                    if environment.begin_answer(&id(which), "InvocationResponse").is_ok() {
                        assert!(ledger.running.contains(&id(which)));
                        assert!(ledger.responding.insert(id(which)));
                    }
                }
                Step::Finish(which, good) => {
                    // The driver only finishes what it has begun.
                    if ledger.responding.remove(&id(which)) {
                        let status = if good { Status::Success } else { Status::Error("x".into()) };
                        if environment.finish_answer(now, &id(which), status) {
                            assert!(ledger.answered.insert(id(which)), "two answers");
                        }
                    }
                }
                Step::Forget(which) => {
                    if environment.forget(&id(which)) {
                        ledger.taken.remove(&id(which));
                    }
                }
                Step::Abandon(which) => {
                    let ticket = 100 + which as Ticket;
                    environment.abandon(ticket);
                    ledger.waiting.remove(&ticket);
                }
                Step::Undeliver(which) => {
                    let untouched = !ledger.responding.contains(&id(which))
                        && !ledger.answered.contains(&id(which));
                    if untouched && ledger.running.remove(&id(which)) {
                        environment.undeliver(now, &id(which));
                    }
                }
                Step::InitError => {
                    drop(environment.init_error(FunctionError::new("Runtime.X", "y")));
                }
                Step::Exited => {
                    environment.exited(now, &FunctionError::new("Runtime.ExitError", "z"));
                    ledger.waiting.clear();
                }
                Step::Register(invoke) => {
                    let events = if invoke { vec!["INVOKE".to_owned()] } else { Vec::new() };
                    drop(environment.register("e".into(), "extension", &events));
                }
                Step::ExtensionNext => {
                    tickets += 1;
                    drop(environment.extension_next(now, "e", tickets));
                }
                Step::Pass(milliseconds) => {
                    now += Duration::from_millis(milliseconds);
                    environment.tick(now);
                }
            }
            ledger.see(environment.effects(), concurrency);
            prop_assert!(environment.deadline().is_none_or(|deadline| deadline > now));
        }
        // In the end nothing is left: waiting invocations are delivered or fail, running ones time out.
        environment.shut_down();
        environment.tick(now + Duration::from_secs(3));
        ledger.see(environment.effects(), concurrency);
        prop_assert_eq!(&ledger.taken, &ledger.ended);
        prop_assert!(environment.is_idle());
    }
}

//! Tests against scripts: the server's output, and the input that it must have received before.

use std::sync::Mutex;
use std::time::SystemTime;

use tokio::io::{BufReader, DuplexStream};

use super::*;
use crate::{Address, Draft, Kind, Message, Recipient, Secret};

/// The next action of a server.
enum Do {
    /// Says it.
    Say(&'static str),
    /// Hears a line, which is this.
    Hear(&'static str),
    /// Hears until the final dot.
    Message(&'static str),
    /// Says nothing more and stays.
    Stay,
}
use Do::{Hear, Message as Body, Say, Stay};

#[derive(Default)]
struct Notes {
    recipients: Mutex<Vec<(usize, u16)>>,
    dotted: Mutex<bool>,
}

impl Witness for Notes {
    fn recipient(&self, at: usize, reply: &Reply) {
        self.recipients.lock().expect("one thread").push((at, reply.code));
    }
    fn final_dot(&self) {
        *self.dotted.lock().expect("one thread") = true;
    }
    fn sent(&self, _bytes: usize) {}
}

async fn play(stream: DuplexStream, script: Vec<Do>) {
    use tokio::io::AsyncBufReadExt as _;
    let mut stream = BufReader::new(stream);
    for step in script {
        match step {
            Say(words) => {
                // The client may have hung up before it has heard everything.
                if stream.get_mut().write_all(words.as_bytes()).await.is_err() {
                    return;
                }
            }
            Hear(wanted) => {
                let mut line = String::new();
                stream.read_line(&mut line).await.expect("a line");
                assert_eq!(line, format!("{wanted}\r\n"));
            }
            Body(wanted) => {
                let mut body = String::new();
                while !body.ends_with("\r\n.\r\n") && body != ".\r\n" {
                    let read = stream.read_line(&mut body).await.expect("a line");
                    assert!(read > 0, "no final dot: {body:?}");
                }
                assert!(body.ends_with(wanted), "{body:?}");
            }
            Stay => std::future::pending::<()>().await,
        }
    }
}

const HELLO: [Do; 3] =
    [Say("220 x\r\n"), Hear("EHLO me"), Say("250-x\r\n250-PIPELINING\r\n250 SIZE 5000\r\n")];

fn message() -> Message {
    let address = |text| Address::parse(text).expect("an address");
    let mut draft = Draft {
        from: Some(address("a@x.test")),
        recipients: vec![Recipient { kind: Kind::To, address: address("b@x.test") }],
        ..Draft::default()
    };
    draft.set_raw("A: b\n\n.\n..x\ny.".into());
    draft.compose(SystemTime::now()).expect("a message")
}

fn envelope(recipients: &[&str]) -> Envelope {
    Envelope {
        from: "a@x.test".to_owned(),
        recipients: recipients.iter().map(|one| (*one).to_owned()).collect(),
        size: 100,
        ..Envelope::default()
    }
}

/// Plays `script` behind the greeting, and sends to `recipients`.
fn send(
    script: Vec<Do>,
    envelope: &Envelope,
    times: Times,
) -> (Result<Reply, Trouble>, Notes, bool) {
    run(HELLO.into_iter().chain(script).collect(), times, async |session, notes| {
        session.greet().await?;
        session.hello("me", true).await?;
        session.send(envelope, message().reader(), notes, false).await
    })
}

fn run<T>(
    script: Vec<Do>,
    times: Times,
    client: impl AsyncFnOnce(&mut Session<DuplexStream>, &Notes) -> Result<T, Trouble>,
) -> (Result<T, Trouble>, Notes, bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("one");
    runtime.block_on(async {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let mut session = Session::new(ours, times);
        let notes = Notes::default();
        let (result, settled) = {
            let work = async {
                let result = client(&mut session, &notes).await;
                let settled = session.is_settled();
                drop(session);
                (result, settled)
            };
            let mut played = pin!(play(theirs, script));
            let mut work = pin!(work);
            // The script may end before the client does, or stay for ever.
            tokio::select! {
                biased;
                done = &mut work => done,
                () = &mut played => work.await,
            }
        };
        (result, notes, settled)
    })
}

#[test]
fn a_message_is_dot_stuffed_and_the_session_reused() {
    let (result, notes, settled) = send(
        vec![
            Hear("MAIL FROM:<a@x.test> SIZE=100"),
            Hear("RCPT TO:<b@x.test>"),
            Say("250 ok\r\n250 2.1.5 ok\r\n"),
            Hear("DATA"),
            Say("354 go\r\n"),
            Body("\r\n\r\n..\r\n...x\r\ny.\r\n.\r\n"),
            Say("250 2.0.0 queued\r\n"),
        ],
        &envelope(&["b@x.test"]),
        Times::default(),
    );
    assert_eq!(result.expect("taken").text, "2.0.0 queued");
    assert!(settled && *notes.dotted.lock().expect("free"));
}

#[test]
fn one_rejected_recipient_stops_the_message_unless_allowed() {
    let refusing = |after: Vec<Do>| {
        let mut script = vec![
            Hear("MAIL FROM:<a@x.test> SIZE=100"),
            Hear("RCPT TO:<b@x.test>"),
            Hear("RCPT TO:<c@x.test>"),
            Hear("RCPT TO:<d@x.test>"),
            Say("250 ok\r\n250 ok\r\n450 later\r\n550 never\r\n"),
        ];
        script.extend(after);
        script
    };
    let three = ["b@x.test", "c@x.test", "d@x.test"];
    let (result, notes, settled) = send(refusing(vec![Stay]), &envelope(&three), Times::default());
    assert!(
        matches!(&result, Err(Trouble::Recipients { reply }) if reply.code == 550),
        "{result:?}"
    );
    assert!(settled && !*notes.dotted.lock().expect("free"));
    let judged = notes.recipients.into_inner().expect("free");
    assert_eq!(judged, [(0, 250), (1, 450), (2, 550)]);

    let tolerant = Envelope { allow_fails: true, ..envelope(&three) };
    let data = vec![Hear("DATA"), Say("354 go\r\n"), Body(".\r\n"), Say("250 ok\r\n")];
    let (result, _, settled) = send(refusing(data), &tolerant, Times::default());
    assert!(result.is_ok() && settled);
}

#[test]
fn no_accepted_recipient_means_no_message() {
    let tolerant = Envelope { allow_fails: true, ..envelope(&["b@x.test"]) };
    let script = vec![
        Hear("MAIL FROM:<a@x.test> SIZE=100"),
        Hear("RCPT TO:<b@x.test>"),
        Say("250 ok\r\n452 4.5.3 full\r\n"),
        Stay,
    ];
    let (result, _, _) = send(script, &tolerant, Times::default());
    assert!(
        matches!(&result, Err(Trouble::Recipients { reply }) if reply.enhanced() == Some("4.5.3"))
    );
}

#[test]
fn a_rejected_sender_ends_the_message_and_pipelined_replies_are_read() {
    let script = vec![
        Hear("MAIL FROM:<a@x.test> SIZE=100"),
        Hear("RCPT TO:<b@x.test>"),
        Say("553 no\r\n503 first the sender\r\n"),
        Stay,
    ];
    let (result, notes, settled) = send(script, &envelope(&["b@x.test"]), Times::default());
    assert!(matches!(result, Err(Trouble::Refused { phase: Phase::Sender, .. })), "{result:?}");
    assert!(settled && notes.recipients.into_inner().expect("free").is_empty());
}

#[test]
fn a_failed_rset_ends_the_session() {
    for words in ["502 5.5.1 what?\r\n250 ok\r\n250 ok\r\n", "450 no\r\n503 no\r\n503 no\r\n"] {
        let script = vec![
            Hear("RSET"),
            Hear("MAIL FROM:<a@x.test> SIZE=100"),
            Hear("RCPT TO:<b@x.test>"),
            Say(words),
            Stay,
        ];
        let all = HELLO.into_iter().chain(script).collect();
        let (result, notes, settled) = run(all, Times::default(), async |session, notes| {
            session.greet().await?;
            session.hello("me", true).await?;
            session.send(&envelope(&["b@x.test"]), message().reader(), notes, true).await
        });
        assert!(matches!(result, Err(Trouble::Refused { phase: Phase::Reset, .. })), "{result:?}");
        assert!(!settled && !*notes.dotted.lock().expect("free"), "{words}");
    }
}

#[test]
fn a_silent_server_times_out_at_every_stage() {
    let stages: [(Vec<Do>, Phase); 4] = [
        (vec![], Phase::Sender),
        (vec![Say("250 ok\r\n")], Phase::Recipient),
        (vec![Say("250 ok\r\n250 ok\r\n"), Hear("DATA")], Phase::Data),
        (
            vec![Say("250 ok\r\n250 ok\r\n"), Hear("DATA"), Say("354 go\r\n"), Body(".\r\n")],
            Phase::End,
        ),
    ];
    for (then, at) in stages {
        let mut script = vec![Hear("MAIL FROM:<a@x.test> SIZE=100"), Hear("RCPT TO:<b@x.test>")];
        script.extend(then);
        script.push(Stay);
        let (result, notes, settled) =
            send(script, &envelope(&["b@x.test"]), Times::all(Duration::from_millis(300)));
        assert!(
            matches!(result, Err(Trouble::Silent { phase, .. }) if phase == at),
            "{at}: {result:?}"
        );
        assert_eq!(*notes.dotted.lock().expect("free"), at == Phase::End, "{at}");
        assert!(!settled);
    }
}

#[test]
fn invalid_and_unsolicited_replies_are_rejected() {
    for words in ["HTTP/1.1 200 OK\r\n", "250-a\r\n220 b\r\n", "2000 ok\r\n", "354 go\r\n"] {
        let script = vec![Hear("MAIL FROM:<a@x.test> SIZE=100"), Say(words), Stay];
        let (result, ..) =
            send(script, &envelope(&["b@x.test"]), Times::all(Duration::from_secs(20)));
        assert!(matches!(result, Err(Trouble::Rubbish { .. })), "{words}: {result:?}");
    }
    let early = vec![Say("220 x\r\n250 what\r\n"), Stay];
    let (result, ..) = run(early, Times::default(), async |session, _| {
        session.greet().await?;
        session.hello("me", true).await
    });
    assert!(matches!(result, Err(Trouble::Rubbish { what: "an unexpected reply", .. })));
}

#[test]
fn a_closed_session_is_not_reused() {
    let mail = "MAIL FROM:<a@x.test> SIZE=100";
    let script = vec![Hear(mail), Say("421 4.3.2 going\r\n"), Stay];
    let (result, _, settled) = send(script, &envelope(&["b@x.test"]), Times::default());
    assert!(
        matches!(&result, Err(Trouble::Refused { reply, .. }) if reply.is_goodbye()) && !settled
    );
    let (result, _, settled) = send(vec![Hear(mail)], &envelope(&["b@x.test"]), Times::default());
    assert!(
        matches!(result, Err(Trouble::Closed { .. } | Trouble::Broken { .. })) && !settled,
        "{result:?}"
    );
}

#[test]
fn limits_and_missing_extensions_fail_before_sending() {
    let large = Envelope { size: 5001, ..envelope(&["b@x.test"]) };
    let (result, _, settled) = send(vec![Stay], &large, Times::default());
    assert!(matches!(result, Err(Trouble::TooLarge { size: 5001, limit: 5000 })) && settled);
    let eight = Envelope { eight_bit: true, ..envelope(&["b@x.test"]) };
    assert!(matches!(
        send(vec![Stay], &eight, Times::default()).0,
        Err(Trouble::Unsupported("8BITMIME"))
    ));
    let utf8 = envelope(&["b\u{fc}@x.test"]);
    assert!(matches!(
        send(vec![Stay], &utf8, Times::default()).0,
        Err(Trouble::Unsupported("SMTPUTF8"))
    ));
}

#[test]
fn plain_text_after_starttls_ends_the_session() {
    for (words, injected) in [("220 go\r\n250 own words\r\n", true), ("220 go\r\n", false)] {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("one");
        let upgraded = runtime.block_on(async {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let mut session = Session::new(ours, Times::default());
            let script = vec![
                Say("220 x\r\n"),
                Hear("EHLO me"),
                Say("250-x\r\n250 STARTTLS\r\n"),
                Hear("STARTTLS"),
                Say(words),
                Stay,
            ];
            let client = async {
                session.greet().await?;
                session.hello("me", false).await?;
                assert!(session.can().start_tls);
                session.start_tls().await
            };
            tokio::select! {
                upgraded = client => upgraded,
                () = play(theirs, script) => unreachable!("it stays"),
            }
        });
        match upgraded {
            Err(Trouble::Injected) => assert!(injected),
            Ok(Upgraded::Ready(_)) => assert!(!injected),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_failed_login_passes_on_the_servers_text() {
    let credentials = Credentials {
        user: "u".to_owned(),
        secret: "p".to_owned(),
        kind: Secret::Password,
        allowed: vec![],
        in_plain: false,
    };
    let log_in = |mechanisms: &'static str, rest: Vec<Do>| {
        let mut script = vec![Say("220 x\r\n"), Hear("EHLO me"), Say(mechanisms)];
        script.extend(rest);
        let (result, _, settled) = run(script, Times::default(), async |session, _| {
            session.greet().await?;
            session.hello("me", true).await?;
            session.log_in(&credentials, true).await
        });
        (result, settled)
    };
    let (result, settled) = log_in(
        "250-x\r\n250 AUTH PLAIN\r\n",
        vec![Hear("AUTH PLAIN AHUAcA=="), Say("235 in\r\n"), Stay],
    );
    assert!(result.is_ok() && settled);
    let (result, _) = log_in(
        "250-x\r\n250 AUTH LOGIN\r\n",
        vec![
            Hear("AUTH LOGIN"),
            Say("334 VXNlcm5hbWU6\r\n"),
            Hear("dQ=="),
            Say("334 UGFzc3dvcmQ6\r\n"),
            Hear("cA=="),
            Say("535 5.7.8 no\r\n"),
            Stay,
        ],
    );
    assert!(matches!(result, Err(Trouble::Refused { phase: Phase::Login, .. })), "{result:?}");
    // A server that says yes before it has proved anything is not believed.
    let (result, _) = log_in("250-x\r\n250 AUTH SCRAM-SHA-256\r\n", vec![Say("235 in\r\n"), Stay]);
    assert!(matches!(result, Err(Trouble::Impostor | Trouble::Rubbish { .. })), "{result:?}");
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]
    #[test]
    fn a_message_has_one_end_however_it_is_cut(text in "[.a\r\n]{0,40}", cut in 1_usize..5) {
        let message = crate::encode::with_crlf(text.as_bytes());
        let mut line = Line::default();
        let mut out = Vec::new();
        for piece in message.chunks(cut) {
            line.stuff(piece, &mut out);
        }
        out.extend_from_slice(if line.at_start() { b".\r\n" } else { b"\r\n.\r\n" });
        let out = String::from_utf8(out).expect("ASCII");
        let lines: Vec<&str> = out.split("\r\n").collect();
        // The end is the one line with a dot alone, and behind it there is nothing.
        let end = lines.iter().position(|line| *line == ".").expect("an end");
        proptest::prop_assert_eq!(&lines[end..], [".", ""]);
        let mut unstuffed = String::new();
        for line in &lines[..end] {
            unstuffed.push_str(line.strip_prefix('.').unwrap_or(line));
            unstuffed.push_str("\r\n");
        }
        let mut wanted = String::from_utf8(message).expect("ASCII");
        if !wanted.is_empty() && !wanted.ends_with("\r\n") {
            wanted.push_str("\r\n");
        }
        proptest::prop_assert_eq!(unstuffed, wanted);
    }
}

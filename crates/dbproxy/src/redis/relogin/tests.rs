use proptest::prelude::*;

use super::*;

const LOGIN: &[u8] = b"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n";
const RESET: &[u8] = b"*1\r\n$5\r\nRESET\r\n";
const ECHO: &[u8] = b"*2\r\n$4\r\nECHO\r\n$5\r\nRESET\r\n";

/// Returns the resulting bytes for input in pieces of `size`.
fn through(relogin: &mut Relogin, up: &[u8], down: &[u8], size: usize) -> (Vec<u8>, Vec<u8>) {
    let Relogin { up: upwards, down: downwards, due } = relogin;
    let sent = up.chunks(size).flat_map(|piece| upwards.follow(piece, due).into_owned()).collect();
    let heard = down
        .chunks(size)
        .flat_map(|piece| downwards.follow(piece, due).unwrap().into_owned())
        .collect();
    (sent, heard)
}

#[test]
fn a_reset_is_followed_by_a_hidden_login() {
    let up = [ECHO, RESET, ECHO, b"*1\r\n$5\r\nreset\r\n"].concat();
    let down = b"$5\r\nRESET\r\n+RESET\r\n+OK\r\n$5\r\nRESET\r\n+RESET\r\n+OK\r\n";
    for size in 1..=up.len() {
        let mut relogin = Relogin::new(|| Some(LOGIN.to_vec()));
        let (sent, heard) = through(&mut relogin, &up, down, size);
        assert_eq!(sent, [ECHO, RESET, LOGIN, ECHO, b"*1\r\n$5\r\nreset\r\n", LOGIN].concat());
        assert_eq!(heard, b"$5\r\nRESET\r\n+RESET\r\n$5\r\nRESET\r\n+RESET\r\n", "{size}");
        assert!(relogin.is_whole());
        assert_eq!(relogin.due.resets.into_inner(), 0);
    }
}

#[test]
fn an_inline_reset_is_recognised() {
    let mut relogin = Relogin::new(|| Some(LOGIN.to_vec()));
    let (sent, heard) =
        through(&mut relogin, b"ping\r\nReset\r\n", b"+PONG\r\n+RESET\r\n+OK\r\n", 4);
    assert_eq!(sent, [b"ping\r\nReset\r\n", LOGIN].concat());
    assert_eq!(heard, b"+PONG\r\n+RESET\r\n");
}

#[test]
fn text_resembling_a_reset_is_ignored() {
    for up in [
        &b"*2\r\n$5\r\nRESET\r\n$1\r\nx\r\n"[..],
        b"*1\r\n$15\r\n*1\r\n$5\r\nRESET\r\n\r\n",
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nRESET\r\n",
        b"*1\r\n$4\r\nRESE\r\n",
        b"*1\r\n$64\r\nRESET                                                           \r\n",
    ] {
        let mut relogin = Relogin::new(|| Some(LOGIN.to_vec()));
        // Its response may look like a login's, too: the client receives it completely.
        let (sent, heard) = through(&mut relogin, up, b"+RESET\r\n+OK\r\n", 3);
        assert_eq!((&*sent, &*heard), (up, &b"+RESET\r\n+OK\r\n"[..]));
    }
}

#[test]
fn an_incomplete_command_is_recognised() {
    let set = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n*1\r\n";
    let commands = [&b"ping\r\n"[..], set, RESET, b"\r\n", b"$12\r\n", ECHO, b"*0\r\n"];
    let mut relogin = Relogin::new(|| None);
    assert!(relogin.up.is_whole(), "of one that has said nothing");
    for command in commands {
        for (at, byte) in command.iter().enumerate() {
            relogin.up.follow(&[*byte], &relogin.due);
            assert_eq!(relogin.up.is_whole(), at + 1 == command.len(), "{at} of {command:?}");
        }
    }
    for odd in [&b"*1\r\n+PING\r\n"[..], b"*2\r\n*1\r\n", b"*1\r_$4\r_PING\r\n"] {
        let mut relogin = Relogin::new(|| None);
        relogin.up.follow(odd, &relogin.due);
        relogin.up.follow(RESET, &relogin.due);
        assert!(!relogin.up.is_whole(), "{odd:?}");
    }
}

#[test]
fn pending_replies_are_counted() {
    let pop = b"*3\r\n$5\r\nBLPOP\r\n$1\r\nq\r\n$1\r\n0\r\n";
    let subscribe = b"*3\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n$1\r\nb\r\n";
    let told =
        b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n";
    let push = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";
    let answers: [(&[u8], &[u8], bool); 7] = [
        (b"", b"", true),
        (pop, b"", false),
        (pop, b"*2\r\n$1\r\nq\r\n", false),
        (pop, b"*2\r\n$1\r\nq\r\n$1\r\nx\r\n", true),
        (pop, push, false),
        (subscribe, told, true),
        (&[&pop[..], ECHO].concat(), b"*-1\r\n", false),
    ];
    for (up, down, whole) in answers {
        for size in 1..10 {
            let mut relogin = Relogin::new(|| Some(LOGIN.to_vec()));
            through(&mut relogin, up, down, size);
            assert_eq!(relogin.is_whole(), whole, "{down:?}");
        }
    }
}

#[test]
fn state_that_survives_reset_is_recognised() {
    let commands: [(&[u8], bool); 9] = [
        (b"*3\r\n$6\r\nSCRIPT\r\n$5\r\nDEBUG\r\n$3\r\nYES\r\n", true),
        (b"*3\r\n$6\r\nclient\r\n$8\r\nno-evict\r\n$2\r\non\r\n", true),
        (b"*3\r\n$6\r\nCLIENT\r\n$4\r\nCAPA\r\n$8\r\nredirect\r\n", true),
        (b"*3\r\n$6\r\nCLIENT\r\n$8\r\nNO-TOUCH\r\n$2\r\nON\r\n", true),
        (b"Script  debug yes\r\n", true),
        (b"*2\r\n$6\r\nSCRIPT\r\n$5\r\nFLUSH\r\n", false),
        (b"*2\r\n$6\r\nCLIENT\r\n$5\r\nDEBUG\r\n", false),
        (b"*3\r\n$3\r\nSET\r\n$6\r\nSCRIPT\r\n$5\r\nDEBUG\r\n", false),
        (b"*1\r\n$6\r\nSCRIPT\r\nDEBUG\r\n", false),
    ];
    for (command, stays) in commands {
        for size in 1..10 {
            let mut relogin = Relogin::new(|| Some(LOGIN.to_vec()));
            let up = [ECHO, command, ECHO].concat();
            through(&mut relogin, &up, b"+OK\r\n+OK\r\n+OK\r\n+OK\r\n", size);
            assert_eq!(relogin.is_whole(), !stays, "{}", command.escape_ascii());
        }
    }
}

#[test]
fn a_reset_inside_another_reply_is_data() {
    let mut relogin = Relogin::new(|| Some(LOGIN.to_vec()));
    let down =
        b"*2\r\n+RESET\r\n%1\r\n+a\r\n*1\r\n:1\r\n>2\r\n+RESET\r\n+OK\r\n+RESET\r\n+OK\r\n+OK\r\n";
    let (_, heard) = through(&mut relogin, RESET, down, 5);
    let expected =
        b"*2\r\n+RESET\r\n%1\r\n+a\r\n*1\r\n:1\r\n>2\r\n+RESET\r\n+OK\r\n+RESET\r\n+OK\r\n";
    assert_eq!(heard, expected);
}

#[test]
fn a_rejected_login_closes_the_session() {
    let mut relogin = Relogin::new(|| Some(LOGIN.to_vec()));
    let Relogin { up, down, due } = &mut relogin;
    up.follow(RESET, due);
    let refused = down.follow(b"+RESET\r\n-WRONGPASS no\r\n", due);
    assert_eq!(refused, Err(LoginLost));
}

proptest! {
    #[test]
    fn any_bytes_are_forwarded(
        up in proptest::collection::vec(proptest::sample::select(&b"*$+:%12RESET\r\n"[..]), 0..200),
        down in proptest::collection::vec(any::<u8>(), 0..200),
        size in 1..50_usize,
    ) {
        let mut relogin = Relogin::new(|| Some(Vec::new()));
        let Relogin { up: upwards, down: downwards, due } = &mut relogin;
        let sent: Vec<u8> =
            up.chunks(size).flat_map(|piece| upwards.follow(piece, due).into_owned()).collect();
        // An empty login adds nothing.
        prop_assert_eq!(sent, up);
        due.resets.store(0, Ordering::Relaxed);
        for piece in down.chunks(size) {
            let heard = downwards.follow(piece, due).unwrap().into_owned();
            prop_assert_eq!(heard.as_slice(), piece);
        }
    }
}

//! Replaces `hearth-worker-8.x` in tests that need a worker that misbehaves on request, and in benches of the relay without PHP.
//!
//! It implements docs/internals/frames.md as a zygote on descriptor 3, and as a worker on every socket it receives: one thread per
//! "worker", with invented process ids. The path of a request selects the response; see [`worker`]. `--model` selects what the server sees of
//! a model: one-shot workers, a zygote that boots and warms up, workers that retire. `--ini NAME=1` selects a fault at start:
//!
//! | name | fault |
//! |---|---|
//! | `refuse-to-start` | the zygote exits with 1 |
//! | `end-early` | a zygote that boots a script exits with 255, as one with a script that took no request |
//! | `unfit` | a zygote that boots a script exits with 78, as one with an application that cannot be forked |
//! | `chatty` | the zygote fills the socket with log lines before it reads its warm-up |
//! | (`HEARTH_TEST_BOOTS` in the environment) | the zygote boots as long as that file exists |
//! | `refuse-second` | the second worker cannot be forked |
//! | `refuse-forks` | no worker can be forked |
//! | `lose-spawn` | the zygote ignores the SPAWN of slot 2 and does not answer it |
//! | `stand-still` | the zygote pauses for three seconds before it forks slot 2 |
//! | `lose-exit` | the zygote does not report the exit of slot 1 |
//! | `refuse-to-boot` | workers exit with 255 |
//! | `slow-to-boot` | workers take two seconds to boot, except the first |
//! | `retire-at-boot` | workers of the model `snapshot` exit with 75 before they are ready |
//! | `retire-when-asked` | workers of the model `snapshot` exit with 75 when a request arrives, without taking it |
//! | `kill-late` | the zygote pauses for half a second before it kills a worker |
//! | `keep-sockets` | sockets of workers that have exited stay open, as if a child of theirs were still alive |
//! | `retire-idle` | workers of the model `snapshot` exit with 75 after waiting for 5 ms |
//!
//! `--probe-snapshot` prints the tracker that `HEARTH_SNAPSHOT_TRACKER` names, else `file`.
#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::exit,
    reason = "a stand-in says why it ends"
)]

mod sys;
mod worker;

use std::collections::HashMap;
use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use wire::{HEADER_LEN, Sender, ToZygote};

/// The first invented process id: above any real one (`/proc/sys/kernel/pid_max` is at most 2^22).
const FIRST_PID: u32 = 1 << 24;

/// Models with workers that answer one request each.
const ONE_SHOT: &[&str] = &["spawn", "prespawn", "fork"];

/// Sockets of living workers, which are shut down when a worker is killed.
type Workers = Arc<Mutex<HashMap<u32, UnixStream>>>;

fn main() {
    let mut arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|argument| argument == "--ini-stdin") {
        let settings = std::io::read_to_string(std::io::stdin()).expect("settings are text");
        arguments.extend(settings.split_terminator('\0').map(ToOwned::to_owned));
    }
    let flag = |name: &str| arguments.iter().any(|argument| argument.contains(name));
    if flag("refuse-to-start") {
        eprintln!("fake-worker: told not to start");
        std::process::exit(1);
    }
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    if flag("--probe-snapshot") {
        let forced = std::env::var_os("HEARTH_SNAPSHOT_TRACKER");
        let tracker = forced.unwrap_or_else(|| "file".into());
        let tracker = tracker.into_string().expect("a tracker's name is plain text");
        let why = if tracker == "file" { "" } else { "told so" };
        println!("{{\"tracker\":\"{tracker}\",\"why\":\"{why}\"}}");
        return;
    }
    let model = value("--model").unwrap_or_default();
    let boots = model == "fork" || model == "snapshot";
    if boots && flag("end-early") {
        eprintln!("fake-worker: the script took no request");
        std::process::exit(255);
    }
    if boots && flag("unfit") {
        eprintln!("fake-worker: a thread was left running");
        std::process::exit(78);
    }
    if let Some(file) = std::env::var_os("HEARTH_TEST_BOOTS") {
        while Path::new(&file).exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let control = sys::control_socket();
    let say = Arc::new(Mutex::new(control.try_clone().expect("a descriptor is free")));
    let workers = Workers::default();
    if flag("chatty") {
        for _ in 0..1000 {
            send(&say, |out| wire::send::log(out, 7, 2, &[b'x'; 1000], b""));
        }
    }
    let warm_up = value("--warm-up").and_then(|count| count.parse().ok()).unwrap_or(0);
    let warmed = worker::warm_up(&control, warm_up);
    let snapshot = model == "snapshot";
    let manner = worker::Manner {
        one_shot: ONE_SHOT.contains(&&*model),
        refuse: flag("refuse-to-boot"),
        slow_to_boot: flag("slow-to-boot"),
        retire_at_boot: snapshot && flag("retire-at-boot"),
        retire_idle: snapshot && flag("retire-idle"),
        retire_when_asked: snapshot && flag("retire-when-asked"),
        warmed: warmed.into(),
    };
    send(&say, |out| wire::send::hello(out, wire::VERSION, std::process::id(), "0.0.0-fake"));

    let (refuse_second, refuse_forks) = (flag("refuse-second"), flag("refuse-forks"));
    let keep_sockets = flag("keep-sockets");
    let (lose_spawn, stand_still) = (flag("lose-spawn"), flag("stand-still"));
    let (lose_exit, kill_late) = (flag("lose-exit"), flag("kill-late"));
    while let Some((frame, descriptors)) = receive(&control) {
        match frame {
            ToZygote::Spawn { slot } if refuse_forks || (refuse_second && slot == 2) => {
                let errno = rustix::io::Errno::AGAIN.raw_os_error().cast_unsigned();
                send(&say, |out| wire::send::failed(out, slot, errno));
            }
            ToZygote::Spawn { slot: 2 } if lose_spawn => {}
            ToZygote::Spawn { slot } => {
                if slot == 2 && stand_still {
                    std::thread::sleep(Duration::from_secs(3));
                }
                let pid = FIRST_PID + slot;
                let [frames, stdout, stderr, counters] =
                    <[OwnedFd; 4]>::try_from(descriptors).expect("SPAWN brings four descriptors");
                let frames = UnixStream::from(frames);
                let own = frames.try_clone().expect("a descriptor is free");
                workers.lock().expect("no holder panics").insert(pid, own);
                send(&say, |out| wire::send::spawned(out, slot, pid));
                let (say, workers) = (Arc::clone(&say), Arc::clone(&workers));
                let manner = manner.clone();
                std::thread::spawn(move || {
                    let files = worker::Files {
                        stdout: stdout.into(),
                        stderr: stderr.into(),
                        counters: counters.into(),
                    };
                    let status = worker::run(pid, &frames, files, &manner);
                    let killed = workers.lock().expect("no holder panics").remove(&pid).is_none();
                    if keep_sockets {
                        let _kept_to_the_end = frames.into_raw_fd();
                    } else {
                        sys::cut(&frames);
                    }
                    let status = if killed { 9 } else { status };
                    if !(lose_exit && slot == 1) {
                        send(&say, |out| wire::send::exited(out, pid, status, 0));
                    }
                });
            }
            ToZygote::Trace { pid } => {
                send(&say, |out| wire::send::stack(out, pid, b"#0 {main} at /fake.php:1", b""));
            }
            ToZygote::Kill { pid, signal: _ } => {
                if kill_late {
                    std::thread::sleep(Duration::from_millis(500));
                }
                if let Some(socket) = workers.lock().expect("no holder panics").remove(&pid) {
                    sys::cut(&socket);
                }
            }
        }
    }
}

fn send(say: &Mutex<UnixStream>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = Vec::new();
    write(&mut bytes);
    let mut socket = say.lock().expect("no holder panics");
    if socket.write_all(&bytes).is_err() {
        std::process::exit(0); // the server is gone
    }
}

/// Returns the next frame with its descriptors; `None` if the server has closed the connection.
fn receive(control: &UnixStream) -> Option<(ToZygote, Vec<OwnedFd>)> {
    let mut descriptors = Vec::new();
    let header = receive_exactly::<HEADER_LEN>(control, &mut descriptors)?;
    let header = wire::peek(&header, Sender::ServerToZygote).expect("a good frame")?;
    let mut payload = Vec::new();
    while payload.len() < header.length {
        payload.extend(receive_exactly::<1>(control, &mut descriptors)?);
    }
    Some((ToZygote::decode(header, &payload).expect("a good frame"), descriptors))
}

fn receive_exactly<const N: usize>(
    control: &UnixStream,
    descriptors: &mut Vec<OwnedFd>,
) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut target = [IoSliceMut::new(&mut bytes[filled..])];
        let got =
            recvmsg(control, &mut target, &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?.bytes;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if got == 0 {
            return None;
        }
        filled += got;
    }
    Some(bytes)
}

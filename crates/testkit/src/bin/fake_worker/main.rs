//! Stands in for `hearth-worker-8.x` where a test wants a worker that misbehaves on cue, or a bench wants the relay without PHP.
//!
//! It speaks docs/internals/frames.md as zygote on descriptor 3 and as worker on every socket it is handed: one thread per "worker", whose
//! process ids are made up. The path of a request says what to do; see [`worker`].
#![expect(clippy::print_stderr, clippy::exit, reason = "a stand-in says why it ends")]

mod sys;
mod worker;

use std::collections::HashMap;
use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use wire::{HEADER_LEN, Sender, ToZygote};

/// The made-up process ids start here: above any real one (`/proc/sys/kernel/pid_max` is at most 2^22).
const FIRST_PID: u32 = 1 << 24;

/// Sockets of living workers, to cut them when they are killed.
type Workers = Arc<Mutex<HashMap<u32, UnixStream>>>;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let flag = |name: &str| arguments.iter().any(|argument| argument.contains(name));
    if flag("refuse-to-start") {
        eprintln!("fake-worker: told not to start");
        std::process::exit(1);
    }
    let control = sys::control_socket();
    let say = Arc::new(Mutex::new(control.try_clone().expect("a descriptor is free")));
    let workers = Workers::default();
    send(&say, |out| wire::send::hello(out, wire::VERSION, std::process::id(), "0.0.0-fake"));

    while let Some((frame, descriptors)) = receive(&control) {
        match frame {
            ToZygote::Spawn { slot } => {
                let pid = FIRST_PID + slot;
                let [frames, stdout, stderr, board] =
                    <[OwnedFd; 4]>::try_from(descriptors).expect("SPAWN brings four descriptors");
                let frames = UnixStream::from(frames);
                let own = frames.try_clone().expect("a descriptor is free");
                workers.lock().expect("no holder panics").insert(pid, own);
                send(&say, |out| wire::send::spawned(out, slot, pid));
                let (say, workers) = (Arc::clone(&say), Arc::clone(&workers));
                let refuse = flag("refuse-to-boot");
                std::thread::spawn(move || {
                    let files = worker::Files {
                        stdout: stdout.into(),
                        stderr: stderr.into(),
                        board: board.into(),
                    };
                    let status = worker::run(pid, &frames, files, refuse);
                    let killed = workers.lock().expect("no holder panics").remove(&pid).is_none();
                    sys::cut(&frames);
                    let status = if killed { 9 } else { status };
                    send(&say, |out| wire::send::exited(out, pid, status));
                });
            }
            ToZygote::Kill { pid, signal: _ } => {
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

/// The next frame with the descriptors that came with it; `None` when the server has closed.
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

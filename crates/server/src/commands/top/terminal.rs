//! The terminal of `hearth top`: keys as they are pressed, and the alternate screen.

use std::io::{self, Read, Write};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;

/// Switches to another screen without cursor and wrapping (xterm's control sequences, which every current terminal knows).
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &[u8] = b"\x1b[?7h\x1b[?25h\x1b[?1049l";

/// A terminal in raw mode, restored when dropped.
#[derive(Debug)]
pub(super) struct Terminal {
    keys: mpsc::Receiver<u8>,
    before: Termios,
}

impl Terminal {
    /// Takes it.
    pub(super) fn open() -> io::Result<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        // From here on it is put back, whatever fails.
        let terminal = Self { keys: read_keys(), before };
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        write(ENTER)?;
        Ok(terminal)
    }

    /// Returns columns and lines.
    #[expect(clippy::unused_self, reason = "only who has the terminal asks it and draws on it")]
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (size.ws_col.into(), size.ws_row.into())
            }
            // A terminal without a known size, e.g. on a serial line.
            _ => (80, 24),
        }
    }

    /// Shows these lines and nothing else, in one write.
    #[expect(clippy::unused_self, reason = "only who has the terminal asks it and draws on it")]
    pub(super) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut text = String::from("\x1b[H");
        for (at, line) in lines.iter().enumerate() {
            text.push_str(if at == 0 { "" } else { "\r\n" });
            text.push_str(line);
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J");
        write(text.as_bytes())
    }

    /// The next key, as one byte; `None` at the end of input. Cancel safe.
    pub(super) async fn key(&mut self) -> Option<u8> {
        self.keys.recv().await
    }
}

/// Reads keys in a thread, which ends with the process. A key that is not taken blocks the next.
fn read_keys() -> mpsc::Receiver<u8> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        let keys = io::stdin().lock().bytes().map_while(Result::ok);
        for key in keys {
            if sender.blocking_send(key).is_err() {
                break;
            }
        }
    });
    receiver
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // There is no terminal left to report to.
        drop(write(LEAVE));
        let _gone = tcsetattr(io::stdin(), OptionalActions::Now, &self.before).is_err();
    }
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(bytes)?;
    output.flush()
}

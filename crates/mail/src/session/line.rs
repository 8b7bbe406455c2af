//! Dot-stuffing: a dot that begins a line of the message is sent twice (RFC 5321, 4.5.2).

/// How far a line of the message is.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The bytes before: nothing yet, or within a line, or behind CR, or behind CR LF.
    behind: Behind,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Behind {
    #[default]
    End,
    Cr,
    Other,
}

impl Line {
    /// Returns whether the next byte begins a line.
    pub(super) fn at_start(&self) -> bool {
        self.behind == Behind::End
    }

    /// Adds a dot before each that begins a line.
    pub(super) fn stuff(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        out.reserve(piece.len() + piece.len() / 64);
        for byte in piece {
            if *byte == b'.' && self.at_start() {
                out.push(b'.');
            }
            out.push(*byte);
            self.behind = match (byte, self.behind) {
                (b'\r', _) => Behind::Cr,
                (b'\n', Behind::Cr) => Behind::End,
                _ => Behind::Other,
            };
        }
    }
}

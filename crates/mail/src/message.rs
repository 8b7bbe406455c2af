//! A mail in its wire form: lines that end with CR LF, of at most 998 bytes, without a NUL.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use tokio::io::AsyncReadExt as _;

/// A mail that is written, but for files, which are read while it is sent.
#[derive(Clone, Debug)]
pub struct Message {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) size: u64,
    pub(crate) eight_bit: bool,
    pub(crate) international: bool,
    pub(crate) id: String,
}

/// A piece of one.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Bytes(Bytes),
    /// In Base64, each line of it with its end.
    File {
        path: PathBuf,
        length: u64,
    },
}

/// The bytes of a file in one line of Base64, and how many such lines are read at once.
const LINE: usize = 57;
const LINES: usize = 1024;

impl Piece {
    /// How long it will be.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { length, .. } => length.div_ceil(3) * 4 + length.div_ceil(LINE as u64) * 2,
        }
    }
}

impl Message {
    pub(crate) fn new(
        pieces: Vec<Piece>,
        eight_bit: bool,
        international: bool,
        id: String,
    ) -> Self {
        let size = pieces.iter().map(Piece::size).sum();
        Self { pieces, size, eight_bit, international, id }
    }

    /// Bytes, line ends included, without the dots that SMTP adds.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns whether it contains bytes above 127.
    pub fn is_eight_bit(&self) -> bool {
        self.eight_bit
    }

    /// Returns whether its fields contain such bytes (RFC 6532).
    pub fn is_international(&self) -> bool {
        self.international
    }

    /// The value of `Message-ID`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Reads it from its beginning.
    pub fn reader(&self) -> Reader {
        Reader { pieces: self.pieces.iter().cloned().collect(), file: None }
    }
}

/// Hands out a message piece by piece.
#[derive(Debug)]
pub struct Reader {
    pieces: VecDeque<Piece>,
    /// The open file and its remaining bytes.
    file: Option<(tokio::fs::File, u64)>,
}

impl Reader {
    /// The next piece; `None`: that was all. A file that has become shorter, or cannot be read any more, is an error.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some((file, left)) = &mut self.file {
                if *left == 0 {
                    self.file = None;
                    continue;
                }
                let most = (LINE * LINES) as u64;
                let want = usize::try_from((*left).min(most)).expect("it is small");
                let mut read = vec![0; want];
                file.read_exact(&mut read).await?;
                *left -= want as u64;
                return Ok(Some(base64_lines(&read).into()));
            }
            match self.pieces.pop_front() {
                None => return Ok(None),
                Some(Piece::Bytes(bytes)) => return Ok(Some(bytes)),
                Some(Piece::File { path, length }) => {
                    self.file = Some((tokio::fs::File::open(path).await?, length));
                }
            }
        }
    }
}

/// Base64 in lines of 76 characters, each with its end.
pub(crate) fn base64_lines(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 4 / 3 + bytes.len() / 28 + 6);
    for line in bytes.chunks(LINE) {
        STANDARD.encode_string(line, &mut out);
        out.push_str("\r\n");
    }
    out
}

//! `file:` URLs, where the program has allowed them: a local file in the place of a response, as libcurl gives it.
//!
//! Invariants
//! - Only regular files are read: a FIFO or a device would block a thread, or never end.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;

use bytes::BytesMut;
use egress::{AnswerBody, CallError, Fate, Reason};
use futures_util::stream;
use http::Method;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::io::AsyncReadExt as _;

use crate::error::{Failure, Kind};
use crate::target::Target;

/// How much is read at once.
const PIECE: usize = 64 << 10;
/// `CURLE_FILE_COULDNT_READ_FILE`
const UNREADABLE: u8 = 37;

/// Opens the file that the URL names. Its query is no part of the name.
pub(crate) async fn open(target: &Target, method: &Method) -> Result<AnswerBody, Failure> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let what = format!("{method} on a local file is not supported");
        return Err(Failure::new(Kind::Unsupported, what));
    }
    let encoded = target.path().split('?').next().unwrap_or_default();
    let path: Vec<u8> = percent_encoding::percent_decode_str(encoded).collect();
    let shown = String::from_utf8_lossy(&path).into_owned();
    let opened = tokio::task::spawn_blocking(move || regular(path)).await;
    let file = opened.unwrap_or_else(|gone| Err(io::Error::other(gone))).map_err(|error| {
        let what = format!("Couldn't open file {shown}: {error}");
        Failure { code: UNREADABLE, ..Failure::new(Kind::Url, what) }
    })?;
    let pieces = stream::try_unfold(tokio::fs::File::from_std(file), |mut file| async move {
        let mut piece = BytesMut::with_capacity(PIECE);
        let read = file.read_buf(&mut piece).await.map_err(|error| broken(&error))?;
        Ok((read > 0).then(|| (Frame::data(piece.freeze()), file)))
    });
    Ok(AnswerBody::new(StreamBody::new(pieces)))
}

/// Opens a regular file. Blocks.
fn regular(path: Vec<u8>) -> io::Result<File> {
    use std::os::unix::ffi::OsStringExt as _;
    let path = std::ffi::OsString::from_vec(path);
    let options = File::options().read(true).custom_flags(libc::O_NONBLOCK).to_owned();
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    Ok(file)
}

fn broken(error: &io::Error) -> CallError {
    CallError {
        fate: Fate::Failed,
        reason: Reason::Reset,
        curl: UNREADABLE,
        message: format!("The file cannot be read: {error}"),
        address: None,
        exhausted: false,
        kept: false,
    }
}

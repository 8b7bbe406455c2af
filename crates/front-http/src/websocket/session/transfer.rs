//! Reads and writes the bytes of one socket.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::task::unconstrained;

/// Bytes read at once.
const PIECE: usize = 16 << 10;

/// Reads what is there into `input`; without one it is dropped. Cancel safe; no buffer is held while nothing comes.
pub(super) async fn read_some<S: AsyncRead + Unpin>(
    reader: &mut S,
    mut input: Option<&mut BytesMut>,
) -> io::Result<usize> {
    thread_local! {
        static PIECES: RefCell<Box<[u8]>> = RefCell::new(vec![0; PIECE].into());
    }
    poll_fn(|cx| {
        PIECES.with_borrow_mut(|piece| {
            let mut buffer = ReadBuf::new(piece);
            ready!(Pin::new(&mut *reader).poll_read(cx, &mut buffer))?;
            if let Some(input) = &mut input {
                input.extend_from_slice(buffer.filled());
            }
            Poll::Ready(Ok(buffer.filled().len()))
        })
    })
    .await
}

/// Reads what is there already, without waiting. Returns how many bytes came.
pub(super) async fn read_now<S: AsyncRead + Unpin>(reader: &mut S, input: &mut BytesMut) -> usize {
    let mut read = pin!(unconstrained(read_some(reader, Some(input))));
    match poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await {
        Poll::Ready(Ok(count)) => count,
        Poll::Ready(Err(_)) | Poll::Pending => 0,
    }
}

/// Writes some of `output`, then flushes. Cancel safe.
pub(super) async fn write_some<S: AsyncWrite + Unpin>(
    writer: &mut S,
    output: &mut Bytes,
    unflushed: &mut bool,
) -> io::Result<()> {
    if !output.is_empty() {
        let written = writer.write(output).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        output.advance(written);
        *unflushed = true;
    }
    if output.is_empty() && *unflushed {
        writer.flush().await?;
        *unflushed = false;
    }
    Ok(())
}

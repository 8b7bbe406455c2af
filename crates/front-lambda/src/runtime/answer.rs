//! PHP's answer to an invocation: its body in pieces or as a whole, and the report when there is none.

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use pool::{DispatchError, ResponseBody};

use super::report::Report;

/// Maximum size of a buffered response: 6 MiB and this (`MaxPayloadSize` of the AWS emulator).
pub(super) const MAX_RESPONSE: usize = 6 * 1024 * 1024 + 100;

/// Returns the next piece of a response. Cancel safe.
pub(super) async fn next_piece(body: &mut ResponseBody) -> Option<Result<Bytes, pool::Cut>> {
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(data)) => return Some(Ok(data)),
            Ok(Err(_trailers)) => {}
            Err(cut) => return Some(Err(cut)),
        }
    }
}

/// Buffers a response, up to the maximum size. `advice` is as in [`too_large`].
pub(super) async fn whole(mut body: ResponseBody, advice: &str) -> Result<Bytes, Report> {
    let cut = |cut: pool::Cut| Report::of_hearth("AnswerCut", cut.to_string());
    let Some(first) = next_piece(&mut body).await.transpose().map_err(cut)? else {
        return Ok(Bytes::new());
    };
    let mut whole = None;
    let mut length = first.len();
    while length <= MAX_RESPONSE
        && let Some(piece) = next_piece(&mut body).await.transpose().map_err(cut)?
    {
        whole.get_or_insert_with(|| BytesMut::from(&*first)).extend_from_slice(&piece);
        length += piece.len();
    }
    if length > MAX_RESPONSE {
        return Err(too_large(length, advice));
    }
    Ok(whole.map_or(first, BytesMut::freeze))
}

/// Creates the report of a request that got no response.
pub(super) fn failure(error: &DispatchError) -> Report {
    let reason = match error {
        DispatchError::TimedOut { .. } => "TimedOut",
        DispatchError::WorkerDied { .. } => "WorkerDied",
        DispatchError::HeadTooLarge => "EventTooLarge",
        _ => "NoWorker",
    };
    Report::of_hearth(reason, chain(error))
}

/// Returns an error with its causes on one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Creates the report of a response that is too large; `length` is its minimum size, and `advice` names an
/// alternative.
pub(super) fn too_large(length: usize, advice: &str) -> Report {
    Report::of_hearth(
        "ResponseTooLarge",
        format!(
            "the answer has at least {length} bytes, and Lambda takes 6 MB, base64 and quotes included: send less{advice}"
        ),
    )
}

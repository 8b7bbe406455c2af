//! `hearth_response_*`

use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use super::engine::put_sized;
use super::{Bytes, bytes, free, handle, shared, status, value};
use crate::error::Refused;
use crate::response::Response;

/// Reads from a response that may be NULL.
///
/// # Safety
/// NULL or a handle.
unsafe fn of<T>(response: *const Response, nothing: T, get: impl FnOnce(&Response) -> T) -> T {
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    match unsafe { response.as_ref() } {
        Some(response) => value(nothing, || get(response)),
        None => nothing,
    }
}

/// # Safety
/// NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_keep(response: *const Response) -> *mut Response {
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    match unsafe { shared(response) } {
        Ok(shared) => Arc::into_raw(shared).cast_mut(),
        Err(_null) => std::ptr::null_mut(),
    }
}

/// # Safety
/// NULL or a handle, which is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_free(response: *mut Response) {
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { free(response.cast_const()) }
}

/// # Safety
/// NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_status(response: *const Response) -> c_int {
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, 0, |response| c_int::from(response.status)) }
}

/// # Safety
/// NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_error(response: *const Response) -> c_int {
    let error =
        |response: &Response| response.failure.as_ref().map_or(0, |failure| failure.kind as c_int);
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, 0, error) }
}

/// # Safety
/// NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_error_code(response: *const Response) -> c_int {
    let code = |response: &Response| {
        response.failure.as_ref().map_or(0, |failure| c_int::from(failure.code))
    };
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, 0, code) }
}

/// # Safety
/// NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_error_message(response: *const Response) -> Bytes {
    let message = |response: &Response| {
        Bytes::of(
            response.failure.as_ref().map_or("", |failure| failure.message.as_str()).as_bytes(),
        )
    };
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, Bytes::NONE, message) }
}

/// # Safety
/// NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_version(response: *const Response) -> c_int {
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, 0, |response| c_int::from(response.version)) }
}

/// # Safety
/// NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_body(response: *const Response) -> Bytes {
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, Bytes::NONE, |response| Bytes::of(&response.body)) }
}

/// # Safety
/// NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_url(response: *const Response) -> Bytes {
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, Bytes::NONE, |response| Bytes::of(response.url().as_bytes())) }
}

/// # Safety
/// NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_redirect_url(response: *const Response) -> Bytes {
    let redirect = |response: &Response| match &response.redirect {
        Some(redirect) => Bytes::of(redirect.as_bytes()),
        None => Bytes::NONE,
    };
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, Bytes::NONE, redirect) }
}

/// # Safety
/// NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_address(response: *const Response) -> Bytes {
    let address = |response: &Response| match response.address() {
        Some(address) => Bytes::of(address.as_bytes()),
        None => Bytes::NONE,
    };
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, Bytes::NONE, address) }
}

/// # Safety
/// NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_header_count(response: *const Response) -> usize {
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, 0, |response| response.headers.len()) }
}

fn field(
    headers: Option<&HeaderMap>,
    index: usize,
    name: *mut Bytes,
    content: *mut Bytes,
) -> c_int {
    let Some((found, text)) = headers.and_then(|headers| Response::field(headers, index)) else {
        return 0;
    };
    if !name.is_null() {
        // SAFETY: the promise of the functions below.
        unsafe { name.write(Bytes::of(found.as_bytes())) };
    }
    if !content.is_null() {
        // SAFETY: `content` is valid for a write: it is not NULL (hearth.h).
        unsafe { content.write(Bytes::of(text)) };
    }
    1
}

/// # Safety
/// `response`: NULL or a handle; the others: NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_header_at(
    response: *const Response,
    index: usize,
    name: *mut Bytes,
    value: *mut Bytes,
) -> c_int {
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, 0, |response| field(Some(&response.headers), index, name, value)) }
}

/// # Safety
/// `response`: NULL or a handle; `name` of its size, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_header(
    response: *const Response,
    name: *const c_char,
    size: usize,
) -> Bytes {
    // SAFETY: `name` has its size, or ends with NUL (hearth.h).
    let Ok(name) = (unsafe { bytes(name, size) }) else { return Bytes::NONE };
    let header = |response: &Response| {
        let name = http::HeaderName::from_bytes(name).ok();
        let found = name.and_then(|name| response.headers.get(name));
        found.map_or(Bytes::NONE, |value| Bytes::of(value.as_bytes()))
    };
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, Bytes::NONE, header) }
}

/// # Safety
/// NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_trailer_count(response: *const Response) -> usize {
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, 0, |response| response.trailers.as_deref().map_or(0, HeaderMap::len)) }
}

/// # Safety
/// `response`: NULL or a handle; the others: NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_trailer_at(
    response: *const Response,
    index: usize,
    name: *mut Bytes,
    value: *mut Bytes,
) -> c_int {
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, 0, |response| field(response.trailers.as_deref(), index, name, value)) }
}

/// # Safety
/// NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_history_count(response: *const Response) -> usize {
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, 0, |response| response.history.len()) }
}

/// # Safety
/// NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_history_at(
    response: *const Response,
    index: usize,
) -> *const Response {
    let past =
        |response: &Response| response.history.get(index).map_or(std::ptr::null(), Arc::as_ptr);
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, std::ptr::null(), past) }
}

/// `hearth_timings`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    size: usize,
    queued: u64,
    resolved: u64,
    connected: u64,
    secured: u64,
    first_byte: u64,
    total: u64,
    redirects: u32,
    retries: u32,
    reused: c_int,
}

/// # Safety
/// `response`: NULL or a handle; `timings`: NULL or valid for as many bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_timings(
    response: *const Response,
    timings: *mut Timings,
) -> c_int {
    status(|| {
        // SAFETY: `response` is NULL or a live handle (hearth.h).
        let of = &unsafe { handle(response) }?.timings;
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let filled = Timings {
            size: 0,
            queued: micros(of.queued),
            resolved: micros(of.resolved),
            connected: micros(of.connected),
            secured: micros(of.secured),
            first_byte: micros(of.first_byte),
            total: micros(of.total),
            redirects: of.redirects,
            retries: of.retries,
            reused: c_int::from(of.reused),
        };
        // SAFETY: `timings` is NULL or valid for a write (hearth.h).
        unsafe { put_sized(timings, filled, |filled, size| filled.size = size) }
    })
}

/// `hearth_tls`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tls {
    size: usize,
    version: c_int,
    cipher: Bytes,
    certificates: usize,
}

/// # Safety
/// `response`: NULL or a handle; `tls`: NULL or valid for as many bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_tls(response: *const Response, tls: *mut Tls) -> c_int {
    status(|| {
        // SAFETY: `response` is NULL or a live handle (hearth.h).
        let filled = match &unsafe { handle(response) }?.peer {
            None => Tls { size: 0, version: 0, cipher: Bytes::NONE, certificates: 0 },
            Some(peer) => Tls {
                size: 0,
                version: match peer.secured.version {
                    egress::TlsVersion::V1_2 => 12,
                    egress::TlsVersion::V1_3 => 13,
                },
                cipher: Bytes::of(peer.secured.cipher.as_bytes()),
                certificates: peer.secured.chain.len(),
            },
        };
        // SAFETY: `tls` is NULL or valid for a write (hearth.h).
        unsafe { put_sized(tls, filled, |filled, size| filled.size = size) }
    })
}

/// `hearth_certificate`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Certificate {
    size: usize,
    subject: Bytes,
    issuer: Bytes,
    serial: Bytes,
    names: Bytes,
    not_before: i64,
    not_after: i64,
    pem: Bytes,
}

/// # Safety
/// `response`: NULL or a handle; `certificate`: NULL or valid for as many bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_certificate_at(
    response: *const Response,
    index: usize,
    certificate: *mut Certificate,
) -> c_int {
    status(|| {
        // SAFETY: `response` is NULL or a live handle (hearth.h).
        let peer = unsafe { handle(response) }?.peer.as_ref();
        let facts = peer.and_then(|peer| peer.certificates().get(index));
        let facts = facts.ok_or_else(|| Refused::invalid("there is no certificate there"))?;
        let text = |text: &String| Bytes::of(text.as_bytes());
        let filled = Certificate {
            size: 0,
            subject: text(&facts.subject),
            issuer: text(&facts.issuer),
            serial: text(&facts.serial),
            names: text(&facts.names),
            not_before: facts.not_before,
            not_after: facts.not_after,
            pem: text(&facts.pem),
        };
        // SAFETY: `certificate` is NULL or valid for a write (hearth.h).
        unsafe { put_sized(certificate, filled, |filled, size| filled.size = size) }
    })
}

/// The words of a reply.
fn words(reply: Option<&mail::Reply>) -> (Bytes, Bytes) {
    let enhanced = reply.and_then(mail::Reply::enhanced);
    (
        enhanced.map_or(Bytes::NONE, |code| Bytes::of(code.as_bytes())),
        reply.map_or(Bytes::NONE, |reply| Bytes::of(reply.text.as_bytes())),
    )
}

/// # Safety
/// NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_reply(response: *const Response) -> Bytes {
    let reply = |response: &Response| {
        let said = response.receipt.as_ref().and_then(|receipt| receipt.reply.as_ref());
        said.map_or(Bytes::NONE, |(_, whole)| Bytes::of(whole.as_bytes()))
    };
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, Bytes::NONE, reply) }
}

/// # Safety
/// NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_enhanced(response: *const Response) -> Bytes {
    let enhanced = |response: &Response| {
        let said = response.receipt.as_ref().and_then(|receipt| receipt.reply.as_ref());
        words(said.map(|(reply, _)| reply)).0
    };
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, Bytes::NONE, enhanced) }
}

/// # Safety
/// NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_message_id(response: *const Response) -> Bytes {
    let id = |response: &Response| {
        let receipt = response.receipt.as_ref();
        receipt.map_or(Bytes::NONE, |receipt| Bytes::of(receipt.message_id.as_bytes()))
    };
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, Bytes::NONE, id) }
}

/// # Safety
/// NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_recipient_count(response: *const Response) -> usize {
    let count = |response: &Response| {
        response.receipt.as_ref().map_or(0, |receipt| receipt.recipients.len())
    };
    // SAFETY: `response` is NULL or a live handle (hearth.h).
    unsafe { of(response, 0, count) }
}

/// `hearth_recipient`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CRecipient {
    size: usize,
    address: Bytes,
    code: c_int,
    enhanced: Bytes,
    text: Bytes,
}

/// # Safety
/// `response`: NULL or a handle; `recipient`: NULL or valid for as many bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_response_recipient_at(
    response: *const Response,
    index: usize,
    recipient: *mut CRecipient,
) -> c_int {
    status(|| {
        // SAFETY: `response` is NULL or a live handle (hearth.h).
        let receipt = unsafe { handle(response) }?.receipt.as_ref();
        let found = receipt.and_then(|receipt| receipt.recipients.get(index));
        let (address, reply) =
            found.ok_or_else(|| Refused::invalid("there is no recipient at this index"))?;
        let (enhanced, text) = words(reply.as_ref());
        let filled = CRecipient {
            size: 0,
            address: Bytes::of(address.as_bytes()),
            code: reply.as_ref().map_or(0, |reply| c_int::from(reply.code)),
            enhanced,
            text,
        };
        // SAFETY: `recipient` is NULL or valid for a write (hearth.h).
        unsafe { put_sized(recipient, filled, |filled, size| filled.size = size) }
    })
}

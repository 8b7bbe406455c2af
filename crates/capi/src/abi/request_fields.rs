//! Query parameters, header fields and trailers of a request.

use std::ffi::{c_char, c_int};

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::abi::{bytes, handle, status};
use crate::error::Refused;
use crate::request::Request;

/// Fields of a request, and trailers. A `HeaderMap` has room for 24,576, our own among them, and panics beyond.
const FIELDS: usize = 20_000;

/// # Safety
/// `request`: NULL or a handle; texts of their size, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_add_query(
    request: *mut Request,
    name: *const c_char,
    name_size: usize,
    value: *const c_char,
    value_size: usize,
) -> c_int {
    status(|| {
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        let request = unsafe { handle(request) }?;
        // SAFETY: `name` has its size, or ends with NUL (hearth.h).
        let name = unsafe { bytes(name, name_size) }?;
        // SAFETY: `value` has its size, or ends with NUL (hearth.h).
        let value = unsafe { bytes(value, value_size) }?;
        request.change(|spec| match &mut spec.target {
            Some(target) => target.add_query(name, value),
            None => Err(Refused::state("the request has no URL yet")),
        })
    })
}

/// The library decides framing and connection fields.
fn is_framing(name: &HeaderName) -> bool {
    const OTHERS: [&str; 4] =
        ["keep-alive", "proxy-connection", "http2-settings", "proxy-authorization"];
    [
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::CONNECTION,
        header::UPGRADE,
        header::TRAILER,
        header::TE,
        header::EXPECT,
    ]
    .contains(name)
        || OTHERS.contains(&name.as_str())
}

fn append(fields: &mut HeaderMap, name: HeaderName, value: HeaderValue) -> Result<(), Refused> {
    let full = || Refused::invalid("there are too many fields");
    if fields.len() >= FIELDS {
        return Err(full());
    }
    fields.try_append(name, value).map(drop).map_err(|_full| full())
}

/// # Safety
/// Texts of their size, or ended by NUL.
unsafe fn field(
    name: *const c_char,
    name_size: usize,
    content: *const c_char,
    size: usize,
) -> Result<(HeaderName, HeaderValue), Refused> {
    // SAFETY: `name` has its size, or ends with NUL (hearth.h).
    let name = HeaderName::from_bytes(unsafe { bytes(name, name_size) }?)
        .map_err(|_not| Refused::invalid("the name of a field is no token"))?;
    // SAFETY: `content` has its size, or ends with NUL (hearth.h).
    let content = HeaderValue::from_bytes(unsafe { bytes(content, size) }?).map_err(|_not| {
        Refused::invalid(format!("the value of {name} holds control characters"))
    })?;
    if is_framing(&name) {
        return Err(Refused::invalid(format!("{name} is the library's own to set")));
    }
    Ok((name, content))
}

/// # Safety
/// `request`: NULL or a handle; texts of their size, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_add_header(
    request: *mut Request,
    name: *const c_char,
    name_size: usize,
    value: *const c_char,
    value_size: usize,
) -> c_int {
    status(|| {
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        let request = unsafe { handle(request) }?;
        // SAFETY: the handle and the texts are as `# Safety` above demands.
        let (name, value) = unsafe { field(name, name_size, value, value_size) }?;
        request.extend(|extras| append(&mut extras.headers, name, value))
    })
}

/// # Safety
/// `request`: NULL or a handle; `name` of its size, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_remove_header(
    request: *mut Request,
    name: *const c_char,
    name_size: usize,
) -> c_int {
    status(|| {
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        let request = unsafe { handle(request) }?;
        // SAFETY: `name` has its size, or ends with NUL (hearth.h).
        let name = HeaderName::from_bytes(unsafe { bytes(name, name_size) }?)
            .map_err(|_not| Refused::invalid("the name of a field is no token"))?;
        request.extend(|extras| {
            extras.headers.remove(&name);
            if !extras.removed.contains(&name) {
                extras.removed.push(name);
            }
            Ok(())
        })
    })
}

/// # Safety
/// `request`: NULL or a handle; texts of their size, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_add_trailer(
    request: *mut Request,
    name: *const c_char,
    name_size: usize,
    value: *const c_char,
    value_size: usize,
) -> c_int {
    status(|| {
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        let request = unsafe { handle(request) }?;
        // SAFETY: the handle and the texts are as `# Safety` above demands.
        let (name, value) = unsafe { field(name, name_size, value, value_size) }?;
        request.extend(|extras| append(&mut extras.trailers, name, value))
    })
}

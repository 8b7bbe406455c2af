//! `hearth_request_*`: handles, settings, callbacks, start and end.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use http::Method;

use super::{Bytes, bytes, free, handle, place, put, shared, status, text, value};
use crate::calls::{
    Body, BodyCall, Debug, DebugCall, Done, DoneCall, Head, HeadCall, Progress, ProgressCall, User,
};
use crate::cookies::Jar;
use crate::engine::Engine;
use crate::error::{Refused, Status};
use crate::in_flight::Kept;
use crate::request::{Extras, Request};
use crate::response::Response;
use crate::settings::Group;

/// `HEARTH_THREADED_CALLBACK`
const THREADED_CALLBACK: c_int = 26;

/// # Safety
/// `engine`: NULL or a handle; `request`: NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_new(
    engine: *mut Engine,
    request: *mut *mut Request,
) -> c_int {
    status(|| {
        place(request)?;
        // SAFETY: `engine` is NULL or a live handle (hearth.h).
        let new = Request::new(unsafe { shared(engine.cast_const()) }?)?;
        // SAFETY: `request` is NULL or valid for a write (hearth.h).
        unsafe { put(request, Arc::into_raw(Arc::new(new)).cast_mut()) }
    })
}

/// # Safety
/// `request`: NULL or a handle, which is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_free(request: *mut Request) {
    // SAFETY: `request` is NULL or a live handle (hearth.h).
    unsafe { free(request.cast_const()) }
}

/// # Safety
/// `request`: NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_reset(request: *mut Request) -> c_int {
    // SAFETY: `request` is NULL or a live handle (hearth.h).
    status(|| unsafe { handle(request) }?.reset())
}

/// # Safety
/// `request`: NULL or a handle; texts of their size, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_set_target(
    request: *mut Request,
    method: *const c_char,
    method_size: usize,
    url: *const c_char,
    url_size: usize,
) -> c_int {
    status(|| {
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        let request = unsafe { handle(request) }?;
        // SAFETY: `method` has its size, or ends with NUL (hearth.h).
        let method = Method::from_bytes(unsafe { bytes(method, method_size) }?)
            .map_err(|_not| Refused::invalid("the method is no token"))?;
        if method == Method::CONNECT {
            return Err(Refused::unsupported("CONNECT is a tunnel, not a request"));
        }
        // SAFETY: `url` has its size, or ends with NUL (hearth.h).
        let target = request.engine.target(unsafe { bytes(url, url_size) }?)?;
        request.change(|spec| {
            spec.set_method(method);
            spec.target = Some(target);
            Ok(())
        })
    })
}

fn set_all(request: *mut Request, group: Group, data: *const c_char, size: usize) -> c_int {
    status(|| {
        // SAFETY: the promise of the functions below.
        let text = unsafe { text(data, size) }?;
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        unsafe { handle(request) }?.set(|settings| settings.set_all(group, text, false))
    })
}

/// # Safety
/// `request`: NULL or a handle; the text of its size, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_set_options(
    request: *mut Request,
    text: *const c_char,
    size: usize,
) -> c_int {
    set_all(request, Group::Options, text, size)
}

/// # Safety
/// As [`hearth_request_set_options`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_set_authentication(
    request: *mut Request,
    text: *const c_char,
    size: usize,
) -> c_int {
    set_all(request, Group::Authentication, text, size)
}

/// # Safety
/// As [`hearth_request_set_options`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_set_certificates(
    request: *mut Request,
    text: *const c_char,
    size: usize,
) -> c_int {
    set_all(request, Group::Certificates, text, size)
}

/// # Safety
/// `request`: NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_set_number(
    request: *mut Request,
    option: c_int,
    value: i64,
) -> c_int {
    status(|| {
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        let request = unsafe { handle(request) }?;
        match (option, value) {
            // The C++ headers call this for each request, whose settings stay the engine's.
            (THREADED_CALLBACK, 0 | 1) => request.set_threaded(value == 1),
            _ => request.set(|settings| settings.set_number(option, value, false)),
        }
    })
}

/// # Safety
/// As [`hearth_request_set_options`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_set_text(
    request: *mut Request,
    option: c_int,
    data: *const c_char,
    size: usize,
) -> c_int {
    status(|| {
        // SAFETY: `data` has its size, or ends with NUL (hearth.h).
        let text = unsafe { text(data, size) }?;
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        unsafe { handle(request) }?.set(|settings| settings.set_text(option, text, false))
    })
}

/// # Safety
/// Both: NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_set_jar(request: *mut Request, jar: *mut Jar) -> c_int {
    status(|| {
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        let request = unsafe { handle(request) }?;
        let jar = if jar.is_null() {
            None
        } else {
            // SAFETY: `jar` is NULL or a live handle (hearth.h).
            Some(unsafe { shared(jar.cast_const()) }?)
        };
        request.extend(|extras| {
            extras.jar = jar;
            Ok(())
        })
    })
}

/// # Safety
/// `request`: NULL or a handle.
unsafe fn extend(request: *mut Request, change: impl FnOnce(&mut Extras)) -> c_int {
    status(|| {
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        unsafe { handle(request) }?.extend(|extras| {
            change(extras);
            Ok(())
        })
    })
}

/// # Safety
/// `request`: NULL or a handle; the function may be called with `user` on the library's threads until the completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_on_head(
    request: *mut Request,
    callback: Option<HeadCall>,
    user: *mut c_void,
) -> c_int {
    let callback = callback.map(|callback| Head(callback, User(user)));
    // SAFETY: the handle and the texts are as `# Safety` above demands.
    unsafe { extend(request, |extras| extras.head = callback) }
}

/// # Safety
/// As [`hearth_request_on_head`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_on_interim(
    request: *mut Request,
    callback: Option<HeadCall>,
    user: *mut c_void,
) -> c_int {
    let callback = callback.map(|callback| Head(callback, User(user)));
    // SAFETY: the handle and the texts are as `# Safety` above demands.
    unsafe { extend(request, |extras| extras.interim = callback) }
}

/// # Safety
/// As [`hearth_request_on_head`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_on_body(
    request: *mut Request,
    callback: Option<BodyCall>,
    user: *mut c_void,
) -> c_int {
    let callback = callback.map(|callback| Body(callback, User(user)));
    // SAFETY: the handle and the texts are as `# Safety` above demands.
    unsafe { extend(request, |extras| extras.sink = callback) }
}

/// # Safety
/// As [`hearth_request_on_head`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_on_progress(
    request: *mut Request,
    callback: Option<ProgressCall>,
    user: *mut c_void,
) -> c_int {
    let callback = callback.map(|callback| Progress(callback, User(user)));
    // SAFETY: the handle and the texts are as `# Safety` above demands.
    unsafe { extend(request, |extras| extras.progress = callback) }
}

/// # Safety
/// As [`hearth_request_on_head`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_on_debug(
    request: *mut Request,
    callback: Option<DebugCall>,
    secrets: c_int,
    user: *mut c_void,
) -> c_int {
    let debug = |call| Debug { call, secrets: secrets != 0, user: User(user) };
    let callback = callback.map(debug);
    // SAFETY: the handle and the texts are as `# Safety` above demands.
    unsafe { extend(request, |extras| extras.debug = callback) }
}

/// # Safety
/// `request`: NULL or a handle; `callback` may be called once with `user` on the library's threads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_start(
    request: *mut Request,
    callback: Option<DoneCall>,
    user: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        let request = unsafe { shared(request.cast_const()) }?;
        request.start(callback.map(|callback| Done(callback, User(user))), None)
    })
}

/// # Safety
/// `request`: NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_abort(request: *mut Request) -> c_int {
    status(|| {
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        if let Some(in_flight) = unsafe { handle(request) }?.under_way()
            && in_flight.is_ours()
        {
            in_flight.abort();
        }
        Ok(())
    })
}

/// # Safety
/// `request`: NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_resume(request: *mut Request) -> c_int {
    status(|| {
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        if let Some(in_flight) = unsafe { handle(request) }?.under_way()
            && in_flight.is_ours()
        {
            in_flight.resume();
        }
        Ok(())
    })
}

/// # Safety
/// `request`: NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_wait(request: *mut Request, timeout_ms: u64) -> c_int {
    let mut late = false;
    let result = status(|| {
        let time = Some(timeout_ms).filter(|time| *time != u64::MAX).map(Duration::from_millis);
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        late = !unsafe { handle(request) }?.wait(time)?;
        Ok(())
    });
    if late { Status::Late as c_int } else { result }
}

/// # Safety
/// `request`: NULL or a handle; `response`: NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_perform(
    request: *mut Request,
    response: *mut *mut Response,
) -> c_int {
    status(|| {
        place(response)?;
        // SAFETY: `request` is NULL or a live handle (hearth.h).
        let request = unsafe { shared(request.cast_const()) }?;
        request.may_wait()?;
        let kept = Kept::default();
        Arc::clone(&request).start(None, Some(Arc::clone(&kept)))?;
        request.wait(None)?;
        let came = kept.get().cloned().ok_or_else(|| Refused::state("the engine ended"))?;
        // SAFETY: `response` is NULL or valid for a write (hearth.h).
        unsafe { put(response, Arc::into_raw(came).cast_mut()) }
    })
}

/// # Safety
/// `request`: NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_running(request: *const Request) -> c_int {
    // SAFETY: `request` is NULL or a live handle (hearth.h).
    let Some(request) = (unsafe { request.as_ref() }) else { return 0 };
    value(0, || c_int::from(request.is_under_way()))
}

/// # Safety
/// `request`: NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_request_url(request: *const Request) -> Bytes {
    // SAFETY: `request` is NULL or a live handle (hearth.h).
    let Some(request) = (unsafe { request.as_ref() }) else { return Bytes::NONE };
    value(Bytes::NONE, || {
        let last = request.last();
        // The handle also has it, until it is changed.
        last.spec
            .target
            .as_ref()
            .map_or(Bytes::NONE, |target| Bytes::of(target.as_str().as_bytes()))
    })
}

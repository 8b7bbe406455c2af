//! `hearth_engine_*`

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::{bytes, handle, place, put, status, text, value};
use crate::calls::{Done, DoneCall, ExecuteCall, Executor, LetGoCall, User};
use crate::cookies::Jar;
use crate::engine::Engine;
use crate::error::Refused;
use crate::in_flight::InFlight;
use crate::request::Spec;
use crate::settings::Group;

/// # Safety
/// `engine`: NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_engine_new(engine: *mut *mut Engine) -> c_int {
    status(|| {
        place(engine)?;
        let new = Arc::into_raw(Arc::new(Engine::new()?)).cast_mut();
        // SAFETY: `engine` is NULL or valid for a write (hearth.h).
        unsafe { put(engine, new) }
    })
}

/// # Safety
/// `engine`: NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_engine_start(engine: *mut Engine) -> c_int {
    // SAFETY: `engine` is NULL or a live handle (hearth.h).
    status(|| unsafe { handle(engine) }?.start())
}

/// # Safety
/// `engine`: NULL or a handle; `forced`: NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_engine_stop(
    engine: *mut Engine,
    timeout_ms: u64,
    forced: *mut c_int,
) -> c_int {
    status(|| {
        // SAFETY: `engine` is NULL or a live handle (hearth.h).
        let was_forced = unsafe { handle(engine) }?.stop(Duration::from_millis(timeout_ms))?;
        if forced.is_null() {
            return Ok(());
        }
        // SAFETY: `forced` is NULL or valid for a write (hearth.h).
        unsafe { put(forced, c_int::from(was_forced)) }
    })
}

/// # Safety
/// `engine`: NULL or a handle, which is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_engine_free(engine: *mut Engine) {
    if !engine.is_null() {
        // SAFETY: `engine` is a live handle, and this is the count that it stands for (hearth.h).
        let engine = unsafe { Arc::from_raw(engine.cast_const()) };
        value((), || engine.free());
        value((), || drop(engine));
    }
}

fn set_all(engine: *mut Engine, group: Group, data: *const c_char, size: usize) -> c_int {
    status(|| {
        // SAFETY: the promise of the functions below.
        let text = unsafe { text(data, size) }?;
        // SAFETY: `engine` is NULL or a live handle (hearth.h).
        unsafe { handle(engine) }?.set(|settings| settings.set_all(group, text, true))
    })
}

/// # Safety
/// `engine`: NULL or a handle; `text`: `size` bytes, or ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_engine_set_options(
    engine: *mut Engine,
    text: *const c_char,
    size: usize,
) -> c_int {
    set_all(engine, Group::Options, text, size)
}

/// # Safety
/// As [`hearth_engine_set_options`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_engine_set_authentication(
    engine: *mut Engine,
    text: *const c_char,
    size: usize,
) -> c_int {
    set_all(engine, Group::Authentication, text, size)
}

/// # Safety
/// As [`hearth_engine_set_options`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_engine_set_certificates(
    engine: *mut Engine,
    text: *const c_char,
    size: usize,
) -> c_int {
    set_all(engine, Group::Certificates, text, size)
}

/// # Safety
/// `engine`: NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_engine_set_number(
    engine: *mut Engine,
    option: c_int,
    value: i64,
) -> c_int {
    // SAFETY: `engine` is NULL or a live handle (hearth.h).
    status(|| unsafe { handle(engine) }?.set(|settings| settings.set_number(option, value, true)))
}

/// # Safety
/// As [`hearth_engine_set_options`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_engine_set_text(
    engine: *mut Engine,
    option: c_int,
    data: *const c_char,
    size: usize,
) -> c_int {
    status(|| {
        // SAFETY: `data` has its size, or ends with NUL (hearth.h).
        let text = unsafe { text(data, size) }?;
        // SAFETY: `engine` is NULL or a live handle (hearth.h).
        unsafe { handle(engine) }?.set(|settings| settings.set_text(option, text, true))
    })
}

/// # Safety
/// `engine`: NULL or a handle; `jar`: NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_engine_jar(engine: *mut Engine, jar: *mut *mut Jar) -> c_int {
    status(|| {
        // SAFETY: `engine` is NULL or a live handle (hearth.h).
        let shared = unsafe { handle(engine) }?.jar()?;
        place(jar)?;
        // SAFETY: `jar` is NULL or valid for a write (hearth.h).
        unsafe { put(jar, Arc::into_raw(shared).cast_mut()) }
    })
}

/// # Safety
/// `engine`: NULL or a handle; `execute` may be called with `user` from any thread until `release` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_engine_set_executor(
    engine: *mut Engine,
    execute: Option<ExecuteCall>,
    release: Option<LetGoCall>,
    user: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: `engine` is NULL or a live handle (hearth.h).
        let engine = unsafe { handle(engine) }?;
        engine.set_executor(|| execute.map(|execute| Executor::new(execute, release, User(user))))
    })
}

/// `hearth_statistics`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    size: usize,
    started: u64,
    answered: u64,
    failed: u64,
    aborted: u64,
    active: u64,
    peak: u64,
    queued: u64,
    connections: u64,
    connects: u64,
    reused: u64,
    handshakes: u64,
    handshakes_saved: u64,
    retries: u64,
    redirects: u64,
    bytes_sent: u64,
    bytes_received: u64,
    panics: u64,
    mail_connections: u64,
    mail_connects: u64,
    mail_reused: u64,
}

/// # Safety
/// `engine`: NULL or a handle; `statistics`: NULL or valid for as many bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_engine_statistics(
    engine: *const Engine,
    statistics: *mut Statistics,
) -> c_int {
    status(|| {
        // SAFETY: `engine` is NULL or a live handle (hearth.h).
        let engine = unsafe { handle(engine) }?;
        let numbers = engine.numbers()?;
        let connections = engine.connections()?;
        let filled = Statistics {
            started: numbers.started.load(Relaxed),
            answered: numbers.answered.load(Relaxed),
            failed: numbers.failed.load(Relaxed),
            aborted: numbers.aborted.load(Relaxed),
            active: numbers.active.load(Relaxed),
            peak: numbers.peak.load(Relaxed),
            queued: numbers.queued.load(Relaxed),
            retries: numbers.retries.load(Relaxed),
            redirects: numbers.redirects.load(Relaxed),
            bytes_sent: numbers.sent.load(Relaxed),
            bytes_received: numbers.received.load(Relaxed),
            panics: numbers.panics.load(Relaxed),
            mail_connections: numbers.mail.connections.load(Relaxed),
            mail_connects: numbers.mail.connects.load(Relaxed),
            mail_reused: numbers.mail.reused.load(Relaxed),
            connections: connections.connections,
            connects: connections.connects,
            reused: connections.reused,
            handshakes: connections.handshakes,
            handshakes_saved: connections.handshakes_saved,
            ..Statistics::default()
        };
        // SAFETY: `statistics` is NULL or valid for a write (hearth.h).
        unsafe { put_sized(statistics, filled, |filled, size| filled.size = size) }
    })
}

/// Fills the part of a structure that the caller's header has; its first field is that size.
///
/// # Safety
/// `output`: NULL, or valid for as many bytes as its first field, a `usize`, says.
pub(super) unsafe fn put_sized<T: Copy>(
    output: *mut T,
    mut filled: T,
    set_size: impl FnOnce(&mut T, usize),
) -> Result<(), Refused> {
    if output.is_null() {
        return Err(Refused::invalid("the pointer for the result is NULL"));
    }
    // SAFETY: `output` begins with its size (hearth.h).
    let size = unsafe { output.cast::<usize>().read() };
    if size < size_of::<usize>() {
        return Err(Refused::invalid("the structure's size is not set"));
    }
    set_size(&mut filled, size);
    let known = size.min(size_of::<T>());
    let from = std::ptr::from_ref(&filled).cast::<u8>();
    // SAFETY: `known` bytes are within both, the caller's promise and `filled`'s own size.
    unsafe { std::ptr::copy_nonoverlapping(from, output.cast::<u8>(), known) };
    Ok(())
}

/// # Safety
/// `engine`: NULL or a handle; `url`: `size` bytes, or ended by NUL; `callback` may be called once with `user` on the library's threads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearth_engine_get(
    engine: *mut Engine,
    url: *const c_char,
    size: usize,
    callback: Option<DoneCall>,
    user: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: `engine` is NULL or a live handle (hearth.h).
        let engine = unsafe { handle(engine) }?;
        // SAFETY: `url` has its size, or ends with NUL (hearth.h).
        let target = engine.target(unsafe { bytes(url, size) }?)?;
        let settings = engine.settings()?;
        let spec = Spec::new(settings, Some(target));
        let done = callback.map(|callback| Done(callback, User(user)));
        let runtime = engine.running()?;
        let mut in_flight = InFlight::new(spec);
        in_flight.begin(&runtime, None, done, None, None);
        runtime.take(Arc::new(in_flight))
    })
}

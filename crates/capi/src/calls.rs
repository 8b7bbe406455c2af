//! Calls of the caller's functions.
//!
//! Invariants
//! - No other file calls into the caller's program.

#![expect(
    unsafe_code,
    reason = "the caller's functions are foreign, and their data is a raw pointer"
)]

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

use crate::request::Request;
use crate::response::Response;

/// The caller's own pointer, passed back to it and never dereferenced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User(pub(crate) *mut c_void);

// SAFETY: hearth.h says that callbacks run on the library's threads: a caller that registers one allows its data to be
// used there.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

/// The result of a callback: `hearth_flow`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Flow {
    Continue,
    Pause,
    Abort,
    End,
}

impl From<c_int> for Flow {
    fn from(flow: c_int) -> Self {
        match flow {
            0 => Self::Continue,
            1 => Self::Pause,
            3 => Self::End,
            // An unknown value ends the request.
            _ => Self::Abort,
        }
    }
}

pub(crate) type DoneCall = unsafe extern "C" fn(*mut c_void, *mut Request, *const Response);
pub(crate) type HeadCall =
    unsafe extern "C" fn(*mut c_void, *mut Request, *const Response) -> c_int;
pub(crate) type BodyCall =
    unsafe extern "C" fn(*mut c_void, *mut Request, *const c_char, usize) -> c_int;
pub(crate) type SourceCall =
    unsafe extern "C" fn(*mut c_void, *mut Request, *mut c_char, usize, *mut usize) -> c_int;
pub(crate) type RewindCall = unsafe extern "C" fn(*mut c_void, *mut Request) -> c_int;
pub(crate) type ProgressCall =
    unsafe extern "C" fn(*mut c_void, *mut Request, u64, u64, u64, u64) -> c_int;
pub(crate) type DebugCall =
    unsafe extern "C" fn(*mut c_void, *mut Request, c_int, *const c_char, usize);
pub(crate) type RunCall = unsafe extern "C" fn(*mut c_void);
pub(crate) type ExecuteCall =
    unsafe extern "C" fn(*mut c_void, Option<RunCall>, *mut c_void) -> c_int;
pub(crate) type LetGoCall = unsafe extern "C" fn(*mut c_void);
pub(crate) type ReleaseCall = unsafe extern "C" fn(*mut c_void, *const c_char, usize);

/// `hearth_on_done`
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done(pub(crate) DoneCall, pub(crate) User);

/// `hearth_on_head`
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head(pub(crate) HeadCall, pub(crate) User);

/// `hearth_on_interim`
pub(crate) type Interim = Head;

/// `hearth_on_body`
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body(pub(crate) BodyCall, pub(crate) User);

/// `hearth_on_progress`
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress(pub(crate) ProgressCall, pub(crate) User);

/// `hearth_on_debug`
#[derive(Clone, Copy, Debug)]
pub(crate) struct Debug {
    pub(crate) call: DebugCall,
    /// Whether secrets are shown.
    pub(crate) secrets: bool,
    pub(crate) user: User,
}

/// The kinds of data of a debug callback: the numbers of libcurl's `curl_infotype` and of `hearth_debug`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(i32)]
pub(crate) enum Seen {
    Text = 0,
    HeadIn = 1,
    HeadOut = 2,
    DataIn = 3,
    DataOut = 4,
}

/// `hearth_source` with its `hearth_rewind`
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) length: Option<u64>,
    pub(crate) call: SourceCall,
    pub(crate) rewind: Option<RewindCall>,
    pub(crate) user: User,
}

/// The progress of both directions. `None`: the total is unknown.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Far {
    pub(crate) sent: u64,
    pub(crate) to_send: Option<u64>,
    pub(crate) received: u64,
    pub(crate) to_receive: Option<u64>,
}

fn handle(request: Option<&Arc<Request>>) -> *mut Request {
    request.map_or(ptr::null_mut(), |request| Arc::as_ptr(request).cast_mut())
}

impl Done {
    pub(crate) fn call(self, request: Option<&Arc<Request>>, response: &Response) {
        // SAFETY: hearth.h: the function may be called once until the completion; both pointers are lent until it returns.
        unsafe { (self.0)(self.1.0, handle(request), ptr::from_ref(response)) }
    }
}

impl Head {
    pub(crate) fn call(self, request: Option<&Arc<Request>>, response: &Response) -> Flow {
        // SAFETY: hearth.h: the function may be called until the completion; both pointers are lent until it returns.
        unsafe { (self.0)(self.1.0, handle(request), ptr::from_ref(response)) }.into()
    }
}

impl Body {
    pub(crate) fn call(self, request: Option<&Arc<Request>>, data: &[u8]) -> Flow {
        // SAFETY: hearth.h: the function may be called until the completion; the bytes are lent until it returns.
        unsafe { (self.0)(self.1.0, handle(request), data.as_ptr().cast(), data.len()) }.into()
    }
}

impl Progress {
    pub(crate) fn call(self, request: Option<&Arc<Request>>, far: Far) -> Flow {
        let (to_send, to_receive) =
            (far.to_send.unwrap_or(u64::MAX), far.to_receive.unwrap_or(u64::MAX));
        // SAFETY: hearth.h: the function may be called until the completion.
        unsafe { (self.0)(self.1.0, handle(request), far.sent, to_send, far.received, to_receive) }
            .into()
    }
}

impl Debug {
    pub(crate) fn call(self, request: Option<&Arc<Request>>, seen: Seen, bytes: &[u8]) {
        let (data, size) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: hearth.h: the function may be called until the completion; the bytes are lent until it returns.
        unsafe { (self.call)(self.user.0, handle(request), seen as c_int, data, size) }
    }
}

/// The program's executor for callbacks.
#[derive(Clone, Debug)]
pub(crate) struct Executor(Arc<Executes>);

#[derive(Debug)]
struct Executes {
    execute: ExecuteCall,
    release: Option<LetGoCall>,
    user: User,
}

impl Executor {
    pub(crate) fn new(execute: ExecuteCall, release: Option<LetGoCall>, user: User) -> Self {
        Self(Arc::new(Executes { execute, release, user }))
    }

    /// Submits a job. Returns false if the executor refuses it.
    pub(crate) fn execute<J: Execute>(&self, job: Arc<J>) -> bool {
        let work = Arc::into_raw(job).cast_mut().cast();
        // SAFETY: hearth.h: the function may be called from any thread until it is released.
        let taken = unsafe { (self.0.execute)(self.0.user.0, Some(run::<J>), work) == 0 };
        if !taken {
            // SAFETY: it is the count from above: who refuses does not run it.
            drop(unsafe { Arc::from_raw(work.cast::<J>()) });
        }
        taken
    }
}

/// A job for an executor.
pub(crate) trait Execute: Send + Sync {
    fn run(self: Arc<Self>);
}

extern "C" fn run<J: Execute>(work: *mut c_void) {
    // SAFETY: `Executor::execute` has made it of an `Arc`, and hearth.h says that what was taken is run once.
    let job = unsafe { Arc::from_raw(work.cast_const().cast::<J>()) };
    // Nothing unwinds into foreign frames.
    let _panic = catch_unwind(AssertUnwindSafe(|| job.run()));
}

impl Drop for Executes {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: hearth.h: called once, when nothing is executed any more.
            unsafe { release(self.user.0) }
        }
    }
}

impl Source {
    /// Fills the buffer. Returns the number of bytes.
    pub(crate) fn call(self, request: Option<&Arc<Request>>, buffer: &mut [u8]) -> (Flow, usize) {
        let mut written = 0;
        let room = buffer.as_mut_ptr().cast();
        // SAFETY: hearth.h: the function may be called until the completion and writes no more than the length that it is told.
        let flow = unsafe {
            (self.call)(self.user.0, handle(request), room, buffer.len(), &raw mut written)
        };
        // More than there is room for has been written over something else: nothing can be trusted to go on with.
        if written > buffer.len() { (Flow::Abort, 0) } else { (flow.into(), written) }
    }

    /// Rewinds the source. Returns false if the body cannot be read again.
    pub(crate) fn rewind(self, request: Option<&Arc<Request>>) -> bool {
        // SAFETY: hearth.h: the function may be called until the completion.
        self.rewind.is_some_and(|rewind| unsafe { rewind(self.user.0, handle(request)) } == 0)
    }
}

/// Memory that the caller has given to the library.
#[derive(Debug)]
pub(crate) struct Given {
    data: *const c_char,
    size: usize,
    release: Option<ReleaseCall>,
    user: User,
}

// SAFETY: hearth.h: what is given is read only, and released on any thread.
unsafe impl Send for Given {}
// SAFETY: as above.
unsafe impl Sync for Given {}

impl Given {
    /// # Safety
    /// `data` must point to `size` bytes that stay as they are until `release` is called; with a size of 0 it may be NULL.
    pub(crate) unsafe fn new(
        data: *const c_char,
        size: usize,
        release: Option<ReleaseCall>,
        user: User,
    ) -> Self {
        Self { data, size, release, user }
    }
}

impl AsRef<[u8]> for Given {
    fn as_ref(&self) -> &[u8] {
        if self.size == 0 {
            return &[];
        }
        // SAFETY: `new` was promised that they are there.
        unsafe { std::slice::from_raw_parts(self.data.cast(), self.size) }
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: hearth.h: called once, when the memory is no longer read.
            unsafe { release(self.user.0, self.data, self.size) }
        }
    }
}

//! What needs the system, or memory that Rust does not look after: a word that a fork wipes (how a child finds out that it is one, at the
//! cost of a load), values that outlive a fork's locks, threads without signals.

#![expect(unsafe_code, reason = "memory is mapped and counted by hand, signals are masked")]

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, PoisonError};

const PAGE: usize = 4096;

/// True in the process that made it, false in its children (madvise(2), `MADV_WIPEONFORK`).
#[derive(Debug)]
pub(crate) struct OurProcess {
    mark: ptr::NonNull<AtomicU32>,
}

// SAFETY: what it points to is an atomic in memory that lives as long as this.
unsafe impl Send for OurProcess {}
// SAFETY: as above.
unsafe impl Sync for OurProcess {}

impl OurProcess {
    /// `None`: the system has no memory, or a kernel older than 4.14.
    pub(crate) fn new() -> Option<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping wherever the kernel likes.
        let page = unsafe { libc::mmap(ptr::null_mut(), PAGE, protection, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: it is ours and a page.
        if unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) } != 0 {
            // SAFETY: nobody knows of it yet.
            unsafe { libc::munmap(page, PAGE) };
            return None;
        }
        let mark: ptr::NonNull<AtomicU32> = ptr::NonNull::new(page)?.cast();
        // SAFETY: a page is aligned, zeroed and large enough.
        unsafe { mark.as_ref() }.store(1, Relaxed);
        Some(Self { mark })
    }

    pub(crate) fn is_this(&self) -> bool {
        // SAFETY: it is mapped until this is dropped.
        unsafe { self.mark.as_ref() }.load(Relaxed) == 1
    }
}

impl Drop for OurProcess {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, with this length, and nobody else has the address.
        unsafe { libc::munmap(self.mark.as_ptr().cast(), PAGE) };
    }
}

/// An `Arc` that is exchanged under a lock, and can be had without it in a child, where whoever holds the lock is gone.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    value: AtomicPtr<T>,
    lock: Mutex<()>,
}

impl<T> Shared<T> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        Self { value: AtomicPtr::new(Arc::into_raw(value).cast_mut()), lock: Mutex::new(()) }
    }

    pub(crate) fn get(&self) -> Arc<T> {
        let _locked = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.clone_out()
    }

    /// In a child of a fork, which has one thread.
    pub(crate) fn get_in_child(&self) -> Arc<T> {
        self.clone_out()
    }

    fn clone_out(&self) -> Arc<T> {
        let value = self.value.load(SeqCst).cast_const();
        // SAFETY: it came from `Arc::into_raw`, and this holds one count: nobody takes that away, for exchanging needs the lock, which
        // is ours; in a child the thread that had it does not exist, and what it was exchanging is still counted.
        unsafe { Arc::increment_strong_count(value) };
        // SAFETY: the count that was just added.
        unsafe { Arc::from_raw(value) }
    }

    /// Exchanges it for what `change` makes of it, unless that fails.
    pub(crate) fn change<E>(&self, change: impl FnOnce(&mut T) -> Result<(), E>) -> Result<(), E>
    where
        T: Clone,
    {
        let old;
        {
            let _locked = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            let mut new = self.clone_out();
            change(Arc::make_mut(&mut new))?;
            old = self.value.swap(Arc::into_raw(new).cast_mut(), SeqCst);
        }
        // SAFETY: it came from `Arc::into_raw`, and its count was this one's until the exchange.
        drop(unsafe { Arc::from_raw(old) });
        Ok(())
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: it came from `Arc::into_raw`, and nobody else has this count.
        drop(unsafe { Arc::from_raw(*self.value.get_mut()) });
    }
}

/// Starts a thread that gets none of the program's signals: handlers of the program are not to run on threads it knows nothing of,
/// and SIGPIPE is not to end it.
pub(crate) fn quiet_thread(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: it writes the set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: reads the set just written, writes the other.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    // SAFETY: puts back what was written above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    started
}

thread_local! {
    /// The life whose thread this is, as a number; 0: none. Without a destructor, so that the library can be unloaded.
    static OF_LIFE: Cell<usize> = const { Cell::new(0) };
}

/// This thread belongs to the life with this number.
pub(crate) fn belong_to(life: usize) {
    OF_LIFE.set(life);
}

/// The number of the life that this thread belongs to; 0: none.
pub(crate) fn belongs_to() -> usize {
    OF_LIFE.get()
}

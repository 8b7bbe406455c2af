//! System calls, and memory that Rust does not manage. A word that a fork wipes lets a child detect the fork for the
//! price of a load. Also: values that outlive a fork's locks, and threads without signals.

#![expect(unsafe_code, reason = "memory is mapped and counted by hand, signals are masked")]

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::num::NonZeroU32;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PAGE: usize = 4096;

/// Locks a mutex. Its value stays usable when a holder has panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of this process, in memory that a fork wipes; 0: it has none yet.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// The highest number that this process or an ancestor has had. Above all process ids.
static LAST: AtomicU32 = AtomicU32::new(1 << 31);

/// Maps a page that children of this process find zeroed (madvise(2), `MADV_WIPEONFORK`).
fn wiped_page() -> Option<ptr::NonNull<AtomicU32>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let page = unsafe { libc::mmap(ptr::null_mut(), PAGE, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: it is ours and a page.
    if unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: it is not shared yet.
        unsafe { libc::munmap(page, PAGE) };
        return None;
    }
    ptr::NonNull::new(page)?.cast().into()
}

/// Returns a number that is unique among this process and its ancestors. `None`: no memory, or a kernel older than 4.14.
fn number() -> Option<u32> {
    let mut mark = MARK.load(SeqCst);
    if mark.is_null() {
        let page = wiped_page()?.as_ptr();
        mark = match MARK.compare_exchange(ptr::null_mut(), page, SeqCst, SeqCst) {
            Ok(_) => page,
            Err(other) => {
                // SAFETY: `wiped_page` has mapped it, and no other code has seen it.
                unsafe { libc::munmap(page.cast(), PAGE) };
                other
            }
        };
    }
    // SAFETY: a page is aligned, zeroed and large enough, and this one stays mapped.
    let mark = unsafe { &*mark };
    match mark.load(SeqCst) {
        0 => {
            let next = LAST.fetch_add(1, SeqCst) + 1;
            Some(
                mark.compare_exchange(0, next, SeqCst, SeqCst).map_or_else(|other| other, |_| next),
            )
        }
        number => Some(number),
    }
}

/// The current process, for the price of two loads.
fn process() -> u32 {
    number().unwrap_or_else(std::process::id)
}

/// Returns whether a number is this process's.
pub(crate) fn is_this_process(number: NonZeroU32) -> bool {
    process() == number.get()
}

/// True in the process that made it, false in its children.
#[derive(Debug)]
pub(crate) struct OurProcess(u32);

impl OurProcess {
    /// Records the current process. `None`: no memory, or a kernel older than 4.14.
    pub(crate) fn new() -> Option<Self> {
        number().map(Self)
    }

    pub(crate) fn is_this(&self) -> bool {
        process() == self.0
    }

    /// Returns the process's number, for [`is_this_process`].
    pub(crate) fn number(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.0)
    }
}

/// A value for each process. A child of a fork creates its own on first access and does not touch the parent's, whose
/// locks may be held by threads that the child does not have.
#[derive(Debug)]
pub(crate) struct PerProcess<T> {
    /// The value of the process that made this, in place: most are never seen by a child.
    first: ManuallyDrop<Place<T>>,
    /// The value of this process if it is a child, or of a parent until the first access. A parent's value is leaked after a fork.
    later: AtomicPtr<Place<T>>,
    owns: PhantomData<Place<T>>,
}

#[derive(Debug)]
struct Place<T> {
    value: T,
    process: u32,
}

impl<T> PerProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            first: ManuallyDrop::new(Place { value, process: process() }),
            later: AtomicPtr::new(ptr::null_mut()),
            owns: PhantomData,
        }
    }

    /// Returns this process's value. `inherit` makes it from the parent's, whose locks it may only try.
    pub(crate) fn get(&self, inherit: impl FnOnce(&T) -> T) -> &T {
        let process = process();
        if self.first.process == process {
            return &self.first.value;
        }
        let found = self.later.load(SeqCst);
        let place = if found.is_null() {
            &*self.first
        } else {
            // SAFETY: it came from `Box::into_raw` and is not dropped before `self`.
            unsafe { &*found }
        };
        if place.process == process {
            return &place.value;
        }
        let new = Box::into_raw(Box::new(Place { value: inherit(&place.value), process }));
        match self.later.compare_exchange(found, new, SeqCst, SeqCst) {
            // SAFETY: as above.
            Ok(_) => &unsafe { &*new }.value,
            Err(other) => {
                // SAFETY: it came from `Box::into_raw`, and no other code has seen it.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: as above.
                &unsafe { &*other }.value
            }
        }
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let process = process();
        if self.first.process == process {
            // SAFETY: it is this process's, and not used after this.
            return unsafe { ManuallyDrop::drop(&mut self.first) };
        }
        let later = *self.later.get_mut();
        if later.is_null() {
            return;
        }
        // SAFETY: it came from `Box::into_raw`, and no other reference to `self` exists.
        let later = unsafe { Box::from_raw(later) };
        if later.process != process {
            // A parent's.
            Box::leak(later);
        }
    }
}

/// A value of the whole process, made on first access without a lock: a fork may happen while another thread makes it.
#[derive(Debug)]
pub(crate) struct Once<T>(AtomicPtr<T>);

impl<T: Sync> Once<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Several threads may make it at the same time; one result is kept.
    pub(crate) fn get(&'static self, make: impl FnOnce() -> T) -> &'static T {
        let mut value = self.0.load(SeqCst);
        if value.is_null() {
            let made = Box::into_raw(Box::new(make()));
            value = match self.0.compare_exchange(ptr::null_mut(), made, SeqCst, SeqCst) {
                Ok(_) => made,
                Err(other) => {
                    // SAFETY: it came from `Box::into_raw`, and no other code has seen it.
                    drop(unsafe { Box::from_raw(made) });
                    other
                }
            };
        }
        // SAFETY: it came from `Box::into_raw` and is never dropped.
        unsafe { &*value }
    }
}

/// An `Arc` that is exchanged under a lock, and can be read without the lock in a child, where the lock's holder does not exist.
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
        let _locked = lock(&self.lock);
        self.clone_out()
    }

    /// Reads it in a child of a fork, which has one thread.
    pub(crate) fn get_in_child(&self) -> Arc<T> {
        self.clone_out()
    }

    fn clone_out(&self) -> Arc<T> {
        let value = self.value.load(SeqCst).cast_const();
        // SAFETY: it came from `Arc::into_raw`, and this holds one count. The count stays, because an exchange needs
        // the lock, which this thread has. In a child, a thread that held the lock does not exist, and the value of its
        // exchange is still counted.
        unsafe { Arc::increment_strong_count(value) };
        // SAFETY: the count that was just added.
        unsafe { Arc::from_raw(value) }
    }

    /// Replaces it with the result of `change`, unless that fails.
    pub(crate) fn change<E>(&self, change: impl FnOnce(&mut T) -> Result<(), E>) -> Result<(), E>
    where
        T: Clone,
    {
        let old;
        {
            let _locked = lock(&self.lock);
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
        // SAFETY: it came from `Arc::into_raw`, and this value owns the count.
        drop(unsafe { Arc::from_raw(*self.value.get_mut()) });
    }
}

/// Starts a thread that receives none of the program's signals. The program's handlers must not run on threads that it
/// does not know, and SIGPIPE must not end it.
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
    /// The number of the runtime that owns this thread; 0: none. Without a destructor, so that the library can be unloaded.
    static OF_LIFE: Cell<usize> = const { Cell::new(0) };
}

/// Marks this thread as one of the runtime with this number.
pub(crate) fn belong_to(runtime: usize) {
    OF_LIFE.set(runtime);
}

/// Runs a function while this thread of the program counts as one of the runtime with this number.
pub(crate) fn lent_to(runtime: usize, work: impl FnOnce()) {
    let before = OF_LIFE.replace(runtime);
    work();
    OF_LIFE.set(before);
}

/// The number of the runtime that this thread belongs to; 0: none.
pub(crate) fn belongs_to() -> usize {
    OF_LIFE.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a check in a child of a fork, which reports the result by its exit status.
    fn in_child(true_there: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls what is to be tested, which is made for it, and ends without a destructor.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no arguments that could be wrong; a child that hangs is ended by its alarm.
            unsafe { libc::alarm(20) };
            let code = i32::from(!true_there());
            // SAFETY: as above.
            unsafe { libc::_exit(code) };
        }
        let mut status = -1;
        // SAFETY: `status` is valid for a write.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(waited, child);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }

    #[test]
    fn a_forked_child_takes_no_lock_of_its_parent() {
        let ours = OurProcess::new().expect("memory that a fork wipes");
        let counted = PerProcess::new(Mutex::new(1));
        let inherit =
            |parents: &Mutex<i32>| Mutex::new(parents.try_lock().map_or(-1, |value| *value + 1));
        let value = || *counted.get(inherit).lock().expect("not poisoned");
        assert!(in_child(|| !ours.is_this() && value() == 2 && value() == 2));
        // And the child's child.
        assert!(in_child(|| value() == 2 && in_child(|| value() == 3)));
        let held = counted.get(inherit).lock().expect("not poisoned");
        assert!(in_child(|| value() == -1));
        drop(held);
        assert!(ours.is_this() && value() == 1);
    }
}

//! Cookies (RFC 6265): a jar that requests share, or that one request has.
//!
//! Invariants
//! - No cookie is taken for a public suffix (`com`, `co.uk`), where the machine has the list of them.

use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use cookie_store::CookieStore;
use http::{HeaderMap, HeaderValue, header::SET_COOKIE};
use url::Url;

use crate::error::Refused;

/// Where Debian and Fedora keep the list.
const LISTS: [&str; 2] = [
    "/usr/share/publicsuffix/public_suffix_list.dat",
    "/usr/share/publicsuffix/effective_tld_names.dat",
];

/// Cookies of a jar, at most: RFC 6265, 6.1 wants 3000.
const MOST: usize = 10_000;

static SUFFIXES: LazyLock<Option<publicsuffix::List>> = LazyLock::new(|| {
    let text = LISTS.iter().find_map(|file| std::fs::read_to_string(Path::new(file)).ok())?;
    text.parse().ok()
});

/// A jar.
#[derive(Debug, Default)]
pub(crate) struct Jar {
    /// `None`: there never was a cookie. Most programs have none, and the list of suffixes takes megabytes.
    store: Mutex<Option<CookieStore>>,
}

fn store() -> CookieStore {
    match &*SUFFIXES {
        Some(suffixes) => CookieStore::default().with_suffix_list(suffixes.clone()),
        None => CookieStore::default(),
    }
}

impl Jar {
    fn lock(&self) -> MutexGuard<'_, Option<CookieStore>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes it.
    fn with<T>(&self, change: impl FnOnce(&mut CookieStore) -> T) -> T {
        change(self.lock().get_or_insert_with(store))
    }

    /// For a child of a fork: the same cookies, or none when somebody had the jar at that moment.
    pub(crate) fn in_child(&self) -> Arc<Self> {
        let store = self.store.try_lock().map(|store| store.clone());
        Arc::new(Self { store: Mutex::new(store.unwrap_or_default()) })
    }

    /// Takes what an answer from `url` sets.
    pub(crate) fn take(&self, url: &str, headers: &HeaderMap) {
        if !headers.contains_key(SET_COOKIE) {
            return;
        }
        let Ok(url) = Url::parse(url) else { return };
        self.with(|store| {
            for value in headers.get_all(SET_COOKIE) {
                if let Ok(text) = str::from_utf8(value.as_bytes())
                    && store.iter_any().count() < MOST
                {
                    // One that is none is left out, as browsers do.
                    let _not_taken = store.parse(text, &url).is_err();
                }
            }
        });
    }

    /// Takes one as if `url` had answered with it.
    pub(crate) fn add(&self, url: &str, text: &str) -> Result<(), Refused> {
        let url = Url::parse(url).map_err(|why| Refused::invalid(format!("URL: {why}")))?;
        self.with(|store| store.parse(text, &url).map(drop))
            .map_err(|why| Refused::invalid(format!("cookie: {why}")))
    }

    /// What goes to `url`; longer paths first, as RFC 6265, 5.4 wants it.
    pub(crate) fn cookies(&self, url: &str) -> Option<String> {
        let store = self.lock();
        let store = store.as_ref()?;
        let url = Url::parse(url).ok()?;
        let mut found: Vec<_> = store.matches(&url);
        found.sort_by_key(|cookie| std::cmp::Reverse(String::from(&cookie.path).len()));
        let pairs: Vec<_> =
            found.iter().map(|cookie| format!("{}={}", cookie.name(), cookie.value())).collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }

    /// The same as a field's value.
    pub(crate) fn field(&self, url: &str) -> Option<HeaderValue> {
        HeaderValue::try_from(self.cookies(url)?).ok()
    }

    pub(crate) fn clear(&self) {
        if let Some(store) = &mut *self.lock() {
            store.clear();
        }
    }

    /// As JSON.
    pub(crate) fn save(&self, session_too: bool) -> Result<String, Refused> {
        let mut text = Vec::new();
        let saved = self.with(|store| {
            if session_too {
                cookie_store::serde::json::save_incl_expired_and_nonpersistent(store, &mut text)
            } else {
                cookie_store::serde::json::save(store, &mut text)
            }
        });
        saved.map_err(|why| Refused::system(format!("the cookies cannot be written: {why}")))?;
        String::from_utf8(text).map_err(|_bytes| Refused::system("a cookie is no UTF-8"))
    }

    /// Adds what `save` wrote.
    pub(crate) fn load(&self, text: &str) -> Result<(), Refused> {
        let wrong = |why: &dyn std::fmt::Display| {
            Refused::invalid(format!("these are no saved cookies: {why}"))
        };
        let loaded =
            cookie_store::serde::json::load_all(text.as_bytes()).map_err(|why| wrong(&why))?;
        self.with(|store| {
            for cookie in loaded.iter_any() {
                let url = format!(
                    "https://{}{}",
                    cookie.domain.as_cow().unwrap_or_default(),
                    String::from(&cookie.path)
                );
                let Ok(url) = Url::parse(&url) else { continue };
                let _not_taken = store.insert(cookie.clone().into_owned(), &url).is_err();
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_go_back_to_where_they_came_from() {
        let jar = Jar::default();
        jar.add("http://a.test/x/", "one=1").expect("a cookie");
        jar.add("http://a.test/", "two=2; Path=/").expect("a cookie");
        jar.add("https://a.test/", "three=3; Secure; Path=/").expect("a cookie");
        assert_eq!(jar.cookies("http://a.test/x/y").as_deref(), Some("one=1; two=2"));
        assert_eq!(jar.cookies("http://a.test/").as_deref(), Some("two=2"));
        assert_eq!(jar.cookies("http://b.test/"), None);
        assert!(jar.add("http://a.test/", "four=4; Domain=b.test").is_err());
        jar.clear();
        assert_eq!(jar.cookies("http://a.test/"), None);
    }

    #[test]
    fn what_is_saved_can_be_loaded() {
        let jar = Jar::default();
        jar.add("http://a.test/", "kept=1; Max-Age=1000; Path=/").expect("a cookie");
        jar.add("http://a.test/", "session=1; Path=/").expect("a cookie");
        let other = Jar::default();
        other.load(&jar.save(false).expect("text")).expect("taken");
        assert_eq!(other.cookies("http://a.test/").as_deref(), Some("kept=1"));
        assert!(other.load("{").is_err());
    }
}

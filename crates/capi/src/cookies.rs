//! Cookies (RFC 6265): a jar that requests share, or one request's own.
//!
//! Invariants
//! - No cookie is accepted for a public suffix (`com`, `co.uk`), if the machine has the list of them.
//! - A jar has at most [`MOST`] cookies. In a full one expired cookies leave first, and existing ones can be renewed and deleted.
//! - A child of a fork takes no lock of the parent's.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, TryLockError};

use cookie_store::{Cookie, CookieDomain, CookieError, CookieStore, StoreAction};
use http::{HeaderMap, HeaderValue, header::SET_COOKIE};
use url::Url;

use crate::error::Refused;
use crate::sys::{Once, PerProcess, lock};

/// The files of the list in Debian and Fedora.
const LISTS: [&str; 2] = [
    "/usr/share/publicsuffix/public_suffix_list.dat",
    "/usr/share/publicsuffix/effective_tld_names.dat",
];

/// Maximum number of cookies in a jar: RFC 6265, 6.1 requires 3000.
const MOST: usize = 10_000;

/// One list for all jars: it takes 3 MB.
static SUFFIXES: Once<Option<publicsuffix::List>> = Once::new();

fn suffixes() -> Option<&'static publicsuffix::List> {
    let read = || {
        let text = LISTS.iter().find_map(|file| std::fs::read_to_string(Path::new(file)).ok())?;
        text.parse().ok()
    };
    SUFFIXES.get(read).as_ref()
}

/// A jar.
#[derive(Debug)]
pub(crate) struct Jar {
    own: PerProcess<Mutex<Store>>,
}

impl Default for Jar {
    fn default() -> Self {
        Self { own: PerProcess::new(Mutex::default()) }
    }
}

/// The cookies of a jar.
#[derive(Clone, Debug, Default)]
struct Store {
    /// Without its own list of suffixes: [`for_its_domain`] uses the common one.
    cookies: CookieStore,
    /// The number of cookies, expired ones included.
    len: usize,
}

/// Why a cookie was not accepted.
#[derive(Debug, thiserror::Error)]
enum NotTaken {
    #[error("cookie: {0}")]
    Wrong(#[from] CookieError),
    #[error("the jar is full: it has {MOST} cookies")]
    Full,
}

impl From<NotTaken> for Refused {
    fn from(why: NotTaken) -> Self {
        match why {
            NotTaken::Wrong(_) => Self::invalid(why.to_string()),
            NotTaken::Full => Self::state(why.to_string()),
        }
    }
}

/// RFC 6265, 5.3, step 5: only a public suffix itself may set cookies for itself.
fn for_its_domain(
    mut cookie: Cookie<'static>,
    url: &Url,
    suffixes: Option<&publicsuffix::List>,
) -> Result<Cookie<'static>, CookieError> {
    if suffixes.is_some_and(|suffixes| cookie.domain.is_public_suffix(suffixes)) {
        if !cookie.domain.host_is_identical(url) {
            return Err(CookieError::PublicSuffix);
        }
        cookie.domain = CookieDomain::host_only(url)?;
    }
    Ok(cookie)
}

impl Store {
    /// Accepts a cookie that `url` has set.
    fn insert(&mut self, cookie: Cookie<'static>, url: &Url) -> Result<(), NotTaken> {
        let cookie = for_its_domain(cookie, url, suffixes())?;
        let domain = cookie.domain.as_cow().ok_or(CookieError::UnspecifiedDomain)?.into_owned();
        let (path, name) = (cookie.path.to_string(), cookie.name().to_owned());
        if self.len >= MOST {
            self.drop_expired();
        }
        if self.len >= MOST && !self.cookies.contains_any(&domain, &path, &name) {
            return Err(NotTaken::Full);
        }
        match self.cookies.insert(cookie, url)? {
            StoreAction::Inserted => self.len += 1,
            StoreAction::UpdatedExisting => {}
            StoreAction::ExpiredExisting => {
                self.cookies.remove(&domain, &path, &name);
                self.len -= 1;
            }
        }
        Ok(())
    }

    fn drop_expired(&mut self) {
        let expired = self.cookies.iter_any().filter(|cookie| cookie.is_expired());
        let expired: Vec<_> = expired
            .map(|cookie| {
                (String::from(&cookie.domain), cookie.path.to_string(), cookie.name().to_owned())
            })
            .collect();
        for (domain, path, name) in &expired {
            self.cookies.remove(domain, path, name);
        }
        self.len -= expired.len();
    }
}

impl Jar {
    /// Returns this process's cookies. A child of a fork starts with its parent's, or with none if a thread held the jar at that moment.
    fn lock(&self) -> MutexGuard<'_, Store> {
        let inherit = |parents: &Mutex<Store>| {
            Mutex::new(match parents.try_lock() {
                Ok(store) => store.clone(),
                Err(TryLockError::Poisoned(store)) => store.into_inner().clone(),
                Err(TryLockError::WouldBlock) => Store::default(),
            })
        };
        lock(self.own.get(inherit))
    }

    /// Accepts the cookies of a response from `url`.
    pub(crate) fn take(&self, url: &str, headers: &HeaderMap) {
        if !headers.contains_key(SET_COOKIE) {
            return;
        }
        let Ok(url) = Url::parse(url) else { return };
        let mut store = self.lock();
        for value in headers.get_all(SET_COOKIE) {
            if let Ok(text) = str::from_utf8(value.as_bytes())
                && let Ok(cookie) = Cookie::parse(text, &url)
            {
                // An invalid cookie, or one too many, is skipped, as in browsers.
                let _not_taken = store.insert(cookie.into_owned(), &url).is_err();
            }
        }
    }

    /// Accepts a cookie as if `url` had sent it.
    pub(crate) fn add(&self, url: &str, text: &str) -> Result<(), Refused> {
        let url = Url::parse(url).map_err(|why| Refused::invalid(format!("URL: {why}")))?;
        let cookie = Cookie::parse(text, &url).map_err(NotTaken::from)?;
        Ok(self.lock().insert(cookie.into_owned(), &url)?)
    }

    /// Returns the cookies for `url`; longer paths first (RFC 6265, 5.4).
    pub(crate) fn cookies(&self, url: &str) -> Option<String> {
        let store = self.lock();
        if store.len == 0 {
            return None;
        }
        let url = Url::parse(url).ok()?;
        let mut found: Vec<_> = store.cookies.matches(&url);
        found.sort_by_key(|cookie| std::cmp::Reverse(String::from(&cookie.path).len()));
        let pairs: Vec<_> =
            found.iter().map(|cookie| format!("{}={}", cookie.name(), cookie.value())).collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }

    /// Returns the cookies as a field's value.
    pub(crate) fn field(&self, url: &str) -> Option<HeaderValue> {
        HeaderValue::try_from(self.cookies(url)?).ok()
    }

    pub(crate) fn clear(&self) {
        *self.lock() = Store::default();
    }

    /// Returns the cookies as JSON.
    pub(crate) fn save(&self, session_too: bool) -> Result<String, Refused> {
        let mut text = Vec::new();
        let store = self.lock();
        let saved = if session_too {
            cookie_store::serde::json::save_incl_expired_and_nonpersistent(
                &store.cookies,
                &mut text,
            )
        } else {
            cookie_store::serde::json::save(&store.cookies, &mut text)
        };
        drop(store);
        saved.map_err(|why| Refused::system(format!("the cookies cannot be written: {why}")))?;
        String::from_utf8(text).map_err(|_bytes| Refused::system("a cookie is no UTF-8"))
    }

    /// Adds cookies that `save` wrote, until the jar is full.
    pub(crate) fn load(&self, text: &str) -> Result<(), Refused> {
        let wrong = |why: &dyn std::fmt::Display| {
            Refused::invalid(format!("these are no saved cookies: {why}"))
        };
        let loaded =
            cookie_store::serde::json::load_all(text.as_bytes()).map_err(|why| wrong(&why))?;
        let mut store = self.lock();
        for cookie in loaded.iter_unexpired() {
            let url = format!(
                "https://{}{}",
                cookie.domain.as_cow().unwrap_or_default(),
                String::from(&cookie.path)
            );
            let Ok(url) = Url::parse(&url) else { continue };
            match store.insert(cookie.clone(), &url) {
                Ok(()) | Err(NotTaken::Wrong(_)) => {}
                Err(full @ NotTaken::Full) => return Err(full.into()),
            }
        }
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
    fn saved_cookies_can_be_loaded() {
        let jar = Jar::default();
        jar.add("http://a.test/", "kept=1; Max-Age=1000; Path=/").expect("a cookie");
        jar.add("http://a.test/", "session=1; Path=/").expect("a cookie");
        let other = Jar::default();
        other.load(&jar.save(false).expect("text")).expect("taken");
        assert_eq!(other.cookies("http://a.test/").as_deref(), Some("kept=1"));
        assert!(other.load("{").is_err());
    }
    #[test]
    fn a_cookie_for_a_public_suffix_is_rejected() {
        let list = "// ===BEGIN ICANN DOMAINS===\nuk\nco.uk\n// ===END ICANN DOMAINS===\n";
        let list: publicsuffix::List = list.parse().expect("a list");
        let checked = |text: &'static str, url: &str| {
            let url = Url::parse(url).expect("a URL");
            for_its_domain(Cookie::parse(text, &url).expect("a cookie"), &url, Some(&list))
        };
        let refused = checked("a=1; Domain=co.uk", "http://shop.co.uk/");
        assert_eq!(refused, Err(CookieError::PublicSuffix));
        let shop = checked("a=1; Domain=shop.co.uk", "http://www.shop.co.uk/").expect("taken");
        assert_eq!(shop.domain, CookieDomain::Suffix("shop.co.uk".into()));
        // A cookie of the suffix itself stays with that host.
        let own = checked("a=1; Domain=co.uk", "http://co.uk/").expect("taken");
        assert_eq!(own.domain, CookieDomain::HostOnly("co.uk".into()));
        // A name that is not on the list, such as one in a private network, is not a suffix.
        assert!(checked("a=1; Domain=intranet", "http://wiki.intranet/").is_ok());
    }

    #[test]
    fn the_machines_list_of_suffixes_is_asked() {
        assert!(suffixes().is_some(), "scripts/setup installs the list: package publicsuffix");
        let jar = Jar::default();
        assert!(jar.add("http://shop.co.uk/", "a=1; Domain=co.uk").is_err());
        jar.add("http://shop.co.uk/", "a=1; Domain=shop.co.uk").expect("a cookie");
        assert_eq!(jar.cookies("http://www.shop.co.uk/").as_deref(), Some("a=1"));
        assert_eq!(jar.cookies("http://other.co.uk/"), None);
    }

    /// A jar with the maximum number of cookies.
    fn full() -> Jar {
        let jar = Jar::default();
        for number in 0..MOST {
            jar.add("http://a.test/", &format!("n{number}=old")).expect("there is room");
        }
        jar
    }

    #[test]
    fn a_full_jar_is_renewed_and_deleted_from() {
        let jar = full();
        let answer = |text: &'static str| {
            let headers = HeaderMap::from_iter([(SET_COOKIE, HeaderValue::from_static(text))]);
            jar.take("http://a.test/", &headers);
        };
        let has = |pair: &str| {
            let cookies = jar.cookies("http://a.test/").expect("cookies");
            cookies.split("; ").any(|cookie| cookie == pair)
        };
        answer("more=1");
        assert!(!has("more=1"));
        let refused = jar.add("http://b.test/", "more=1").expect_err("it is full");
        assert_eq!(refused.status, crate::error::Status::State);
        answer("n7=new");
        assert!(has("n7=new") && !has("n7=old"));
        answer("n8=; Max-Age=0");
        assert!(!has("n8=old"));
        // The place is free again.
        answer("more=1");
        assert!(has("more=1"));
        jar.clear();
        jar.add("http://a.test/", "first=1").expect("a cookie");
        assert!(has("first=1"));
    }

    #[test]
    fn expired_cookies_leave_a_full_jar_first() {
        let jar = full();
        {
            let mut store = jar.lock();
            let cookies: Vec<_> = store.cookies.iter_any().take(2).cloned().collect();
            for mut cookie in cookies {
                store.cookies.remove("a.test", "/", cookie.name());
                cookie.expire();
                let expired = [Ok::<_, CookieError>(cookie)];
                let expired = CookieStore::from_cookies(expired, true).expect("a store");
                let others = std::mem::take(&mut store.cookies);
                let all = others.iter_any().chain(expired.iter_any()).cloned();
                store.cookies =
                    CookieStore::from_cookies(all.map(Ok::<_, CookieError>), true).expect("one");
            }
        }
        jar.add("http://b.test/", "one=1").expect("there is room");
        jar.add("http://b.test/", "two=2").expect("there is room");
        assert!(jar.add("http://b.test/", "three=3").is_err());
        assert_eq!(jar.lock().cookies.iter_any().count(), MOST);
    }

    #[test]
    fn loading_a_jar_respects_its_limits() {
        let jar = full();
        let more = Jar::default();
        more.add("http://a.test/", "n3=new").expect("a cookie");
        more.add("http://b.test/", "more=1").expect("a cookie");
        assert!(jar.load(&more.save(true).expect("text")).is_err());
        assert_eq!(jar.lock().cookies.iter_any().count(), MOST);
        assert_eq!(jar.cookies("http://b.test/"), None);
    }
}

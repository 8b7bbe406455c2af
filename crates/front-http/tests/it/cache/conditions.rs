//! Tests answers with status 304 that come from the cache.

use super::{PATH, calls, get, start};

/// RFC 9110, section 15.4.5: a 304 has the fields that its 200 would have.
#[tokio::test]
async fn a_304_from_the_cache_has_the_fields_of_its_200() {
    let server = start().await;
    let order =
        "order: size=20000 | content-type: text/css | cache-control: max-age=60 | etag: \"a\"";
    get(&server, PATH, &[order]).await;
    for (coding, etag) in [("gzip", "W/\"a\""), ("identity", "\"a\"")] {
        let accept = format!("Accept-Encoding: {coding}");
        let whole = get(&server, PATH, &[&accept]).await;
        assert_eq!(whole.status, 200);
        for known in ["\"a\"", "W/\"a\""] {
            let condition = format!("If-None-Match: {known}");
            let reply = get(&server, PATH, &[&accept, &condition]).await;
            assert_eq!((reply.status, reply.body.len()), (304, 0), "{coding}");
            assert_eq!(reply.field("etag").as_deref(), Some(etag), "{coding}");
            for name in ["etag", "vary", "cache-control", "date"] {
                assert!(reply.field(name).is_some(), "{coding}: {name}");
                assert_eq!(reply.field(name), whole.field(name), "{coding}: {name}");
            }
            for name in ["content-encoding", "content-length", "content-type"] {
                assert_eq!(reply.field(name), None, "{coding}: {name}");
            }
        }
    }
    assert_eq!(calls(&server), 1);
}

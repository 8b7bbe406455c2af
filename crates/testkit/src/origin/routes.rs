//! A script with a route for every case, for benches, PHP tests and the program `scripted-origin`.
//!
//! | path | response |
//! |---|---|
//! | `/bytes/N` | N bytes |
//! | `/echo` | the request's body |
//! | `/headers`, and any other path | the request as JSON |
//! | `/delay/MS` | a response after that many milliseconds |
//! | `/status/N` | this status |
//! | `/redirect/N` | 302 to `/redirect/N-1`, at 0 to `/headers` |
//! | `/redirect-to?URL` | 302 to this URL |
//! | `/early-hints` | 103, then 200 |
//! | `/trailers` | trailers after the body |
//! | `/drip` | ten bytes, 50 ms between them |
//! | `/close` | `Connection: close` |
//! | `/reset` | the connection is reset instead of a response |
//! | `/cut` | the connection ends in the middle of the body |
//! | `/empty` | the connection is closed without a response |
//! | `/never` | no response |
//! | `/rubbish` | bytes that are not HTTP |
//! | `/old` | more than 900 fields, formatted as old servers do |
//! | `/stale` | 200; the connection is closed under the next request |
//! | `/early` | 413 before the body is read |
//! | `/gzip` | a compressed body |
//! | `/twice` | a body that was compressed twice: one field names both codings; `/twice/1`: two fields do |
//! | `/cookies` | two `Set-Cookie` fields; `/headers` shows the returned cookies |
//! | `/secure-cookie` | a cookie for `https` only |
//! | `/basic-auth` | 401 unless `user` and `password` are sent |

use std::time::Duration;

use super::Seen;
use super::script::{After, Body, Reply, Step, Turn};

/// `echo -n 'compressed by gzip' | gzip -n`
const GZIP: &[u8] = &[
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x4b, 0xce, 0xcf, 0x2d, 0x28, 0x4a,
    0x2d, 0x2e, 0x4e, 0x4d, 0x51, 0x48, 0xaa, 0x54, 0x48, 0xaf, 0xca, 0x2c, 0x00, 0x00, 0x60, 0x02,
    0xf0, 0xe0, 0x12, 0x00, 0x00, 0x00,
];

/// `compressed twice`, by zlib and then by gzip.
const TWICE: &[u8] = &[
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xab, 0xb8, 0xe5, 0x7d, 0xee, 0xbc,
    0xae, 0x86, 0x97, 0xae, 0x9e, 0x9f, 0x6f, 0xa0, 0x86, 0xe6, 0x79, 0x1f, 0x3f, 0x56, 0x06, 0xf3,
    0x93, 0x6c, 0x45, 0x00, 0x16, 0x5c, 0xed, 0x18, 0x18, 0x00, 0x00, 0x00,
];

/// Returns the action for a request, by its path.
pub fn routes(seen: &Seen) -> Turn {
    let mut parts = seen.path().split('/').skip(1);
    let name = parts.next().unwrap_or_default();
    let number = parts.next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
    let reply = match name {
        "bytes" => Reply::text("").body(Body::Pattern(number)),
        "echo" => Reply::text("").body(Body::Echo),
        "delay" => Reply::text("late").delayed(Duration::from_millis(number)),
        "status" => {
            let status = u16::try_from(number).ok().filter(|status| (200..600).contains(status));
            Reply::text("status").status(status.unwrap_or(400))
        }
        "redirect" => {
            let next = match number {
                0 => "/headers".to_owned(),
                number => format!("/redirect/{}", number - 1),
            };
            Reply::text("moved").status(302).field("Location", &next)
        }
        "redirect-to" => {
            let url = seen.target.split_once('?').map_or("/headers", |(_, query)| query);
            // Some clients encode the second one.
            let url = url.replace("%3F", "?");
            Reply::text("moved").status(302).field("Location", &url)
        }
        "early-hints" => Reply::text("hinted").interim(103, "Link", "</style.css>; rel=preload"),
        "trailers" => {
            Reply::text("with trailers").field("Trailer", "X-Checksum").trailer("X-Checksum", "abc")
        }
        "drip" => Reply {
            pause: Duration::from_millis(50),
            ..Reply::text("").body(Body::Pieces(vec![b"x".to_vec(); 10]))
        },
        "close" => Reply::text("closed").after(After::Close),
        "reset" if seen.version == 2 => return Turn::ResetStream(2),
        "reset" => return Turn::Steps(vec![Step::Reset]),
        "cut" => {
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf";
            return Turn::Steps(vec![Step::ReadBody, Step::send(head), Step::Close]);
        }
        "bad-chunk" => {
            let head =
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nno size\r\n";
            return Turn::Steps(vec![Step::ReadBody, Step::send(head), Step::Close]);
        }
        "empty" => return Turn::Steps(vec![Step::ReadBody, Step::Close]),
        "never" => return Turn::Never,
        "rubbish" => {
            return Turn::Steps(vec![Step::ReadBody, Step::send("no HTTP\r\n\r\n"), Step::Close]);
        }
        "old" => {
            let many = "X-Many: 1\r\n".repeat(900);
            let head = format!(
                "HTTP/1.1 200 OK\r\nX-Blank : 1\r\nX-Folded: 2\r\n\tand 3\r\n{many}Content-Length: 3\r\n\r\nold"
            );
            return Turn::Steps(vec![Step::ReadBody, Step::send(&head), Step::Close]);
        }
        "stale" => Reply::text("fresh").after(After::CloseAtNext),
        "early" => Reply::text("too large").status(413).early(),
        "gzip" => {
            let body = Body::Bytes(GZIP.to_vec());
            Reply::text("").body(body).field("Content-Encoding", "gzip")
        }
        "twice" => {
            let reply = Reply::text("").body(Body::Bytes(TWICE.to_vec()));
            match number {
                0 => reply.field("Content-Encoding", "deflate, gzip"),
                _ => reply.field("Content-Encoding", "deflate").field("Content-Encoding", "gzip"),
            }
        }
        "cookies" => Reply::text("cookies")
            .field("Set-Cookie", "one=1; Path=/")
            .field("X-Between", "cookies")
            .field("Set-Cookie", "two=2; Path=/"),
        "secure-cookie" => Reply::text("cookie")
            .field("Set-Cookie", "safe=1; Path=/; Secure; HttpOnly")
            .field("Set-Cookie", "other=2; Path=/"),
        // `user:password`
        "basic-auth" if seen.field("authorization") == Some("Basic dXNlcjpwYXNzd29yZA==") => {
            Reply::text("welcome")
        }
        "basic-auth" => {
            Reply::text("who?").status(401).field("WWW-Authenticate", "Basic realm=\"tests\"")
        }
        _ => Reply::facts(),
    };
    reply.into()
}

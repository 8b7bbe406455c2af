//! What the kernel is asked about a stream. Alone in its process: descriptors have the same numbers in all its epoll
//! instances.

use std::future::poll_fn;
use std::io::Read as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::UnixStream;

use unix_stream::Stream;

#[tokio::test]
async fn a_peer_that_reads_wakes_no_owner_up() {
    const EPOLLIN: u32 = 1;
    const EPOLLOUT: u32 = 4;
    let (own, mut peer) = UnixStream::pair().unwrap();
    let stream = Stream::new(own).unwrap();
    assert_eq!(poll_fn(|cx| stream.poll_write(b"question", cx)).await.unwrap(), 8);
    peer.read_exact(&mut [0; 8]).unwrap();
    // A line for each descriptor of the epoll instance, by proc(5): `tfd: 5 events: 80002019 data: …`
    let number = stream.as_fd().as_raw_fd().to_string();
    let mut asked = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap() {
        let info = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
        for line in info.lines().filter(|line| line.starts_with("tfd:")) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if fields[1] == number {
                asked.push(u32::from_str_radix(fields[3], 16).unwrap());
            }
        }
    }
    assert!(!asked.is_empty());
    assert!(asked.iter().all(|asked| asked & (EPOLLIN | EPOLLOUT) == EPOLLIN), "{asked:x?}");
}

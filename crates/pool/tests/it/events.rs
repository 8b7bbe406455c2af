//! Tests events that PHP publishes.

use std::sync::{Arc, Mutex};

use pool::{EventSink, Options, Pool, PublishedEvent, Refused};

use crate::{eventually, get, options, start, text};

/// Records what it receives.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<String>>);

impl EventSink for Notes {
    fn publish(&self, event: &PublishedEvent<'_>) -> Result<(), Refused> {
        let PublishedEvent { channels, name, data, except } = event;
        let channels = channels.join("+");
        self.0.lock().unwrap().push(format!("{channels} {name} {data} {except:?}"));
        if *name == "refused" { Err(Refused("a test".into())) } else { Ok(()) }
    }
}

#[tokio::test]
async fn an_event_reaches_the_sink_before_the_answer_ends() {
    let notes = Arc::new(Notes::default());
    let sink: Arc<dyn EventSink> = Arc::<Notes>::clone(&notes);
    let pool = Pool::start(Options { events: Some(sink), ..options(1) }).await.unwrap();
    assert_eq!(text(get(&pool, "/publish?2").await.unwrap()).await, "published");
    let expected =
        ["one+two event-0 {\"n\":0} Some(\"1.2\")", "one+two event-1 {\"n\":1} Some(\"1.2\")"];
    assert_eq!(*notes.0.lock().unwrap(), expected);
}

#[tokio::test]
async fn an_event_published_behind_the_answer_reaches_the_sink() {
    let notes = Arc::new(Notes::default());
    let sink: Arc<dyn EventSink> = Arc::<Notes>::clone(&notes);
    let pool = Pool::start(Options { events: Some(sink), ..options(1) }).await.unwrap();
    assert_eq!(text(get(&pool, "/publish-behind").await.unwrap()).await, "published");
    eventually("the event is there", || notes.0.lock().unwrap().len() == 1).await;
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
}

#[tokio::test]
async fn events_without_a_sink_or_with_invalid_text_are_harmless() {
    let pool = start(1).await;
    assert_eq!(text(get(&pool, "/publish?1").await.unwrap()).await, "published");
    let pid = text(get(&pool, "/pid").await.unwrap()).await;
    assert_eq!(text(get(&pool, "/publish-bytes").await.unwrap()).await, "published");
    assert_eq!(text(get(&pool, "/pid").await.unwrap()).await, pid);
}

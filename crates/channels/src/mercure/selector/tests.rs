//! Templates against the examples of RFC 6570 and a matcher that goes through all possibilities; costs are counted in
//! steps.

use proptest::{prop_assert_eq, proptest};

use super::*;

fn is_match(selector: &str, topic: &str) -> bool {
    any(&[Selector::new(selector)], &[topic.to_owned()])
}

#[test]
fn selectors_match_the_topics_of_rfc_6570() {
    let cases = [
        ("*", "https://example.com/a", true),
        ("https://example.com/a", "https://example.com/a", true),
        ("https://example.com/a", "https://example.com/b", false),
        ("https://example.com/books/{id}", "https://example.com/books/1", true),
        ("https://example.com/books/{id}", "https://example.com/books/", true),
        ("https://example.com/books/{id}", "https://example.com/book", false),
        ("https://example.com/books/{id}", "https://example.com/books/1/reviews", false),
        ("https://example.com/books/{id}.jsonld", "https://example.com/books/1.jsonld", true),
        ("https://example.com/books/{id}.jsonld", "https://example.com/books/1.jsonl", false),
        ("https://example.com/books/{id}", "https://example.com/books/{id}", true),
        ("https://example.com/{+path}", "https://example.com/a/b?c=d", true),
        ("https://example.com{/a,b}", "https://example.com/x/y", true),
        ("https://example.com{/a}", "https://example.com/x/y", false),
        ("https://example.com/{?q}", "https://example.com/?q=1", true),
        ("https://example.com/{a}/{b}", "https://example.com/1/2", true),
        ("https://example.com/{a}/{b}", "https://example.com/1", false),
        ("{a", "{a", true),
        ("{a", "b", false),
        ("a}", "a}", true),
        ("https://{domain}.com/é/{id}", "https://example.com/é/ü", true),
        ("{a}é{b}", "aéb", true),
        ("{a}é{b}", "aèb", false),
        ("{a}", "", true),
    ];
    for (selector, topic, expected) in cases {
        assert_eq!(is_match(selector, topic), expected, "{selector} {topic}");
    }
    // Longer than a word of positions, and than two.
    for length in [62, 63, 64, 65, 127, 128, 129, 1000] {
        let topic = format!("/{}/b{}c", "a".repeat(length), "d".repeat(length));
        assert!(is_match("/{x}/b{y}c", &topic), "{length}");
        assert!(is_match("{/x,y}", &topic), "{length}");
        assert!(!is_match("/{x}/b{y}e", &topic), "{length}");
        assert!(!is_match("{x}", &topic), "{length}");
    }
}

/// Returns whether the parts match, by trying all ends of each value.
fn matches_slowly(parts: &[Part], topic: &str) -> bool {
    let Some((part, rest)) = parts.split_first() else { return topic.is_empty() };
    match part {
        Part::Literal(literal) => {
            topic.strip_prefix(&**literal).is_some_and(|topic| matches_slowly(rest, topic))
        }
        Part::Expression(Expression { first, class }) => {
            if matches_slowly(rest, topic) {
                return true;
            }
            let first = first.map(|first| char::from(first).to_string()).unwrap_or_default();
            let Some(values) = topic.strip_prefix(&first) else { return false };
            let longest = values.find(|one| !class.has(one)).unwrap_or(values.len());
            let ends = values.char_indices().map(|(at, _)| at).chain([values.len()]);
            let mut ends = ends.take_while(|end| *end <= longest);
            ends.any(|end| values.get(end..).is_some_and(|left| matches_slowly(rest, left)))
        }
    }
}

proptest! {
    #[test]
    fn a_set_of_positions_finds_what_trying_everything_finds(
        template in "(a|b|/|é|\\.|\\{a\\}|\\{\\+a\\}|\\{/a\\}|\\{/a,b\\}|\\{\\?a\\}|\\{#a\\}|\\{\\.a\\*\\}){1,6}",
        topic in "[ab/é.?#= ]{0,12}",
        length in 0_usize..70,
    ) {
        let selector = Selector::new(&template);
        let Kind::Template(compiled) = &selector.kind else { return Ok(()) };
        for topic in [topic.clone(), format!("{}{topic}", "a".repeat(length))] {
            prop_assert_eq!(is_match(&template, &topic), matches_slowly(&compiled.parts, &topic), "{} {}", template, topic);
        }
    }
}

/// The steps that all templates of one subscriber may take with one topic.
fn bound(topic: &str) -> usize {
    let words = topic.len() / 64 + 1;
    // Each template ends with the topic's last byte at the latest; classes and bytes are read once.
    (2 * EXPRESSIONS + 100 * (topic.len() + 1)) * words + 10 * topic.len()
}

#[test]
fn a_hostile_template_takes_few_steps_and_needs_no_limit() {
    for (template, topic) in [
        ("{a}{+b}".repeat(50), format!("{}\u{0}", "a".repeat(5000))),
        ("{a}".repeat(EXPRESSIONS), "a".repeat(5000)),
        (format!("{{+a}}{}", "a".repeat(5000)), "a".repeat(4999)),
        ("a{/b*}{.c}{;d*}{?e}{&f}{#g}".repeat(100), "a/".repeat(1000)),
    ] {
        let topics = [topic];
        let mut matching = Matching::new(&topics);
        matching.any(&[Selector::new(&template)]);
        assert!(matching.steps() > 0, "{template}");
        assert!(matching.steps() <= bound(&topics[0]), "{} {template}", matching.steps());
    }
    // What the old limit of 100,000 steps of backtracking gave up is found.
    assert!(is_match(&"{a}{+b}".repeat(50), &"a".repeat(5000)));
}

#[test]
fn templates_with_too_many_expressions_are_no_subscription() {
    let selectors = |expressions: usize, each: usize| {
        (0..each).map(|_| Selector::new(&"{a}".repeat(expressions))).collect::<Vec<_>>()
    };
    assert!(are_bounded(&selectors(10, 100)));
    assert!(!are_bounded(&selectors(11, 100)));
    assert!(!are_bounded(&selectors(EXPRESSIONS + 1, 1)));
    assert!(are_bounded(&[Selector::new(&"a".repeat(100_000)), Selector::new("*")]));
}

#[test]
fn an_update_costs_each_template_once_however_many_subscribers_have_it() {
    let mut templates = Templates::default();
    let hostile = "{a}{+b}".repeat(50);
    let mut subscribers: Vec<Vec<Selector>> = (0..10_000)
        .map(|_| vec![Selector::new(&hostile), Selector::new("https://example.com/{id}")])
        .collect();
    for selectors in &mut subscribers {
        templates.share(selectors);
    }
    let mut cache = Cache::default();
    let topics = ["https://example.com/ ".to_owned()];
    let mut update = |topics: &[String]| {
        let mut matching = cache.begin(topics);
        let found = subscribers.iter().filter(|selectors| matching.any(selectors)).count();
        let steps = matching.steps();
        cache.end(matching);
        (found, steps)
    };
    let (found, steps) = update(&topics);
    assert_eq!(found, 0);
    assert!(steps > 0 && steps < 1000, "{steps} steps for 10,000 subscribers");
    // The topic is known the second time.
    assert_eq!(update(&topics), (0, 0));
    assert_eq!(update(&["https://example.com/1".to_owned()]).0, 10_000);
    // Templates are forgotten with their subscribers.
    drop(subscribers);
    for number in 0..100 {
        templates.share(&mut [Selector::new(&format!("{{a}}{number}"))]);
    }
    assert!(templates.known.len() <= 100, "{}", templates.known.len());
}

#[test]
fn hostile_subscribers_with_templates_of_their_own_have_a_total_bound() {
    // 1,000 subscribers, each with 10 templates that no other one has: 100 expressions each.
    let subscribers: Vec<Vec<Selector>> = (0..1000)
        .map(|one| (0..10).map(move |at| format!("{}{{v{one}.{at}}}", "{a}{+b}".repeat(49))))
        .map(|texts| texts.map(|text| Selector::new(&text)).collect())
        .collect();
    assert!(subscribers.iter().all(|selectors| are_bounded(selectors)));
    // No template matches, because of its last character, so each is gone through to its end.
    let topics = [format!("{}\u{0}", "a".repeat(60))];
    let mut matching = Matching::new(&topics);
    for selectors in &subscribers {
        assert!(!matching.any(selectors));
    }
    // With backtracking it was 100,000 for each subscriber: 100 million.
    let steps = matching.steps();
    assert!((990_000..=1_100_000).contains(&steps), "{steps}");
}

#[test]
fn cached_results_are_bounded_in_memory() {
    let mut cache = Cache::default();
    let selectors: Vec<_> = (0..200).map(|at| Selector::new(&format!("{{a}}{at}"))).collect();
    for number in 0..5000 {
        let topics = [format!("topic {number} {}", "x".repeat(number % 2000))];
        let mut matching = cache.begin(&topics);
        matching.any(&selectors);
        cache.end(matching);
        assert!(cache.memory <= CACHE);
        let real: usize = cache.topics.iter().map(|(topic, known)| memory(topic, known)).sum();
        assert_eq!(cache.memory, real);
    }
    assert!(!cache.topics.is_empty());
    assert!(cache.topics.keys().all(|topic| topic.len() <= CACHED_TOPIC));
}

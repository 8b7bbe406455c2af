use proptest::prelude::*;

use super::*;

fn event(sequence: u64, target: &str) -> Record<'_> {
    Record::Event { sequence, app: "3", target, json: r#"{"name":"channel_occupied"}"# }
}

fn written(records: &[Record<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        record.write(&mut out);
    }
    out
}

fn sequences(kept: &[Kept]) -> Vec<u64> {
    kept.iter().map(|event| event.sequence).collect()
}

fn open(folder: &Path) -> (Spool, Vec<u64>) {
    let (spool, kept) = Spool::open(folder).unwrap();
    (spool, sequences(&kept))
}

#[test]
fn accepted_undelivered_events_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (mut spool, kept) = open(folder.path());
    assert_eq!(kept, [0; 0]);
    spool
        .append(&written(&[
            event(1, "a"),
            event(2, "b"),
            event(3, "a"),
            event(4, "a"),
            event(5, "b"),
        ]))
        .unwrap();
    spool
        .append(&written(&[
            Record::Done { sequence: 3, app: "3", target: "a" },
            Record::Dropped { sequence: 5 },
        ]))
        .unwrap();
    drop(spool);

    let (mut spool, kept) = open(folder.path());
    assert_eq!(kept, [2, 4]);
    spool.replace(&written(&[event(2, "b"), event(4, "a")])).unwrap();
    spool.append(&written(&[event(6, "a")])).unwrap();
    drop(spool);
    assert_eq!(open(folder.path()).1, [2, 4, 6]);
}

#[test]
fn a_truncated_file_loses_only_the_truncated_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("webhooks.spool");
    let whole = written(&[event(1, "a"), event(2, "a")]);
    let first = written(&[event(1, "a")]).len();
    for cut in 0..whole.len() {
        fs::write(&path, [FORMAT, &whole[..cut]].concat()).unwrap();
        let (mut spool, kept) = open(folder.path());
        assert_eq!(kept, if cut < first { vec![] } else { vec![1] }, "{cut}");
        spool.append(&written(&[event(3, "a")])).unwrap();
        drop(spool);
        assert_eq!(open(folder.path()).1, if cut < first { vec![3] } else { vec![1, 3] }, "{cut}");
    }
}

#[test]
fn a_damaged_record_ends_the_file() {
    let mut bytes = written(&[event(1, "a"), event(2, "a"), event(3, "a")]);
    let length = bytes.len() / 3;
    bytes[length + 20] ^= 1;
    let (kept, sound) = read(&bytes);
    assert_eq!((sequences(&kept), sound), (vec![1], length));
}

#[test]
fn a_file_of_another_format_is_renamed_and_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("webhooks.spool"), "something else").unwrap();
    assert_eq!(open(folder.path()).1, [0; 0]);
    assert_eq!(fs::read(folder.path().join("webhooks.unknown")).unwrap(), b"something else");
}

#[test]
fn a_folder_is_used_by_one_process_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(folder.path());
    assert!(matches!(Spool::open(folder.path()), Err(OpenError::InUse { .. })));
    drop(spool);
    assert_eq!(open(folder.path()).1, [0; 0]);
}

#[test]
fn a_mostly_obsolete_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (mut spool, _) = open(folder.path());
    let many: Vec<_> = (0..40_000).map(|sequence| event(sequence, "a")).collect();
    spool.append(&written(&many)).unwrap();
    assert!(!spool.wants_replacement(40_000 * 27));
    assert!(spool.wants_replacement(27));
    spool.replace(&written(&many[..1])).unwrap();
    assert!(!spool.wants_replacement(27));
    assert!(fs::metadata(folder.path().join("webhooks.spool")).unwrap().len() < 200);
}

#[test]
fn waiting_events_are_readable_only_by_the_servers_user() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let context = folder.path().join("storage");
    let place = context.join("spool");
    let (mut spool, _) = open(&place);
    assert_eq!(mode(&place), 0o700);
    fs::create_dir(folder.path().join("any")).unwrap();
    assert_eq!(mode(&context), mode(&folder.path().join("any")), "others have files there");
    let file = place.join("webhooks.spool");
    assert_eq!((mode(&file), mode(&place.join("lock"))), (0o600, 0o600));
    spool.replace(&written(&[event(1, "a")])).unwrap();
    assert_eq!(mode(&file), 0o600);
    drop(spool);
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(open(&place).1, [1]);
    assert_eq!(mode(&file), 0o600);
}

/// `/dev/full` fails every write as a full disk does.
#[test]
fn a_full_disk_stops_nothing_and_the_file_is_rewritten_when_there_is_space() {
    let folder = tempfile::tempdir().unwrap();
    let (mut spool, _) = open(folder.path());
    spool.append(&written(&[event(1, "a")])).unwrap();
    let sound = std::mem::replace(&mut spool.file, options().open("/dev/full").unwrap());
    assert!(spool.append(&written(&[event(2, "a")])).is_err());
    assert!(!spool.is_sound() && spool.wants_replacement(100));
    spool.file = sound;
    assert!(spool.append(&written(&[event(3, "a")])).is_err(), "after a gap nothing is added");
    spool.replace(&written(&[event(1, "a"), event(2, "a"), event(3, "a")])).unwrap();
    assert!(spool.is_sound());
    drop(spool);
    assert_eq!(open(folder.path()).1, [1, 2, 3]);
}

proptest! {
    #[test]
    fn any_bytes_are_read_up_to_the_first_damage(bytes: Vec<u8>) {
        let (_, sound) = read(&bytes);
        prop_assert!(sound <= bytes.len());
    }

    #[test]
    fn written_records_can_be_read(texts in prop::collection::vec(("[a-z]{0,9}", "\\PC{0,20}", "\\PC{0,80}"), 0..9)) {
        let records: Vec<_> = texts.iter().zip(1..).map(|((app, target, json), sequence)| Record::Event { sequence, app, target, json }).collect();
        let bytes = written(&records);
        let (kept, sound) = read(&bytes);
        prop_assert_eq!(sound, bytes.len());
        let kept: Vec<_> = kept.into_iter().map(|event| (event.app, event.target, event.json)).collect();
        prop_assert_eq!(kept, texts);
    }
}

//! ethtool's ioctls: numbers as in the kernel's header, hand-written structures, and a live kernel.

use proptest::prelude::*;

use super::*;

fn nic(name: &str) -> NicName {
    name.parse().expect("a name")
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a skip must be seen")]
fn the_commands_have_the_numbers_of_the_kernels_header() {
    let header = std::fs::read_to_string("/usr/include/linux/ethtool.h").ok();
    if header.is_none() {
        use io::Write;
        writeln!(io::stderr(), "SKIP: the kernel's headers are not installed").expect("stderr");
    }
    for (name, command, number) in [
        ("ETHTOOL_GDRVINFO", Command::DriverInfo, 0x03),
        ("ETHTOOL_GCOALESCE", Command::Coalesce, 0x0e),
        ("ETHTOOL_SCOALESCE", Command::SetCoalesce, 0x0f),
        ("ETHTOOL_GSTRINGS", Command::Strings, 0x1b),
        ("ETHTOOL_GSTATS", Command::Statistics, 0x1d),
        ("ETHTOOL_GRXFH", Command::HashFields, 0x29),
        ("ETHTOOL_SRXFH", Command::SetHashFields, 0x2a),
        ("ETHTOOL_SRXFHINDIR", Command::SetTable, 0x39),
        ("ETHTOOL_GSSET_INFO", Command::SetInfo, 0x37),
        ("ETHTOOL_GRSSH", Command::Rss, 0x46),
        ("ETHTOOL_SRSSH", Command::SetRss, 0x47),
        ("ETHTOOL_PERQUEUE", Command::PerQueue, 0x4b),
    ] {
        assert_eq!(command as u32, number, "{name}");
        let Some(header) = &header else { continue };
        let defined = header.lines().find_map(|line| {
            let rest = line.strip_prefix("#define")?.trim().strip_prefix(name)?;
            let digits = rest.strip_prefix(['\t', ' '])?.split_whitespace().next()?;
            u32::from_str_radix(digits.strip_prefix("0x")?, 16).ok()
        });
        assert_eq!(defined, Some(number), "{name}");
    }
}

#[test]
fn a_redirection_table_is_read_with_its_function_and_without_its_key() {
    let answer = words(&[0x46, 0, 4, 40, 0x0101, 0, 0, 1, 2, 1]);
    let rss = parse_rss(&answer, &nic("eth0")).expect("whole");
    assert_eq!(rss.table, Known::Value(vec![0, 1, 2, 1]));
    assert_eq!(rss.function, Known::Value("toeplitz".to_owned()));
    assert_eq!(rss.key_bytes, Known::Value(40));
    assert_eq!(rss.symmetric, Known::Value(true));
    let none = parse_rss(&words(&[0x46, 0, 0, 0, 2, 0]), &nic("eth0")).expect("whole");
    assert_eq!(none.table.gap().map(|gap| gap.cause), Some(Cause::Absent));
    assert_eq!(none.function, Known::Value("xor".to_owned()));
    assert_eq!(none.symmetric, Known::Value(false));
    assert!(parse_rss(&answer[..30], &nic("eth0")).is_err());
}

#[test]
fn a_key_is_read_behind_its_table_and_set_without_touching_anything_else() {
    let mut answer = words(&[0x46, 0, 2, 6, 0, 0, 0, 1]);
    answer[17] = 3;
    answer.extend([1, 2, 3, 4, 5, 6]);
    let key = parse_rss_key(&answer).expect("whole");
    assert_eq!(key, [1, 2, 3, 4, 5, 6]);
    let question = with_key(&answer, &[9, 8, 7, 6, 5, 4]).expect("as long");
    let transform = u32::from_ne_bytes([0, 3, 0, 0]);
    assert_eq!(question[..5], [0, TABLE_STAYS, 6, transform, 0]);
    assert_eq!(words(&question[5..]), [9, 8, 7, 6, 5, 4, 0, 0]);
    assert!(matches!(
        with_key(&answer, &[1, 2]),
        Err(Failure::BadInput(_))
    ));
    assert!(parse_rss_key(&answer[..36]).is_err());
    let none = words(&[0x46, 0, 2, 0, 0, 0, 0, 1]);
    assert!(matches!(
        parse_rss_key(&none),
        Err(Failure::Kernel {
            errno: libc::EOPNOTSUPP,
            ..
        })
    ));
}

#[test]
fn hashed_fields_are_the_letters_of_ethtool() {
    assert_eq!(field_letters(0x30), "sd");
    assert_eq!(field_letters(0xf0), "sdfn");
    assert_eq!(letters_field("sdfn"), Some(0xf0));
    assert_eq!(letters_field("sx"), None);
    assert_eq!(field_letters(0x8000_0002), "mr");
    assert_eq!(field_letters(0), "");
}

#[test]
fn counters_have_the_names_of_their_places_and_a_list_that_changed_is_refused() {
    let mut names = words(&[0x1b, 1, 3]);
    for name in [&b" rx_drops"[..], b"", b"a_name_that_fills_all_32_bytes_xx"] {
        let mut field = name.to_vec();
        field.resize(NAME_BYTES, 0);
        names.extend(field);
    }
    let mut values = words(&[0x1d, 3]);
    values.extend([7u64, 8, 9].iter().flat_map(|value| value.to_ne_bytes()));
    let names = parse_names(&names, 3).expect("whole");
    let counted = parse_statistics(&values, names.clone()).expect("whole");
    let last = "a_name_that_fills_all_32_bytes_x".to_owned();
    assert_eq!(counted, [("rx_drops".to_owned(), 7), (last, 9)]);
    let fewer = names.into_iter().take(2).collect();
    assert!(matches!(
        parse_statistics(&values, fewer),
        Err(Failure::Unsteady)
    ));
}

#[test]
fn each_queue_has_its_own_moderation() {
    let mut answer = vec![0; PER_QUEUE_HEAD];
    for queue in 0..2u32 {
        let mut coalesce = [0; 23];
        (coalesce[1], coalesce[5], coalesce[10]) = (8 + queue, 16 + queue, queue);
        (coalesce[2], coalesce[6], coalesce[11]) = (32 + queue, 64 + queue, 1 - queue);
        answer.extend(words(&coalesce));
    }
    let queues = parse_queue_coalesce(&answer, 2).expect("whole");
    assert_eq!(queues[1].queue, 1);
    assert_eq!(queues[1].rx_usecs, Known::Value(9));
    assert_eq!(queues[1].tx_usecs, Known::Value(17));
    assert_eq!(queues[0].adaptive_rx, Known::Value(false));
    assert_eq!(queues[1].adaptive_rx, Known::Value(true));
    assert_eq!(queues[0].adaptive_tx, Known::Value(true));
    assert_eq!(queues[1].adaptive_tx, Known::Value(false));
    assert_eq!(queues[1].rx_frames, Known::Value(33));
    assert_eq!(queues[1].tx_frames, Known::Value(65));
    assert!(parse_queue_coalesce(&answer, 3).is_err());
}

#[test]
fn one_thing_of_one_queue_is_set_and_its_other_moderation_is_as_it_was() {
    let coalesce: Vec<u32> = (100..123).collect();
    let mut answer = vec![0; PER_QUEUE_HEAD];
    answer.extend(words(&coalesce));
    let tx_usecs = Moderation::Usecs(7);
    let question = with_moderation(&answer, QueueKind::Tx, 33, tx_usecs).expect("whole");
    let (head, own) = question.split_at(PER_QUEUE_HEAD / 4 - 1);
    assert_eq!(head[0], Command::SetCoalesce as u32);
    let queues: Vec<usize> = (1..head.len()).filter(|at| head[*at] != 0).collect();
    assert_eq!((queues, head[2]), (vec![2], 0b10));
    let mut wanted = coalesce;
    (wanted[0], wanted[5]) = (Command::SetCoalesce as u32, 7);
    assert_eq!(own, wanted);
    for (kind, told, at, word) in [
        (QueueKind::Rx, Moderation::Usecs(9), 1, 9),
        (QueueKind::Rx, Moderation::Frames(9), 2, 9),
        (QueueKind::Tx, Moderation::Frames(9), 6, 9),
        (QueueKind::Rx, Moderation::Adaptive(true), 10, 1),
        (QueueKind::Tx, Moderation::Adaptive(false), 11, 0),
    ] {
        let question = with_moderation(&answer, kind, 0, told).expect("whole");
        assert_eq!(question[PER_QUEUE_HEAD / 4 - 1..][at], word, "{told:?}");
        assert!(with_moderation(&answer[..600], kind, 0, told).is_err());
    }
}

#[test]
fn the_kernel_stops_at_the_page_behind_the_memory() {
    let mut memory = Memory::new(1).expect("a page");
    assert_eq!(memory.bytes().len(), rustix::param::page_size());
    memory.bytes_mut().fill(1);
    assert!(memory.bytes().iter().all(|byte| *byte == 1));
    let (start, room) = (memory.bytes().as_ptr(), memory.bytes().len());
    let zero = std::fs::File::open("/proc/self/maps").expect("every process has a map");
    let map = io::read_to_string(zero).expect("text");
    let behind = start.addr() + room;
    let line = map
        .lines()
        .find(|line| line.starts_with(&format!("{behind:x}-")));
    assert!(line.is_some_and(|line| line.contains(" ---p ")), "{line:?}");
}

proptest! {
    #[test]
    fn no_answer_panics_a_parser(
        bytes in proptest::collection::vec(any::<u8>(), 0..700),
        count in 0usize..40,
    ) {
        let _ = parse_rss(&bytes, &nic("eth0"));
        let _ = parse_rss_key(&bytes);
        let _ = with_key(&bytes, &[0; 4]);
        let _ = parse_names(&bytes, count).map(|names| parse_statistics(&bytes, names));
        let _ = parse_statistics(&bytes, vec!["a".to_owned(); count]);
        let _ = parse_queue_coalesce(&bytes, count);
        let _ = with_moderation(&bytes, QueueKind::Rx, 0, Moderation::Frames(1));
        let _ = text(&bytes);
    }
}

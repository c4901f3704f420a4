//! Impossible hosts: a synthetic one, its counters and a trial, in which single facts are changed
//! to any value of their type. Random bytes hardly ever form a host in JSON; these always do,
//! so this tests the arithmetic behind the parser.

use std::sync::LazyLock;

use linerate_host::fuzz::judge;
use linerate_model::build;
use linerate_model::host::Host;
use linerate_model::sample::Sample;
use linerate_model::watch::Watch;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::show;

/// The input of the rules: as it was built, and as JSON to be changed.
struct EditedInput<T> {
    json: Value,
    /// How many places there are in it.
    places: usize,
    whole: T,
}

impl<T: Serialize + DeserializeOwned + Clone> EditedInput<T> {
    fn new(made: T) -> Self {
        let json = json!(made);
        let mut places = 0;
        visit(&json, &mut |_| places += 1);
        Self {
            json,
            places,
            whole: made,
        }
    }

    /// It with every change that its type allows.
    fn changed(&self, edits: &[(usize, u8)]) -> T {
        let (mut json, mut made) = (self.json.clone(), None);
        for (place, to) in edits {
            let mut changed = json.clone();
            change(&mut changed, &mut (place % self.places), *to);
            if let Ok(one) = serde_json::from_value(changed.clone()) {
                json = changed;
                made = Some(one);
            }
        }
        made.unwrap_or_else(|| self.whole.clone())
    }
}

static HOST: LazyLock<EditedInput<Host>> = LazyLock::new(|| {
    let host = build::host()
        .nodes(2, 3)
        .nic("eth2", |nic| {
            nic.gbit(100)
                .node(1)
                .queues(&[3, 4])
                .rps("0-1")
                .qdisc(build::tbf(1000))
                .pcie(build::pcie_link((8000, 4), (16_000, 16)))
        })
        .nic("veth0", build::NicBuilder::veth)
        .with(|host| host.block.push(build::block("nvme0n1", "nvme")));
    EditedInput::new(host.build())
});

static WATCH: LazyLock<EditedInput<Watch>> =
    LazyLock::new(|| EditedInput::new(build::watch(&HOST.whole).build()));

static SAMPLE: LazyLock<EditedInput<Sample>> =
    LazyLock::new(|| EditedInput::new(build::sample().build()));

/// Changes facts, three bytes each (two select the fact, by the first bits; one the value),
/// then checks and shows the result.
pub fn facts(bytes: &[u8]) {
    let edits = bytes.chunks_exact(3).take(12);
    let edits: Vec<(usize, u8)> = edits
        .map(|edit| (usize::from(edit[0]) | usize::from(edit[1]) << 8, edit[2]))
        .collect();
    let of = |kinds: &[usize]| -> Vec<(usize, u8)> {
        let own = edits
            .iter()
            .filter(|(place, _)| kinds.contains(&(place % 4)));
        own.map(|(place, to)| (place / 4, *to)).collect()
    };
    let host = HOST.changed(&of(&[0, 1]));
    let watch = WATCH.changed(&of(&[2]));
    let sample = SAMPLE.changed(&of(&[3]));
    judge(&host, Some(&watch));
    // A trial larger than linerate makes is refused where it is read.
    let spec = &sample.spec;
    let sides = [&sample.local, &sample.remote];
    let is_taken = spec.check().is_ok() && sides.iter().all(|side| side.check(spec).is_ok());
    show(&host, Some(&watch), is_taken.then_some(&sample));
}

fn visit(value: &Value, seen: &mut impl FnMut(&Value)) {
    seen(value);
    match value {
        Value::Object(object) => object.values().for_each(|inner| visit(inner, seen)),
        Value::Array(items) => items.iter().for_each(|inner| visit(inner, seen)),
        _ => {}
    }
}

/// Changes the value that is `left` places further on; whether it was found.
fn change(value: &mut Value, left: &mut usize, to: u8) -> bool {
    if *left == 0 {
        put(value, to);
        return true;
    }
    *left -= 1;
    match value {
        Value::Object(object) => object.values_mut().any(|inner| change(inner, left, to)),
        Value::Array(items) => items.iter_mut().any(|inner| change(inner, left, to)),
        _ => false,
    }
}

fn put(value: &mut Value, to: u8) {
    const NUMBERS: [u64; 16] = [
        0,
        1,
        2,
        3,
        7,
        64,
        100,
        4095,
        65_535,
        65_536,
        1 << 31,
        u32::MAX as u64,
        1 << 40,
        i64::MAX as u64,
        u64::MAX - 1,
        u64::MAX,
    ];
    const TEXTS: [&str; 16] = [
        "",
        "0",
        "-1",
        "4294967295",
        "18446744073709551615",
        "0-8191",
        "0 0 0",
        "18446744073709551615 18446744073709551615 18446744073709551615",
        "yes",
        "up",
        "nonsense é\u{202e}\n",
        "::/0",
        "192.0.2.1/32",
        "fe80::1/129",
        "mlx5_core",
        "nic/eth2/mtu",
    ];
    let pick = usize::from(to % 16);
    let gap = json!({"unknown": "denied", "path": "/x", "reason": "y"});
    *value = match (to / 16, &*value) {
        (0..=7, Value::Number(_)) => json!(NUMBERS[pick]),
        (0..=7, Value::String(_)) => json!(TEXTS[pick]),
        (0..=3, Value::Bool(now)) => json!(!now),
        (0..=3, Value::Array(items)) => {
            // Twice as many, none, or in reverse order.
            let mut items = items.clone();
            match pick % 3 {
                0 => items.extend(items.clone()),
                1 => items.clear(),
                _ => items.reverse(),
            }
            Value::Array(items)
        }
        (4..=7, Value::Array(items)) => items.first().cloned().into_iter().collect(),
        (0..=3, _) => json!([NUMBERS[pick], NUMBERS[15 - pick]]),
        (4..=5, _) => json!(NUMBERS[pick]),
        (6..=7, _) => json!(TEXTS[pick]),
        (8, _) => json!(to.is_multiple_of(2)),
        (9, _) => json!([]),
        (10, _) => json!({}),
        (11, _) => json!([TEXTS[pick]]),
        (12, _) => json!({TEXTS[pick]: NUMBERS[pick]}),
        (13, Value::Number(now)) => now
            .as_u64()
            .map_or(gap, |now| json!(now.wrapping_mul(1000))),
        _ => gap,
    };
}

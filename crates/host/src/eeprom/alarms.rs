//! A module's alarms and warnings as text: its flags, and the values currently beyond its thresholds. A flag is
//! latched until it is read, so it may be from the past; a threshold that is crossed now may not be flagged.

/// Alarms and warnings in the order found, each once.
#[derive(Debug, Default)]
pub(super) struct Raised {
    pub(super) alarms: Vec<String>,
    pub(super) warnings: Vec<String>,
}

/// High alarm, low alarm, high warning, low warning.
pub(super) type Levels = [bool; 4];

impl Raised {
    /// Adds the levels of `what`, for one lane or the whole module.
    pub(super) fn add(&mut self, lane: Option<u32>, what: &str, levels: Levels) {
        let [high_alarm, low_alarm, high_warning, low_warning] = levels;
        for (on, words) in [(high_alarm, "high alarm"), (low_alarm, "low alarm")] {
            if on {
                put(&mut self.alarms, lane, what, words);
            }
        }
        for (on, words) in [(high_warning, "high warning"), (low_warning, "low warning")] {
            if on {
                put(&mut self.warnings, lane, what, words);
            }
        }
    }

    /// Adds a fault, which has no level.
    pub(super) fn fault(&mut self, lane: u32, what: &str, on: bool) {
        if on {
            put(&mut self.alarms, Some(lane), what, "");
        }
    }
}

fn put(list: &mut Vec<String>, lane: Option<u32>, what: &str, level: &str) {
    let words = match lane {
        Some(lane) => format!("lane {lane}: {what} {level}"),
        None => format!("{what} {level}"),
    };
    let words = words.trim_end().to_owned();
    if !list.contains(&words) {
        list.push(words);
    }
}

/// The levels of flags in bits 3 to 0, from high alarm to low warning.
pub(super) fn levels(flags: u8) -> Levels {
    [3, 2, 1, 0].map(|bit| flags >> bit & 1 == 1)
}

/// The levels that `value` has crossed. Thresholds that are all equal, such as 0, are not set.
pub(super) fn crossed(value: Option<i32>, bounds: Option<[i32; 4]>) -> Levels {
    match (value, bounds) {
        (Some(value), Some(bounds)) => {
            let [high_alarm, low_alarm, high_warning, low_warning] = bounds;
            let beyond = |high: i32, low: i32| {
                let is_range = high > low;
                (is_range && value > high, is_range && value < low)
            };
            let (over_alarm, under_alarm) = beyond(high_alarm, low_alarm);
            let (over_warning, under_warning) = beyond(high_warning, low_warning);
            [over_alarm, under_alarm, over_warning, under_warning]
        }
        _ => [false; 4],
    }
}

/// Unsigned thresholds as stored.
pub(super) fn unsigned(bounds: [[u8; 2]; 4]) -> [i32; 4] {
    bounds.map(|bytes| i32::from(u16::from_be_bytes(bytes)))
}

/// Signed thresholds as stored.
pub(super) fn signed(bounds: [[u8; 2]; 4]) -> [i32; 4] {
    bounds.map(|bytes| i32::from(i16::from_be_bytes(bytes)))
}

/// The union.
pub(super) fn either(a: Levels, b: Levels) -> Levels {
    let [a0, a1, a2, a3] = a;
    let [b0, b1, b2, b3] = b;
    [a0 || b0, a1 || b1, a2 || b2, a3 || b3]
}

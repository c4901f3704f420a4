//! Which gaps a check met. A check that reads a value as an [`Option`] cannot distinguish "no" from "not known". The
//! recorded gaps distinguish them, so that no check passes because a value could not be read.

use std::cell::RefCell;

use super::Gap;

thread_local! {
    /// The gaps met so far; `None` outside of a check.
    static MISSED: RefCell<Option<Vec<Gap>>> = const { RefCell::new(None) };
}

/// Runs `check`, and returns the gaps that leave a question ([`Gap::leaves_a_question`]) of the values that it asked
/// for ([`Known::value`](super::Known::value), `get`, `ok`), each once. A gap met in a nested call belongs to that call.
pub fn missed<T>(check: impl FnOnce() -> T) -> (T, Vec<Gap>) {
    let outer = MISSED.replace(Some(Vec::new()));
    let said = check();
    let missed = MISSED.replace(outer);
    (said, missed.unwrap_or_default())
}

/// Notes that a check met `gap`.
pub fn miss(gap: &Gap) {
    if !gap.leaves_a_question() {
        return;
    }
    MISSED.with_borrow_mut(|missed| {
        if let Some(missed) = missed
            && !missed.contains(gap)
        {
            missed.push(gap.clone());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known::{Cause, Known};

    #[test]
    fn a_gap_belongs_to_the_innermost_check_that_met_it() {
        let denied: Known<u8> = Known::unknown(Cause::Denied, "/denied", "needs root");
        let absent: Known<u8> = Known::unknown(Cause::Absent, "/absent", "no such file");
        let broken: Known<u8> = Known::unknown(Cause::Unreadable, "/broken", "not a number");
        let paths = |gaps: Vec<Gap>| gaps.into_iter().map(|gap| gap.path).collect::<Vec<_>>();
        let (inner, outer) = missed(|| {
            let ((), inner) = missed(|| assert_eq!(denied.get(), None));
            assert_eq!(
                (broken.get(), absent.get(), broken.value()),
                (None, None, None)
            );
            inner
        });
        assert_eq!(paths(inner), ["/denied"]);
        assert_eq!(paths(outer), ["/broken"], "once, and not what is absent");
        assert_eq!(denied.get(), None, "outside of a check nothing is noted");
        assert_eq!(missed(|| ()).1, []);
    }
}

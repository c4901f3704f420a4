//! What differs between two hierarchies below the same root: changed without interrupting the others.

use linerate_model::host::{Qdisc, QdiscPart, QdiscPartIs};
use linerate_model::setting::QdiscSpec;

use super::super::error::Failure;
use super::super::qdisc_options;
use super::super::socket::Connection;
use super::hierarchy::{self, parts_of};

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Removes a class or a qdisc.
    Remove(QdiscPart),
    /// Changes the parameters of a class.
    Change(QdiscPart),
    /// Creates it.
    Make(QdiscPart),
}

impl Step {
    pub(super) fn make(&self, connection: &mut Connection, index: u32) -> Result<(), Failure> {
        let request = match self {
            Self::Remove(part) => hierarchy::removal(index, part),
            Self::Change(part) => hierarchy::request(index, part, false)?,
            Self::Make(part) => hierarchy::request(index, part, true)?,
        };
        connection.ask(&request).map(drop)
    }
}

/// The steps from `now` to `wanted`; none if the root must be created again.
pub(super) fn between(now: &Qdisc, wanted: &Qdisc) -> Result<Option<Vec<Step>>, Failure> {
    // Both are in words: what a write leaves between is recognized as made of them.
    let (Some(own), Some(other)) = (now.qdisc_spec(), wanted.qdisc_spec()) else {
        return Ok(None);
    };
    let is_same_root = now.kind == wanted.kind
        && now.handle != 0
        && [0, now.handle].contains(&wanted.handle)
        && if wanted.is_asked() {
            other.root_is_met_by(&own)
        } else {
            now.options == wanted.options
        };
    if !is_same_root {
        return Ok(None);
    }
    let wanted_parts = parts_of(wanted, now.handle)?;
    let met = |asked: &QdiscPart, found: &QdiscPart| is_met(now.handle, asked, found, wanted);
    let mut steps = Vec::new();
    let mut removed = Vec::new();
    // Children before what they are below.
    for found in now.below.iter().rev() {
        let place = wanted_parts
            .iter()
            .find(|asked| is_at_same_place(asked, found));
        let stays = match (place, found.is) {
            (Some(asked), QdiscPartIs::Class) if asked.parent != found.parent => {
                return Ok(None);
            }
            (Some(_), QdiscPartIs::Class) => true,
            (Some(asked), _) => met(asked, found)?,
            (None, _) => false,
        };
        if !stays {
            steps.push(Step::Remove(found.clone()));
            removed.push(found);
        }
    }
    for asked in wanted_parts {
        let mut found = now.below.iter().filter(|found| !removed.contains(found));
        match found.find(|found| is_at_same_place(&asked, found)) {
            None => steps.push(Step::Make(asked)),
            Some(found) if met(&asked, found)? => {}
            Some(_) => steps.push(Step::Change(asked)),
        }
    }
    Ok(Some(steps))
}

/// Whether they are the same class, or qdiscs below the same class.
fn is_at_same_place(one: &QdiscPart, other: &QdiscPart) -> bool {
    one.is == other.is
        && match one.is {
            QdiscPartIs::Class => one.handle == other.handle,
            _ => one.parent == other.parent,
        }
}

/// Whether a part that was read is as wanted.
fn is_met(
    root: u32,
    asked: &QdiscPart,
    found: &QdiscPart,
    wanted: &Qdisc,
) -> Result<bool, Failure> {
    if !wanted.is_asked() {
        return Ok(asked == found);
    }
    let spec = wanted.qdisc_spec();
    let minor = |handle: u32| u16::try_from(handle & 0xffff).unwrap_or_default();
    Ok(match (found.is, &spec) {
        (QdiscPartIs::Class, Some(QdiscSpec::Htb(htb))) => {
            let class = qdisc_options::class(root, found)?;
            let own = htb.classes.get(&minor(asked.handle));
            matches!((own, class), (Some(own), Some(class)) if own.is_met_by(&class))
        }
        (QdiscPartIs::Qdisc, Some(spec)) => {
            let minor = minor(asked.parent);
            let own = match spec {
                QdiscSpec::Htb(htb) => htb
                    .classes
                    .get(&minor)
                    .and_then(|class| class.leaf.as_deref()),
                other => other.leaves().and_then(|leaves| leaves.get(&minor)),
            };
            let leaf = qdisc_options::leaf(found)?;
            matches!((own, leaf), (Some(own), Some(leaf)) if own.is_met_by(&leaf))
        }
        _ => false,
    })
}

//! Plans: what to change, from what, to what, and why. Making a plan, applying it to data and inverting it are pure
//! functions; `linerate-host` applies them to the host.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use crate::end::End;
use crate::setting::{SettingKey, Settings, Value};

/// One change of one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// A setting's key.
    pub setting: SettingKey,
    /// The current value.
    pub from: Value,
    /// The new value.
    pub to: Value,
}

impl Change {
    /// The inverse change.
    #[must_use]
    pub fn inverse(&self) -> Self {
        Self {
            setting: self.setting.clone(),
            from: self.to.clone(),
            to: self.from.clone(),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.setting, self.from, self.to)
    }
}

/// An ordered list of changes to one host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// The changes, in the order they are made.
    pub changes: Vec<Change>,
}

/// Why a plan does not fit the settings it is applied to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A setting does not have the value that the plan expects.
    #[error("cannot change {setting}: it is {found}, the plan expects {expected}")]
    Conflict {
        /// The setting.
        setting: SettingKey,
        /// The current value.
        found: Box<Value>,
        /// The expected value.
        expected: Box<Value>,
    },
    /// A setting does not exist.
    #[error("cannot change {setting}: it is unknown here")]
    Missing {
        /// The setting.
        setting: SettingKey,
    },
    /// A setting occurs twice in a plan.
    #[error("the plan changes {setting} twice")]
    Twice {
        /// The setting.
        setting: SettingKey,
    },
}

impl Plan {
    /// A plan of `changes` in this order; changes without effect are left out.
    pub fn new(changes: Vec<Change>) -> Result<Self, PlanError> {
        let changes: Vec<Change> = changes
            .into_iter()
            .filter(|change| change.from != change.to)
            .collect();
        for (index, change) in changes.iter().enumerate() {
            if changes[..index]
                .iter()
                .any(|earlier| earlier.setting == change.setting)
            {
                return Err(PlanError::Twice {
                    setting: change.setting.clone(),
                });
            }
        }
        Ok(Self { changes })
    }

    /// The inverse plan: the inverse changes in reverse order.
    #[must_use]
    pub fn undo(&self) -> Self {
        Self {
            changes: self.changes.iter().rev().map(Change::inverse).collect(),
        }
    }

    /// The settings after the plan, or an error and no change.
    pub fn apply(&self, settings: &Settings) -> Result<Settings, PlanError> {
        let mut after = settings.clone();
        for Change { setting, from, to } in &self.changes {
            let Some(value) = after.get_mut(setting) else {
                return Err(PlanError::Missing {
                    setting: setting.clone(),
                });
            };
            if value != from {
                return Err(PlanError::Conflict {
                    setting: setting.clone(),
                    found: Box::new(value.clone()),
                    expected: Box::new(from.clone()),
                });
            }
            *value = to.clone();
        }
        Ok(after)
    }

    /// The plan that brings `settings` to `desired`; settings that are not in `desired` are kept.
    pub fn towards(settings: &Settings, desired: &Settings) -> Result<Self, PlanError> {
        let changes = desired
            .iter()
            .map(|(setting, to)| match settings.get(setting) {
                // A value that already matches is not a change, even if the kernel prints it in a longer form.
                Some(from) if to.is_met_by(from) => Ok(Change {
                    setting: setting.clone(),
                    from: from.clone(),
                    to: from.clone(),
                }),
                Some(from) => Ok(Change {
                    setting: setting.clone(),
                    from: from.clone(),
                    to: to.clone(),
                }),
                None => Err(PlanError::Missing {
                    setting: setting.clone(),
                }),
            })
            .collect::<Result<_, _>>()?;
        Self::new(changes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::Qdisc;

    #[test]
    fn a_discipline_asked_for_by_name_is_met_by_the_one_that_the_kernel_made() {
        let key: SettingKey = "nic/eth2/qdisc".parse().expect("a key");
        let made = Value::Qdisc(Qdisc {
            handle: 0x8001_0000,
            options: "0800".to_owned(),
            ..Qdisc::plain("fq")
        });
        let now = Settings::from([(key.clone(), made)]);
        let towards = |kind: &str| {
            let desired = Settings::from([(key.clone(), Value::Qdisc(Qdisc::plain(kind)))]);
            let plan = Plan::towards(&now, &desired).expect("the setting is known");
            plan.changes.len()
        };
        assert_eq!((towards("fq"), towards("fq_codel")), (0, 1));
    }

    fn any_settings() -> impl Strategy<Value = Settings> {
        let value = prop_oneof![
            any::<bool>().prop_map(Value::Switch),
            (0u64..9).prop_map(Value::Integer),
            "[a-z ]{0,8}".prop_map(Value::Text),
        ];
        proptest::collection::btree_map(
            "[a-z]{1,3}\\.[a-z]{1,3}".prop_map(SettingKey::Sysctl),
            value,
            0..12,
        )
    }

    proptest! {
        #[test]
        fn undo_after_apply_gives_the_host_back(before in any_settings(), other in any_settings()) {
            let desired: Settings =
                other.into_iter().filter(|(key, _)| before.contains_key(key)).collect();
            let plan = Plan::towards(&before, &desired).expect("every setting is known");
            let after = plan.apply(&before).expect("the plan starts from here");
            for (key, value) in &desired {
                prop_assert_eq!(after.get(key), Some(value));
            }
            prop_assert_eq!(plan.undo().apply(&after), Ok(before));
        }
    }

    #[test]
    fn a_plan_whose_start_has_moved_changes_nothing() {
        let key = SettingKey::Sysctl("a.b".to_owned());
        let plan = Plan::new(vec![Change {
            setting: key.clone(),
            from: Value::Integer(1),
            to: Value::Integer(2),
        }])
        .expect("one change");
        let settings = Settings::from([(key.clone(), Value::Integer(7))]);
        assert_eq!(
            plan.apply(&settings),
            Err(PlanError::Conflict {
                setting: key,
                found: Box::new(Value::Integer(7)),
                expected: Box::new(Value::Integer(1))
            })
        );
    }
}

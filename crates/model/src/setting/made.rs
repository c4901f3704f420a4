//! Settings of an interface that the same plan makes (`nic/NAME/vlan/link`): they cannot be read before.

use super::{NicKnob, SettingKey, Value};
use crate::host::Qdisc;

impl NicKnob {
    /// The value on a VLAN device that was just made; none for settings whose value is not known before.
    pub fn when_made(&self) -> Option<Value> {
        match self {
            Self::Up => Some(Value::Switch(false)),
            Self::Addresses | Self::VlanEgress | Self::ClassRules => {
                Some(Value::Text(String::new()))
            }
            Self::Qdisc => Some(Value::Qdisc(Qdisc::plain("noqueue"))),
            _ => None,
        }
    }
}

impl SettingKey {
    /// Whether a change of it to `to` makes its interface.
    pub fn makes_interface(&self, to: &Value) -> bool {
        matches!((self, to), (Self::Nic(_, NicKnob::VlanLink), Value::Text(link)) if !link.is_empty())
    }

    /// The value of this setting, if one of the changes of a plan makes its interface.
    pub fn when_made<'p>(
        &self,
        mut plan: impl Iterator<Item = (&'p Self, &'p Value)>,
    ) -> Option<Value> {
        let Self::Nic(_, knob) = self else {
            return None;
        };
        let is_made =
            plan.any(|(key, to)| key.makes_interface(to) && key.interface() == self.interface());
        knob.when_made().filter(|_| is_made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_of_an_interface_that_the_plan_makes_have_a_value_before() {
        let key = |text: &str| -> SettingKey { text.parse().expect("a key") };
        let link = key("nic/v10/vlan/link");
        let when = |name: &str, to: &str| {
            let to = link.parse_value(to).expect("a value");
            key(name).when_made([(&link, &to)].into_iter())
        };
        assert_eq!(when("nic/v10/up", "eth1 id 10"), Some(Value::Switch(false)));
        assert_eq!(when("nic/v10/up", "none"), None);
        assert_eq!(when("nic/v11/up", "eth1 id 10"), None);
        assert_eq!(when("nic/v10/ring/rx", "eth1 id 10"), None);
        assert_eq!(when("nic/v10/vlan/link", "eth1 id 10"), None);
        assert_eq!(
            when("sysctl/net.ipv4.conf.v10.forwarding", "eth1 id 10"),
            None
        );
    }
}

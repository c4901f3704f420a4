//! Which kinds of qdisc a kernel has: built in or loaded ones by their functions in `/proc/kallsyms`, which everybody may
//! list, and those that it could load by `/lib/modules/RELEASE/modules.dep` (modules.dep(5)).

use std::collections::BTreeSet;

use crate::root::HostRoot;

/// The kinds that `linerate qos` uses.
const KINDS: [&str; 6] = ["htb", "tbf", "mqprio", "fq", "fq_codel", "pfifo_fast"];

/// The kinds of qdisc, of those that are asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QdiscKinds {
    found: BTreeSet<&'static str>,
    is_complete: bool,
}

impl QdiscKinds {
    /// Reads them.
    pub fn read(root: &HostRoot) -> Self {
        let text = |path: &str| root.read(path).value().cloned().unwrap_or_default();
        let symbols = text("proc/kallsyms");
        let release = text("proc/sys/kernel/osrelease");
        let modules = text(&format!("lib/modules/{}/modules.dep", release.trim()));
        // Without loadable modules there is no /proc/modules; a container has it, but often no /lib/modules.
        let has_modules = root.exists("proc/modules");
        Self {
            found: Self::parse(&symbols, &modules),
            is_complete: !symbols.is_empty() && (!modules.is_empty() || !has_modules),
        }
    }

    fn parse(symbols: &str, modules: &str) -> BTreeSet<&'static str> {
        let mut found = BTreeSet::new();
        for symbol in symbols
            .lines()
            .filter_map(|line| line.split_whitespace().nth(2))
        {
            let of_symbol = |kind: &&str| symbol.strip_suffix("_init") == Some(kind);
            found.extend(KINDS.iter().copied().find(|kind| of_symbol(kind)));
        }
        for line in modules.lines() {
            let file = line.split(':').next().unwrap_or_default();
            let name = file.rsplit('/').next().unwrap_or_default();
            let name = name.split('.').next().unwrap_or_default();
            let of_module = |kind: &&str| name.strip_prefix("sch_") == Some(kind);
            found.extend(KINDS.iter().copied().find(|kind| of_module(kind)));
        }
        found
    }

    /// Whether it has `kind`.
    pub fn has(&self, kind: &str) -> bool {
        self.found.contains(kind)
    }

    /// Whether a kind that was not found is known to be missing: the built-in ones and the modules were both listed.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_built_in_loaded_or_can_be_loaded() {
        let symbols = "ffffffff81eef260 t htb_init\n0000000000000000 t fq_init\t[sch_fq]\n0 T not_tbf_init\n0 t x";
        let modules =
            "kernel/net/sched/sch_fq_codel.ko.xz: kernel/a.ko\nkernel/net/sched/sch_mqprio.ko:\n";
        let kinds = QdiscKinds::parse(symbols, modules);
        for (kind, is_there) in [
            ("htb", true),
            ("fq", true),
            ("fq_codel", true),
            ("mqprio", true),
            ("tbf", false),
            ("pfifo_fast", false),
        ] {
            assert_eq!(kinds.contains(kind), is_there, "{kind}");
        }
    }
}

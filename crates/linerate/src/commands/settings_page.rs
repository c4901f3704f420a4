//! The page of all settings, generated from the catalog: `linerate explain settings` prints it and
//! `docs/reference/settings.md` contains it, so that neither can list a setting that does not exist.

use std::fmt::Write;

use linerate_model::setting::{Domain, Keeping, Scope, SettingKey, catalogue};

/// The text before the table.
const PREFACE: &str = include_str!("settings_page.md");

/// The page in Markdown.
pub(crate) fn page() -> String {
    let mut page = PREFACE.to_owned();
    page.push_str(
        "| key | value | class | scope | written | kept by | what it is | defined in |\n",
    );
    page.push_str("|---|---|---|---|---|---|---|---|\n");
    for spec in catalogue() {
        // Writing into a String does not fail.
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {} | {} | {} | {} |",
            spec.pattern,
            value(spec.domain),
            spec.class,
            scope(spec.scope),
            if spec.access.is_written() {
                "yes"
            } else {
                "no"
            },
            kept(spec.keeping),
            spec.about,
            spec.source
        );
    }
    page
}

/// One setting, by its key or by its pattern.
pub(crate) fn one(key: &str) -> Option<String> {
    let by_pattern = catalogue().find(|spec| spec.pattern == key);
    let spec = by_pattern.or_else(|| key.parse::<SettingKey>().ok().map(|key| key.spec()))?;
    let written = if spec.access.is_written() {
        "yes"
    } else {
        "no"
    };
    Some(format!(
        "# {key}\n\n{}\n\nvalue       {}\nclass       {}\nscope       {}\nwritten     {written}\nkept by     {}\n\
         defined in  {}\n",
        spec.about,
        value(spec.domain),
        spec.class,
        scope(spec.scope),
        kept(spec.keeping),
        spec.source
    ))
}

fn value(domain: Domain) -> &'static str {
    match domain {
        Domain::Switch => "on, off",
        Domain::Integer => "number",
        Domain::Text => "text",
        Domain::Cpus => "CPUs",
        Domain::Queues => "queues",
        Domain::EgressMap | Domain::Priorities => "priorities",
        Domain::Classes => "classes",
        Domain::ClassRates => "rates",
        Domain::Applications => "applications",
        Domain::HashKey => "bytes",
        Domain::LinkSpeed => "modes",
        Domain::VlanLink => "VLAN",
        Domain::Addresses => "addresses",
        Domain::ClassRules => "rules",
        Domain::Qdisc => "qdisc",
    }
}

fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Trial => "trial",
        Scope::Netns => "netns",
        Scope::Machine => "machine",
    }
}

fn kept(keeping: Keeping) -> &'static str {
    match keeping {
        Keeping::Persist => "`tune persist`",
        Keeping::CommandLine => "kernel command line",
        Keeping::Never(_) => "nothing",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_the_book_is_the_catalogue() {
        let stored = include_str!("../../../../docs/reference/settings.md");
        assert!(
            stored == page(),
            "docs/reference/settings.md is stale: make it again by\n  \
             target/release/linerate explain settings > docs/reference/settings.md"
        );
    }

    #[test]
    fn one_setting_is_explained_by_its_key_or_its_pattern() {
        for key in ["nic/eth2/coalesce/rx-usecs", "nic/NAME/coalesce/rx-usecs"] {
            let text = one(key).expect(key);
            assert!(text.starts_with(&format!("# {key}\n")), "{text}");
            assert!(text.contains("\nvalue       number\n"), "{text}");
            assert!(text.contains("\nwritten     yes\n"), "{text}");
        }
        assert_eq!(one("irq-remote-numa"), None);
    }
}

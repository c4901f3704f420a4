//! The team family of generic netlink: a team's mode and the state of its ports (`<linux/if_team.h>`). Requires
//! CAP_NET_ADMIN; teamd's own data (LACP and link watch) is not in the kernel.

use linerate_model::host::{BondPort, Stack, Team};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Gap, Known};

use super::error::Failure;
use super::families::GENERIC_HEADER_BYTES;
use super::kinds::{self, Names};
use super::message::Attributes;
use super::response::{ResponseAttributes, byte};
use super::socket::Answer;
use super::{Netlink, lock};

const NO_FAMILY: &str = "this kernel has no generic netlink family for team devices";
const NO_TEAM: &str = "not reported by the team driver";

pub(super) const COMMAND_OPTIONS: u8 = 2;
pub(super) const COMMAND_PORTS: u8 = 3;

pub(super) const TEAM_INDEX: u16 = 1;
pub(super) const OPTIONS: u16 = 2;
pub(super) const PORTS: u16 = 3;
pub(super) const OPTION: u16 = 1;
pub(super) const PORT: u16 = 1;
pub(super) const OPTION_NAME: u16 = 1;
pub(super) const OPTION_TYPE: u16 = 3;
pub(super) const OPTION_DATA: u16 = 4;
pub(super) const OPTION_PORT_INDEX: u16 = 6;
pub(super) const PORT_INDEX: u16 = 1;
pub(super) const PORT_LINK_UP: u16 = 3;

/// Types of an option's value (`NLA_U32`, `NLA_STRING`, `NLA_FLAG` of include/net/netlink.h).
pub(super) const TYPE_NUMBER: u8 = 3;
pub(super) const TYPE_TEXT: u8 = 5;
pub(super) const TYPE_FLAG: u8 = 6;

/// The kernel's name for the mode of a team without one.
const NO_MODE: &str = "*NOMODE*";
const ACTIVE_BACKUP: &str = "activebackup";

/// A team, and the port in question.
pub(super) struct Place {
    pub(super) team: u32,
    pub(super) port: Option<u32>,
}

/// An option of a team, or of one of its ports.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    name: String,
    port: Option<u32>,
    value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Number(u32),
    Text(String),
    Flag(bool),
}

impl Netlink {
    /// Adds the data of the team at `place`, or of its port.
    pub(super) fn fill_stack_by_team(
        &self,
        nic: &NicName,
        place: &Place,
        names: &Names,
        stack: &mut Stack,
    ) {
        let path = format!("netlink/team/{nic}");
        let options = self
            .ask_team(place.team, COMMAND_OPTIONS)
            .and_then(|answers| parse_options(answers.as_deref()));
        let options = told(options, &path, "options");
        match place.port {
            None => stack.team = Some(team(&options, names, &path)),
            Some(port) => {
                let ports = self
                    .ask_team(place.team, COMMAND_PORTS)
                    .and_then(|answers| parse_ports(answers.as_deref()));
                let ports = told(ports, &path, "ports");
                let bond = names.get(&place.team).cloned();
                stack.bond_port = Some(team_port(port, bond, &options, &ports, &path));
            }
        }
    }

    fn ask_team(&self, team: u32, command: u8) -> Result<Option<Vec<Answer>>, Failure> {
        let families = &mut *lock(&self.families);
        let Some(family) = families.number("team")? else {
            return Ok(None);
        };
        let fill = |request: &mut super::message::Request| {
            request.put_u32(TEAM_INDEX, team);
        };
        families.ask(family, command, fill).map(Some)
    }
}

/// The response, or its gap.
fn told<T>(answer: Result<Option<T>, Failure>, path: &str, what: &str) -> Known<T> {
    let path = format!("{path}/{what}");
    match answer {
        Ok(Some(value)) => Known::Value(value),
        Ok(None) => Known::unknown(Cause::Absent, path, NO_FAMILY),
        Err(failure) => Known::Unknown(failure.into_gap(path, NO_TEAM)),
    }
}

/// The options of a team; a long list spans several messages.
fn parse_options(answers: Option<&[Answer]>) -> Result<Option<Vec<Setting>>, Failure> {
    let Some(answers) = answers else {
        return Ok(None);
    };
    let mut all = Vec::new();
    for answer in answers {
        let list = Attributes::after(&answer.body, GENERIC_HEADER_BYTES)?.nest(OPTIONS)?;
        for (_, option) in list.iter().filter(|(kind, _)| *kind == OPTION) {
            all.extend(parse_option(&Attributes::parse(option)?)?);
        }
    }
    Ok(Some(all))
}

/// An option; `None` for one of a type that linerate does not use.
fn parse_option(option: &Attributes<'_>) -> Result<Option<Setting>, Failure> {
    let value = match byte(option, OPTION_TYPE)? {
        Some(TYPE_NUMBER) => option.u32(OPTION_DATA)?.map(Value::Number),
        Some(TYPE_TEXT) => option.text(OPTION_DATA)?.map(Value::Text),
        Some(TYPE_FLAG) => Some(Value::Flag(option.bytes(OPTION_DATA).is_some())),
        _ => None,
    };
    let port = option.u32(OPTION_PORT_INDEX)?;
    let name = option.text(OPTION_NAME)?;
    Ok(name
        .zip(value)
        .map(|(name, value)| Setting { name, port, value }))
}

/// Each port's index, and whether its link is up.
fn parse_ports(answers: Option<&[Answer]>) -> Result<Option<Vec<(u32, bool)>>, Failure> {
    let Some(answers) = answers else {
        return Ok(None);
    };
    let mut all = Vec::new();
    for answer in answers {
        let list = Attributes::after(&answer.body, GENERIC_HEADER_BYTES)?.nest(PORTS)?;
        for (_, port) in list.iter().filter(|(kind, _)| *kind == PORT) {
            let port = Attributes::parse(port)?;
            let up = port.bytes(PORT_LINK_UP).is_some();
            all.extend(port.u32(PORT_INDEX)?.map(|index| (index, up)));
        }
    }
    Ok(Some(all))
}

fn option<'a>(all: &'a [Setting], name: &str, port: Option<u32>) -> Option<&'a Value> {
    let mut own = all.iter();
    own.find(|one| one.name == name && one.port == port)
        .map(|one| &one.value)
}

fn team(options: &Known<Vec<Setting>>, names: &Names, path: &str) -> Team {
    let said = ResponseAttributes::after(&[], 0, path, NO_TEAM);
    let mode = options
        .clone()
        .and_then(|all| match option(&all, "mode", None) {
            Some(Value::Text(mode)) if mode == NO_MODE => {
                said.missing(Cause::NotSaid, "options/mode", "the team has no mode")
            }
            Some(Value::Text(mode)) => Known::Value(mode.clone()),
            _ => said.missing(Cause::NotSaid, "options/mode", NO_TEAM),
        });
    let has_active = mode.value().is_none_or(|mode| mode == ACTIVE_BACKUP);
    Team {
        active_port: has_active.then(|| {
            let index = options.clone().and_then(|all| active(&all, path));
            kinds::named(&said, names, index, "options/activeport")
        }),
        mode,
    }
}

fn active(all: &[Setting], path: &str) -> Known<u32> {
    match option(all, "activeport", None) {
        Some(Value::Number(index)) => Known::Value(*index),
        _ => Known::unknown(
            Cause::NotSaid,
            format!("{path}/options/activeport"),
            NO_TEAM,
        ),
    }
}

fn team_port(
    port: u32,
    team: Option<NicName>,
    options: &Known<Vec<Setting>>,
    ports: &Known<Vec<(u32, bool)>>,
    path: &str,
) -> BondPort {
    fn kept_by_the_daemon<T>(path: &str, what: &str) -> Known<T> {
        let why = "not in the kernel: teamd keeps it";
        Known::unknown(Cause::Absent, format!("{path}/{what}"), why)
    }
    let gap = |what: &str| Gap::new(Cause::NotSaid, format!("{path}/{what}"), NO_TEAM);
    let state = options.clone().and_then(|all| {
        let is_active_backup =
            option(&all, "mode", None) == Some(&Value::Text(ACTIVE_BACKUP.to_owned()));
        let is_active = if is_active_backup {
            active(&all, path).map(|active| active == port)
        } else {
            Known::Value(true)
        };
        match (option(&all, "enabled", Some(port)), is_active) {
            (Some(Value::Flag(false)), _) => Known::Value("disabled".to_owned()),
            (Some(Value::Flag(true)), Known::Value(true)) => Known::Value("active".to_owned()),
            (Some(Value::Flag(true)), Known::Value(false)) => Known::Value("backup".to_owned()),
            (Some(Value::Flag(true)), Known::Unknown(gap)) => Known::Unknown(gap),
            _ => Known::Unknown(gap("options/enabled")),
        }
    });
    let link = ports.clone().and_then(|all| {
        let own = all.iter().find(|(index, _)| *index == port);
        own.map_or_else(
            || Known::Unknown(gap("ports")),
            |(_, up)| Known::Value(if *up { "up" } else { "down" }.to_owned()),
        )
    });
    BondPort {
        bond: team.map_or_else(|| Known::Unknown(gap("master")), Known::Value),
        state,
        mii_status: link,
        aggregator: kept_by_the_daemon(path, "aggregator"),
        link_failures: kept_by_the_daemon(path, "link-failures"),
    }
}

#[cfg(test)]
mod tests;

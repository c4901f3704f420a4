//! The machine that a comparison ran on, as its figures need to be read with. What cannot be read is
//! `not known`, never left out.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The machine and the programs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Environment {
    pub(crate) kernel: Option<String>,
    pub(crate) cpu_model: Option<String>,
    pub(crate) cpus: usize,
    pub(crate) governor: Option<String>,
    pub(crate) compiler: Option<String>,
    pub(crate) linerate: Option<String>,
    pub(crate) iperf3: Option<String>,
    /// The load averages of 1, 5 and 15 minutes at the start.
    pub(crate) load_before: Option<String>,
    /// The same after the last trial.
    pub(crate) load_after: Option<String>,
}

impl Environment {
    pub(crate) fn read(linerate: &Path, iperf3: &Path, cpus: usize) -> Self {
        Self {
            kernel: line_of("/proc/sys/kernel/osrelease"),
            cpu_model: fs::read_to_string("/proc/cpuinfo")
                .ok()
                .and_then(|text| cpu_model(&text)),
            cpus,
            governor: line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            compiler: first_line(Command::new("rustc").arg("--version")),
            linerate: first_line(Command::new(linerate).arg("--version")),
            iperf3: first_line(Command::new(iperf3).arg("--version")),
            load_before: load(),
            load_after: None,
        }
    }

    pub(crate) fn text(&self) -> String {
        let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "not known".into());
        format!(
            "kernel {}; {} x {}; governor {}\n{}; {}; {}\nload average before {}, after {}",
            known(&self.kernel),
            self.cpus,
            known(&self.cpu_model),
            known(&self.governor),
            known(&self.linerate),
            known(&self.iperf3),
            known(&self.compiler),
            known(&self.load_before),
            known(&self.load_after),
        )
    }
}

/// The load averages now, the programs' own work included.
pub(crate) fn load() -> Option<String> {
    let line = line_of("/proc/loadavg")?;
    let fields: Vec<&str> = line.split_ascii_whitespace().take(3).collect();
    (fields.len() == 3).then(|| fields.join(" "))
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn line_of(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.lines().next()?.trim().to_owned())
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.lines().next()?.trim().to_owned()).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_named_by_its_first_entry() {
        let text = "processor\t: 0\nmodel name\t: Fast CPU: 3\nprocessor\t: 1\n";
        assert_eq!(cpu_model(text).as_deref(), Some("Fast CPU: 3"));
        assert_eq!(cpu_model("processor : 0\n"), None);
    }

    #[test]
    fn what_cannot_be_read_is_said_not_left_out() {
        let missing = Path::new("/no/such/program");
        let mut environment = Environment::read(missing, missing, 2);
        environment.governor = None;
        assert!(environment.text().contains("governor not known"));
        assert_eq!(environment.iperf3, None);
    }
}

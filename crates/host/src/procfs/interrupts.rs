//! Interrupts: `/proc/irq/N` (Documentation/core-api/irq/irq-affinity.rst) for their affinity, and
//! `/sys/kernel/irq/N/actions` (Documentation/ABI/testing/sysfs-kernel-irq, since 4.9) for the names of their
//! actions, or else `/proc/interrupts`, whose size grows with CPUs times interrupts.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::host::Irq;
use linerate_model::ids::{CpuSet, IrqNumber, NodeId};
use linerate_model::known::{Cause, Gap, Known};

use crate::attributes::{
    cpu_list, cpu_mask, number_or_minus_one, numbered, or_if_absent, understood,
};
use crate::parallel;
use crate::root::{HostRoot, absolute};

const PROC: &str = "proc/irq";
const SYSFS: &str = "sys/kernel/irq";
const TABLE: &str = "proc/interrupts";
/// Linux 6.12: "genirq/proc: Correctly set file permissions for affinity control files".
const MODES_SINCE: (u32, u32) = (6, 12);

/// Reads every interrupt, by number.
///
/// The kernel's `release` decides whether a file's mode shows which interrupts users cannot move.
pub(crate) fn read_irqs(root: &HostRoot, release: Option<&str>, gaps: &mut Vec<Gap>) -> Vec<Irq> {
    let listed = root.list(PROC);
    let names = Names::read(root);
    let numbers = match (&listed, &names.table) {
        (Known::Value(names), _) => numbered(names, ""),
        (Known::Unknown(gap), Known::Value(table)) => {
            gaps.push(gap.clone());
            table.keys().copied().collect()
        }
        (Known::Unknown(gap), Known::Unknown(_)) => {
            gaps.push(gap.clone());
            names.in_sysfs.iter().copied().collect()
        }
    };
    let (mut irqs, modes): (Vec<Irq>, Vec<Option<u32>>) =
        parallel::each(&numbers, |number| read_irq(root, *number, &names))
            .into_iter()
            .unzip();
    let modes_tell = modes_tell(&modes, release);
    for (irq, mode) in irqs.iter_mut().zip(modes) {
        irq.managed = managed(irq.number, mode, modes_tell);
    }
    irqs
}

/// Reads those of `numbers`, without whether they can be moved.
pub(crate) fn read_some(root: &HostRoot, numbers: &[u32]) -> Vec<Irq> {
    let names = Names::read(root);
    let read = |number: &u32| read_irq(root, *number, &names).0;
    numbers.iter().map(read).collect()
}

/// The source of the names that drivers gave their interrupts.
struct Names {
    /// Interrupts with a directory in sysfs, which has their names.
    in_sysfs: BTreeSet<u32>,
    /// All names, if sysfs has none.
    table: Known<BTreeMap<u32, Vec<String>>>,
}

impl Names {
    fn read(root: &HostRoot) -> Self {
        let in_sysfs: BTreeSet<u32> = match root.list(SYSFS) {
            Known::Value(names) => numbered(&names, "").into_iter().collect(),
            Known::Unknown(_) => BTreeSet::new(),
        };
        let table = if in_sysfs.is_empty() {
            root.read(TABLE).map(|text| parse_interrupts(&text))
        } else {
            Known::not_asked(absolute(TABLE))
        };
        Self { in_sysfs, table }
    }
}

/// Reads one interrupt, and the permission bits of its affinity file.
fn read_irq(root: &HostRoot, number: u32, names: &Names) -> (Irq, Option<u32>) {
    let folder = format!("{PROC}/{number}");
    let path = format!("{folder}/smp_affinity_list");
    let (text, mode) = root.read_with_mode(&path);
    let requested = text.and_then(|text| understood(&path, &text, str::parse::<CpuSet>));
    let irq = Irq {
        number: IrqNumber(number),
        actions: read_actions(root, number, names),
        requested: or_if_absent(requested, || {
            cpu_mask(root, &format!("{folder}/smp_affinity"))
        }),
        effective: read_effective(root, &folder),
        managed: Known::default(),
        node: number_or_minus_one(
            root,
            &format!("{folder}/node"),
            "the interrupt has no NUMA node",
        )
        .map(NodeId),
    };
    (irq, mode)
}

/// Whether the permission bits show which interrupts can be moved: since Linux 6.12 (kernel/irq/proc.c,
/// `register_irq_proc`), or earlier with a backport, which a difference between two interrupts shows. If all are
/// read-only it is unknown: copies of a host lose their permission bits.
fn modes_tell(modes: &[Option<u32>], release: Option<&str>) -> bool {
    let mut known = modes.iter().flatten();
    let writable = |mode: &u32| mode & 0o200 != 0;
    let some_writable = known.clone().any(writable);
    let some_not = known.any(|mode| !writable(mode));
    some_writable && (some_not || release.and_then(parse_release) >= Some(MODES_SINCE))
}

fn managed(irq: IrqNumber, mode: Option<u32>, modes_tell: bool) -> Known<bool> {
    let path = absolute(&format!("{PROC}/{irq}/smp_affinity_list"));
    match mode {
        Some(mode) if modes_tell => Known::Value(mode & 0o200 == 0),
        Some(_) => {
            let reason = "the file mode shows who can set the affinity only from Linux 6.12 on";
            Known::unknown(Cause::NotSaid, path, reason)
        }
        None => Known::unknown(Cause::Absent, path, "the kernel shows no place for it"),
    }
}

/// The first two numbers of a kernel's release, `6.12.0-55.el10`.
pub(crate) fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The effective affinity (since 4.13); empty if the irqchip does not report it.
fn read_effective(root: &HostRoot, folder: &str) -> Known<CpuSet> {
    let path = format!("{folder}/effective_affinity_list");
    cpu_list(root, &path).and_then(|cpus| {
        if cpus.is_empty() {
            let reason = "no CPU: the interrupt is not started, or its irqchip does not report one";
            return Known::unknown(Cause::NotSaid, absolute(&path), reason);
        }
        Known::Value(cpus)
    })
}

fn read_actions(root: &HostRoot, number: u32, names: &Names) -> Known<Vec<String>> {
    if names.in_sysfs.contains(&number) {
        let path = format!("{SYSFS}/{number}/actions");
        return root.read(&path).map(|text| split_actions(&text));
    }
    match &names.table {
        Known::Value(table) => table.get(&number).cloned().map_or_else(
            || {
                let reason = format!("interrupt {number} has no line");
                Known::unknown(Cause::Absent, absolute(TABLE), reason)
            },
            Known::Value,
        ),
        // The table was not read because sysfs has the others.
        Known::Unknown(gap) if gap.cause == Cause::NotAsked => Known::unknown(
            Cause::Absent,
            absolute(&format!("{SYSFS}/{number}")),
            "the interrupt is not listed",
        ),
        Known::Unknown(gap) => Known::Unknown(gap.clone()),
    }
}

/// `/sys/kernel/irq/N/actions`: names separated by commas.
pub(crate) fn split_actions(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The numbered lines of `/proc/interrupts`: a count for each CPU, the irqchip, its hwirq and trigger (one word or
/// two, depending on the version), then the names separated by commas. A line without a name belongs to an unused
/// interrupt.
pub(crate) fn parse_interrupts(text: &str) -> BTreeMap<u32, Vec<String>> {
    let cpus = text
        .lines()
        .next()
        .map_or(0, |head| head.split_whitespace().count());
    let line = |line: &str| -> Option<(u32, Vec<String>)> {
        let (number, rest) = line.split_once(':')?;
        let number = number.trim().parse().ok()?;
        let words: Vec<&str> = rest.split_whitespace().skip(cpus).collect();
        let described = match words.iter().take(4).position(|word| is_trigger(word)) {
            Some(trigger) => trigger + 1,
            None => {
                1 + words
                    .iter()
                    .skip(1)
                    .take_while(|word| is_number(word))
                    .count()
            }
        };
        let names = words.get(described..).unwrap_or_default().join(" ");
        Some((number, split_actions(&names)))
    };
    text.lines().skip(1).filter_map(line).collect()
}

/// `IO-APIC-edge`, `5-edge`, `1-fasteoi`, `Level`, `Edge`.
fn is_trigger(word: &str) -> bool {
    let word = word.rsplit('-').next().unwrap_or(word);
    matches!(
        word.to_ascii_lowercase().as_str(),
        "edge" | "level" | "fasteoi" | "fasteio" | "percpu" | "none"
    )
}

fn is_number(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_found_after_every_form_of_description() {
        let text = "\
           CPU0       CPU1
  0:        119          1   IO-APIC-edge      timer
 23:          0          0   IO-APIC-fasteoi   uhci_hcd:usb3, uhci_hcd:usb5, radeon
 26:          0         14  IO-APIC   4-edge      ttyS0
 38:          0       5722 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 40:          5          6     GICv3  27 Level     arch_timer
 41:          5          6     PCI-MSI 524288 Edge      mlx5_comp0@pci:0000:01:00.0
 42:          0          0   IO-APIC-edge
 43:          1          2   XIVE-IRQ 16 Edge      my driver
NMI:          0          0   Non-maskable interrupts
ERR:          0
";
        let table = parse_interrupts(text);
        let names = |number| table.get(&number).map(|names| names.join("|"));
        assert_eq!(names(0).as_deref(), Some("timer"));
        assert_eq!(
            names(23).as_deref(),
            Some("uhci_hcd:usb3|uhci_hcd:usb5|radeon")
        );
        assert_eq!(names(26).as_deref(), Some("ttyS0"));
        assert_eq!(names(38).as_deref(), Some("virtio2-input.0"));
        assert_eq!(names(40).as_deref(), Some("arch_timer"));
        assert_eq!(names(41).as_deref(), Some("mlx5_comp0@pci:0000:01:00.0"));
        assert_eq!(names(42).as_deref(), Some(""));
        assert_eq!(names(43).as_deref(), Some("my driver"));
        assert_eq!(table.len(), 8);
    }

    #[test]
    fn modes_tell_who_may_move_an_interrupt_only_where_the_kernel_sets_them() {
        let (writable, read_only) = (Some(0o644), Some(0o444));
        assert!(modes_tell(&[writable, read_only], Some("5.14.0")));
        assert!(modes_tell(&[writable, None], Some("6.12.0-55.el10")));
        assert!(!modes_tell(&[writable, writable], Some("6.8.0-rc1")));
        assert!(!modes_tell(&[writable], None));
        assert!(!modes_tell(&[read_only, read_only], Some("6.18.0")));
        let of = |mode, tell| managed(IrqNumber(7), mode, tell);
        assert_eq!(of(read_only, true), Known::Value(true));
        assert_eq!(of(writable, true), Known::Value(false));
        assert_eq!(
            of(writable, false).gap().map(|gap| gap.cause),
            Some(Cause::NotSaid)
        );
        assert_eq!(
            of(None, true).gap().map(|gap| gap.cause),
            Some(Cause::Absent)
        );
    }

    proptest! {
        #[test]
        fn no_release_panics(release in "[0-9.a-z-]{0,12}|.{0,20}") {
            let _ = parse_release(&release);
        }

        #[test]
        fn no_text_panics(
            lines in proptest::collection::vec("( CPU0)?|[ 0-9]{0,5}:[ 0-9]{0,12}[a-zA-Z0-9, -]{0,20}|.{0,20}", 0..6)
        ) {
            let _ = parse_interrupts(&lines.join("\n"));
        }
    }
}

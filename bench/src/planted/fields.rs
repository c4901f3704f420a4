//! One value in a file of many: edits of counters keep the columns of the capture's kernel.

use crate::Trouble;

/// The text with the field `key` at `value`.
///
/// | key | file |
/// |---|---|
/// | `Tcp RetransSegs` | pairs of lines with names and values (`/proc/net/snmp`, `netstat`); a name is added if it is missing |
/// | `cpu0 7` | the eighth value after the name (`/proc/stat`) |
/// | `line 0 2` | the third value of the first line, in hexadecimal (`softnet_stat`) |
/// | `oom_kill` | a line with a name and a value (`/proc/vmstat`); the line is added if it is missing |
pub(crate) fn with(text: &str, key: &str, value: u64) -> Result<String, Trouble> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let wrong = || Trouble(format!("change the field `{key}`: the capture has none"));
    match key.split(' ').collect::<Vec<_>>().as_slice() {
        ["line", row, column] => {
            let row: usize = row.parse().map_err(|_| wrong())?;
            let column: usize = column.parse().map_err(|_| wrong())?;
            let line = lines.get_mut(row).ok_or_else(wrong)?;
            *line = replaced(line, column, &format!("{value:08x}")).ok_or_else(wrong)?;
        }
        [name] => match lines.iter_mut().find(|line| first(line) == *name) {
            Some(line) => *line = format!("{name} {value}"),
            None => lines.push(format!("{name} {value}")),
        },
        [name, column] => match column.parse::<usize>() {
            Ok(column) => {
                let line = lines.iter_mut().find(|line| first(line) == *name);
                let line = line.ok_or_else(wrong)?;
                *line = replaced(line, column + 1, &value.to_string()).ok_or_else(wrong)?;
            }
            Err(_) => pair(&mut lines, name, column, value).ok_or_else(wrong)?,
        },
        _ => return Err(wrong()),
    }
    Ok(lines.join("\n"))
}

fn first(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

fn replaced(line: &str, column: usize, value: &str) -> Option<String> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    *words.get_mut(column)? = value;
    Some(words.join(" "))
}

fn pair(lines: &mut [String], prefix: &str, name: &str, value: u64) -> Option<()> {
    let head = format!("{prefix}:");
    let at = lines.iter().position(|line| first(line) == head)?;
    let [names, values] = lines.get_mut(at..at + 2)? else {
        return None;
    };
    if let Some(column) = names.split_whitespace().position(|one| one == name) {
        *values = replaced(values, column, &value.to_string())?;
    } else {
        *names = format!("{names} {name}");
        *values = format!("{values} {value}");
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_changed_where_it_is_and_a_name_of_a_newer_kernel_is_added() {
        let snmp = "Tcp: RtoAlgorithm RetransSegs\nTcp: 1 5";
        let of = |text: &str, key: &str| with(text, key, 26).expect("a field");
        assert_eq!(
            of(snmp, "Tcp RetransSegs"),
            "Tcp: RtoAlgorithm RetransSegs\nTcp: 1 26"
        );
        assert_eq!(
            of(snmp, "Tcp InErrs"),
            "Tcp: RtoAlgorithm RetransSegs InErrs\nTcp: 1 5 26"
        );
        assert_eq!(of("00 01\n02 03", "line 1 0"), "00 01\n0000001a 03");
        assert_eq!(of("cpu0 1 2 3", "cpu0 1"), "cpu0 1 26 3");
        assert_eq!(of("a 1\nb 2", "b"), "a 1\nb 26");
        assert!(with("a 1", "b 7", 1).is_err());
    }
}

//! The tables that the programs print and write to files.

/// The head of a table; a column whose name begins with `>` is aligned to the right, as figures are.
pub fn head(columns: &[&str]) -> String {
    let names = columns.iter().map(|column| column.trim_start_matches('>'));
    let rule: String = columns
        .iter()
        .map(|column| {
            if column.starts_with('>') {
                "---:|"
            } else {
                "---|"
            }
        })
        .collect();
    format!("{}|{rule}\n", row(names))
}

/// A row of a table.
pub fn row<T: AsRef<str>>(cells: impl IntoIterator<Item = T>) -> String {
    // A bar would end the cell.
    let cell = |cell: T| format!(" {} |", cell.as_ref().replace('|', "/").replace('\n', " "));
    let cells: String = cells.into_iter().map(cell).collect();
    format!("|{cells}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_aligned_to_the_right_and_a_bar_does_not_end_a_cell() {
        assert_eq!(head(&["what", ">ns"]), "| what | ns |\n|---|---:|\n");
        assert_eq!(row(["a|b\nc", "1"]), "| a/b c | 1 |\n");
    }
}

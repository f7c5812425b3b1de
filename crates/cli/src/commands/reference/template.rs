//! Pages from templates: text in which lines such as `{{metrics}}` stand for generated tables.

use crate::error::CliError;

/// Replaces the lines of `template` that name a table by the table.
///
/// # Errors
/// `tables` does not have a table, or one is not used.
pub fn fill(template: &str, tables: &[(&str, String)]) -> Result<String, CliError> {
    let mut page = String::new();
    let mut used = vec![false; tables.len()];
    for line in template.lines() {
        let name = line
            .strip_prefix("{{")
            .and_then(|rest| rest.strip_suffix("}}"));
        let Some(name) = name else {
            page.push_str(line);
            page.push('\n');
            continue;
        };
        let index = tables.iter().position(|(table, _)| *table == name);
        let index = index.ok_or_else(|| CliError::new(format!("there is no table `{name}`")))?;
        used[index] = true;
        page.push_str(tables[index].1.trim_matches('\n'));
        page.push('\n');
    }
    match used.iter().position(|used| !used) {
        Some(index) => {
            let name = tables[index].0;
            Err(CliError::new(format!("the table `{name}` is not used")))
        }
        None => Ok(page),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_and_its_tables_must_agree() {
        let tables = [("t", "| a |\n".to_owned())];
        assert_eq!(fill("x\n\n{{t}}\n", &tables).unwrap(), "x\n\n| a |\n");
        assert!(fill("{{u}}", &tables).is_err());
        assert!(fill("x", &tables).is_err());
    }
}

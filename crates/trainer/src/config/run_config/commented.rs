//! A configuration as commented TOML.

use emberlm_model::ModelConfig;
use emberlm_model::config::DerivedSize;

use super::{RunConfigError, unwritable};
use crate::RunConfig;
use crate::config::field_docs;

/// The configuration as TOML, with each field's documentation as a comment on its key. Model sizes that are not set
/// follow as commented-out keys with their derived values.
///
/// # Errors
/// The configuration cannot be written as TOML.
pub fn to_toml(config: &RunConfig) -> Result<String, RunConfigError> {
    let text = toml::to_string(config).map_err(unwritable)?;
    let derived = config.model.derived_sizes();
    let mut out = String::new();
    let (mut table, mut kind) = (String::new(), None);
    for line in text.lines() {
        let docs = match line.strip_prefix('[') {
            Some(header) => {
                table = header.trim_matches(['[', ']']).to_owned();
                kind = None;
                let above = table.rsplit_once('.');
                above.and_then(|(above, key)| field_docs(above, None, key))
            }
            None if line.is_empty() => {
                write_derived(&mut out, &derived, &table);
                None
            }
            None => line.split_once(" = ").and_then(|(key, value)| {
                if key == "kind" {
                    kind = Some(value.trim_matches('"').to_owned());
                }
                field_docs(&table, kind.as_deref(), key)
            }),
        };
        if let Some(docs) = docs {
            write_comment(&mut out, docs);
        }
        out.push_str(line);
        out.push('\n');
    }
    Ok(out)
}

/// Writes the derived sizes of a table, such as `model.position`, as commented-out keys.
fn write_derived(out: &mut String, derived: &[DerivedSize], table: &str) {
    let Some(inner) = table.strip_prefix("model") else {
        return;
    };
    let inner = inner.trim_start_matches('.');
    for size in derived.iter().filter(|size| size.table == inner) {
        let DerivedSize {
            key, value, from, ..
        } = size;
        if inner.is_empty()
            && let Ok(docs) = <ModelConfig as documented::DocumentedFields>::get_field_docs(key)
        {
            write_comment(out, docs);
        }
        out.push_str(&format!("#{key} = {value} # derived: {from}\n"));
    }
}

fn write_comment(out: &mut String, docs: &str) {
    for line in docs.lines() {
        out.push_str("# ");
        out.push_str(line);
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::presets;
    use crate::config::run_config::from_toml;

    #[test]
    fn derived_sizes_are_comments_and_follow_an_edited_file() {
        let config = presets::run("char-nano").expect("a preset");
        let text = to_toml(&config).expect("TOML");
        for line in [
            "\n#kv_heads = 4 # derived: heads\n",
            "\n#head_dim = 32 # derived: d_model / heads\n",
            "\n#width = 512 # derived: 4 * d_model\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let mut expected = config;
        expected.model.d_model = 256;
        let edited = text.replace("d_model = 128\n", "d_model = 256\n");
        assert_eq!(from_toml(&edited).expect("TOML"), expected);
        let again = to_toml(&expected).expect("TOML");
        assert!(again.contains("\n#width = 1024 # derived"), "{again}");
        let set = text.replace("#kv_heads = 4", "kv_heads = 2");
        let set = from_toml(&set).expect("TOML");
        assert_eq!(set.model.kv_heads, Some(2));
    }
}
